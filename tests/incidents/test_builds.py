"""Builds with the real torch.utils.cpp_extension: unguarded they hang or fail, guarded they do not.

The extension is a few lines without torch's headers, which compiles in a moment.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import time

import pytest

from ..conftest import clean_environment
from .pins import TORCH

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="torch's wheels for x86-64 Linux are used",
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
]

SOURCE = """
#include <Python.h>
{more}
static PyObject* f(PyObject*, PyObject*) {{ return PyLong_FromLong({value}); }}
static PyMethodDef methods[] = {{{{"f", f, METH_NOARGS, 0}}, {{0, 0, 0, 0}}}};
static PyModuleDef def = {{PyModuleDef_HEAD_INIT, "small", 0, -1, methods}};
PyMODINIT_FUNC PyInit_small(void) {{ return PyModule_Create(&def); }}
"""
LOAD = """
import os, sys
if "guarded" in sys.argv:
    import cudaguard
    from cudaguard.features.builds.repair import locks as build_locks
    build_locks.PATIENCE = 1
    cudaguard.install()
from torch.utils.cpp_extension import load
before = dict(os.environ)
{more}
try:
    print("answer", load("small", sources={sources!r}).f())
except (ImportError, OSError, RuntimeError) as error:
    print(type(error).__name__, error)
assert dict(os.environ) == before
if "guarded" in sys.argv:
    from cudaguard.core.lifecycle import activation
    print(*(f"{{r.rule}} {{r.subject}}" for r in activation.core.reporter.repairs), sep="\\n")
"""
OLD_STRING = "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs"  # of no torch here


class Builder:
    """Loads the extension in fresh interpreters, with and without a guard."""

    def __init__(self, child, python, root, folder):
        self.child, self.python, self.folder = child, python, folder
        self.extensions = folder / "extensions"
        self.built = self.extensions / "small"
        self.path = self.without_ninja()
        self.ninja = python.parent
        self.env = {"PYTHONPATH": str(root), "TORCH_EXTENSIONS_DIR": str(self.extensions)}
        self.write()

    def without_ninja(self):
        """A folder with links to the programs on PATH but ninja."""
        folder = self.folder / "programs"
        folder.mkdir()
        for place in os.environ["PATH"].split(os.pathsep):
            for name in os.listdir(place) if os.path.isdir(place) else ():
                if name not in ("ninja", "nvcc") and not (folder / name).is_symlink():
                    (folder / name).symlink_to(os.path.join(place, name))
        return folder

    def write(self, value=42, more=""):
        self.child.write("small.cpp", SOURCE.format(value=value, more=more))

    def program(self, more="", sources=("small.cpp",)):
        text = LOAD.format(more=more, sources=list(sources))
        path = self.folder / f"load{hashlib.md5(text.encode()).hexdigest()}.py"
        if not path.exists():  # others may be about to read it
            self.child.write(path.name, text)
        return path

    def environment(self, *, ninja=True, **variables):
        path = f"{self.ninja}{os.pathsep}{self.path}" if ninja else str(self.path)
        return {**self.env, "PATH": path, **variables}

    def load(self, guard="guarded", *, more="", sources=("small.cpp",), check=True, **how):
        env = self.environment(**how)
        program = self.program(more, sources)
        return self.child.command(self.python, program, guard, env=env, check=check, timeout=200)

    def start(self, guard="guarded", **how):
        env = clean_environment(**self.environment(**how))
        return subprocess.Popen(
            [self.python, self.program(), guard], env=env, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def compiler(self, code):
        """A C++ compiler that does something else first."""
        path = self.child.write("compiler", f'#!/bin/sh\n{code}\nexec g++ "$@"\n')
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def builder(child, cached_environment, root, tmp_path):
    return Builder(child, cached_environment(*TORCH), root, tmp_path)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_healthy_build_is_the_same_but_for_the_stamp(builder):
    assert builder.load("unguarded").stdout == "answer 42\n"
    unguarded = files(builder.built)
    shutil.rmtree(builder.built)
    done = builder.load()
    assert (done.stdout, done.stderr) == ("answer 42\n\n", "")
    guarded = files(builder.built)
    assert set(guarded) - set(unguarded) == {"cudaguard-stamp.json"}
    assert guarded["build.ninja"] == unguarded["build.ninja"]
    log = guarded[".ninja_log"]
    assert builder.load().stdout == "answer 42\n\n"
    assert builder.load("unguarded").stdout == "answer 42\n"
    assert files(builder.built)[".ninja_log"] == log  # nothing was compiled again


def test_stamp_is_listed_among_what_stays(builder):
    at_end = """
