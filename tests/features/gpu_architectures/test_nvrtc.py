"""GPUs that torch, or its NVRTC, does not know: told when torch uses CUDA; another NVRTC first."""

from __future__ import annotations

import pytest

from ...processes import sabotaged

REFUSED = "RuntimeError nvrtc: error: invalid value for --gpu-architecture (-arch)"
USE = """
import torch
torch.cuda.init()  # use
attempt(torch.cuda.jit)
print(*sorted(ids()))
"""
GUARDED = "cudaguard.install()\n" + USE
GB10 = "12.1"  # torch 2.8 runs on it, and its NVRTC 12.8 does not know it


def test_it_is_told_at_the_first_use(program):
    program.torch()
    ran = program.run(GUARDED, capability=GB10)
    assert ran.out[0] == REFUSED
    assert ran.warned == ["CG894"]
    assert program.where("use") in ran.err
    assert "device" in ran.err
    assert (
        "NVRTC 12.8 does not support sm_121 of devices 0, 1 (compute capability 12.1)." in ran.err
    )
    assert "pip install 'nvidia-cuda-nvrtc-cu12==12.9.*'" in ran.err
    assert "nvidia/cuda_nvrtc/lib/libnvrtc.so.12 of CUDA 12.8, supports 50 52" in ran.err


@pytest.mark.parametrize("place", ["beside/nvidia/cuda_nvrtc/lib", "cuda/targets/any/lib"])
def test_another_one_that_is_installed_is_loaded_first(program, place):
    program.torch()
    newer = program.nvrtc((12, 9), place)
    program.nvrtc((13, 0), "beside/nvidia/cu13/lib")  # by another name
    more = {"env": {"CUDA_HOME": str(program.folder / "cuda")}, "capability": GB10}
    assert program.run(USE, **more).out[0] == REFUSED
    ran = program.run(
        f"import logging; logging.basicConfig(level='INFO')\n{GUARDED}"
        "for line in cudaguard.status().changes: print(line)\n"
        # NVRTC asks for it by name, and does not always look beside itself.
        "for line in {l.split()[-1] for l in open('/proc/self/maps') if 'builtins' in l}:\n"
        "    print('builtins', line)",
        # Behind torch's own copy.
        env={**more["env"], "PYTHONPATH": f"{program.site}:{program.folder / 'beside'}"},
        capability=GB10,
    )
    assert ran.out[0] == "ok compiled"
    assert ran.warned == []
    how = f"{newer}: loaded before torch, "
    (change,) = (line for line in ran.out if line.startswith(how))
    assert change.endswith(" by CG033 (stays)")
    assert f"builtins {newer.parent / 'libnvrtc-builtins.so.12.9'}" in ran.out
    assert any("libnvidia-ml.so.1: loaded before torch, to ask it" in line for line in ran.out)
    assert (
        f"CG033: {how}because NVRTC 12.9 supports the GPUs here (compute capability 12.1)"
        in ran.err
    )
    assert "and torch's own 12.8 does not" in ran.err


@pytest.mark.parametrize(
    ("capability", "flags"),
    [
        ("9.0", "sm_80 sm_90 sm_120"),  # torch's own knows it
        (["9.0", "12.1"], "sm_80 sm_90 sm_120"),  # so does it for one of them
        ("12.1", "sm_80 sm_90"),  # torch itself cannot use it
        ("15.0", "sm_80 sm_150"),  # nobody knows it
    ],
)
def test_it_is_left_alone_where_it_works_or_cannot_help(program, capability, flags):
    program.torch(flags=flags)
    program.nvrtc((12, 9), "beside/nvidia/cuda_nvrtc/lib")
    ran = program.run(
        "cudaguard.install()\nimport torch\nprint(*cudaguard.status().changes, sep='\\n')",
        path=("beside",),
        capability=capability,
    )
    assert not any("CG033" in line and "libnvrtc" in line for line in ran.out)


