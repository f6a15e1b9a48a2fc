"""`cudaguard check-extension`: files, folders, distributions; text and JSON; exit statuses."""

from __future__ import annotations

import sys

import pytest

from ...documents import valid
from ...fat_binaries import binary, library, source

CALL = {"body": "int absent_f(void);", "call": "absent_f();"}


@pytest.fixture
def command(child):
    """Runs the command; returns its status, its lines and its errors."""

    def command(*arguments, **options):
        done = child.command(
            sys.executable, "-m", "cudaguard", "check-extension", *arguments, check=False, **options
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return command


def test_file_with_a_fault(build, command):
    path = build.module("half", **CALL)
    status, lines, told = command(path)
    assert (status, told) == (1, "")
    assert lines[0] == f"{path}: would NOT load [own-source-missing]"
    assert lines[1].startswith(
        f"    because: {path.name} was probably linked without one of its sources or libraries: "
    )
    assert lines[2].startswith("    fix: add the missing source file")
    assert lines[3:] == ["1 checked: 1 would not load"]


def test_names_in_cxx_are_readable(build, command):
    source = "int mine(const char *text, double); int call() { return mine(0, 1); }"
    path = build("plugin.so", source, "-nostdlib", compiler="c++")
    assert "`mine(char const*, double)`" in command(path)[1][1]


def test_folder_is_searched_for_what_an_import_may_load(build, command):
    """What is healthy is only counted; what is bundled for others or built for others is not."""
    build.module("healthy")
    for name in ("libhelper.so", "pack.libs/libx.so", "old.cpython-37m-x86_64-linux-gnu.so"):
        build(name, "int absent_f(void); int call(void) { return absent_f(); }")
    deep = build("a/b/deep.so", "int absent_f(void); int call(void) { return absent_f(); }")
    status, lines, _ = command(build.folder)
    assert status == 1
    assert [line for line in lines if line[0] not in " 2"] == [
        f"{deep}: would NOT load [own-source-missing]"
    ]
    assert lines[-1] == "2 checked: 1 would load, 1 would not load"


def test_installed_distribution_by_name(build, command, child, tmp_path):
    path = build.module("half", **CALL)
    child.distribution("Half-Ext", files=(path.name, "half.py"))
    status, lines, _ = command("half-ext", env={"PYTHONPATH": str(tmp_path)})
    assert (status, lines[-1]) == (1, "1 checked: 1 would not load")


def test_what_is_nothing_is_wrong_usage(command):
    status, lines, told = command("no-such-thing")
    assert (status, lines) == (2, [])
    assert "no-such-thing: expected a file, a folder, or the name of an installed" in told
    assert command()[0] == 2


def test_data(build, command):
    healthy, half = build.module("healthy"), build.module("half", **CALL)
    status, lines, _ = command("--format", "json", healthy, half)
    data = valid("check-extension", "\n".join(lines))
    assert (status, data["tool"]) == (1, "check-extension")
    assert [check["path"] for check in data["checks"]] == [str(healthy), str(half)]
    assert [check["ok"] for check in data["checks"]] == [True, False]
    assert data["checks"][1]["missing_symbols"] == [["absent_f", "absent_f"]]
    assert data["checks"][1]["assume_imported"] == []


def test_prerequisite_by_rule_counts_as_imported(build, command, child):
    """`provider` is said to bring the library, and is not imported to find it."""
    library = build.library("libprovided.so.1")
    path = build.module("needs", library, **CALL)
    (build.folder / "provider").mkdir()
    library.rename(build.folder / "provider" / library.name)
    build(
        "provider/native.so", "int absent_f(void); int call(void) { return absent_f(); }",
        build.folder / "provider" / library.name, "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip
    child.write("provider/__init__.py", "1 / 0")
    child.write(
        "cudaguard.toml",
        """
        [[rules]]
        id = "LOCAL1"
        watch = ["provider"]
        actions = [{ provide_libraries = "libprovided.so*" }]
        why = "it has the library"
        """,
    )
    assert command(path)[0] == 1
    env = {
        "CUDAGUARD_CONFIG": str(child.folder / "cudaguard.toml"),
        "PYTHONPATH": str(child.folder),
    }
    status, lines, told = command(path, env=env)
    assert (status, told) == (0, "")
    assert lines[0] == f"{path}: would load (once provider is imported)"


# --- many files, and many symbols ----------------------------------------------------------------


def test_first_few_symbols_are_shown_and_all_if_asked(build, command):
    names = [f"absent{number}" for number in range(20)]
    path = build.module(
        "twenty", body="".join(f"int {name}(void);" for name in names),
        call="".join(f"{name}();" for name in names),
    )  # fmt: skip
    (line,) = [line for line in command(path)[1] if line.startswith("    missing symbols: ")]
    assert line.count("absent") == 3
    assert line.endswith(" and 17 more (--verbose)")
    lines = command("--verbose", path)[1]
    shown = {line for line in lines if line.startswith("    missing symbol: ")}
    assert shown == {f"    missing symbol: {name}" for name in names}


# --- GPUs ----------------------------------------------------------------------------------------


def on_gpus(command, path, *gpus):
    """Return the status, what is told of GPUs, and the architectures."""
    options = [word for gpu in gpus for word in ("--gpu", gpu)]
    status, lines, _ = command("--format", "json", *options, path)
    (check,) = valid("check-extension", "\n".join(lines))["checks"]
    return status, check["gpus"], check["architectures"]


def test_gpu_with_code_and_without(command, tmp_path):
    path = library(tmp_path / "_C.so", "sm_80", "sm_90a", "compute_90")
    status, gpus, has = on_gpus(command, path, "sm_86", "9.0", "sm_70", "10.0")
    assert has == ["sm_80", "sm_90a", "compute_90"]
    assert [(one["gpu"], one["ok"], one["by"]) for one in gpus] == [
        ("sm_86", True, "sm_80"),
        ("sm_90", True, "sm_90a"),
        ("sm_70", False, None),
        ("sm_100", True, "compute_90"),
    ]
    assert "no kernel image is available for execution on the device" in gpus[2]["message"]
    assert "runs its PTX for compute_90, JIT-compiled at first use" in gpus[3]["message"]
    assert status == 1


def test_gpu_in_words(command, tmp_path):
    path = library(tmp_path / "_C.so", "sm_80")
    status, lines, told = command("--gpu", "sm_90", path)
    assert (status, told) == (1, "")
    assert lines[0] == f"{path}: would load, and has NO code for sm_90"
    assert lines[1].startswith("    sm_90: no code for it, only sm_80: ")
    assert "TORCH_CUDA_ARCH_LIST='9.0'" in lines[2]
    assert lines[3:] == ["1 checked: 1 would load, 1 with no code for sm_90"]
    assert command("--gpu", "sm_86", path)[0] == 0


def test_gpu_code_that_cannot_be_read_is_told(command, tmp_path):
    path = library(tmp_path / "_C.so", "sm_80")
    head, magic, rest = path.read_bytes().partition(b"\x50\xed\x55\xba")
    path.write_bytes(head + magic + rest[:4] + b"\xff" * 7 + rest[11:])
    status, (gpu,), has = on_gpus(command, path, "sm_90")
    assert (status, has, gpu["ok"]) == (0, [], None)
    assert gpu["message"].startswith("sm_90: unknown, because its GPU code cannot be read: a fat")


def test_library_that_others_load_is_judged_by_its_gpu_code(build, command, tmp_path):
    """What it lacks may come from who loads it; its code for GPUs does not."""
    lacking = "int absent_f(void); int call(void) { return absent_f(); }"
    path = build("pack/libopen.so", source(tmp_path, [binary("sm_80")]) + lacking)
    assert command(path.parent) == (0, ["no extensions or libraries found"], "")
    status, lines, _ = command("--gpu", "sm_90", path.parent)
    assert status == 1
    assert lines[0] == f"{path}: has NO code for sm_90"
    assert lines[-1] == "1 checked: 1 for GPU code only, 1 with no code for sm_90"
    lines = command("--verbose", path.parent)[1]
    assert lines[:2] == [f"{path}: has GPU code", "    GPU code: sm_80"]
    assert command("--gpu", "sm_80", path.parent) == (0, ["1 checked: 1 for GPU code only"], "")


def test_gpu_that_makes_no_sense(command):
    status, lines, told = command("--gpu", "H100", "anything")
    assert (status, lines) == (2, [])
    assert "--gpu: got 'H100', expected a compute capability such as sm_90 or 9.0" in told