import atexit
atexit.register(lambda: print(*(t for t in cudaguard.status().changes if "stamp" in t)))
"""
    done = builder.load(more=at_end)
    path = builder.built / "cudaguard-stamp.json"
    assert f"{path}: says for which torch it was built (stays)" in done.stdout


def test_ninja_of_an_environment_that_is_not_activated(builder):
    unguarded = builder.load("unguarded", ninja=False)
    assert "RuntimeError Ninja is required to load C++ extensions" in unguarded.stdout
    done = builder.load(ninja=False)
    assert done.stdout.startswith("answer 42\nCG031 PATH with ")
    assert done.stderr == ""


def test_error_of_the_compiler_passes_and_variables_are_put_back(builder):
    builder.write(more="#error no")
    done = builder.load(ninja=False)
    assert "RuntimeError Error building extension 'small'" in done.stdout
    assert "#error no" in done.stdout


def test_killed_builder(builder):
    """Its compiler goes on without it, and is waited for; then one of eight builds."""
    slow = builder.compiler('case "$*" in *small.o*) sleep 6 ;; esac')
    killed = builder.start("unguarded", CXX=slow)
    lock = builder.built / "lock"
    wait_until(lambda: (builder.built / "build.ninja").exists() and lock.exists())
    time.sleep(1)  # ninja has been started
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert lock.exists()
    waiting = [builder.start("unguarded"), *(builder.start() for _ in range(8))]
    try:
        told = [(*process.communicate(timeout=100), process.returncode) for process in waiting[1:]]
    finally:
        os.killpg(waiting[0].pid, signal.SIGKILL)
        waiting[0].communicate()
    assert [out.partition("\n")[0] for out, *_ in told] == ["answer 42"] * 8, told
    assert sum("CG885" in err for _, err, _ in told) == 1
    assert not lock.exists()


def test_unguarded_a_killed_builder_is_waited_for(builder):
    builder.load("unguarded")
    (builder.built / "lock").touch()
    os.utime(builder.built / "lock", (1, 1))
    waiter = builder.start("unguarded")
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.communicate(timeout=20)
    os.killpg(waiter.pid, signal.SIGKILL)
    waiter.communicate()
    done = builder.load()
    assert done.stdout.startswith("answer 42\nCG032 ")
    assert "[CG885]" in done.stderr


def test_living_builder_is_waited_for(builder):
    slow = builder.compiler('case "$*" in *small.o*) sleep 12 ;; esac')
    living = builder.start("unguarded", CXX=slow)
    wait_until(lambda: (builder.built / "lock").exists())
    done = builder.load()
    assert living.communicate(timeout=60)[0] == "answer 42\n"
    assert done.stdout == "answer 42\n\n"
    assert (
        f"[CG886] This process waits for process {living.pid}, which holds the lock in"
        in done.stderr
    )


def test_truncated_module_in_the_cache(builder):
    builder.load("unguarded")
    library = builder.built / "small.so"
    library.write_bytes(library.read_bytes()[:5000])
    assert builder.load("unguarded", check=False).returncode == -signal.SIGBUS
    done = builder.load()
    assert done.stdout.startswith("answer 42\nCG031 ")
    assert done.stderr == ""
    assert builder.load("unguarded").stdout == "answer 42\n"


@pytest.fixture
def of_another_torch(builder):
    """A module in the cache that ninja takes for up to date, and this torch cannot serve."""
    builder.load("unguarded")
    more = f'extern "C" void {OLD_STRING}(); void* keep = (void*) {OLD_STRING};'
    builder.child.write("old.cpp", SOURCE.format(value=7, more=more))
    include = builder.child.python(
        "import sysconfig; print(sysconfig.get_path('include'))", python=str(builder.python)
    ).stdout.strip()
    command = ("g++", "-shared", "-fPIC", f"-I{include}", "old.cpp", "-o", "old.so")
    builder.child.command(*command)
    # Written in place: newer than its sources, which is all that ninja asks of it.
    (builder.built / "small.so").write_bytes((builder.folder / "old.so").read_bytes())


@pytest.mark.usefixtures("of_another_torch")
def test_module_of_another_torch_from_before_the_guard(builder):
    assert "undefined symbol" in builder.load("unguarded").stdout
    assert builder.load().stdout.startswith("answer 42\nCG031 ")
    assert builder.load().stdout == "answer 42\n\n"


def test_module_of_another_torch_that_would_load(builder):
    """Nothing but the stamp tells it from one of this torch."""
    builder.load()
    stamp = builder.built / "cudaguard-stamp.json"
    text = stamp.read_text(encoding="utf-8")
    stamp.write_text(text.replace('"torch": "2.13.0', '"torch": "2.12.0'), encoding="utf-8")
    log = (builder.built / ".ninja_log").read_bytes()
    assert builder.load("unguarded").stdout == "answer 42\n"
    assert (builder.built / ".ninja_log").read_bytes() == log
    warned = builder.load(CUDAGUARD="warn", more="cudaguard.install('warn')")
    assert "[CG891]" in warned.stderr
    assert "evidence: torch 2.12.0" in warned.stderr
    assert builder.load().stdout.startswith("answer 42\nCG031 ")
    assert stamp.read_text(encoding="utf-8") == text
    assert builder.load().stdout == "answer 42\n\n"


def test_half_that_was_not_linked_is_said_and_not_compiled_again(builder):
    builder.write(more="void half_cuda_forward(int); void* keep = (void*) half_cuda_forward;")
    unguarded = builder.load("unguarded").stdout
    assert unguarded.startswith("ImportError")
    log = (builder.built / ".ninja_log").read_bytes()
    for _ in range(2):
        out = builder.load().stdout
        assert out.startswith(
            "ExtensionError small.so was probably linked without its CUDA object file"
        )
        assert "compiled again" not in out
    assert (builder.built / ".ninja_log").read_bytes() == log


def test_cuda_sources_and_a_torch_for_the_cpu(builder):
    builder.child.write("small.cu", "// nothing")
    unguarded = builder.load("unguarded", sources=["small.cu"])
    assert "OSError CUDA_HOME environment variable is not set" in unguarded.stdout
    done = builder.load(sources=["small.cu"])
    assert "OSError CUDA_HOME environment variable is not set" in done.stdout
    assert "[CG887] CUDA sources cannot be built with torch 2.13.0" in done.stderr


def test_setup_py_with_cuda_sources_and_a_torch_for_the_cpu(builder):
    text = SETUP.replace("CppExtension", "CUDAExtension")
    setup = builder.child.write("setup.py", text)
    env = builder.environment()
    done = builder.child.command(builder.python, setup, env=env, check=False)
    assert "OSError: CUDA_HOME environment variable is not set" in done.stderr
    assert "[CG887] CUDA sources cannot be built with torch 2.13.0" in done.stderr


def test_two_builds_at_once_have_what_they_need(builder):
    """The one that ends last still has the variables that the first one has set."""
    builder.child.write("other.cpp", SOURCE.format(value=1, more="").replace("small", "other"))
    slow = builder.compiler('case "$*" in *other.o*) sleep 6 ;; esac')
    more = f"""
