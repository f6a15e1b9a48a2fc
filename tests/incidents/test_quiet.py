"""Native packages that have nothing to do with any rule: under the guard nothing may differ.

Each alone, and in pairs or fours, some of them drawn with a fixed seed; in `strict`, every package
watched by a rule that asks for nothing: the same output, the same exit status, the same files
mapped, not one finding. That two of them bring a library under names of their own (libgomp,
FFmpeg) is recorded, no more.

So with torch; and with tensorflow, whose libraries do take names, but a rule knows of it.
"""

from __future__ import annotations

import itertools
import random

import pytest

from .marks import ON_LINUX
from .pins import OURS, TENSORFLOW, TORCH

pytestmark = ON_LINUX

# Import name -> (requirement, something that runs native code and prints).
PACKAGES = {
    "numpy": ("numpy==2.4.6", "numpy.linalg.inv(numpy.eye(3) * 2).sum()"),
    "scipy.linalg": ("scipy==1.17.1", "scipy.linalg.det([[1, 2], [3, 4]])"),
    "pandas": ("pandas==3.1.1", "pandas.Series([1, 2, 3]).rolling(2).sum().tolist()"),
    "pyarrow": ("pyarrow==26.0.1", "pyarrow.array([1, None, 3]).null_count"),
    "sklearn.tree": ("scikit-learn==1.9.1", "sklearn.tree.DecisionTreeClassifier()"),
    "cv2": ("opencv-python-headless==5.0.0.93", "cv2.getVersionMajor() > 0"),
    "xgboost": ("xgboost-cpu==3.2.0", "xgboost.build_info()['DEBUG']"),
    "onnxruntime": ("onnxruntime==1.31.1", "onnxruntime.get_device()"),
    "av": ("av==18.1.0", "sorted(av.library_versions)"),
    "lightgbm": ("lightgbm==4.7.0", "lightgbm.LGBMRegressor(n_estimators=2)"),
    "numba": ("numba==0.68.1", "numba.njit(lambda x: x + 1)(1)"),
    "PIL.Image": ("pillow==13.0.0", "PIL.Image.new('L', (4, 4)).resize((2, 2)).size"),
    "matplotlib.ft2font": ("matplotlib==3.11.2", "matplotlib.ft2font.__freetype_version__"),
    "lxml.etree": ("lxml==6.1.3", "lxml.etree.fromstring('<a><b/></a>')[0].tag"),
    "shapely": ("shapely==2.2.0", "shapely.Point(0, 0).buffer(1).is_valid"),
    "h5py": ("h5py==3.16.0", "h5py.version.hdf5_version"),
    "faiss": ("faiss-cpu==1.15.1", "faiss.IndexFlatL2(4).ntotal"),
    "tokenizers": ("tokenizers==0.23.3", "tokenizers.Tokenizer(tokenizers.models.BPE())"),
    "sentencepiece": ("sentencepiece==0.2.3", "sentencepiece.SentencePieceProcessor()"),
    "grpc": ("grpcio==1.85.1", "grpc.insecure_channel('localhost:1').close()"),
    "zmq": ("pyzmq==27.3.0", "zmq.Context().socket(zmq.PAIR).close()"),
    "psutil": ("psutil==7.2.2", "psutil.Process().num_threads() > 0"),
    "cffi": ("cffi==2.1.1", "cffi.FFI().new('int[4]', [1, 2, 3, 4])[3]"),
    "cryptography.fernet": (
        "cryptography==50.0.2",
        "len(cryptography.fernet.Fernet.generate_key())",
    ),
    "kiwisolver": (
        "kiwisolver==1.5.1",
        "kiwisolver.Solver().addConstraint(kiwisolver.Variable('x') >= 1)",
    ),
    "contourpy": ("contourpy==1.3.3", "contourpy.contour_generator(z=[[0, 1], [2, 3]]).lines(1.5)"),
    "numexpr": ("numexpr==2.14.2", "numexpr.evaluate('2 * 3')"),
    "bottleneck": ("Bottleneck==1.6.0", "bottleneck.move_sum([1.0, 2.0, 3.0], 2)"),
    "skimage.filters": (
        "scikit-image==0.26.0",
        "skimage.filters.threshold_otsu(skimage.util.img_as_float([[0.0, 1.0]]))",
    ),
    "soundfile": ("soundfile==0.14.0", "soundfile.__libsndfile_version__"),
    "mujoco": ("mujoco==4.0.0", "mujoco.MjModel.from_xml_string('<mujoco/>').nq"),
    "duckdb": ("duckdb==2.0.0", "duckdb.sql('select 42').fetchall()"),
    "polars": ("polars==2.1.0", "polars.Series([1, 2, 3]).sum()"),
    "catboost": ("catboost==1.2.10", "catboost.CatBoostRegressor(iterations=1).get_params()"),
    "jax": ("jax==0.10.2", "jax.numpy.arange(4).sum().item()"),
    "zstandard": ("zstandard==0.25.0", "zstandard.decompress(zstandard.compress(b'abc'))"),
    "lz4.frame": ("lz4==4.4.5", "lz4.frame.decompress(lz4.frame.compress(b'abc'))"),
    "safetensors": ("safetensors==0.8.0", "safetensors.serialize({})"),
    "onnx": ("onnx==1.23.2", "onnx.defs.onnx_opset_version() > 0"),
    "tiktoken": ("tiktoken==0.14.0", "tiktoken.list_encoding_names()[:2]"),
}
# The environments of `test_torch_extension` and `test_tensorflow_triton`, built once for both.
WITH_TORCH = {
    "torch": "torch.linalg.inv(torch.eye(3) * 2).sum(), torch.ones(3).numpy().sum()",
    "torch._dynamo": "torch.jit.script(torch.nn.Linear(2, 1)).weight.shape",
    "numpy": "numpy.fft.fft([1, 2, 3]).sum()",
    "markupsafe._speedups": "markupsafe.escape('<b>')",
    "sympy": "sympy.factorint(2**31 - 2)",
}
AROUND_TORCH = ("numpy", "markupsafe._speedups", "sympy")
# Packages that have a library of the same name, before auditwheel has marked it.
SHARED = (
    *(("numpy", "scipy.linalg"), ("scipy.linalg", "cv2"), ("scipy.linalg", "faiss")),
    *(("cv2", "faiss"), ("cv2", "av"), ("cv2", "PIL.Image"), ("av", "PIL.Image")),
)
# All of these have libgomp: each comes first once, and the three others behind it.
WITH_OPENMP = (
    ("sklearn.tree", "xgboost", "faiss", "sentencepiece"),
    ("xgboost", "sklearn.tree", "sentencepiece", "faiss"),
    ("faiss", "sentencepiece", "sklearn.tree", "xgboost"),
    ("sentencepiece", "faiss", "xgboost", "sklearn.tree"),
)
PAIRS = 20
SEED = 20261120

