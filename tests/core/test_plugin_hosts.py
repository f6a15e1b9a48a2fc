"""A finding names the plug-in of a host program whose import led to it."""

from __future__ import annotations

import sys

import pytest

from cudaguard.core.plugin_hosts import plugin_of, with_plugin
from cudaguard.model import Finding

GUARD = """
import cudaguard, importlib, sys
rule = cudaguard.Rule("L1", ("culprit-x".replace("-", "_"),), "It breaks others.", grade="report")
cudaguard.install(rules=[rule])
sys.path += ["packages"]
"""
HOST = """
import importlib.util
spec = importlib.util.spec_from_file_location("node", {file!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
for finding in cudaguard.status().findings:
    print(*finding.evidence, sep="|")
"""


@pytest.fixture
def told(child):
    """Runs a module of a plug-in that imports the culprit; returns the evidence."""
    child.write("packages/culprit_x.py", "")
    child.write("packages/helper.py", "import culprit_x")

    def told(file, code="import culprit_x", **files):
        child.write(file, code)
        for path, text in files.items():
            child.write(path, text)
        done = child.command(
            sys.executable, "-c", GUARD + HOST.format(file=str(child.folder / file))
        )
        (line,) = done.stdout.splitlines()
        return [item.replace(f"{child.folder}/", "") for item in line.split("|")]

    return told


NODE = "ComfyUI/custom_nodes/pretty-nodes"


@pytest.mark.parametrize("code", ["import culprit_x", "import helper"])
def test_custom_node_is_named(told, code):
    evidence = told(f"{NODE}/__init__.py", code)
    assert evidence[1] == "part of the ComfyUI custom node pretty-nodes"
    assert evidence[0].startswith("imported at ")


def test_requirements_of_a_node_are_read(told):
    required = "# all of it\n  Culprit.X>=1 ; python_version > '3'\nnumpy\n-r more.txt\n"
    evidence = told(f"{NODE}/__init__.py", **{f"{NODE}/requirements.txt": required})
    assert evidence[1] == (
        "part of the ComfyUI custom node pretty-nodes; its requirements.txt lists culprit-x"
    )


def test_extension_of_kit_is_named(told):
    folder = "isaac/exts/my.robot.sensors"
    evidence = told(f"{folder}/my/robot/sensors.py", **{f"{folder}/config/extension.toml": ""})
    assert evidence[1] == "part of the Kit extension my.robot.sensors"


@pytest.mark.parametrize("file", ["train.py", "nodes/custom_nodes.py", "my_custom_nodes/x.py"])
def test_others_are_not(told, file):
    assert not any("part of" in item for item in told(file))


def test_name_at_the_end_of_a_sentence_is_found(tmp_path):
    """The words of a finding end with a period, which is a part of no name."""
    folder = tmp_path / "custom_nodes" / "pretty"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("culprit-x>=1\nother\n")
    scope = {"with_plugin": with_plugin, "Finding": Finding}
    code = "found = with_plugin(Finding('CG900', 'It comes after culprit_x.'))"
    exec(compile(code, str(folder / "__init__.py"), "exec"), scope)
    assert scope["found"].evidence == (
        "part of the ComfyUI custom node pretty; its requirements.txt lists culprit-x",
    )


def test_files_that_are_none():
    assert plugin_of("<string>") is None
    assert plugin_of("") is None
    assert plugin_of("/") is None
    assert plugin_of("/x/custom_nodes/single.py") == (
        "part of the ComfyUI custom node single.py",
        "/x/custom_nodes/single.py",
    )
