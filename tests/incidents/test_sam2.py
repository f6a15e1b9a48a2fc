"""SAM2's image encoder leaves tensors in the cache of its position encoding, and CUDA graphs
overwrite them: the real code, before and after its repair; tiny, with random weights.

Source: https://github.com/facebookresearch/sam2/issues/460
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from ..kept import PIP, about, run_python
from ..processes import clean_environment
from .pins import TORCH

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="decord 0.6.0, of the shared environment, exists for x86-64 Linux only",
    ),
    pytest.mark.skipif(
        sys.version_info < (3, 10), reason="SAM2 needs Python 3.10, and so does torch 2.13"
    ),
]

SHARED = (
    "hydra-core==1.3.2",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "iopath==0.1.10",
    "portalocker==4.4.2",
    "pillow==13.0.0",
    "tqdm==4.70.1",
    "pyyaml==6.0.3",
    "torchvision==0.28.0",
)
# Before and after the repair of upstream, with the name of the smallest configuration.
SAM2 = {
    "old": ("sam2==0.4.1", "sam2_hiera_t.yaml"),
    "new": ("sam2==1.1.0", "configs/sam2/sam2_hiera_t.yaml"),
}

PROGRAM = '''
import json
import sys
import types
import warnings

import cudaguard
from cudaguard.errors import CudaGuardWarning

which, config, task = sys.argv[1:]
if task == "rule":
    cudaguard.install(enable=["CG028"])
import torch

# torchvision there is one that was built for CUDA: this torch has none of its operators.
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from sam2.build_sam import build_sam2
from sam2.modeling import position_encoding

SIZE = 128


class OnTheCPU:
    """torch, with the device that the newer code fills its cache on where it sees CUDA."""

    cuda = types.SimpleNamespace(is_available=lambda: True)
    device = staticmethod(lambda name: torch.device("cpu"))

    def __getattr__(self, name):
        return getattr(torch, name)


def build(*overrides, size=SIZE):
    # Fewer blocks: dynamo takes a second for each, and what is parked lies behind them.
    trunk = ("stages=[1,1,2,1]", "global_att_blocks=[3]")
    fewer = [f"++model.image_encoder.trunk.{setting}" for setting in trunk]
    overrides = [f"++model.image_size={size}", *fewer, *overrides]
    if which == "new":
        overrides.append(f"++model.image_encoder.neck.position_encoding.image_size={size}")
        position_encoding.torch = OnTheCPU()
    torch.manual_seed(0)
    model = build_sam2(config, device="cpu", hydra_overrides_extra=overrides)
    position_encoding.torch = torch
    return model.image_encoder


torch.manual_seed(1)
FRAMES = [torch.rand(1, 3, SIZE, SIZE) for _ in range(3)]  # of a video that nobody has made
with torch.inference_mode():
    EXPECTED = [build()(frame) for frame in FRAMES]  # each by an encoder that has cached nothing


def is_right(result, expected):
    names = ("vision_pos_enc", "backbone_fpn")
    pairs = [pair for name in names for pair in zip(result[name], expected[name])]
    is_same = result["vision_features"] is result["backbone_fpn"][-1]
    return is_same and all(torch.allclose(*pair, atol=1e-4) for pair in pairs)


def encode(parked, encoder):
    """What is told of, how often it is compiled, whether the results are right."""
    made = []

    def backend(graph, inputs):
        made.append([])

        def run(*arguments, number=len(made) - 1):
            results = graph.forward(*arguments)
            made[number] = [*made[number], *results]  # kept, or their memory is used again
            return results

        return run

    torch._dynamo.reset()
    call = torch.compile(encoder.forward, backend=backend, fullgraph=True, dynamic=False)
    if parked != "bare":
        call = cudaguard.graph_safe(call, stored_tensors=parked)
    before = len(cudaguard.status().findings)
    with warnings.catch_warnings(record=True) as caught, torch.inference_mode():
        warnings.simplefilter("always")
        results = [call(frame) for frame in FRAMES]
    memory = {tensor.untyped_storage().data_ptr() for each in made for tensor in each}
    cached = encoder.neck.position_encoding.cache.values()
    ours = (warning.message for warning in caught if issubclass(warning.category, CudaGuardWarning))
    return {
        "warned": sorted(str(message).splitlines()[0] for message in ours),
        "found": sorted(f.what for f in cudaguard.status().findings[before:]),
        "graphs": len(made),
        "right": all(map(is_right, results, EXPECTED)),
        # How many of those in the cache lie in memory that a graph writes its results to?
        "in graphs": sum(tensor.untyped_storage().data_ptr() in memory for tensor in cached),
    }


if task == "rule":
    from cudaguard.features.cuda_graphs.repair.use import graph_use, how_compiled

    encoder = build("++model.compile_image_encoder=true")
    compiled = vars(encoder)["forward"]
    kept = how_compiled(compiled)
    other = torch.compile(encoder.neck.forward, mode="max-autotune", fullgraph=True)
    result = {
        "use": graph_use(compiled).is_used,
        "other": graph_use(other).is_used,
        "options": kept.pop("options"),
        "kept": kept,
    }
elif which == "new":
    result = {"size": encode("report", build()), "other": encode("report", build(size=SIZE * 2))}
else:
    result = {parked: encode(parked, build()) for parked in ("bare", "report", "copy")}
print(json.dumps(result))
'''


@pytest.fixture(scope="module")
def sam2(cached_environment, kept):
    """Returns the interpreter, and the folders that a version of SAM2 and what it needs lie in.

    Installed with the setuptools and the torch that are there, as its setup.py imports torch.
    """
    python = cached_environment(*TORCH)
    env = clean_environment(SAM2_BUILD_CUDA="0")

    def install(*packages):
        command = (*PIP, "install", "--no-deps", "--no-build-isolation", "--target")
        recipe = (about(python), TORCH, packages)
        return kept.folder(
            "sam2", recipe, lambda folder: run_python(python, *command, folder, *packages, env=env)
        )

    def get(which):
        return python, [str(install(SAM2[which][0])), str(install(*SHARED))]

    return get


@pytest.fixture
def run(sam2, child, root):
    """Runs the program on a version of SAM2; returns what it has printed."""

    def run(which, task):
        python, folders = sam2(which)
        program = child.write("program.py", PROGRAM)
        env = {"PYTHONPATH": os.pathsep.join([str(root), *folders])}
        done = child.command(python, program, which, SAM2[which][1], task, env=env, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])

    return run


PLACE = "PositionEmbeddingSine.cache[({0}, {0})] (256, {0}, {0})"


def test_old_code_parks_its_position_encoding(run):
    """One compilation more, as the cache is an argument then: what is overwritten is read."""
    ran = run("old", "parked")
    places = sorted(PLACE.format(128 // stride) for stride in (4, 8, 16, 32))
    told = [f"A compiled call stored {place}." for place in places]
    moved = [
        f"cudaguard replaced {place}, stored by a compiled call, with a copy." for place in places
    ]
    expected = {"graphs": 2, "right": True, "in graphs": 4, "warned": [], "found": []}
    assert ran["bare"] == expected
    warned = [f"[CG852] {text}" for text in told]
    assert ran["report"] == {**expected, "warned": warned, "found": told}
    assert ran["copy"] == {**expected, "found": moved, "in graphs": 0}


def test_new_code_parks_nothing_for_the_size_that_it_expects(run):
    """It fills the cache for one size only. Of frames of another one it is as before."""
    ran = run("new", "parked")
    nothing = {"graphs": 1, "right": True, "in graphs": 0, "warned": [], "found": []}
    assert ran["size"] == nothing
    # Three of the four sizes are those of images that are twice as large.
    (text,) = ran["other"]["found"]
    assert text.startswith(f"A compiled call stored {PLACE.format(4)}")
    assert ran["other"]["warned"] == [f"[CG852] {text}"]
    assert (ran["other"]["graphs"], ran["other"]["in graphs"]) == (2, 1)


@pytest.mark.parametrize("which", SAM2)
def test_rule_compiles_the_image_encoder_without_graphs(run, which):
    """It asks for mode="max-autotune", fullgraph and no dynamic shapes; all but the graphs stay."""
    ran = run(which, "rule")
    assert ran["use"] is False
    assert ran["other"] is True  # what the rule does not name
    assert ran["options"]["triton.cudagraphs"] is False
    assert ran["options"]["max_autotune"] is True
    assert ran["kept"] == {"fullgraph": True, "dynamic": False}


# --- the whole of it: a video -------------------------------------------------------------------

VIDEO = Path(__file__).resolve().parent.parent / "features" / "cuda_graphs" / "sam2_video.py"
SIZES = (4, 8, 16, 32)  # of what the encoder keeps, for images of 128 x 128


@pytest.fixture
def video(sam2, child, root):
    """Runs the video predictor of a version of SAM2 on this CPU; returns what it has printed."""

    def video(which, how):
        python, folders = sam2(which)
        env = {"PYTHONPATH": os.pathsep.join([str(root), *folders])}
        done = child.command(python, VIDEO, "cpu", how, env=env, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])

    return video


WITH_GRAPHS = {"uses graphs": True, "graphs": True}


@pytest.mark.parametrize("which", SAM2)
def test_video_without_protection_is_wrong_and_nobody_says_so(video, which):
    """Newer code as well, for images of another size than that which it fills its cache for."""
    wrong = {"masks": "wrong", "features": "wrong", "warned": [], "found": []}
    assert video(which, "bare") == {**WITH_GRAPHS, **wrong}


@pytest.mark.parametrize("which", SAM2)
def test_video_with_copies_of_the_results_is_wrong_and_it_is_told_why(video, which):
    ran = video(which, "clone")
    told = sorted(f"A compiled call stored {PLACE.format(size)}." for size in SIZES)
    assert ran.pop("found") == told
    assert ran.pop("warned") == [f"[CG852] {text}" for text in told]
    # Features are held, not parked; position encodings are no part of them.
    assert ran == {**WITH_GRAPHS, "masks": "wrong", "features": "right"}


@pytest.mark.parametrize("which", SAM2)
def test_video_with_copies_of_what_is_parked_as_well_is_right(video, which):
    ran = video(which, "copy")
    moved = "cudaguard replaced {}, stored by a compiled call, with a copy."
    assert ran.pop("found") == sorted(moved.format(PLACE.format(size)) for size in SIZES)
    assert ran == {**WITH_GRAPHS, "masks": "right", "features": "right", "warned": []}


@pytest.mark.parametrize("which", SAM2)
def test_video_by_rule_is_right(video, which):
    right = {"masks": "right", "features": "right", "warned": [], "found": []}
    assert video(which, "rule") == {"uses graphs": False, "graphs": False, **right}
