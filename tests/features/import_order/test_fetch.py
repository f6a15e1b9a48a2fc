"""A library was refused for want of one of CUDA's that is installed as a wheel.

Small libraries stand for CUDA's; where they are, how they are asked for, and the loader are real.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from ...native_fixtures import GLIBC_ONLY

pytestmark = GLIBC_ONLY

CUBLAS, CUBLAS_LT = "libcublas.so.12", "libcublasLt.so.12"
WHEEL = "site/nvidia/cublas/lib"
ENGINE = """
import ctypes, os
engine = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libengine.so"))
print("engine", engine.engine())
"""
PREPARED = """
import ctypes, os
def load():
    return ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libengine.so"))
try:
    print("engine", load().engine())
except OSError as error:
    print("falls back")
"""
# An error that ends the program, caught where nobody's source is.
HOOK = """
import sys
sys.excepthook = lambda kind, error, _: print(kind.__name__, str(error).partition(":")[0])
"""
GUARD = "import ctypes, cudaguard; cudaguard.install({!r})\n"
DONE = "\nprint(*[one.rpartition('/')[2] for one in cudaguard.status().changes if 'CG046' in one])"


class Scene:
    """A folder `site` with NVIDIA's wheels, a package that opens a library, and an extension."""

    def __init__(self, child, compiler):
        self.child, self.compiler = child, compiler
        self.folder = Path(os.path.realpath(child.folder))
        lt = self.put(f"{WHEEL}/{CUBLAS_LT}", "int lt(void) { return 2; }")
        # The wheel's files name one another, and lead nowhere.
        blas = "int lt(void); int cublas(void) { return 10 * lt(); }"
        self.cublas = self.put(f"{WHEEL}/{CUBLAS}", blas, str(lt))

    def put(self, path, source, *flags):
        name = os.path.basename(path)
        return self.compiler.put(self.folder / path, source, f"-Wl,-soname,{name}", *flags)

    def engine(self):
        """A package that opens its own library by its path, as transformer_engine does."""
        source = "int cublas(void); int engine(void) { return cublas(); }"
        self.put(
            "site/engine/libengine.so", source, str(self.cublas), "-Wl,--allow-shlib-undefined"
        )
        self.child.write("site/engine/__init__.py", ENGINE)

    def consumer(self):
        flags = (str(self.cublas), "-Wl,--allow-shlib-undefined")
        shutil.copy(self.compiler.asking("consumer", "cublas", *flags), self.folder / "site")

    def run(self, *code, **variables):
        env = {"PYTHONPATH": str(self.folder / "site"), **variables}
        path = self.child.write("program.py", "\n".join((HOOK, *code)))
        return self.child.command(sys.executable, path, env=env, check=False)


@pytest.fixture
def scene(child, compiler):
    return Scene(child, compiler)


def test_library_of_a_package(scene):
    scene.engine()
    assert scene.run("import engine").stdout == f"OSError {CUBLAS}\n"
    done = scene.run(GUARD.format("fix"), "import engine", DONE)
    first, changes = done.stdout.splitlines()
    assert (first, done.stderr) == ("engine 20", "")
    assert changes.count("loaded for libengine.so, which does not find it by CG046 (stays)") == 2


def test_extension(scene):
    scene.consumer()
    ask = "import consumer; print('consumer', consumer.ask())"
    assert scene.run(ask).stdout == f"ImportError {CUBLAS}\n"
    done = scene.run(GUARD.format("strict"), ask, DONE)
    assert done.stdout.splitlines()[0] == "consumer 20"
    assert done.stderr == ""


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_leave_it_to_the_program(scene, mode):
    """Which may know another way, as torch does: nothing is said of an error that it expects."""
    scene.engine()
    done = scene.run(GUARD.format(mode), "import engine", DONE)
    assert done.stdout == f"OSError {CUBLAS}\n"
    assert "CG046" not in done.stderr


PREPARED_PROGRAMS = {
    "a clause": "try:\n    import engine\nexcept Exception:\n    print('falls back')",
    "all errors": "try:\n    import engine\nexcept:\n    print('falls back')",
    "suppress": "import contextlib\nwith contextlib.suppress(OSError):\n    import engine\n"
    "    raise SystemExit\nprint('falls back')",
    "a variable": "E = (ImportError, OSError)\ntry:\n    import engine\nexcept E:\n"
    "    print('falls back')",
    "a future": "from concurrent.futures import ThreadPoolExecutor\nimport importlib\n"
    "future = ThreadPoolExecutor().submit(importlib.import_module, 'engine')\n"
    "if future.exception(): print('falls back')",
    "__exit__": "class Optional:\n    def __enter__(self): pass\n    def __exit__(self, *_):\n"
    "        return True\nwith Optional():\n    import engine\n    raise SystemExit\n"
    "print('falls back')",
    "an outer function": "def work():\n    try:\n        import engine\n    finally:\n"
    "        print('falls', end=' ')\ntry:\n    work()\nexcept OSError:\n    print('back')",
    "its own hook": "def work():\n    import engine\nimport threading\n"
    "threading.excepthook = lambda _: print('falls back')\n"
    "thread = threading.Thread(target=work)\nthread.start()\nthread.join()",
}
if sys.version_info >= (3, 11):
    PREPARED_PROGRAMS["a clause for groups"] = (
        "try:\n    import engine\nexcept* OSError:\n    print('falls back')"
    )


@pytest.mark.parametrize("who", [*PREPARED_PROGRAMS, "the package"])
def test_who_is_prepared_goes_another_way(scene, who):
    """Onto the CPU, say: with the library it would compute elsewhere, and otherwise."""
    scene.engine()
    if who == "the package":
        scene.child.write("site/engine/__init__.py", PREPARED)
    code = PREPARED_PROGRAMS.get(who, "import engine")
    assert scene.run(code).stdout == "falls back\n"
    done = scene.run(GUARD.format("fix"), code, DONE)
    assert (done.stdout, done.stderr) == ("falls back\n\n", "")


