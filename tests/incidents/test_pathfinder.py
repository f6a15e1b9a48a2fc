"""The real cuda-pathfinder: a release that looks at the machine first, and a later one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None,
        reason="needs Linux' loader and a C compiler",
    ),
]
PROGRAM = """
import os, sys
sys.prefix = os.path.abspath("conda")
import cudaguard; cudaguard.install()
from cuda.pathfinder import load_nvidia_dynamic_lib
print(load_nvidia_dynamic_lib("nvrtc").abs_path)
"""


@pytest.mark.parametrize(("release", "is_told"), [("1.1.0", True), ("1.9.0", False)])
def test_nvrtc_of_the_machine(child, cached_environment, root, tmp_path_factory, release, is_told):
    folders = {12: tmp_path_factory.mktemp("machine") / "lib64", 13: child.folder / "conda" / "lib"}
    for number, folder in folders.items():
        soname = f"libnvrtc.so.{number}"
        folder.mkdir(parents=True)
        source = child.write("nvrtc.c", "int nvrtcVersion;")
        link = ("-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", folder / soname)
        subprocess.run(["cc", *link, source], check=True)
    child.write("conda/conda-meta/history", "")
    python = cached_environment(f"cuda-pathfinder=={release}", "packaging", "importlib-metadata")
    program = child.write("main.py", PROGRAM)
    env = {
        "LD_LIBRARY_PATH": str(folders[12]),
        "CONDA_PREFIX": str(child.folder / "conda"),
        "PYTHONPATH": str(root),
    }
    done = child.command(python, program, env=env)
    number = 12 if is_told else 13
    assert done.stdout.endswith(f"libnvrtc.so.{number}\n")
    assert ("main.py:6: ImportOrderWarning: [CG826] cuda.pathfinder" in done.stderr) is is_told
