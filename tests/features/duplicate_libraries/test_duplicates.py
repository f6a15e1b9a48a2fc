"""Two files of one library in a process, or another than was meant.

Small libraries stand for CUDA's: their names, their sonames, and how an extension leads to them are
real, and so is the loader. The wheels themselves are in `tests/incidents`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from ...native_fixtures import GLIBC_ONLY
from ..extensions.conftest import MODULE

pytestmark = GLIBC_ONLY

CUDART = "libcudart.so.12"
WHEEL = f"site/nvidia/cuda_runtime/lib/{CUDART}"
ASK = "import consumer; print('consumer', consumer.ask())\n"
GUARD = "import ctypes, cudaguard; cudaguard.install({!r})\n"
SAID = "import json; print(json.dumps([one.to_dict() for one in cudaguard.status().findings]))\n"
PATHS = {"rpath": ("-Wl,--disable-new-dtags",), "runpath": ("-Wl,--enable-new-dtags",)}


class Ran:
    """What a program has printed and what was found and said."""

    def __init__(self, done) -> None:
        *self.lines, found = done.stdout.splitlines()
        self.findings = json.loads(found)
        self.errors = done.stderr
        self.warned = [line for line in done.stderr.splitlines() if "Warning: [CG" in line]

    @property
    def ids(self) -> list[tuple[str, str]]:
        return [(found["id"], found["severity"]) for found in self.findings]

    @property
    def only(self) -> dict:
        (found,) = self.findings
        return found


class Scene:
    """A folder `site` with modules and what a wheel brings, `old` with another copy of it."""

    def __init__(self, child, compiler) -> None:
        self.child = child
        self.compiler = compiler
        self.folder = Path(os.path.realpath(child.folder))

    def put(self, path: str, release: int, *flags: str, soname: str = "") -> Path:
        """Compile a library that tells its release; it is called after its file."""
        source = f"int release(void) {{ return {release}; }}\n"
        soname = f"-Wl,-soname,{soname or os.path.basename(path)}"
        return self.compiler.put(self.folder / path, source, soname, *flags)

    def old(self, release: int = 12010, version: str = "12.1.105") -> Path:
        """Put a copy as a toolkit has it, the version in the name of the file behind a link."""
        file = self.put(f"old/{CUDART}", release)
        file.rename(file.with_name(f"libcudart.so.{version}"))
        file.symlink_to(f"libcudart.so.{version}")
        return file

    def wheel(self, release: int = 12080, version: str = "12.8.90") -> Path:
        """Put a copy as NVIDIA's wheels have it, the version in the metadata."""
        (self.folder / f"site/nvidia_cuda_runtime_cu12-{version}.dist-info").mkdir(parents=True)
        return self.put(WHEEL, release)

    def consumer(self, how: str = "runpath", origin: str = "$ORIGIN/nvidia/cuda_runtime/lib"):
        """Compile an extension that needs the library and its run path leads to the wheel's."""
        flags = (str(self.folder / WHEEL), *PATHS[how], f"-Wl,-rpath,{origin}")
        (self.folder / "site").mkdir(exist_ok=True)
        shutil.copy(self.compiler.asking("consumer", "release", *flags), self.folder / "site")

    def both(self, *old, how: str = "runpath") -> Path:
        """Put both, and an extension that is led to the wheel's; returns the old one."""
        self.wheel()
        self.consumer(how)
        return self.old(*old)

    def taker(self, path: str = f"old/{CUDART}", package: str = "taker") -> str:
        """Write a package that opens a library by its path; returns the line that does."""
        file = self.folder / path
        self.child.write(f"site/{package}/__init__.py", f"from {package} import _load\n")
        self.child.write(
            f"site/{package}/_load.py", f"import ctypes\nlibrary = ctypes.CDLL({str(file)!r})\n"
        )
        return f"{self.folder}/site/{package}/_load.py:2"

    def run(self, *code: str, check: bool = True, **variables: str):
        """Run code in a fresh interpreter."""
        env = {"PYTHONPATH": str(self.folder / "site"), **variables}
        program = self.child.write("program.py", "\n".join(code))
        return self.child.command(sys.executable, program, env=env, timeout=60, check=check)

    def told(self, *code: str, mode: str = "fix", **variables: str) -> Ran:
        """Run code under the guard."""
        return Ran(self.run(GUARD.format(mode), *code, SAID, **variables))


