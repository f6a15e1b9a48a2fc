"""A failure of the guard, or of its settings, is told once: not per .pth line, hook or process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig

import pytest

from ..conftest import clean_environment

# --- a start-up that fails ---------------------------------------------------------------------


@pytest.fixture
def bare_environment(tmp_path, root):
    """A virtual environment whose only package is the start-up, as a wheel puts it there."""
    folder = tmp_path / "environment"
    command = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(command, check=True, timeout=120, env=clean_environment())
    packages = sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder})
    for file in ("cudaguard.pth", "_cudaguard_boot.py"):
        shutil.copy(root / file, packages)
    return folder / "bin" / "python", packages


def test_start_up_that_fails_is_told_once_in_a_virtual_environment(child, bare_environment):
    python, packages = bare_environment
    child.write(f"{packages}/cudaguard/__init__.py", "raise RuntimeError('broken')\n")
    done = child.python("print('goes on')", python=str(python), env={"CUDAGUARD": "fix"})
    assert done.stdout == "goes on\n"
    assert done.stderr.count("RuntimeError: broken") == 1


# --- a setting that is wrong -------------------------------------------------------------------

# How a server of workers is started is an affair of its library and changes with it: `multiprocess`
# (of dill) has its own words for it, and Python 3.14 imports the main module in its server.
AS_OTHERS_DO = """
from multiprocessing import spawn, util

def start(path, arguments, files, real=util.spawnv_passfds):
    command = arguments[-1]
    if "forkserver" in command:
        command = f"import sys; {command}"
    return real(path, [*arguments[:-1], command], files)

def data(name, real=spawn.get_preparation_data):
    found = real(name)
    return {**found, "main_path": found.get("init_main_from_path")}

util.spawnv_passfds = start
spawn.get_preparation_data = data
"""
SERVED = """
import multiprocessing
{begins}
def work():
    print("worked", flush=True)

if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    {changes}
    for _ in range(2):
        process = multiprocessing.Process(target=work)
        process.start()
        process.join()
"""


@pytest.mark.parametrize("begins", ["", "import cudaguard; cudaguard.install()"])
@pytest.mark.parametrize(
    "changes",
    [pytest.param("", id="as-this-python"), pytest.param("import others", id="as-others")],
)
def test_bad_setting_is_told_once_under_a_server_of_workers(child, changes, begins):
    child.write("others.py", AS_OTHERS_DO)
    program = child.write("program.py", SERVED.format(begins=begins, changes=changes))
    env = {"CUDAGUARD": "fix", "CUDAGUARD_RULES": "nonsense"}
    done = child.command(sys.executable, program, env=env)
    assert done.stdout.split() == ["worked", "worked"]
    assert done.stderr.count("[CG806]") == 1
