"""``%load_ext cudaguard`` in real IPython, and in a real Jupyter kernel, cell by cell."""

from __future__ import annotations

import json
import sys

import pytest

from .marks import ON_LINUX

pytestmark = ON_LINUX

SHELL = (
    ("ipython==9.18.1", "ipykernel==7.4.0", "jupyter-client==8.10.0")
    if sys.version_info >= (3, 11)
    else ("ipython==8.18.1", "ipykernel==6.29.5", "jupyter-client==8.6.3")
)
FAULT = ("decord==0.6.0", "opencv-python-headless==4.10.0.84", "numpy<2.3")
OURS = ("packaging", "importlib-metadata", "tomli")
# Executes cells, and prints what each has written; None stands for a restart.
NOTEBOOK = """
import json, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(startup_timeout=120)
told = []
for code in json.load(open("cells.json")):
    if code is None:
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=120)
        continue
    out = {"stdout": "", "stderr": "", "error": ""}
    def hear(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            out[content["name"]] += content["text"]
        elif message["msg_type"] == "error":
            out["error"] = content["ename"]
    client.execute_interactive(code, timeout=240, output_hook=hear)
    told.append(out)
client.stop_channels()
manager.shutdown_kernel(now=True)
json.dump(told, sys.stdout)
"""
PICTURE = """
import cv2, numpy
_, png = cv2.imencode(".png", numpy.zeros((8, 8, 3), numpy.uint8))
print(cv2.imdecode(png, 1) is not None)
"""
LOAD = "%load_ext cudaguard"
NONE_EARLY = "cudaguard is on in this session, mode fix.\n"


@pytest.fixture
def python(cached_environment):
    return cached_environment(*SHELL, *FAULT, *OURS)


@pytest.fixture
def notebook(child, python, root):
    """Executes cells in a kernel; returns what each has written."""

    def notebook(*cells, **env):
        child.write("cells.json", json.dumps(cells))
        child.write("notebook.py", NOTEBOOK)
        env = {"PYTHONPATH": str(root), "JUPYTER_RUNTIME_DIR": str(child.folder), **env}
        done = child.command(python, "notebook.py", env=env, timeout=600)
        return json.loads(done.stdout)

    return notebook


@pytest.fixture
def ipython(child, python, root):
    """Executes lines in IPython; returns the finished process."""

    def ipython(*lines, **env):
        env = {"PYTHONPATH": str(root), "IPYTHONDIR": str(child.folder / "ipython"), **env}
        code = "\n".join(lines)
        return child.command(python, "-m", "IPython", "--colors=NoColor", "-c", code, env=env)

    return ipython


def test_loading_it_first_says_so_and_cures(ipython):
    assert ipython("import decord", PICTURE).stdout == "False\n"
    done = ipython(LOAD, "import decord", PICTURE)
    assert (done.stdout, done.stderr) == ("True\n", NONE_EARLY)


def test_magic_tells_the_status_and_unloading_takes_the_guard_down(ipython):
    done = ipython(
        LOAD,
        "%cudaguard",
        "%unload_ext cudaguard",
        "import cudaguard; print(cudaguard.status().mode, 'cudaguard' in get_ipython()"
        ".magics_manager.magics['line'])",
        "%load_ext cudaguard",
        "%reload_ext cudaguard",
        "print(cudaguard.status().mode)",
    )
    first, *_, down, up = done.stdout.splitlines()
    assert first.startswith("cudaguard: mode fix, ")
    assert (down, up) == ("off False", "fix")
    assert done.stderr == 3 * NONE_EARLY


def test_kill_switch(ipython):
    done = ipython(LOAD, "%cudaguard", CUDAGUARD="off")
    assert done.stderr == "cudaguard stays off, as the variable CUDAGUARD says.\n"
    assert done.stdout.startswith("cudaguard: mode off")


def test_guard_that_was_there_before_is_not_too_late(ipython):
    done = ipython("import cudaguard; cudaguard.install()", "import decord", LOAD)
    assert done.stderr == NONE_EARLY


def test_cell_shows_what_is_too_late_and_a_restart_cures(notebook):
    early, bare, late, after, first, fine = notebook(
        "import decord", PICTURE, LOAD, PICTURE, None, f"{LOAD}\nimport decord", PICTURE
    )
    assert bare["stdout"] == "False\n"
    assert late["stderr"].count("Warning: [CG812]") == 1
    block = late["stderr"][late["stderr"].index("cudaguard is on in this session") :].splitlines()
    assert block[0].endswith("mode fix.")
    assert any(line.startswith("  cv2") and "(decord) instead of" in line for line in block)
    assert "restart the kernel" in block[-1]
    assert "ipykernel_launcher" not in late["stderr"]  # no command that nobody would type
    assert (first["stderr"], fine["stdout"]) == (NONE_EARLY, "True\n")
    assert not any(cell["error"] for cell in (early, bare, late, after, first, fine))


def test_findings_are_warnings_of_the_cell_and_a_list_by_the_magic(notebook, child):
    child.write("faulty.py", "")
    child.write(
        "rules.toml",
        "[[rules]]\nid = 'LOCAL1'\nwatch = ['faulty']\ngrade = 'report'\nwhy = 'wrong numbers'\n",
    )
    settings = {"CUDAGUARD_CONFIG": "rules.toml"}
    quiet, loud, asked = notebook(LOAD, "import faulty", "%cudaguard", **settings)
    assert quiet["stderr"] == NONE_EARLY
    assert "ImportOrderWarning: [LOCAL1] faulty: wrong numbers" in loud["stderr"]
    assert loud["error"] == ""
    assert asked["stdout"].startswith("cudaguard: mode fix, ")
    assert "[LOCAL1] faulty: wrong numbers" in asked["stdout"]


def test_library_that_is_refused_is_explained_below_its_cell(notebook, child):
    (child.folder / "short.so").write_bytes(b"")
    plain, told, known = notebook("import short", f"{LOAD}\nimport short", "1 / 0")
    assert plain["error"] == told["error"] == "ImportError"
    assert "ExtensionWarning: [CG841] short.so is truncated" in told["stderr"]
    assert "[CG" not in plain["stderr"] + known["stderr"]
