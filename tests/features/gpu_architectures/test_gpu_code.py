"""GPU code of libraries on GPUs: what follows, and what doctor tells of installed packages."""

from __future__ import annotations

import shutil
import sys

import pytest

from cudaguard.elf.library_facts import GpuCode
from cudaguard.features.gpu_architectures.policy import code_for, device_of

from ...fat_binaries import compiled, library
from ...tools.doctor import planted as planted


@pytest.mark.parametrize(
    ("has", "device", "by"),
    [
        ("sm_80", (8, 0), "sm_80"),
        ("sm_80", (8, 6), "sm_80"),  # a later minor version
        ("sm_80 sm_86", (8, 9), "sm_86"),  # the closest
        ("sm_86", (8, 0), ""),
        ("sm_80", (9, 0), ""),
        ("sm_80 compute_80", (9, 0), "compute_80"),
        ("compute_80 compute_90", (10, 0), "compute_90"),
        ("sm_80 compute_90", (8, 6), "sm_80"),
        ("compute_90", (8, 0), ""),
        ("sm_90a compute_90a", (9, 0), "sm_90a"),
        ("sm_90a compute_90a", (10, 0), ""),  # exactly there, PTX as well
        ("sm_100a", (10, 3), ""),
        ("sm_100f", (10, 3), "sm_100f"),  # within its family
        ("compute_100f", (12, 0), ""),
        ("sm_120", (12, 1), "sm_120"),
        ("sm_80", (8, 7), ""),  # Jetson
        ("sm_87", (8, 9), ""),
        ("compute_80", (8, 7), "compute_80"),
        ("sm_101", (11, 0), "sm_101"),  # the same device by another name
        ("sm_110", (10, 1), "sm_110"),
    ],
)
def test_what_runs_where(has, device, by):
    assert code_for(device, GpuCode(tuple(has.split()))) == by


def test_unknown_kinds_are_not_judged():
    assert code_for((9, 0), GpuCode(("sm_80",), has_more=True)) is None
    assert code_for((8, 0), GpuCode(("sm_80",), has_more=True)) == "sm_80"


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("sm_90", (9, 0)), ("SM_90a", (9, 0)), ("compute_86", (8, 6)), ("100", (10, 0)),
        ("12.1", (12, 1)), (" 8.6 ", (8, 6)), ("9", None), ("sm_900", None), ("1.0", None),
        ("H100", None), ("", None), ("-8.6", None),
    ],
)  # fmt: skip
def test_gpu_as_it_is_written(text, device):
    assert device_of(text) == device


# --- doctor --------------------------------------------------------------------------------------