GUARD = """
import cudaguard
cudaguard.install("strict", rules=[cudaguard.Rule("QUIET", {names!r}, "asks for nothing")])
"""
LOOK = """
import re
def shown(value):
    return re.sub("0x[0-9a-f]+", "0x", str(value))
"""
MAPPED = """
with open("/proc/self/maps") as maps:
    files = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
print(*sorted(files), sep="\\n")
"""
PROOF = """
status = cudaguard.status()
assert status.findings == (), status.findings
arrived = {event.name for event in status.events if event.kind == "import"}
assert arrived & set(NAMES), arrived
"""


def pairs():
    """Ordered pairs: those that share a library, and some drawn, the same in every run.

    All 1,560 were run once, on 2026-11-23.
    """
    shared = [pair for one, other in SHARED for pair in ((one, other), (other, one))]
    openmp = set(itertools.permutations(WITH_OPENMP[0], 2))
    others = sorted(set(itertools.permutations(PACKAGES, 2)) - {*shared, *openmp})
    return [*shared, *random.Random(SEED).sample(others, PAIRS)]


@pytest.fixture
def nothing_differs(child, root):
    """Runs the same program with the guard and without it; nothing may differ."""

    def nothing_differs(python, uses, **variables):
        names = tuple(uses)
        use = "".join(f"import {name}\nprint(shown(({code})))\n" for name, code in uses.items())
        code = f"NAMES = {names!r}\n{LOOK}{use}{MAPPED}"
        env = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", **variables}
        plain = child.command(python, "-c", f"pass\n{code}", env=env, check=False)
        guarded = child.command(
            python, "-c", f"{GUARD.format(names=names)}{code}{PROOF}", env=env, check=False
        )
        assert plain.returncode == 0, plain.stderr
        assert guarded.returncode == plain.returncode, guarded.stderr
        assert guarded.stdout == plain.stdout
        assert guarded.stderr == plain.stderr

    return nothing_differs


