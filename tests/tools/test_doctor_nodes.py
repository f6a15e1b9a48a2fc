"""CG919: what ComfyUI's custom nodes require, in a folder like ComfyUI's."""

from __future__ import annotations

import os
import shutil
import sysconfig
import venv

import pytest

from ..conftest import ROOT
from .doctor import planted as planted


@pytest.fixture
def comfy(planted):
    """The folder in which the doctor runs, as ComfyUI; writes the list of a node."""
    folder = planted.child.folder
    (folder / "nodes.py").write_text("")

    def node(name, text):
        place = folder / "custom_nodes" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "requirements.txt").write_text(text)
        return place

    return node


def test_node_that_wants_another_numpy_is_named(planted, comfy):
    planted.distribution("numpy", "2.2.0")
    planted.distribution("torch", "2.6.0+cu124")
    path = comfy("pretty-nodes", "# what we need\nnumpy<2  # ABI\ntorch==2.6.0\n")
    comfy("strict-nodes", "numpy==1.26.4\n")
    comfy("modern", "numpy>=2\n")
    status, (found,) = planted.one("CG919")
    assert status == "warning"
    assert found["what"] == (
        "The ComfyUI custom node pretty-nodes requires numpy<2, but numpy 2.2.0 is installed."
    )
    assert found["evidence"][1:] == ["strict-nodes: numpy==1.26.4"]
    assert found["command"].endswith(f"pip install --dry-run -r {path}/requirements.txt")


def test_pin_that_is_a_habit_is_a_note(planted, comfy):
    planted.distribution("torch", "2.6.0+cu124")
    comfy("pinned", "torch==2.5.1\n")
    status, (found,) = planted.one("CG919")
    assert (status, found["severity"]) == ("ok", "info")


QUIET = """
-r other.txt
--extra-index-url https://example.org/simple
git+https://example.org/torch.git
numpy @ https://example.org/numpy.whl
numpy
numpy<3,>=1.25
numpy==1.0; python_version < "3"
opencv-python>=99
requests==0.1
numpy (
torch>=2,
"""


def test_nodes_that_have_what_they_want_are_quiet(planted, comfy):
    """What is not installed is told by ComfyUI, and what others require is not ours."""
    planted.distribution("numpy", "2.2.0")
    planted.distribution("torch", "2.6.0")
    planted.distribution("requests", "2.32")
    comfy("modern", QUIET)
    comfy("old.disabled", "numpy<2\n")
    comfy(".hidden", "numpy<2\n")
    odd = comfy("odd", "")
    (odd / "requirements.txt").unlink()
    os.mkfifo(odd / "requirements.txt")
    (comfy("bytes", "") / "requirements.txt").write_bytes(b"\xff\xfenumpy<2\n")
    assert planted.one("CG919") == ("ok", [])


def test_comfyui_itself_and_in_a_folder_of_its_own(planted, comfy):
    planted.distribution("numpy", "1.20.0")
    place = planted.child.folder
    comfy("any", "")
    inner = place / "ComfyUI"
    inner.mkdir()
    for name in ("nodes.py", "custom_nodes"):
        shutil.move(place / name, inner / name)
    (inner / "requirements.txt").write_text("numpy>=1.25.0\n")
    _, (found,) = planted.one("CG919")
    assert found["what"] == "ComfyUI requires numpy>=1.25.0, but numpy 1.20.0 is installed."


def test_environment_in_the_folder_of_comfyui_leads_to_it(planted, comfy, tmp_path):
    planted.distribution("numpy", "2.2.0")
    comfy("pretty-nodes", "numpy<2\n")
    place = tmp_path / "elsewhere"
    shutil.move(planted.child.folder / "custom_nodes", place / "custom_nodes")
    (place / "nodes.py").write_text("")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"}
    status, _ = planted.one("CG919", env=env, python=place / "venv" / "bin" / "python")
    assert status == "warning"


def test_it_is_skipped_where_there_is_no_comfyui(planted, comfy):
    planted.distribution("numpy", "2.2.0")
    comfy("pretty-nodes", "numpy<2\n")
    (planted.child.folder / "nodes.py").unlink()
    assert planted.one("CG919") == ("skipped", [])