@pytest.fixture
def scene(child, compiler) -> Scene:
    return Scene(child, compiler)


def opened(*paths: object) -> str:
    return "".join(f"ctypes.CDLL({str(path)!r})\n" for path in paths)


# --- another file than was meant (CG843) --------------------------------------------------------


@pytest.fixture(params=["by a package", "by the variable"])
def strayed(request, scene):
    """The scene, code and variables by which an extension gets the old file."""
    scene.both()
    if request.param == "by a package":
        scene.line = scene.taker()
        return scene, "import taker\n", {}
    os.symlink("old", f"{scene.folder}/link")  # as /usr/local/cuda is one
    return scene, "", {"LD_LIBRARY_PATH": f"/nowhere:{scene.folder}/link/"}


def test_extension_alone_gets_what_it_leads_to(scene):
    scene.both()
    assert scene.run(ASK).stdout == "consumer 12080\n"
    ran = scene.told(ASK, mode="strict")
    assert (ran.lines, ran.findings, ran.errors) == (["consumer 12080"], [], "")


def test_without_the_guard_it_gets_the_older_one_and_nobody_says_so(strayed):
    scene, first, variables = strayed
    done = scene.run(first, ASK, **variables)
    assert (done.stdout, done.stderr) == ("consumer 12010\n", "")


@pytest.mark.parametrize("mode", ["observe", "warn", "fix"])
def test_older_one_in_its_place_is_told_of(strayed, mode):
    scene, first, variables = strayed
    ran = scene.told(first, ASK, mode=mode, **variables)
    assert ran.lines == ["consumer 12010"]
    found = ran.only
    assert (found["id"], found["severity"]) == ("CG843", "warning")
    old, good = f"{scene.folder}/old/{CUDART}", f"{scene.folder}/{WHEEL}"
    assert found["what"].startswith("consumer.")
    assert found["what"].endswith("uses an older file of the CUDA runtime than its run path names.")
    used, asking = found["evidence"]
    program, at = f"{scene.folder}/program.py", 5 if first else 4
    came = f"came with consumer ({program}:{at})"
    assert came in asking
    assert asking.endswith(f"and its run path leads to {good} (12.8.90)")
    if first:
        came = f"was loaded by taker._load ({scene.line}), imported at {program}:3"
    else:
        assert f"without {scene.folder}/old in LD_LIBRARY_PATH" in found["remedy"]
    assert used == f"{old} (12.1.105) {came}"
    assert "functions can be missing" in found["consequence"]
    assert len(ran.warned) == (mode != "observe")
    assert ran.errors == "" or "ImportOrderWarning: [CG843]" in ran.errors


def test_rule_that_is_proposed_cures(strayed):
    scene, first, variables = strayed
    found = scene.told(first, ASK, **variables).only
    before, _, rule = found["remedy"].partition("[[rules]]")
    scene.child.write("cudaguard.toml", "[[rules]]" + rule)
    assert f"load the right file before {'taker' if first else 'consumer'}:" in before
    ran = scene.told(first, ASK, mode="strict", CUDAGUARD_CONFIG="cudaguard.toml", **variables)
    # The other one is there as well where it is opened by its path; nobody else uses it.
    assert (ran.lines, ran.findings, ran.errors) == (["consumer 12080"], [], "")


def test_strict_raises_from_the_import(strayed):
    scene, first, variables = strayed
    attempt = "try: import consumer\nexcept cudaguard.ImportOrderError as error: print(error)"
    ran = scene.told(first, attempt, mode="strict", **variables)
    assert ran.lines[0] == ran.only["what"]
    assert ran.lines[-1].startswith("  run: ")
    assert len(ran.warned) == 1


@pytest.mark.parametrize("how", PATHS)
def test_both_kinds_of_folders_count(scene, how):
    scene.both(how=how)
    scene.taker()
    assert scene.told("import taker", ASK).ids == [("CG843", "warning")]