@pytest.mark.parametrize(
    "names",
    [*((name,) for name in PACKAGES), *pairs(), *WITH_OPENMP],
    ids=lambda names: "-".join(names),
)
def test_nothing_differs_under_the_guard(child, cached_environment, nothing_differs, names):
    pins = [requirement for requirement, _ in PACKAGES.values()]
    python = cached_environment(*pins, *OURS)
    nothing_differs(
        python, {name: PACKAGES[name][1] for name in names}, MPLCONFIGDIR=str(child.folder)
    )


@pytest.mark.parametrize(
    "names",
    [
        *((name,) for name in WITH_TORCH),
        ("torch", *AROUND_TORCH, "torch._dynamo"),
        (*AROUND_TORCH, "torch"),
    ],
    ids=lambda names: "-".join(names),
)
def test_nothing_differs_with_torch(cached_environment, nothing_differs, names):
    python = cached_environment(*TORCH)
    nothing_differs(python, {name: WITH_TORCH[name] for name in names})


ON_TENSORFLOW = """
import cudaguard
cudaguard.install({mode!r}, disable={disable!r})
import tensorflow as tf
print(float(tf.reduce_sum(tf.matmul(tf.ones((8, 8)), tf.ones((8, 8))))))
status = cudaguard.status()
print(*(finding.id for finding in status.findings))
from cudaguard.core.lifecycle import activation
print(*(f"{{r.rule}} {{r.verb}} {{r.subject}}" for r in activation.core.reporter.repairs))
"""


@pytest.fixture
def tensorflow(child, cached_environment, root):
    """Runs tensorflow beside a triton of some version; None is that of the environment."""

    def tensorflow(mode, triton=None, disable=()):
        python = cached_environment(*TENSORFLOW)
        path = [str(root)]
        if triton is not None:  # its metadata are found before the real ones
            path.insert(0, str(child.folder / "older"))
            child.distribution("triton", triton, at="older")
        env = {
            "PYTHONPATH": ":".join(path),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        code = ON_TENSORFLOW.format(mode=mode, disable=disable)
        done = child.command(python, "-c", code, env=env, timeout=300)
        assert done.stdout.startswith("512.0\n")
        return done.stdout.splitlines()[1:], done.stderr

    return tensorflow


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_tensorflow_is_repaired_without_a_word(tensorflow, mode):
    lines, errors = tensorflow(mode)
    assert lines == ["", "CG002 load_local extension modules of tensorflow"]
    assert "cudaguard" not in errors.lower()


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_tensorflow_is_let_be_where_there_is_no_triton_to_harm(tensorflow, mode):
    """The rule knows that; its libraries take names all the same."""
    lines, errors = tensorflow(mode, triton="3.6.0")
    assert lines == ["", ""]
    assert "cudaguard" not in errors.lower()


def test_others_are_kept_apart_from_tensorflow_where_no_rule_knows_it(tensorflow):
    (found, repaired), errors = tensorflow("fix", disable=("CG002",))
    assert found == ""
    assert "CG812 bind_own PIL._imaging" in repaired
    assert "cudaguard" not in errors.lower()