ENDS = {
    "a block of the guard": "with cudaguard.guard():\n    import engine",
    "finally": "def work():\n    try:\n        import engine\n    finally:\n        pass\nwork()",
    "raised again": "try:\n    import engine\nexcept OSError as error:\n"
    "    raise ImportError('install CUDA') from error",
    "a part": "from engine import engine",
}
if sys.version_info < (3, 10):
    del ENDS["raised again"]  # code that is never reached looks like the end of its clause


@pytest.mark.parametrize("who", ENDS)
def test_error_that_would_end_the_program(scene, who):
    scene.engine()
    assert "engine 20" not in scene.run("import cudaguard", ENDS[who], CUDAGUARD="off").stdout
    assert "engine 20\n" in scene.run(GUARD.format("fix"), ENDS[who]).stdout


def test_disabled(scene):
    scene.engine()
    done = scene.run(GUARD.format("fix"), "import engine", DONE, CUDAGUARD_RULES="-CG046")
    assert done.stdout == f"OSError {CUBLAS}\n"


def test_what_the_loader_finds_is_as_it_was(scene):
    scene.engine()
    other = scene.put("elsewhere/" + CUBLAS, "int cublas(void) { return 7; }")
    path = {"LD_LIBRARY_PATH": str(other.parent)}
    done = scene.run(GUARD.format("fix"), "import engine", DONE, **path)
    assert (done.stdout, done.stderr) == ("engine 7\n\n", "")


def test_bare_names_are_what_programs_try(scene):
    code = f"try:\n    ctypes.CDLL({CUBLAS!r})\nexcept OSError as error:\n    print('none')"
    done = scene.run(GUARD.format("fix"), code, DONE)
    assert (done.stdout, done.stderr) == ("none\n\n", "")


def test_what_no_wheel_has_is_missing_as_before(scene):
    scene.engine()
    shutil.rmtree(scene.folder / "site/nvidia")
    done = scene.run(GUARD.format("fix"), "import engine", DONE)
    assert done.stdout == f"OSError {CUBLAS}\n"


LOOKED = """
import sys
looked = []
sys.setprofile(lambda frame, *_: looked.append(frame.f_code.co_name))
{}
sys.setprofile(None)
print("missing_with_needs" in looked)
"""


def test_nothing_is_looked_for_where_the_error_is_caught(scene):
    scene.consumer()
    caught = "for _ in range(3):\n try: import consumer\n except ImportError: print('caught')"
    done = scene.run(GUARD.format("fix"), LOOKED.format(caught))
    assert done.stdout.split() == ["caught"] * 3 + ["False"]
    assert scene.run(GUARD.format("fix"), LOOKED.format("import consumer")).stdout == "True\n"


# --- installed elsewhere than in NVIDIA's wheels --------------------------------------------------

ELSEWHERE = {
    "its folder": ("site", {}),
    "another distribution": ("site/tensorrt_libs", {}),
    "the environment": ("conda/lib", {}),
    "a toolkit": ("cuda/lib64", {"CUDA_HOME": "cuda"}),
}
CONDA = "import os, sys; sys.prefix = os.path.abspath('conda')"


def moved(scene, place):
    """Has what the extension needs lie somewhere else."""
    scene.consumer()
    target = scene.folder / place
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(scene.folder / WHEEL, target, dirs_exist_ok=True)
    shutil.rmtree(scene.folder / "site/nvidia")


@pytest.mark.parametrize("where", ELSEWHERE)
def test_library_that_is_installed_elsewhere(scene, where):
    place, variables = ELSEWHERE[where]
    moved(scene, place)
    files = [f"tensorrt_libs/{name}" for name in (CUBLAS, CUBLAS_LT)]
    scene.child.distribution("tensorrt", files=files, at="site")
    ask = (CONDA, "import consumer; print('consumer', consumer.ask())")
    assert scene.run(*ask, **variables).stdout == f"ImportError {CUBLAS}\n"
    done = scene.run(GUARD.format("fix"), *ask, **variables)
    assert (done.stdout, done.stderr) == ("consumer 20\n", "")


@pytest.mark.parametrize("place", ["site/one.libs", "site/one"])
def test_library_of_one_package_or_of_several_is_let_be(scene, place):
    moved(scene, place)
    names = [f"{place[5:]}/{name}" for name in (CUBLAS, CUBLAS_LT)]
    scene.child.distribution("one", files=names, at="site")
    if place == "site/one":
        shutil.copytree(scene.folder / place, scene.folder / "site/two")
        names = [name.replace("one", "two") for name in names]
        scene.child.distribution("two", files=names, at="site")
    done = scene.run(GUARD.format("fix"), "import consumer")
    assert done.stdout == f"ImportError {CUBLAS}\n"


def test_older_library_counts_where_the_variable_names_its_folder(compiler, child, tmp_path):
    """One that only the system has is found after the newer one's neighbors."""
    newer = compiler.library("libz.so.1.9.9", "", "-Wl,-soname,libz.so.1")
    ask = "import sys; from cudaguard.system.newer_copies import hidden_by_older as f\n"
    ask += f"sys.path[0] = {str(newer.parent)!r}; print(f('libz.so.1*'))"
    for expected in ("()\n", f"({str(newer)!r},)\n"):
        assert child.python(ask, env={"LD_LIBRARY_PATH": str(tmp_path)}).stdout == expected
        (tmp_path / "libz.so.1.0").write_bytes(newer.read_bytes())
