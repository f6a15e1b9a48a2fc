"""CG916: the EGL device that MuJoCo or robosuite is told to take, against those there are."""

from __future__ import annotations

import json
import sys

import pytest

from cudaguard.features.cuda_init.checks import RenderDevice, asked_for

DOCTOR = (sys.executable, "-m", "cudaguard", "doctor", "--format", "json", "--only", "CG916")
# libEGL.so.1 of a machine with so many devices.
EGL = """
typedef unsigned (*query)(int, void **, int *);
static unsigned ask(int size, void **devices, int *count) {{
    (void)size; (void)devices;
    *count = {count};
    return 1;
}}
query eglGetProcAddress(const char *name) {{ return name[3] == 'Q' ? ask : 0; }}
"""


@pytest.fixture
def examined(child, compiler):
    """Return the check's status, what it looked at, and its findings, for packages and devices."""

    def examine(packages: str, count: int | None, **env: str):
        for name in packages.split():
            folder = f"site/{name}-9.dist-info"
            child.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
        source = "int nothing;" if count is None else EGL.format(count=count)
        library = compiler.library("libEGL.so.1", source)
        paths = {"LD_LIBRARY_PATH": str(library.parent), "PYTHONPATH": str(child.folder / "site")}
        done = child.command(*DOCTOR, env={**paths, **env}, check=False)
        (check,) = json.loads(done.stdout)["checks"]
        return check["status"], check["reason"], check["findings"]

    return examine


def test_device_that_is_not_there(examined):
    status, _, (found,) = examined("mujoco", 1, MUJOCO_GL="egl", MUJOCO_EGL_DEVICE_ID="1")
    assert status == "warning"
    assert found["what"] == "MuJoCo would render on EGL device 1, but EGL has 1 device here."
    assert found["command"] == "unset MUJOCO_EGL_DEVICE_ID"


def test_robosuite_takes_the_number_of_cuda(examined):
    status, _, (found,) = examined("mujoco robosuite", 2, CUDA_VISIBLE_DEVICES="3,4")
    assert status == "warning"
    assert found["what"] == "robosuite would render on EGL device 3, but EGL has 2 devices here."
    assert "after `import robosuite`" in found["remedy"]


@pytest.mark.parametrize(
    ("packages", "count", "env"),
    [
        ("mujoco", 2, {"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "1"}),
        ("mujoco robosuite", 4, {"CUDA_VISIBLE_DEVICES": "3"}),
    ],
)
def test_device_that_is_there(examined, packages, count, env):
    assert examined(packages, count, **env) == ("ok", f"EGL devices: {count}", [])


@pytest.mark.parametrize(
    ("packages", "count", "env", "reason"),
    [
        ("", 1, {"MUJOCO_EGL_DEVICE_ID": "5"}, "neither MuJoCo nor robosuite is installed"),
        ("mujoco", 1, {"MUJOCO_GL": "egl"}, "MUJOCO_EGL_DEVICE_ID is not set"),
        ("mujoco", None, {"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "5"}, "EGL cannot be asked"),
    ],
)
def test_it_has_nothing_to_say(examined, packages, count, env, reason):
    status, said, findings = examined(packages, count, **env)
    assert (status, findings) == ("skipped", [])
    assert said.startswith(reason)


@pytest.mark.parametrize(
    ("environ", "mujoco", "robosuite"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, None, RenderDevice(1, "CUDA_VISIBLE_DEVICES", "robosuite")),
        (
            {"CUDA_VISIBLE_DEVICES": "1", "MUJOCO_EGL_DEVICE_ID": "0", "MUJOCO_GL": "EGL"},
            RenderDevice(0, "MUJOCO_EGL_DEVICE_ID", "MuJoCo"),
            RenderDevice(0, "MUJOCO_EGL_DEVICE_ID", "robosuite"),
        ),
        ({"CUDA_VISIBLE_DEVICES": "1", "MUJOCO_GL": "osmesa"}, None, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937", "MUJOCO_GL": "egl"}, None, None),
        ({"MUJOCO_GL": "egl"}, None, None),
    ],
)
def test_who_reads_which_variable(environ, mujoco, robosuite):
    assert asked_for(environ, mujoco=True, robosuite=False) == mujoco
    assert asked_for(environ, mujoco=True, robosuite=True) == robosuite