@pytest.mark.parametrize("where", ["driver", "copy", "mode", "rule"])
def test_nvml_is_not_loaded_for_nothing(program, where):
    program.torch()
    if where != "copy":
        program.nvrtc((12, 9), "beside/nvidia/cuda_nvrtc/lib")
    if where == "driver":
        (program.folder / "driver").unlink()
    install = {"mode": "'observe'", "rule": "disable=['CG033']"}.get(where, "")
    ran = program.run(
        f"cudaguard.install({install})\nimport torch\n"
        "print(any('nvidia-ml' in line or 'libnvrtc' in line for line in open('/proc/self/maps')))",
        path=("beside",),
        capability=GB10,
    )
    assert ran.out == ["False"]
    assert ran.calls == []


def test_a_library_that_cannot_be_loaded_costs_nothing(program):
    program.torch()
    newer = program.nvrtc((12, 9), "beside/nvidia/cuda_nvrtc/lib")
    broken = program.compile(
        newer,
        "int nowhere(void); int f(void) { return nowhere(); }",
        "-Wl,-soname,libnvrtc.so.12",
        "-Wl,-z,now",
    )
    ran = program.run(GUARDED, path=("beside",), capability=GB10)
    assert ran.out[0] == REFUSED
    assert ran.warned == ["CG033", "CG894"]
    assert f"OSError: {broken}: undefined symbol: nowhere" in ran.err
    strict = GUARDED.replace("install()", "install('strict')")
    ran = program.run(strict, path=("beside",), capability=GB10, check=False)
    assert ran.status == 1
    assert (
        "ImportOrderError: cudaguard could not load a library that torch needs before it."
        in ran.err
    )


def test_gpu_that_is_known_is_not_spoken_of(program):
    program.torch()
    ran = program.run(GUARDED, capability="12.0")
    assert ran.out == ["ok compiled", "CG814"]
    assert ran.err == ""


def test_torch_that_has_no_code_for_the_gpu(program):
    program.torch("2.6.0", "sm_50 sm_80 sm_90", (12, 4), "12.4")
    ran = program.run(GUARDED, devices=1, capability="12.0")
    assert ran.warned == ["CG893"]
    assert "torch 2.6.0 has no code for device 0 (compute capability 12.0)." in ran.err
    assert "it was built for sm_50 sm_80 sm_90" in ran.err
    assert "pip install 'torch>=2.8.0'" in ran.err


@pytest.mark.parametrize(
    ("capability", "command"),
    [("8.9", "pip install --force-reinstall torch"), ("3.5", "TORCH_CUDA_ARCH_LIST")],
)
def test_torch_that_was_built_for_another_gpu(program, capability, command):
    program.torch("2.8.0", "sm_90")
    ran = program.run(GUARDED, devices=1, capability=capability)
    assert ran.warned == ["CG893"]
    assert command in ran.err
    assert "from PyPI, which" not in ran.err


def test_gpu_that_is_too_old(program):
    program.torch("2.11.0", "sm_75 sm_80", (13, 0), "13.0")
    ran = program.run(GUARDED, devices=1, capability="7.0")
    assert ran.warned == ["CG893"]
    assert "pip install 'torch<2.11.0'" in ran.err


def test_no_release_of_the_same_major_version_helps(program):
    program.torch("2.11.0", "sm_70 sm_80", (13, 0), "13.0")
    ran = program.run(GUARDED, devices=1, capability="7.0")
    assert ran.warned == ["CG894"]
    assert "built with another major version of CUDA: torch<2.11.0 from PyPI" in ran.err


def test_of_devices_that_are_not_the_default_one_is_only_taken_note(program):
    program.torch()
    several = {"devices": 2, "capability": ["12.1", "9.0"]}  # the second one is CUDA's first
    ran = program.run(GUARDED + "print(found('CG894')[0].what)", **several)
    assert ran.out == [
        "ok compiled",
        "CG814 CG894",
        ("torch's NVRTC 12.8 does not support sm_121 of device 1 (compute capability 12.1)."),
    ]
    assert ran.err == ""
    assert program.run(GUARDED, env={"LOCAL_RANK": "1"}, **several).out[1] == "CG814 CG894"
    on_rank = {"env": {"LOCAL_RANK": "0"}, "devices": 2, "capability": ["9.0", "12.1"]}
    assert program.run(GUARDED, **on_rank).warned == ["CG894"]


