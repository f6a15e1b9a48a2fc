"""Extensions compiled against torch that cannot be loaded, each told in its own words.

The faults are those of public reports; the loader says "undefined symbol" or "cannot open shared
object file" to all of them, and nothing at all of a truncated file. The first is the symbol of
fundamentalvision/Deformable-DETR#225, made as it comes about: the C++ half calls the CUDA half, and
the object file of the .cu file is not linked.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from ..features.extensions.conftest import Builder
from ..features.extensions.test_accuracy import JUDGE, judged_rightly
from ..processes import where
from .marks import WITH_COMPILER
from .pins import TORCH

pytestmark = WITH_COMPILER

DETR = "_Z27ms_deform_attn_cuda_forwardRKN2at6TensorES2_S2_S2_S2_i"
SOURCE = """
#include <torch/extension.h>
using T = at::Tensor;
#if defined(HALF)
T ms_deform_attn_cuda_forward(const T &, const T &, const T &, const T &, const T &, const int);
T f(T a) { return ms_deform_attn_cuda_forward(a, a, a, a, a, 1); }
#elif defined(GONE)
namespace at { T vanished(const T &); }
T f(T a) { return at::vanished(a); }
#elif defined(CHANGED)
namespace at::native { T relu(const T &, int, int); }
T f(T a) { return at::native::relu(a, 1, 2); }
#else
T f(T a) { return a + 1; }
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
"""
BUILD = """
import sys
from torch.utils.cpp_extension import load
name, folder, *flags = sys.argv[1:]
load(name, [f"{folder}/../source.cpp"], build_directory=folder,
     extra_cflags=[flag for flag in flags if flag[:2] == "-D"],
     extra_ldflags=[flag for flag in flags if flag[:2] != "-D"])
"""
IMPORT = """
import sys
sys.path.insert(0, sys.argv[2])
import cudaguard
cudaguard.install(sys.argv[3])
if sys.argv[4] == "torch":
    import torch
try:
    module = __import__(sys.argv[1])
    import torch
    print("works", module.f(torch.ones(2)).tolist())
