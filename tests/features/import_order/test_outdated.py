"""A library was refused since the loader finds an older copy of what it needs, before a newer one.

Stand-ins for NCCL: torch is built with the newer one, which its wheel leads to, and LD_LIBRARY_PATH
leads to an older one first.
"""

from __future__ import annotations

import shutil
import sys
from ctypes.util import find_library

import pytest

from .test_fetch import Scene
from .test_fetch import pytestmark as pytestmark

NCCL, WHEEL = "libnccl.so.2", ("nvidia-nccl-cu12", "2.27.3")
OLD = "int ncclInit(void) { return 1; }\n"
NEW = "int ncclInit(void) { return 2; } int ncclWindow(void) { return 20; }\n"
VERSIONS = "NCCL_1 { global: ncclInit; }; NCCL_2 { global: ncclWindow; } NCCL_1;"
OLD_VERSIONS = "NCCL_1 { global: ncclInit; };"
REFUSED = "ImportError "
ASK = "import consumer; print('consumer', consumer.ask())"
GUARD = "import cudaguard; cudaguard.install({!r})"
IN_WHEEL, LATER = "before consumer, as consumer.", "for consumer, which finds an older copy first"
HOW = {"symbols": IN_WHEEL, "versions": IN_WHEEL, "elsewhere": LATER, "another": LATER}
CHANGES = "print(*[one for one in cudaguard.status().changes if 'CG046' in one])"


def extension(scene, name, function, *flags):
    shutil.copy(scene.compiler.asking(name, function, *flags), scene.folder / "site")


@pytest.fixture(params=["symbols", "versions"])
def scene(child, compiler, request):
    """An extension that needs the newer copy, in a folder beside it."""
    scene = Scene(child, compiler)
    flags = old_flags = ()
    if request.param != "symbols":
        flags = (f"-Wl,--version-script={child.write('new.map', VERSIONS)}",)
        old_flags = (f"-Wl,--version-script={child.write('old.map', OLD_VERSIONS)}",)
    if request.param == "another":  # as conda's libffi.so.7, which is a link to libffi.so.8
        old_flags += ("-Wl,-soname,libnccl.so.3",)
    folder = "nvidia/nccl/lib" if HOW[request.param] == IN_WHEEL else "own"
    new = scene.put(f"site/{folder}/{NCCL}", NEW, *flags)
    scene.put(f"old/{NCCL}", OLD, *old_flags)
    scene.old_flags = old_flags
    run_path = f"-Wl,--enable-new-dtags,-rpath,$ORIGIN/{folder}"
    extension(scene, "consumer", "ncclWindow", str(new), run_path)
    return scene


def run(scene, *code, **env):
    return scene.run(*code, LD_LIBRARY_PATH=str(scene.folder / "old"), **env)


@pytest.mark.parametrize(("scene", "how"), HOW.items(), indirect=["scene"])
def test_newer_copy_is_loaded_first(scene, how):
    assert run(scene, ASK).stdout.startswith("ImportError ")
    done = run(scene, GUARD.format("fix"), ASK, CHANGES)
    first, changes = done.stdout.splitlines()
    assert (first, done.stderr) == ("consumer 20", "")
    assert f"{NCCL}: loaded {how}" in changes


@pytest.mark.parametrize("scene", ["elsewhere"], indirect=True)
def test_copy_of_the_system_is_loaded_for_an_extension_of_pythons_own(scene):
    """proxystore/taps#151: an older libsqlite3.so.0 in a folder of LD_LIBRARY_PATH."""
    ask = "import sqlite3; print(sqlite3.sqlite_version_info > (3, 8))"
    has_own = "_sqlite3" in sys.builtin_module_names or "True" not in scene.run(ask).stdout
    if has_own or not find_library("sqlite3"):
        pytest.skip("this Python does not use the system's SQLite")
    scene.put("old/libsqlite3.so.0", "int sqlite3_open(void) { return 1; }")
    assert run(scene, ask).stdout.startswith("ImportError ")
    done = run(scene, GUARD.format("fix"), ask, CHANGES)
    assert (done.stdout.splitlines()[0], done.stderr) == ("True", "")
    assert "loaded for _sqlite3, which finds an older copy first" in done.stdout


@pytest.mark.parametrize("scene", ["elsewhere"], indirect=True)
def test_who_is_prepared_goes_another_way(scene):
    code = f"try:\n    {ASK}\nexcept ImportError:\n    print('falls back')"
    done = run(scene, GUARD.format("fix"), code, CHANGES)
    assert (done.stdout, done.stderr.count("went on without it.")) == ("falls back\n\n", 1)


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_change_nothing(scene, mode):
    assert run(scene, GUARD.format(mode), ASK).stdout.startswith("ImportError ")


@pytest.mark.parametrize(("file", "said"), [("libgomp-7c.so.1", "1 20"), ("libgomp.so.1", REFUSED)])
def test_copy_that_its_package_has_renamed_is_not_for_others(child, compiler, file, said):
    scene = Scene(child, compiler)  # as of torch's libgomp, others get it by its soname
    new = str(scene.put("site/new/libgomp.so.1", NEW))
    old = scene.put(f"old/{file}", OLD, "-Wl,-soname,libgomp.so.1")
    extension(scene, "consumer", "ncclWindow", new, "-Wl,-rpath,$ORIGIN/new")
    code = f"import ctypes\nold = ctypes.CDLL({str(old)!r})\nimport consumer"
    assert scene.run(code).stdout.startswith(REFUSED)
    ask = "print(old.ncclInit(), consumer.ask())"
    assert scene.run(GUARD.format("fix"), code, ask).stdout.startswith(said)


