"""cuDNN that is older than JAX, TensorFlow or torch were built for, told when they are imported.

Stand-ins: packages with the metadata of real releases, and small libraries with cuDNN's names.
"""

from __future__ import annotations

import sys

import pytest

from cudaguard.features.duplicate_libraries.judgement import cudnn_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' loader is looked at")

CUDNN = "libcudnn.so.9"
JAX_WANTS = ('nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"',)
GUARD = """
import ctypes, os
from cudaguard import system; from cudaguard.system import preload
preload.DRIVER, system.DRIVER_FILES = "libc.so.6", ({driver!r},)
import cudaguard; cudaguard.install()
"""
SAID = "\nprint([f.id for f in cudaguard.status().findings if f.id == 'CG823'])\n"


class Scene:
    """A folder with packages, some of which load a cuDNN of theirs."""

    def __init__(self, child, compiler):
        self.child, self.compiler, self.folder = child, compiler, child.folder

    def install(self, name, version, requires=(), code=""):
        self.child.distribution(name, version, requires)
        self.child.write(f"{name.replace('-', '_')}/__init__.py", code)

    def cudnn(self, folder, version):
        """A file as a toolkit has it: the version in the name behind a link."""
        file = self.folder / folder / f"libcudnn.so.{version}"
        target = self.compiler.put(file, "int v;", f"-Wl,-soname,{CUDNN}")
        (target.parent / CUDNN).symlink_to(target.name)
        return target.parent / CUDNN

    def run(self, code, driver=__file__):
        path = self.child.write("main.py", GUARD.format(driver=driver) + code + SAID)
        return self.child.command(sys.executable, path)


@pytest.fixture
def scene(child, compiler):
    scene = Scene(child, compiler)
    scene.install("jax-cuda12-plugin", "0.6.0", JAX_WANTS)
    scene.install("jax", "0.6.0")
    return scene


def taker(file):
    return f"import ctypes\nctypes.CDLL({str(file)!r})\n"


def test_older_copy_that_torch_has_loaded(scene):
    scene.install("torch", "2.5.1", code=taker(scene.cudnn("old", "9.1.0")))
    done = scene.run("import torch\nimport jax  # here\n")
    assert done.stdout == "['CG823']\n"
    first = done.stderr.splitlines()[0]
    assert "main.py:7: ImportOrderWarning: [CG823] " in first
    assert first.endswith("jax requires cuDNN 9.8 or later, but 9.1.0 is loaded.")
    assert "(9.1.0) was loaded by torch" in done.stderr
    assert "import jax and use it once before `import torch`" in done.stderr
    assert "run: pip install 'nvidia-cudnn-cu12<10.0,>=9.8'" in done.stderr


def test_older_copy_that_comes_after_jax(scene):
    """JAX opens cuDNN at its first computation: torch, imported in between, decides for it."""
    scene.install("torch", "2.5.1", code=taker(scene.cudnn("old", "9.1.0")))
    assert scene.run("import jax\nimport torch\n").stdout == "['CG823']\n"


def test_older_wheel_that_is_not_loaded_yet(scene):
    scene.install("nvidia-cudnn-cu12", "9.1.0.70")
    done = scene.run("import jax\n")
    assert "jax requires cuDNN 9.8 or later, but 9.1.0.70 is installed." in done.stderr


def test_torch_with_an_older_one_than_it_pins(scene):
    scene.install("torch", "2.7.0", ('nvidia-cudnn-cu12==9.5.1.17; platform_system == "Linux"',))
    taken = scene.cudnn("old", "9.1.0")
    done = scene.run(f"ctypes.CDLL({str(taken)!r})\nimport torch\n")
    assert "torch requires cuDNN 9.5 or later, but 9.1.0 is loaded." in done.stderr


# As jax has it: the module of the plug-in, or of conda's jaxlib, with the function.
JAX = "from jax._src import lib\n"
VERSIONS = "class cuda_versions:\n    cudnn_build_version = staticmethod(lambda: {number})\n"
PREFIX = "import os, sys\nsys.prefix = os.path.abspath('conda')\n"


