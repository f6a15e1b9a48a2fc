"""What the machine offers to CUDA, as data: on the stub of NVML, and without one."""

from __future__ import annotations

import pytest

from .program import on_both_drivers

LOOK = """
from cudaguard.system.machine import look_at_machine
m = look_at_machine({root!r})
"""


def test_what_nvml_says_of_gpus(program):
    ran = program.run(
        LOOK.format(root="/nothing/here")
        + "print(m['nvml'], m['driver_version'], m['supported'], m['problems'])\n"
        "for gpu in m['gpus']: print(bool(gpu['name']), gpu['capability'])",
        devices=2,
        capability=["7.0", "9.0"],
    )
    assert ran.out == ["ok 580.65.06 13000 []", "True (7, 0)", "True (9, 0)"]


@on_both_drivers
def test_looking_does_not_initialize_the_driver(program):
    ran = program.run(
        LOOK.format(root="/") + "print(m['nvml'], len(m['gpus']) > 0)\nprint(asked())"
    )
    assert ran.out == ["ok True", "3"]
    assert program.is_real or ran.calls[-1] == "cuDeviceGetCount"  # the program's own question
    assert not [name for name in ran.calls[:-1] if name.startswith("cu")]


def test_nvml_that_does_not_work(program):
    ran = program.run(
        LOOK.format(root="/") + "print(m['gpus'], *m['problems'])", rc={"nvmlInit": 18}
    )
    (line,) = ran.out
    assert line.startswith("[] ")
    assert "different versions: reboot" in line


def test_driver_that_is_too_old_for_the_torch_that_is_installed(program):
    program.child.write("torch/version.py", "__version__ = '2.5.1+cu124'\ncuda = '12.4'\n")
    program.child.write("torch/__init__.py", "")
    ran = program.run(LOOK.format(root="/") + "print(*m['problems'])", driver_version=11080)
    (line,) = ran.out
    assert line.startswith("the driver supports CUDA 11.8, and torch is built for CUDA 12.4")


PLACES = {
    "bare": ([], (), "there is no NVIDIA driver on this machine"),
    "container": ([".dockerenv"], ("container",), "start it with the NVIDIA runtime"),
    "wsl": (["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"], ("wsl",), "NVML is not"),
    "jetson": (["etc/nv_tegra_release", "usr/lib64/libcuda.so.1"], ("jetson",), ""),
}


@pytest.mark.parametrize("place", PLACES)
def test_machines_without_nvml(child, root, tmp_path, place):
    files, kind, words = PLACES[place]
    for file in files:
        child.write(f"root/{file}", "")
    (tmp_path / "root").mkdir(exist_ok=True)
    code = f"""
        import sys
        sys.modules["pynvml"] = None
        from cudaguard.system import machine
        root = {str(tmp_path / "root")!r}
        m = machine.look_at_machine(root)
        print(m["nvml"], machine.kinds_of_machine(root), m["driver_library"])
        print(*m["problems"])
        """
    lines = child.python(code, env={"PYTHONPATH": str(root)}).stdout.splitlines()
    library = next((f"/{file}" for file in files if "libcuda" in file), "")
    assert lines[0].rstrip() == f"missing {kind} {library}".rstrip()
    assert words in lines[1]
    assert bool(words) == bool(lines[1])