@pytest.fixture
def installed(planted):
    """Plants a distribution whose files have GPU code for these."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")

    def installed(name="flashy", **files):
        names = []
        for file, has in files.items():
            path = library(planted.folder / name / f"{file}.so", *has.split())
            names.append(str(path.relative_to(planted.folder)))
        planted.distribution(name, "2.5", files=names)

    return installed


@pytest.fixture
def doctor(planted, driver_stubs):
    """Returns what the check finds with GPUs of these compute capabilities."""

    def doctor(*capabilities):
        env = driver_stubs.environment(len(capabilities), capability=list(capabilities))
        return planted.one("CG918", "--deep", env=env)

    return doctor


def test_package_without_code_for_the_gpu(installed, doctor):
    installed(_C="sm_80 sm_86")
    status, (found,) = doctor("9.0")
    assert (status, found["severity"]) == ("fail", "error")
    assert found["what"].startswith("flashy 2.5 has no code for ")
    assert found["what"].endswith(" (sm_90).")
    assert found["evidence"][0].endswith("_C.so: sm_80 sm_86")
    assert "no kernel image is available for execution on the device" in found["consequence"]
    assert "TORCH_CUDA_ARCH_LIST='9.0'" in found["remedy"]
    assert found["command"] == "cudaguard check-extension --gpu sm_90 --verbose flashy"


def test_package_that_runs_is_not_spoken_of(installed, doctor):
    installed(_C="sm_80 sm_86")
    assert doctor("8.9") == ("ok", [])


def test_of_two_gpus_the_one_that_is_lacking_is_named(installed, doctor):
    installed(_C="sm_80")
    status, (found,) = doctor("8.6", "12.0")
    assert (status, found["severity"]) == ("warning", "warning")
    assert found["what"].endswith("(sm_120).")


def test_of_variants_one_has_to_serve(installed, doctor):
    """As bitsandbytes has a library for each CUDA, and calls one of them."""
    installed(lib118="sm_80 sm_90", lib128="sm_80 compute_90")
    assert doctor("12.0") == ("ok", [])


def test_file_that_makes_no_sense_is_passed_over(installed, doctor, planted):
    installed("broken", _C="sm_80")
    path = planted.folder / "broken" / "_C.so"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\x50\xed\x55\xba", b"none"))
    installed("whole", _C="sm_80")
    status, findings = doctor("9.0")
    assert (status, len(findings)) == ("fail", 1)
    assert findings[0]["what"].startswith("whole 2.5")


def test_nothing_with_gpu_code(planted, doctor):
    planted.distribution("plain")
    _, checks = planted.checks("--only", "CG918", "--deep")
    assert checks["CG918"]["status"] == "skipped"
    assert doctor("9.0")[0] == "skipped"


def test_without_deep_nvml_is_not_asked(planted):
    _, checks = planted.checks()
    assert "CG918" not in checks


# --- In a process that uses CUDA -----------------------------------------------------------------

USES_CUDA = """
import cudaguard; cudaguard.install()
import ctypes, os, sys
{before}
driver().cuInit(0)
{after}
{then}
"""
LATER = "import wave\nctypes.CDLL('libm.so.6')"  # an import, after which the driver is asked
ENDS = "from cudaguard.api import activation; activation.core.error_ends(None)"  # as `run` does
LOADS = "ctypes.CDLL(os.path.abspath('site-packages/{}'))"


@pytest.mark.parametrize("comes", ["before", "after", "end"])
@pytest.mark.parametrize(
    ("capability", "files", "lacks"),
    [
        ("12.0", {"flashy/_C.so": "sm_80 sm_90"}, True),
        ("9.0", {"flashy/_C.so": "sm_80 sm_90"}, False),
        ("12.0", {"flashy/_C.so": "sm_80 compute_80"}, False),
        ("12.0", {"flashy/_C.so": "sm_90a", "flashy/sub/_D.so": "sm_120"}, False),
        ("12.0", {"torch/lib/libtorch_cuda.so": "sm_80"}, False),
    ],
)
def test_library_that_this_process_uses(program, comes, capability, files, lacks):
    for file, has in files.items():
        library(program.folder / "site-packages" / file, *has.split())
    then, comes = (ENDS, "before") if comes == "end" else (LATER, comes)
    loads = {"then": then, "before": "", "after": "", comes: LOADS.format(next(iter(files)))}
    ran = program.run(USES_CUDA.format(**loads), devices=1, capability=capability)
    assert ran.warned == ["CG893"] * lacks
    told = "flashy has no code for device 0 (compute capability 12.0)." in ran.err
    assert told is lacks
    assert ("TORCH_CUDA_ARCH_LIST='12.0'" in ran.err) is lacks


def test_forked_process_asks_the_driver_nothing_more(program):
    library(program.folder / "site-packages/flashy/_C.so", "sm_80")
    compiled(program.folder / "site-packages/flashy/_D.so", "")
    calls = []
    for file in ("flashy/_C.so", "flashy/_D.so"):
        after = f"import wave\nin_child(lambda: {LOADS.format(file)})\n"
        code = USES_CUDA.format(before="", after=after, then=LATER)
        calls.append(program.run(code, devices=1, capability="12.0").calls)
    assert calls[0] == calls[1]