@pytest.mark.parametrize("same", ["link", "hard link", "copy"])
def test_same_file_elsewhere_is_as_good(scene, same):
    wheel = scene.wheel()
    scene.consumer()
    other = scene.folder / "old" / CUDART
    other.parent.mkdir()
    {"link": os.symlink, "hard link": os.link, "copy": shutil.copy}[same](wheel, other)
    scene.taker()
    ran = scene.told("import taker", ASK, mode="strict")
    assert (ran.lines, ran.findings, ran.errors) == (["consumer 12080"], [], "")


def test_newer_one_in_its_place_is_no_fault(scene):
    scene.both(13000, "12.9.79")
    scene.taker()
    ran = scene.told("import taker", ASK, mode="strict")
    assert (ran.findings, ran.errors) == ([], "")


def test_what_somebody_has_preloaded_is_there_on_purpose(scene):
    old = scene.both()
    ran = scene.told(ASK, mode="strict", LD_PRELOAD=str(old))
    assert (ran.lines, ran.findings, ran.errors) == (["consumer 12010"], [], "")
    ran = scene.told(opened(scene.folder / WHEEL), mode="strict", LD_PRELOAD=str(old))
    assert (ran.findings, ran.errors) == ([], "")


def test_guard_that_comes_late_says_so(scene):
    scene.both()
    scene.taker()
    done = scene.run("import taker", ASK, GUARD.format("fix"), SAID)
    ran = Ran(done)
    assert ran.ids == [("CG843", "warning")]
    assert all("was there before the guard" in line for line in ran.only["evidence"][:2])
    assert f"ctypes.CDLL('{scene.folder}/{WHEEL}')" in ran.only["remedy"]


def test_library_that_came_past_us_is_known_too(scene):
    old = scene.both()
    ran = scene.told(f"import _ctypes; _ctypes.dlopen({str(old)!r}, 2)", ASK)
    assert ran.ids == [("CG843", "warning")]
    assert "was loaded past Python's importer" in ran.only["evidence"][0]


# --- two files (CG842) --------------------------------------------------------------------------


def test_second_file_goes_unnoticed_without_the_guard(scene):
    old, wheel = scene.old(), scene.wheel()
    done = scene.run(f"import ctypes\n{opened(old, wheel)}print(ctypes.CDLL({CUDART!r}).release())")
    assert (done.stdout, done.stderr) == ("12010\n", "")


def test_two_files_the_older_one_first(scene):
    scene.old()
    scene.wheel()
    line, good = scene.taker(), scene.taker(WHEEL, "good")
    ran = scene.told("import taker", "import good")
    assert ran.ids == [("CG842", "warning")]
    found = ran.only
    assert found["what"] == (
        f"Two files of the CUDA runtime are loaded; the older, 12.1.105, is used as {CUDART}."
    )
    first, second = found["evidence"]
    program = f"{scene.folder}/program.py"
    assert first == (
        f"{scene.folder}/old/{CUDART} (12.1.105) was loaded by taker._load ({line}), imported at "
        f"{program}:3"
    )
    assert second == (
        f"{scene.folder}/{WHEEL} (12.8.90) was loaded by good._load ({good}), imported at "
        f"{program}:4"
    )
    assert 'actions = [{ preload = "nvidia/cuda_runtime/lib/libcudart.so.12" }]' in found["remedy"]
    assert ran.warned == [f"{good}: ImportOrderWarning: [CG842] {found['what']}"]


@pytest.mark.parametrize("version", ["12.9.79", "12.8.90"])
def test_two_files_the_older_one_not_first(scene, version):
    old, wheel = scene.old(13000, version), scene.wheel()
    ran = scene.told(opened(old, wheel), mode="strict")
    assert (ran.findings, ran.errors) == ([], "")


def test_faults_of_one_folder_are_warned_of_once(scene):
    """All stand in the status."""
    files = []
    for version, folder in (("1.2", "old"), ("1.3", "new")):
        for stem in ("libcufft", "libcurand"):
            file = scene.put(f"{folder}/{stem}.so.1", int(version[-1]))
            file.rename(file.with_name(f"{stem}.so.{version}"))
            file.symlink_to(f"{stem}.so.{version}")
            files.append(file)
    ran = scene.told(opened(*files))
    assert ran.ids == [("CG842", "warning")] * 2
    assert len(ran.warned) == 1