def test_guard_that_comes_after_torch(program):
    program.torch()
    late = program.run(
        "import torch\ncudaguard.install()\nprint(*ids())\ntorch.cuda.init()\nprint(*ids())",
        capability=GB10,
    )
    assert late.out == ["", "CG894"]
    later = program.run(
        "import torch\ntorch.cuda.init()\ncudaguard.install()\nprint(*ids())",
        capability=GB10,
    )
    assert "CG894" in later.out[0]


def test_torch_without_cuda(program):
    program.torch("2.13.0+cpu", cuda=None)
    ran = program.run("cudaguard.install()\nimport torch\nprint(torch.cuda._queued_calls, *ids())")
    assert ran.out == ["[]"]


def test_nothing_is_left_in_torchs_list(program):
    program.torch()
    ran = program.run(
        """
        with cudaguard.guard():
            import torch
            print(len(torch.cuda._queued_calls))
            print([line for line in cudaguard.status().changes if "torch.cuda" in line])
        print(torch.cuda._queued_calls)
        with cudaguard.guard():
            with cudaguard.guard(mode="strict"):
                print(len(torch.cuda._queued_calls))
        print(torch.cuda._queued_calls)
        torch.cuda.init()
        print([line for line in cudaguard.status().changes if "torch.cuda" in line])
        """,
        capability=GB10,
    )
    assert ran.out == [
        "1",
        "['torch.cuda: looks at the architectures of GPUs when it initializes CUDA']",
        "[]",
        "1",
        "[]",
        "[]",
    ]
    assert ran.warned == []


@pytest.mark.parametrize("category", ["Warning", "cudaguard.CudaGuardWarning"])
def test_warning_that_is_an_error_does_not_break_torch(program, category):
    program.torch()
    filters = f"import warnings; warnings.simplefilter('error', {category})\n"
    ran = program.run(filters + GUARDED, capability=GB10)
    assert ran.out == [REFUSED, "CG814 CG894"]
    assert "CudaGuardWarning: [CG894]" in ran.err


def test_failure_of_ours_does_not_break_torch(program):
    program.torch()
    broken = sabotaged("cudaguard.features.gpu_architectures.detector", "look_at_torch")
    ran = program.run(broken + GUARDED, capability=GB10)
    assert ran.out == [REFUSED, "CG807 CG814"]


def test_it_is_told_in_a_worker_too(program):
    program.torch()
    ran = program.run(
        """
        cudaguard.install()
        import torch
        def work():
            torch.cuda.init()
            print(*ids())
        in_child(work)
        """,
        capability=GB10,
    )
    assert "CG894" in ran.out[0]


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="errors take no notes")
def test_error_that_leaves_the_guard_is_explained_with_what_is_here(program):
    program.torch()
    ran = program.run(
        "import torch\ntorch.cuda.init()\n"
        "try:\n    with cudaguard.guard():\n        torch.cuda.jit()\n"
        "except RuntimeError as error:\n    print(*error.__notes__)",
        capability=GB10,
        devices=1,
    )
    (head, *lines) = ran.out
    assert head == (
        "cudaguard [CG894] torch's NVRTC 12.8 does not support sm_121 of device 0 (compute "
        "capability 12.1)."
    )
    assert any("nvidia-cuda-nvrtc-cu12==12.9.*" in line for line in lines)
    assert any("libnvrtc.so.12 of CUDA 12.8, supports 50" in line for line in lines)


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="errors take no notes")
def test_error_of_another_library_names_the_copies_that_are_here(program):
    copy = program.nvrtc((12, 4), "elsewhere")
    ran = program.run(
        f"""
        import ctypes
        ctypes.CDLL({str(copy)!r})
        cudaguard.install()
        driver().cuInit(0)
        try:
            with cudaguard.guard():
                raise RuntimeError("nvrtc: error: invalid value for --gpu-architecture (-arch)")
        except RuntimeError as error:
            print(*error.__notes__)
        """,
        capability=GB10,
        devices=1,
    )
    assert any("device 0 has compute capability 12.1" in line for line in ran.out)
    assert any(f"{copy} of CUDA 12.4, supports 50 52" in line for line in ran.out)