except ImportError as error:
    print(type(error).__name__, error.__cause__ is not None, error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("preflight")


@pytest.fixture
def python(cached_environment):
    return cached_environment(*TORCH)


@pytest.fixture
def extension(folder, python, path_to_build):
    """Returns an extension as torch builds it on the fly, compiled once for all tests."""

    def extension(name, *flags):
        built = folder / name / f"{name}.so"
        if not built.exists():
            built.parent.mkdir()
            (folder / "source.cpp").write_text(SOURCE, encoding="utf-8")
            path = f"{python.parent}{os.pathsep}{path_to_build}"
            command = [python, "-c", BUILD, name, built.parent, *flags]
            subprocess.run(
                [str(part) for part in command], capture_output=True, check=False,
                env={**os.environ, "PATH": path, "CUDAGUARD": "off"}, timeout=600,
            )  # fmt: skip  # torch's `load` imports what it has built, and fails where it cannot
            assert built.exists()
        return built

    return extension


@pytest.fixture
def import_it(child, python, root):
    def import_it(built, mode="fix", first="torch", check=True):
        return child.python(
            IMPORT, built.stem, built.parent, mode, first, python=str(python),
            env={"PYTHONPATH": str(root)}, check=check,
        ).stdout.strip()  # fmt: skip

    return import_it


@pytest.fixture
def check(child, python, root):
    """Returns what `check_extension` says, with torch imported, given, or neither."""

    def check(built, how):
        code = f"""
            import sys
            {"import torch" if how == "imported" else ""}
            import cudaguard
            given = ("torch",) if {how == "given"} else None
            found = cudaguard.check_extension(sys.argv[1], assume_imported=given)
            print(found.ok, found.cause, found.missing_symbols[:1], found.message, sep="|")
            assert ("torch" in sys.modules) is {how == "imported"}
            """
        env = {"PYTHONPATH": str(root)}
        return child.python(code, built, python=str(python), env=env).stdout.strip().split("|")

    return check


FAULTS = {
    "half": (("-DHALF",), DETR, "own-source-missing",
             "half.so was probably linked without its CUDA object file: no library of torch, "),
    "oldabi": (("-D_GLIBCXX_USE_CXX11_ABI=0",), "torchInternalAssertFailEPKcS2_jS2_RKSs",
               "cxx11-abi",
               "oldabi.so was built with _GLIBCXX_USE_CXX11_ABI=0, but torch 2.13.0"),
    "gone": (("-DGONE",), "vanished", "other-torch", "has no `at::vanished("),
    "changed": (("-DCHANGED",), "_ZN2at6native4relu", "other-torch", "has no `at::native::relu("),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_undefined_symbol_is_told_by_its_cause(extension, import_it, check, fault):
    flags, symbol, cause, words = FAULTS[fault]
    built = extension(fault, *flags)
    red = import_it(built, "off")
    assert red.startswith("ImportError False ")
    assert "undefined symbol: " in red
    assert symbol in red
    green = import_it(built, "strict")
    assert green.startswith("ExtensionError True ")
    assert words in green
    assert symbol in green  # the loader's own words
    for how in ("imported", "given"):
        ok, told, symbols, _ = check(built, how)
        assert (ok, told) == ("False", cause), how
        assert symbol in symbols


def test_healthy_extension_loads_and_is_told_to(extension, import_it, check):
    built = extension("healthy")
    assert import_it(built, "strict") == "works [2.0, 2.0]"
    assert check(built, "imported")[:2] == ["True", "None"]
    assert check(built, "given")[:2] == ["True", "None"]


def test_extension_before_torch(extension, import_it, check):
    built = extension("healthy")
    assert "libc10.so: cannot open shared object file" in import_it(built, "off", first="")
    assert import_it(built, "strict", first="") == "works [2.0, 2.0]"
    assert import_it(built, "warn", first="").startswith("ImportError False libc10.so")
    assert check(built, "neither")[:2] == ["False", "torch-not-imported"]


def test_extension_for_a_cuda_torch(extension, import_it, check, folder):
    """Its libraries are named, and nowhere: stand-ins serve to link it."""
    stubs = folder / "stubs"
    if not stubs.exists():
        stubs.mkdir()
        for name in ("libc10_cuda.so", "libcudart.so.12"):
            Builder(stubs).library(name)
    link = ("-Wl,--no-as-needed", f"-L{stubs}")
    gpu = extension("gpu", *link, "-l:libc10_cuda.so")
    assert "libc10_cuda.so: cannot open shared object file" in import_it(gpu, "off")
    green = import_it(gpu, "strict")
    assert "gpu.so needs libc10_cuda.so, but torch" in green
    assert "is CPU-only" in green
    assert check(gpu, "neither")[1] == "torch-flavor"  # to import torch would not help
    runtime = extension("runtime", *link, "-l:libcudart.so.12")
    assert "needs libcudart.so.12, but torch" in import_it(runtime, "strict")


def test_truncated_extension(extension, import_it, child, python, root, tmp_path):
    """What the loader maps comes first in the file, before what is for debuggers."""
    whole = extension("healthy").read_bytes()
    for part in (0.02, 0.1, 0.3):
        short = tmp_path / str(part) / "short.so"
        short.parent.mkdir()
        short.write_bytes(whole[: int(len(whole) * part)])
        assert import_it(short, "fix").startswith("ExtensionError False short.so is truncated")
    env = {"PYTHONPATH": f"{root}{os.pathsep}{short.parent}"}
    code = "import torch, short"
    assert child.python(code, python=str(python), env=env, check=False).returncode == -7  # SIGBUS


TRY = """
import sys
import cudaguard; cudaguard.install("strict")
import torch
def load(names):
    for name in names:
        try:
            torch.ops.load_library(name)  # here
            return name
        except Exception:
            if name == names[-1]:
                raise
print(load(sys.argv[1:]))
"""


def test_variants_of_a_library_are_tried_in_peace(child, python, root, tmp_path):
    """As torchcodec tries its own, one for each release of FFmpeg."""
    (torch,) = (python.parent.parent / "lib").glob("python3*/site-packages/torch/lib")
    link = ("-Wl,--no-as-needed", f"-L{torch}", "-lc10")
    for name, body in (("bad", "int absent_f(void); int f(void) { return absent_f(); }"),
                       ("good", "int f(void) { return 1; }")):  # fmt: skip
        Builder(tmp_path)(f"{name}.so", body, *link)
    program = child.write("program.py", TRY)
    env = {"PYTHONPATH": str(root)}
    good, bad = tmp_path / "good.so", tmp_path / "bad.so"
    done = child.command(python, program, bad, good, env=env)
    assert (done.stdout.strip(), "CG841" in done.stderr) == (str(good), False)
    done = child.command(python, program, bad, env=env, check=False)
    place, told = where(program, "here"), "bad.so was probably linked without"
    assert f"{place}: ExtensionWarning: [CG841] {told}" in done.stderr
    assert "\nOSError: " in done.stderr.partition(f"{place}: ")[0]


@pytest.mark.parametrize("preload", ["", "torch"])
def test_no_false_alarm_and_no_miss_in_the_whole_environment(child, python, root, capsys, preload):
    (place,) = (python.parent.parent / "lib").glob("python3*")
    names = [preload] if preload else []
    env = {"PYTHONPATH": str(root)}
    done = child.python(JUDGE, place, *names, python=str(python), env=env, timeout=900)
    assert judged_rightly(done.stdout.splitlines(), place, capsys) > 40