@pytest.mark.parametrize("names", [("libomp.so.5", "libiomp5.so"), ("libiomp5.so", "libiomp5.so")])
@pytest.mark.parametrize("allowed", ["", "TRUE"])
def test_two_of_llvms_openmp(scene, names, allowed):
    files = [scene.put(f"{at}/{name}", at) for at, name in enumerate(names)]
    ran = scene.told(opened(*files), KMP_DUPLICATE_LIB_OK=allowed)
    assert ran.ids == ([] if allowed else [("CG842", "warning")])


# --- parts of one library -----------------------------------------------------------------------


def cudnn(scene, folder: str, name: str, version: str) -> Path:
    """Put a part of cuDNN, the version in the name of the file behind a link."""
    file = scene.put(f"{folder}/{name}.so.9", int(version.replace(".", "")))
    file.rename(file.with_name(f"{name}.so.{version}"))
    file.symlink_to(f"{name}.so.{version}")
    return file


@pytest.mark.parametrize(("version", "fault"), [("9.1.0", True), ("9.8.0", False)])
def test_parts_from_two_folders(scene, version, fault):
    main = cudnn(scene, "site/nvidia/cudnn/lib", "libcudnn", "9.8.0")
    cudnn(scene, "site/nvidia/cudnn/lib", "libcudnn_ops", "9.8.0")
    part = cudnn(scene, "old", "libcudnn_ops", version)
    scene.taker(str(main.relative_to(scene.folder)))
    ran = scene.told("import taker", opened(part))
    assert ran.ids == ([("CG842", "warning")] if fault else [])
    if fault:
        found = ran.only
        assert found["what"] == "Parts of cuDNN come from different folders."
        assert "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH" in found["consequence"]
        assert 'actions = [{ preload = "nvidia/cudnn/lib/libcudnn*.so.9" }]' in found["remedy"]


def test_libraries_without_their_like_are_not_judged(scene):
    """What judges is not light, and nearly every program has several of the libraries."""
    main = cudnn(scene, "lib", "libcudnn", "9.8.0")
    part = cudnn(scene, "lib", "libcudnn_ops", "9.8.0")
    other = scene.put("lib/libnvrtc.so.12", 1)
    is_there = (
        "import sys; print('cudaguard.features.duplicate_libraries.judgement' in sys.modules)"
    )
    ran = scene.told(opened(main, part, other), is_there, opened(scene.old()), is_there)
    assert (ran.lines, ran.ids) == (["False", "False"], [])
    second = scene.put("second/libnvrtc.so.12", 2)
    assert scene.told(opened(other, second), is_there).lines == ["True"]


def test_rule_proposed_for_parts_has_all_from_one_folder(scene):
    """As cuDNN does it: the main library opens its parts by name, when it needs them."""
    good = "site/nvidia/cudnn/lib"
    main = cudnn(scene, good, "libcudnn", "9.8.0")
    cudnn(scene, good, "libcudnn_ops", "9.8.0")
    cudnn(scene, "old", "libcudnn_ops", "9.1.0")
    scene.taker(str(main.relative_to(scene.folder)))
    use = "import taker\nprint(ctypes.CDLL('libcudnn_ops.so.9').release())"
    variables = {"LD_LIBRARY_PATH": f"{scene.folder}/old"}
    done = scene.run("import ctypes", use, **variables)
    assert (done.stdout, done.stderr) == ("910\n", "")
    ran = scene.told(use, **variables)
    assert ran.lines == ["910"]
    # What is to come, before it has come; and what has. One warning is enough.
    assert ran.ids == [("CG843", "warning"), ("CG842", "warning")]
    assert len(ran.warned) == 1
    assert f"{scene.folder}/{good}/libcudnn_ops.so.9" in ran.errors
    assert f"{scene.folder}/old/libcudnn_ops.so.9 (9.1.0) will be found first" in ran.errors
    remedy = ran.findings[0]["remedy"]
    assert f"without {scene.folder}/old in LD_LIBRARY_PATH" in remedy
    assert ran.findings[1]["remedy"] == remedy.replace("libcudnn_ops.so.9", "libcudnn.so.9")
    scene.child.write("cudaguard.toml", "[[rules]]" + remedy.partition("[[rules]]")[2])
    ran = scene.told(use, mode="strict", CUDAGUARD_CONFIG="cudaguard.toml", **variables)
    assert (ran.lines, ran.findings, ran.errors) == (["980"], [], "")


