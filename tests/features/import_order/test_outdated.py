"""A library was refused since the loader finds an older copy of what it needs, before a newer one.

Stand-ins for NCCL: torch is built with the newer one, which its wheel leads to, and LD_LIBRARY_PATH
leads to an older one first.
"""

from __future__ import annotations

import sysconfig

import pytest

from .test_fetch import EXTENSION, Scene, needs_tables
from .test_fetch import pytestmark as pytestmark

NCCL = "libnccl.so.2"
OLD = "int ncclInit(void) { return 1; }\n"
NEW = "int ncclInit(void) { return 2; } int ncclWindow(void) { return 20; }\n"
VERSIONS = "NCCL_1 { global: ncclInit; }; NCCL_2 { global: ncclWindow; } NCCL_1;"
OLD_VERSIONS = "NCCL_1 { global: ncclInit; };"
ASK = "import consumer; print('consumer', consumer.ask())"
GUARD = "import cudaguard; cudaguard.install({!r})"
CHANGES = "print(*[one for one in cudaguard.status().changes if 'CG046' in one])"


@pytest.fixture(params=["symbols", "versions"])
def scene(child, compiler, request):
    """An extension that needs the newer copy, in a folder beside it."""
    scene = Scene(child, compiler)
    flags = ()
    old_flags = ()
    if request.param == "versions":
        flags = (f"-Wl,--version-script={child.write('new.map', VERSIONS)}",)
        old_flags = (
            f"-Wl,--version-script={child.write('old.map', VERSIONS.split(';')[0] + '; };')}",
        )
    new = scene.put(f"site/nvidia/nccl/lib/{NCCL}", NEW, *flags)
    scene.put(f"old/{NCCL}", OLD, *old_flags)
    name = "consumer" + sysconfig.get_config_var("EXT_SUFFIX")
    source = EXTENSION.replace("int cublas(void);", "int ncclWindow(void);").replace(
        "cublas()", "ncclWindow()"
    )
    include = f"-I{sysconfig.get_path('include')}"
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/nvidia/nccl/lib"
    scene.put(f"site/{name}", source, include, str(new), run_path)
    return scene


def run(scene, *code, **env):
    return scene.run(*code, LD_LIBRARY_PATH=str(scene.folder / "old"), **env)


@needs_tables
def test_newer_copy_is_loaded_first(scene):
    red = run(scene, ASK)
    assert red.stdout.startswith("ImportError ")
    done = run(scene, GUARD.format("fix"), ASK, CHANGES)
    first, changes = done.stdout.splitlines()
    assert (first, done.stderr) == ("consumer 20", "")
    assert f"{NCCL}: loaded for consumer, which finds an older copy first" in changes


@needs_tables
def test_older_copy_that_is_mapped_stays(scene):
    first = f"import ctypes; ctypes.CDLL({NCCL!r})"
    done = run(scene, GUARD.format("fix"), first, ASK, CHANGES)
    assert done.stdout.startswith("ImportError ")


def test_who_is_prepared_goes_another_way(scene):
    code = f"try:\n    {ASK}\nexcept ImportError:\n    print('falls back')"
    done = run(scene, GUARD.format("fix"), code, CHANGES)
    assert done.stdout == "falls back\n\n"


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_change_nothing(scene, mode):
    done = run(scene, GUARD.format(mode), ASK)
    assert done.stdout.startswith("ImportError ")