import threading, time
os.environ["CXX"] = {slow!r}
before = dict(os.environ)
other = threading.Thread(target=lambda: print("other", load("other", ["other.cpp"]).f()))
first = threading.Thread(target=lambda: print("small", load("small", ["small.cpp"]).f()))
first.start(); time.sleep(0.2); other.start(); first.join(); other.join()
"""
    done = builder.load(more=more, ninja=False)
    assert done.stdout.splitlines()[:3] == ["small 42", "other 1", "answer 42"]
    assert done.stderr == ""


def test_jobs_fit_into_memory(builder):
    seen = builder.folder / "jobs"
    compiler = builder.compiler(f'echo "$MAX_JOBS" >> {seen}')
    for number in range(3):
        builder.child.write(f"more{number}.cpp", f"int more{number};")
    sources = ("small.cpp", *(f"more{number}.cpp" for number in range(3)))
    little = "if 'guarded' in sys.argv: from cudaguard.features.builds.repair import tools as t"
    little += "; t.available_memory = lambda: 3 << 30"
    assert builder.load(more=little, sources=sources, CXX=compiler).stdout.startswith(
        "answer 42\nCG031 MAX_JOBS=1"
    )
    assert set(seen.read_text(encoding="utf-8").split()) == {"1"}
    (builder.folder / "more0.cpp").write_text("int other;", encoding="utf-8")
    assert "CG031" not in builder.load(more=little, sources=sources, MAX_JOBS="2").stdout


SETUP = """
import os, sys
import cudaguard
cudaguard.install()
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
setup(name="small", ext_modules=[CppExtension("small", ["small.cpp"])],
      cmdclass={"build_ext": BuildExtension}, script_args=["build_ext", "--inplace"])