@pytest.mark.parametrize(
    ("flags", "version"),
    [(("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN"), "9.1.0"), ((), "9.8.0")],
    ids=["found beside it all the same", "same release"],
)
def test_parts_that_will_fit(scene, flags, version):
    good = "site/nvidia/cudnn/lib"
    main = scene.put(f"{good}/libcudnn.so.9", 980, *flags)
    cudnn(scene, good, "libcudnn_ops", "9.8.0")
    cudnn(scene, "old", "libcudnn_ops", version)
    ran = scene.told(opened(main), mode="strict", LD_LIBRARY_PATH=f"{scene.folder}/old")
    assert (ran.findings, ran.errors) == ([], "")


# --- when it looks ------------------------------------------------------------------------------


def test_looking_loads_nothing(scene):
    """Not even the library that was meant."""
    scene.both()
    scene.taker()
    maps = "print(open('/proc/self/maps').read().count('nvidia/cuda_runtime'))"
    assert scene.told("import taker", ASK, maps).lines == ["consumer 12010", "0"]


def test_threads_that_load_at_once(scene):
    """Each library is seen, whoever looks first."""
    files = [str(scene.put(f"libiomp5-{at:08x}.so", at)) for at in range(24)]
    code = f"""
import threading
files = {files!r}
def load(mine):
    for file in mine: ctypes.CDLL(file)
threads = [threading.Thread(target=load, args=(files[at::4],)) for at in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    ran = scene.told(code, mode="observe")
    assert set(ran.ids) == {("CG842", "warning")}
    assert ran.errors == ""
    seen = " ".join(line for found in ran.findings for line in found["evidence"])
    assert all(file in seen for file in files)


def test_what_an_extension_imports_while_it_is_mapped_is_not_blamed(scene, compiler):
    """torch._C brings the libraries and imports numpy before it is done."""
    scene.old()
    scene.wheel()
    brings = ("-Wl,--no-as-needed", f"{scene.folder}/old/{CUDART}")
    imports = 'if (!PyImport_ImportModule("inner")) return 0;'
    for name, first, flags in (("outer", imports, brings), ("inner", "", ())):
        file = name + sysconfig.get_config_var("EXT_SUFFIX")
        source = MODULE.format(name=name, body="", call=first)
        compiler.put(scene.folder / "site" / file, source, *flags)
    ran = scene.told("import outer", opened(scene.folder / WHEEL), LD_LIBRARY_PATH="old")
    assert ran.ids == [("CG842", "warning")]
    assert "came with outer, which was just being imported" in ran.only["evidence"][0]


@pytest.mark.parametrize("record", ["", "journal.jsonl"])
def test_libraries_that_come_and_go_leave_nothing_in_memory(child, compiler, record):
    """As those of compilers do, each in a file of its own name."""
    compiler.put(child.folder / "libtiny.so", "int tiny(void) { return 7; }\n")
    done = child.python(
        """
        import collections, ctypes, _ctypes, gc, os, shutil, sys, cudaguard, cudaguard.api
        cudaguard.install()
        def load(first, last):
            for number in range(first, last):
                path = os.path.abspath(f"lib{number:08}.so")
                shutil.copyfile("libtiny.so", path)
                _ctypes.dlclose(ctypes.CDLL(path)._handle)
                os.unlink(path)
            gc.collect()
            return sys.getallocatedblocks()
        # Of events a number is kept, which it would take long to come to.
        journal = cudaguard.core.lifecycle.activation.core.journal
        journal._seen = collections.deque(maxlen=1)
        blocks = [load(number, number + 150) for number in range(0, 750, 150)]
        # What grows does so every time; the tables of Python itself, now and then.
        print(min(map(int.__sub__, blocks[1:], blocks)) / 150, cudaguard.status().findings)
        """,
        env={"CUDAGUARD_JOURNAL": record},
    )
    grown, _, findings = done.stdout.partition(" ")
    assert (float(grown) < 0.5, findings.strip()) == (True, "()"), done.stdout
