"""Two files of one library, with the real ones: those of NVIDIA and Intel as PyPI has them.

What each needs is visible without a GPU: which release answers, where its parts are taken from,
that a function is missing, and that the process is ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from ..hooks.conftest import compiler as compiler
from ..kept import PIP, run_python
from .marks import ON_LINUX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = ON_LINUX

CUDNN = "nvidia/cudnn/lib"
GUARD = "import ctypes, cudaguard\ncudaguard.install()\n"
SAID = """
import json
for found in cudaguard.status().findings: print("finding", json.dumps(found.to_dict()))
"""
OPEN = "import ctypes\nlibrary = ctypes.CDLL({!r})\n"


@pytest.fixture(scope="session")
def wheel(kept) -> Callable[[str], Path]:
    """Returns a folder with all that is in one wheel, as it lies there."""

    def unpack(pin: str, folder: Path) -> None:
        download = (*PIP, "download", "--no-deps", "--dest", folder, pin)
        run_python(sys.executable, *download)
        (file,) = folder.glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder)
        file.unlink()

    return lambda pin: kept.folder(f"wheel-{pin}", pin, lambda folder: unpack(pin, folder))


@pytest.fixture
def run(child, root):
    """Runs a program with packages written for the test; returns what it left."""

    def run(*code: str, site: Path | None = None, **variables: str):
        path = [str(root), str(child.folder), *([str(site)] if site else [])]
        env = {"PYTHONPATH": os.pathsep.join(path), **variables}
        program = child.write("program.py", "\n".join(code))
        return child.command(sys.executable, program, env=env, check=False)

    return run


def findings(done) -> list[dict]:
    lines = [line for line in done.stdout.splitlines() if line.startswith("finding ")]
    return [json.loads(line.partition(" ")[2]) for line in lines]


def rule_of(text: str) -> str:
    """Return the rule that a message proposes."""
    lines = text.partition("[[rules]]")[2].splitlines()[1:]
    rule = [line for line in lines if line.startswith("      ") and " = " in line]
    return "\n".join(("[[rules]]", *rule))


# --- nvJitLink and NCCL: functions of later releases are missing ---------------------------------

NVJITLINK = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
NCCL = "nvidia/nccl/lib/libnccl.so.2"
# The function that libcusparse of CUDA 12.9 calls has that in its name.
LINKER = """
import ctypes
major, minor = ctypes.c_uint(), ctypes.c_uint()
linker = ctypes.CDLL("libnvJitLink.so.12")
linker.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
print(major.value, minor.value, hasattr(linker, "__nvJitLinkComplete_12_9"))
"""
COLLECTIVES = """
import ctypes
version = ctypes.c_int()
ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
print(version.value)
"""
PAIRS = {
    "nvJitLink": (
        ("nvidia-nvjitlink-cu12==12.4.127", "nvidia-nvjitlink-cu12==12.9.86"),
        (NVJITLINK, LINKER, "12 4 False\n", "12 9 True\n"),
        ("nvJitLink", "12.4.127", "libnvJitLink.so.12"),
    ),
    "NCCL": (
        ("nvidia-nccl-cu12==2.19.3", "nvidia-nccl-cu12==2.20.5"),
        (NCCL, COLLECTIVES, "21903\n", "22005\n"),
        ("NCCL", "2.19.3", "libnccl.so.2"),
    ),
}
OLDER_FIRST = "Two files of {} are loaded; the older, {}, is used as {}."


@pytest.fixture(params=PAIRS)
def pair(request, child, wheel):
    """Two packages that each open a copy of their own: what asks, what it gets, what is said."""
    pins, (file, ask, of_older, of_newer), names = PAIRS[request.param]
    for name, pin in zip(("older", "newer"), pins):
        child.write(f"{name}.py", OPEN.format(str(wheel(pin) / file)))
    return ask, of_older, of_newer, OLDER_FIRST.format(*names), wheel(pins[1])


def test_older_one_first_is_found_and_the_rule_cures(run, pair, child):
    ask, of_older, of_newer, what, site = pair
    for order, answer in (("older, newer", of_older), ("newer, older", of_newer)):
        done = run(f"import {order}", ask, site=site)
        assert (done.stdout, done.stderr) == (answer, "")
    done = run(GUARD, "import older, newer", ask, SAID, site=site)
    assert done.stdout.startswith(of_older)
    (found,) = findings(done)
    assert (found["id"], found["severity"], found["what"]) == ("CG842", "warning", what)
    assert f"was loaded by older ({child.folder}/older.py:2)" in found["evidence"][0]
    assert f"was loaded by newer ({child.folder}/newer.py:2)" in found["evidence"][1]
    assert done.stderr.count("Warning: [CG842]") == 1
    child.write("cudaguard.toml", rule_of(found["remedy"]))
    cured = run(GUARD, "import older, newer", ask, site=site, CUDAGUARD_CONFIG="cudaguard.toml")
    assert (cured.stdout, cured.stderr) == (of_newer, "")


def test_torch_with_an_older_nccl_is_told_of_before_it_fails(child, root, cuda_torch, wheel):
    """torch opens its own copy by its path, and is served by the first one all the same."""
    other = wheel("nvidia-nccl-cu12==2.20.5") / NCCL
    child.write("other.py", OPEN.format(str(other)))
    code = (
        "import other\ntry:\n    import torch\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    env = {"PYTHONPATH": f"{root}{os.pathsep}{child.folder}"}
    plain = child.command(cuda_torch, "-c", code, env=env)
    assert plain.stdout.startswith("ImportError ")
    assert "libtorch_cuda.so: undefined symbol: nccl" in plain.stdout
    assert plain.stderr == ""
    done = child.command(cuda_torch, "-c", GUARD + code + SAID, env=env)
    assert f"gets an older libnccl.so.2 without them: {other}" in done.stdout
    first, *_ = findings(done)
    assert (first["id"], first["severity"]) == ("CG842", "warning")
    assert first["what"].startswith("Two files of NCCL are loaded; the older, 2.20")
    assert f"was loaded by other ({child.folder}/other.py:2)" in first["evidence"][0]
    assert "loaded by torch" in first["evidence"][1]
    explain = f"import cudaguard; print(cudaguard.explain({plain.stdout!r}).id)"
    assert child.command(cuda_torch, "-c", explain, env=env).stdout == "CG842\n"


# --- cuDNN: its parts come from wherever LD_LIBRARY_PATH leads -----------------------------------

USE = """
import user
handle = user.ctypes.c_void_p()
user.library.cudnnGetVersion.restype = user.ctypes.c_size_t
print("version", user.library.cudnnGetVersion(), flush=True)
user.library.cudnnCreate(user.ctypes.byref(handle))
with open("/proc/self/maps") as maps:
    files = {line.split(maxsplit=5)[5].strip() for line in maps if "libcudnn" in line}