"""


def test_setup_py_uses_ninja_and_looks_at_what_it_has_built(builder):
    builder.write(more="void half_forward(int); void* keep = (void*) half_forward;")
    setup = builder.child.write("setup.py", SETUP)
    command = (builder.python, setup)
    unguarded = builder.child.command(
        *command, env={**builder.environment(ninja=False), "CUDAGUARD": "off"}
    )
    assert "we could not find ninja" in unguarded.stdout + unguarded.stderr
    shutil.rmtree(builder.folder / "build")
    guarded = builder.child.command(*command, env=builder.environment(ninja=False))
    assert "we could not find ninja" not in guarded.stdout + guarded.stderr
    assert list(builder.folder.glob("build/**/build.ninja"))
    assert "was built but will probably not load" in guarded.stderr
    assert "`half_forward(int)`" in guarded.stderr
    builder.write()
    again = builder.child.command(*command, env=builder.environment(ninja=False))
    assert "CG892" not in again.stderr


def test_guard_that_comes_late_and_goes(builder):
    code = """
        import torch.utils.cpp_extension as cpp
        NAMES = ("FileBaton", "_join_cuda_home", "_write_ninja_file_and_build_library")
        before = {name: vars(cpp)[name] for name in NAMES}
        command = vars(cpp)["_BUILD_EXTENSION_CLASS"]
        methods = {name: vars(command)[name] for name in ("__init__", "build_extensions")}
        import cudaguard
        cudaguard.install("strict")
        assert all(vars(cpp)[name] is not before[name] for name in NAMES)
        assert issubclass(cpp.FileBaton, before["FileBaton"])
        assert all(vars(command)[name] is not methods[name] for name in methods)
        cudaguard.install("strict")
        cudaguard.uninstall()
        assert all(vars(cpp)[name] is before[name] for name in NAMES)
        assert all(vars(command)[name] is methods[name] for name in methods)
        cudaguard.install(disable=["CG032"])
        assert cpp.FileBaton is before["FileBaton"]
        assert cpp._join_cuda_home is not before["_join_cuda_home"]
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert done.stderr == ""


def test_torch_whose_lock_ends_with_its_holder_is_left_alone(builder):
    """As from 2.14 on: it has another lock in place of FileBaton."""
    code = """
        import torch.utils.cpp_extension as cpp
        cpp.FileLock = cpp.FileBaton
        del cpp.FileBaton
        import cudaguard
        cudaguard.install()
        print(cudaguard.status().findings)
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert (done.stdout, done.stderr) == ("()\n", "")


def test_torch_with_other_names_is_left_alone(builder):
    code = """
        import torch.utils.cpp_extension as cpp
        del cpp._write_ninja_file_and_build_library
        original = cpp._join_cuda_home
        import cudaguard
        cudaguard.install()
        (finding,) = cudaguard.status().findings
        print(finding.id, finding.severity, finding.what)
        assert cpp._join_cuda_home is not original
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert done.stdout.startswith(
        "CG836 info cudaguard does not know torch.utils.cpp_extension._write_ninja_file_and_"
    )
    assert done.stderr == ""


def wait_until(is_so):
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