# --- before the older copy is mapped ------------------------------------------------------------


EARLY = """
import old_one
import consumer
print("old_one", old_one.ask(), "consumer", consumer.ask())
"""


@pytest.fixture
def early(scene):
    """What requires the newer copy is installed, and another package brings an older one."""
    site = scene.folder / "site"
    old = scene.folder / "old" / NCCL
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../old"
    extension(scene, "old_one", "ncclInit", str(old), run_path)
    consumer = next(site.glob("consumer.*")).name
    scene.child.distribution(*WHEEL, files=(f"nvidia/nccl/lib/{NCCL}",), at="site")
    scene.child.distribution("consumer", requires=("==".join(WHEEL),), files=(consumer,), at="site")
    return scene


def test_copy_that_another_needs_is_first(early):
    assert early.run(EARLY).stdout.startswith(REFUSED)
    done = early.run(GUARD.format("fix"), EARLY, CHANGES)
    line, change = done.stdout.splitlines()
    assert (line, done.stderr) == ("old_one 2 consumer 20", "")
    assert f"{NCCL}: loaded before old_one, as consumer." in change


ELSE = """
import old_one
print("old_one", old_one.ask())
"""


@pytest.mark.parametrize("more", ["", "try:\n    import consumer\nexcept ImportError: print('no')"])
def test_who_does_not_import_the_other_gets_what_the_loader_finds(early, more):
    """Or has another way, where it finds no such package."""
    done = early.run(GUARD.format("fix"), ELSE, more, CHANGES)
    assert done.stdout == "old_one 1\n" + ("no\n\n" if more else "\n")


def test_copy_that_another_needs_is_first_by_name(early):
    first = f"import ctypes\nnccl = ctypes.CDLL({NCCL!r})\nimport consumer"
    ask = "print(nccl.ncclInit(), consumer.ask())"
    assert run(early, first, ask).stdout.startswith(REFUSED)
    done = run(early, GUARD.format("fix"), first, ask)
    assert (done.stdout, done.stderr) == ("2 20\n", "")


def test_question_whether_it_is_loaded_loads_nothing(early):
    ask = f"import ctypes, os\ntry: ctypes.CDLL({NCCL!r}, os.RTLD_NOLOAD)\nexcept OSError: pass"
    maps = f"\nprint({NCCL!r} in open('/proc/self/maps').read())\nimport consumer"
    assert run(early, GUARD.format("fix"), ask + maps).stdout.startswith("False\n")


def test_copy_that_another_needs_is_first_for_a_library_by_path(early):
    source = "int ncclInit(void); int call(void) { return ncclInit(); }"
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
    path = early.put("old/libengine.so", source, str(early.folder / "old" / NCCL), run_path)
    first = f"import ctypes\nengine = ctypes.CDLL({str(path)!r})\nimport consumer"
    ask = "print(engine.call(), consumer.ask())"
    assert early.run(first, ask).stdout.startswith(REFUSED)
    assert early.run(GUARD.format("fix"), first, ask).stdout == "2 20\n"


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_bring_no_other_copy(early, mode):
    assert early.run(GUARD.format(mode), EARLY).stdout.startswith(REFUSED)


def test_nobody_needs_more_than_the_older_copy_has(early):
    wheel = early.folder / "site/nvidia/nccl/lib" / NCCL
    extension(early, "consumer", "ncclInit", str(wheel))
    assert early.run(GUARD.format("fix"), EARLY, CHANGES).stdout == "old_one 1 consumer 1\n\n"


def test_copy_that_has_not_all_that_the_older_one_has_serves_nobody(early):
    """Who asks now misses nothing; another library would."""
    more = f"{OLD} int ncclOnlyHere(void) {{ return 3; }}"
    early.put(f"old/{NCCL}", more, *early.old_flags)
    done = early.run(GUARD.format("fix"), ELSE + "import consumer", CHANGES)
    assert done.stdout.startswith("old_one 1\nImportError ")


def test_parts_come_from_one_release(early):
    """As the parts of cuDNN, which are opened by name when they are needed."""
    wheel, name = early.folder / "site/nvidia/nccl/lib", "libcudnn.so.9"
    for place, value in (("old", 1), ("site/nvidia/nccl/lib", 2)):
        part = early.put(f"{place}/libcudnn_ops.so.9", f"int part(void) {{ return {value}; }}")
        source = (early.folder / place / NCCL).name and (OLD if value == 1 else NEW)
        early.put(f"{place}/{name}", source, str(part))
    early.child.distribution(*WHEEL, files=(f"nvidia/nccl/lib/{name}",), at="site")
    extension(early, "consumer", "ncclWindow", str(wheel / name))
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../old"
    extension(early, "old_one", "ncclInit", str(early.folder / "old" / name), run_path)
    assert run(early, EARLY).stdout.startswith(REFUSED)
    part = "import ctypes; print('part', ctypes.CDLL('libcudnn_ops.so.9').part())"
    done = run(early, GUARD.format("fix"), EARLY, part)
    assert (done.stdout, done.stderr) == ("old_one 2 consumer 20\npart 2\n", "")
    mapped = f"import ctypes\nctypes.CDLL({str(early.folder / 'old/libcudnn_ops.so.9')!r})\n"
    late = run(early, GUARD.format("fix"), mapped + EARLY)
    assert late.stdout.startswith(REFUSED)  # never a new one beside a part of the old