import os
print("folders", len({os.path.dirname(file) for file in files}), len(files))
"""


@pytest.fixture
def cudnn(child, wheel):
    """A package that opens cuDNN 9.3, and a variable that leads to 9.1."""
    new, old = wheel("nvidia-cudnn-cu12==9.3.0.75"), wheel("nvidia-cudnn-cu12==9.1.0.70")
    child.write("user.py", OPEN.format(str(new / CUDNN / "libcudnn.so.9")))
    return {"site": new, "LD_LIBRARY_PATH": str(old / CUDNN)}


def test_cudnn_ends_the_process_where_an_older_one_stands_in_the_variable(run, cudnn):
    done = run(USE, **cudnn)
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "version 90100\n")
    assert "Could not load symbol cudnnGetLibConfig" in done.stderr
    done = run(USE, site=cudnn["site"])
    assert done.returncode == 0
    assert done.stdout.startswith("version 90300\nfolders 1 ")


def test_cudnn_is_told_of_before_that_and_the_rule_cures(run, cudnn, child):
    done = run(GUARD, USE, **cudnn)
    assert done.returncode == -signal.SIGABRT
    warning, _, _ = done.stderr.partition("Could not load symbol")
    assert "ImportOrderWarning: [CG843] libcudnn.so.9 would open an older file of cuDNN" in warning
    assert "(9.1.0.70) will be found first, as its folder is in LD_LIBRARY_PATH" in done.stderr
    assert f"without {cudnn['LD_LIBRARY_PATH']} in LD_LIBRARY_PATH" in done.stderr
    child.write("cudaguard.toml", rule_of(done.stderr))
    done = run(GUARD, USE, SAID, CUDAGUARD_CONFIG="cudaguard.toml", **cudnn)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "version 90300\nfolders 1 8\n"


TORCH = """
import torch
print(torch._C._cudnn.getRuntimeVersion())
"""


def test_torch_takes_parts_of_another_cudnn(child, root, cuda_torch, wheel):
    """Seen with torch 2.6.0, 2.11.0 and 2.13.0; rule CG035 has them all from one folder."""

    def run(*code: str, **variables: str):
        env = {"PYTHONPATH": str(root), **variables}
        return child.command(cuda_torch, "-c", "\n".join(code), env=env)

    other = {"LD_LIBRARY_PATH": str(wheel("nvidia-cudnn-cu12==9.3.0.75") / CUDNN)}
    own = run(TORCH).stdout
    assert run(GUARD, TORCH, SAID).stdout == own
    assert run(TORCH, **other).stdout == "(9, 3, 0)\n" != own
    done = run(GUARD, TORCH, SAID, CUDAGUARD_RULES="-CG035", **other)
    assert done.stdout.startswith("(9, 3, 0)\n")
    assert findings(done)[0]["id"] == "CG843"
    assert done.stderr.count("Warning: [CG84") == 1
    done = run(GUARD, TORCH, SAID, **other)
    assert (done.stdout, done.stderr) == (own, "")


# --- LLVM's OpenMP: the second one to start ends the process -------------------------------------

START = "import one, two\nprint(one.library.omp_get_max_threads() > 0, flush=True)\n"
START += "print(two.library.omp_get_max_threads() > 0)\n"


@pytest.mark.parametrize("is_linked", [False, True])
def test_two_of_intels_openmp(run, child, wheel, is_linked):
    (library,) = wheel("intel-openmp==2026.2.0").rglob("libiomp5.so")
    copy = child.folder / "copy" / library.name
    copy.parent.mkdir()
    (os.symlink if is_linked else shutil.copy)(library, copy)
    child.write("one.py", OPEN.format(str(library)))
    child.write("two.py", OPEN.format(str(copy)))
    plain, guarded = run(START), run(GUARD, START)
    assert guarded.stdout == plain.stdout
    if is_linked:  # the remedy that is proposed
        assert (plain.returncode, guarded.returncode) == (0, 0)
        assert (plain.stdout, guarded.stderr) == ("True\nTrue\n", "")
        return
    assert (plain.returncode, guarded.returncode) == (-signal.SIGABRT, -signal.SIGABRT)
    assert "OMP: Error #15" in plain.stderr
    assert "[CG842]" not in plain.stderr
    warning, _, _ = guarded.stderr.partition("OMP: Error #15: Initializing")
    assert "ImportOrderWarning: [CG842] Two files of LLVM's OpenMP are loaded" in warning


# --- a library that is installed as a wheel, and not found (CG046) ------------------------------

ENGINE = """
int cudaRuntimeGetVersion(int *version);
int engine(void) { int version = 0; cudaRuntimeGetVersion(&version); return version; }
"""
ENGINE_PACKAGE = """
import ctypes, os
engine = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libengine.so")).engine()
"""


def test_library_that_needs_the_runtime_of_a_wheel(run, wheel, child, compiler):
    """As transformer_engine, which opens its own library by its path before torch is there."""
    site = wheel("nvidia-cuda-runtime-cu12==12.4.127")
    runtime = site / "nvidia/cuda_runtime/lib/libcudart.so.12"
    compiler.put(child.folder / "engine/libengine.so", ENGINE, str(runtime))
    child.write("engine/__init__.py", ENGINE_PACKAGE)
    red = run("import engine; print(engine.engine)", site=site)
    assert "OSError: libcudart.so.12: cannot open shared object file" in red.stderr
    green = run(GUARD, "import engine; print(engine.engine)", site=site)
    assert (green.stdout, green.stderr) == ("12040\n", "")


NEEDING = "int {0}(void *, int, const char **); int answer(void) {{ return {0}(0, 0, 0) != 0; }}"


def test_newer_nvjitlink_serves_who_comes_first_as_well(run, wheel, child, compiler):
    """As libcusparse of a wheel, after a package that leads to CUDA 12.4's folder."""
    old = wheel("nvidia-nvjitlink-cu12==12.4.127") / "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    site = wheel("nvidia-nvjitlink-cu12==12.9.86")
    new = site / "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    requires, files = ("nvidia-nvjitlink-cu12==12.9.86",), ("libclient.so", "client.py")
    child.distribution("client", requires=requires, files=files)
    for name, release, library in (("libfirst.so", "12_4", old), ("libclient.so", "12_9", new)):
        source = NEEDING.format(f"__nvJitLinkCreate_{release}")
        flags = (str(library), f"-Wl,-rpath,{library.parent}")
        compiler.put(child.folder / name, source, *flags)
    child.write("client.py", "import ctypes\nclient = ctypes.CDLL('./libclient.so')")
    first = "import ctypes\nfirst = ctypes.CDLL('./libfirst.so')\nimport client"
    ask = "print(first.answer(), client.client.answer())"
    red = run(first, ask, site=site)
    assert "undefined symbol: __nvJitLinkCreate_12_9" in red.stderr
    green = run(GUARD, first, ask, site=site)
    assert (green.stdout, green.stderr) == ("1 1\n", "")