@pytest.fixture
def conda(child, compiler):
    """JAX from conda, whose metadata do not name a cuDNN, and the cuDNN of that environment."""

    def made(number, version):
        scene = Scene(child, compiler)
        scene.install("jaxlib", "0.7.2")
        scene.install("jax", "0.7.2", code=JAX)
        child.write("jax/_src/__init__.py", "")
        child.write("jax/_src/lib.py", VERSIONS.format(number=number))
        child.write("conda/conda-meta/history", "")
        scene.cudnn("conda/lib", version)
        return scene

    return made


seen_to_its_end = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="before Python 3.11 an import that rules watch is not looked at to its end",
)


@seen_to_its_end
def test_older_cudnn_of_conda_than_jaxlib_was_compiled_with(conda):
    """JAX opens it at its first computation, and refuses it then."""
    done = conda(91301, "9.10.1").run(f"{PREFIX}import jax\n")
    assert "[CG823] jax was built for cuDNN 9.13 or later, but 9.10.1 is installed." in done.stderr
    assert "jaxlib 0.7.2 reports it" in done.stderr
    assert "run: conda install 'cudnn>=9.13'" in done.stderr


@pytest.mark.parametrize(
    ("number", "version"), [(91301, "9.13.0"), (91301, "9.20.0"), (8907, "9.1.0"), (None, "9.1.0")]
)
def test_cudnn_of_conda_that_serves(conda, number, version):
    done = conda(number, version).run(f"{PREFIX}import jax\n")
    assert (done.stdout, done.stderr) == ("[]\n", "")


@seen_to_its_end
def test_compiled_with_more_than_metadata_ask_for(scene):
    scene.child.write("jax/_src/__init__.py", "")
    scene.child.write("jax/_src/lib.py", VERSIONS.format(number=91301))
    scene.install("jax", "0.6.0", code=JAX)
    scene.install("torch", "2.5.1", code=taker(scene.cudnn("old", "9.10.0")))
    done = scene.run("import torch\nimport jax\n")
    assert "jax was built for cuDNN 9.13 or later, but 9.10.0 is loaded." in done.stderr


QUIET = {
    "late enough": ("import torch\nimport jax\n", "9.8.0", __file__),
    "of another major release": ("import torch\nimport jax\n", "8.9.2", __file__),
    "without JAX": ("import torch\n", "9.1.0", __file__),
    "without a driver": ("import torch\nimport jax\n", "9.1.0", "/no/driver"),
}


@pytest.mark.parametrize("case", QUIET)
def test_nothing_is_told(scene, case):
    code, version, driver = QUIET[case]
    name = "libcudnn.so.8" if version.startswith("8") else CUDNN
    file = scene.cudnn("some", version)
    if name != CUDNN:
        file = scene.compiler.put(scene.folder / "some" / name, "int v;", f"-Wl,-soname,{name}")
    scene.install("torch", "2.5.1", code=taker(file))
    done = scene.run(code, driver)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_once(scene):
    scene.install("torch", "2.5.1", code=taker(scene.cudnn("old", "9.1.0")))
    scene.install("tensorflow", "2.10.0")
    assert scene.run("import torch\nimport jax\nimport tensorflow\n").stderr.count("[CG823]") == 1


@pytest.mark.parametrize(
    ("requirement", "least"),
    [
        (*JAX_WANTS, (9, 8)),
        ("nvidia-cudnn-cu12 ==8.9.4.25 ; extra == 'and-cuda'", (8, 9)),
        ("nvidia-cudnn-cu12~=9.0; extra == 'cudnn'", (9, 0)),
        ("nvidia-cublas-cu12==12.4.5.8", None),
        ("nvidia-cudnn-cu12", None),
        ("nvidia-cudnn-cu12 === !", None),
    ],
)
def test_what_metadata_say(requirement, least):
    found = cudnn_of(requirement)
    assert (found and found[2]) == least
