"""SAM2's video predictor with its image encoder compiled, beside the same one that is not.

``python sam2_video.py DEVICE HOW``: tiny, with random weights, on a video of the program's own. HOW
is ``bare``, ``clone`` (by ``graph_safe``), or ``rule`` (CG028). Prints a line of JSON.

On a CPU there are no CUDA graphs: another compiler stands in inductor's place, which writes the
results as those do, if it is asked for them.
"""

import importlib.util
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cudaguard
from cudaguard.features.cuda_graphs.functions import uses_graphs

device, how = sys.argv[1:]
if torch.version.cuda is None:
    # torchvision there may be one that was built for CUDA: this torch has none of its operators.
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

SIZE, FRAMES = 128, 6  # what is replayed comes with the third
IS_OLD = importlib.util.find_spec("sam2_configs") is not None
CONFIG = "sam2_hiera_t.yaml" if IS_OLD else "configs/sam2/sam2_hiera_t.yaml"
# The size is not the one that newer code fills its cache for. Random weights find no object, and
# would hide all the rest by that. Few blocks, as each takes a second to compile.
OVERRIDES = [
    f"++model.image_size={SIZE}",
    "++model.image_encoder.trunk.stages=[1,1,2,1]",
    "++model.image_encoder.trunk.global_att_blocks=[3]",
    *(f"++model.{name}=false"
      for name in ("pred_obj_scores", "pred_obj_scores_mlp", "fixed_no_obj_ptr")),
]  # fmt: skip
CLOSE = 0.02  # of the masks' standard deviation


class Pool:
    """Writes results to one memory, in which nothing else outlives a call: so do CUDA graphs.

    It stands in the place of ``torch._inductor.compile_fx.compile_fx``.
    """

    def __init__(self):
        self.memory = torch.zeros(1 << 24, dtype=torch.uint8)
        self.graphs = 0

    def __call__(self, graph, _inputs, config_patches=None, **_):
        if not config_patches["triton.cudagraphs"]:
            return graph.forward
        self.graphs += 1

        def run(*arguments):
            results = graph.forward(*arguments)
            self.memory.zero_()  # where a graph has its intermediate results, too
            end = 0
            placed = []
            for result in results:
                size = result.element_size()
                place = torch.empty(0, dtype=result.dtype).set_(
                    self.memory.untyped_storage(), end // size, result.shape, result.stride()
                )
                placed.append(place.copy_(result))
                end += -(-result.untyped_storage().nbytes() // 64) * 64
            return placed

        return run


def film(folder):
    """A disc that moves, as JPEG files."""
    y, x = np.mgrid[: SIZE * 3 // 4, :SIZE]
    for number in range(FRAMES):
        disc = (x - 40 - 6 * number) ** 2 + (y - 50) ** 2 < 400
        colors = ((2 * x + 20 * number) % 256, 3 * y % 256, 255 * disc)
        Image.fromarray(np.stack(colors, -1).astype("uint8")).save(folder / f"{number}.jpg")


def build(*more):
    from sam2.build_sam import build_sam2_video_predictor

    torch.manual_seed(0)
    overrides = [*OVERRIDES, *more]
    return build_sam2_video_predictor(
        CONFIG, device=device, hydra_overrides_extra=overrides, apply_postprocessing=False
    )


def masks(predictor, folder):
    """Of every frame, for one object that is pointed at in the first one."""
    with torch.inference_mode():
        state = predictor.init_state(str(folder))
        where = {"points": np.array([[40, 50]], np.float32), "labels": np.array([1], np.int32)}
        predictor.add_new_points_or_box(state, frame_idx=0, obj_id=1, **where)
        return [each.float().cpu() for _, _, each in predictor.propagate_in_video(state)]


def features(predictor):
    """Of three frames, all held until the last one is there."""
    generator = torch.Generator().manual_seed(1)
    frames = [torch.rand(1, 3, SIZE, SIZE, generator=generator).to(device) for _ in range(3)]
    with torch.inference_mode():
        results = [predictor.image_encoder(frame) for frame in frames]
        assert all(each["vision_features"] is each["backbone_fpn"][-1] for each in results)
        return [each["vision_features"].float().cpu() for each in results]


def compare(make, expected):
    """Return "right", "wrong", or "refused" where torch knows of what was overwritten."""
    scale = max(float(each.std()) for each in expected)
    assert scale > 0, "they would be equal whatever happens"
    try:
        found = make()
    except RuntimeError as error:
        if "that has been overwritten" not in str(error):
            raise
        return "refused"
    assert len(found) == len(expected)
    # What is not a number is not right.
    is_close = all(float((a - b).abs().max()) <= CLOSE * scale for a, b in zip(expected, found))
    return "right" if is_close else "wrong"


def main():
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if how == "rule":
        cudaguard.install(enable=["CG028"])
    pool = Pool()
    if device == "cpu":
        from torch._inductor import compile_fx as inductor

        inductor.compile_fx = pool
    folder = Path("frames")
    folder.mkdir()
    film(folder)
    eager = build()
    expected = masks(eager, folder), features(eager)
    predictor = build("++model.compile_image_encoder=true")
    encoder = predictor.image_encoder
    if how == "clone":
        assert cudaguard.graph_safe(encoder) is encoder
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", cudaguard.CudaGuardWarning)
        found = {
            "masks": compare(lambda: masks(predictor, folder), expected[0]),
            "features": compare(lambda: features(predictor), expected[1]),
        }
    ours = [w.message for w in caught if issubclass(w.category, cudaguard.CudaGuardWarning)]
    found["uses graphs"] = uses_graphs(encoder)
    found["warned"] = sorted(str(message).splitlines()[0] for message in ours)
    told = [each for each in cudaguard.status().findings if each.severity != "info"]
    found["found"] = sorted(finding.what for finding in told)
    if device == "cpu":
        found["graphs"] = pool.graphs > 0
    print(json.dumps(found))


main()
