"""The facts rules are conditioned on, as this interpreter really has them."""

from __future__ import annotations

import os
import platform
import sys
import zipfile

import pytest

from cudaguard.core.decide import applies
from cudaguard.core.rule import Rule
from cudaguard.system.facts import Facts, Packages


def test_facts_about_the_interpreter():
    facts = Facts()
    assert facts.python == "{}.{}.{}".format(*sys.version_info)
    assert facts.platform == sys.platform
    assert facts.machine == platform.machine()
    assert facts.environ is os.environ


def test_versions_of_installed_distributions_under_any_spelling():
    facts = Facts()
    version = facts.version("importlib-metadata")
    assert version == facts.version("importlib_metadata") == facts.version("Importlib.Metadata")
    assert version is not None
    assert version[0].isdigit()


@pytest.mark.parametrize("content", [None, b"", b"Name: broken\n", b"\xff\xfe\0", b"Version:\n"])
def test_broken_metadata_counts_as_not_installed(tmp_path, monkeypatch, content):
    folder = tmp_path / "broken_dist-1.0.dist-info"
    folder.mkdir()
    if content is not None:
        (folder / "METADATA").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Facts().version("broken-dist") is None
    rule = Rule("R", ("x",), "w", dist=("broken-dist",))
    assert not applies(rule, Facts())


@pytest.mark.parametrize("name", ["no-such-one", "", " ", "a b", "../x", "a/b", "\0", "x" * 5000])
def test_name_no_distribution_has_is_not_installed(name):
    assert Facts().version(name) is None


def test_version_is_looked_up_once_per_object(child, monkeypatch):
    facts = Facts()
    assert facts.version("late-dist") is None
    child.distribution("late-dist")
    monkeypatch.syspath_prepend(str(child.folder))
    assert facts.version("late-dist") is None
    assert Facts().version("late-dist") == "1.0"


def test_environment_in_the_working_folder_is_no_package(monkeypatch):
    """As `.venv` beside the script: its lib/libmkl_rt.so is not of the package that asks."""
    site = next(e for e in sys.path if e.startswith(sys.prefix) and e.endswith("-packages"))
    monkeypatch.syspath_prepend(os.path.dirname(sys.prefix))
    assert Packages().of(os.path.realpath(sys.prefix) + "/lib/libmkl_rt.so") == ""
    assert Packages().of(os.path.realpath(site) + "/mkl/libmkl_rt.so") == "mkl"


def test_asking_maps_no_library_and_imports_no_cuda_module(child):
    done = child.python(
        """
        import sys
        from cudaguard.system.facts import Facts
        facts = Facts()
        facts.version("torch"), facts.version("decord"), facts.machine
        print([m for m in sys.modules if m in ("ctypes", "torch", "decord", "pynvml", "wrapt")])
        """
    )
    assert done.stdout == "[]\n"


ASK = """
import sys
from cudaguard.system.facts import Facts
print(Facts().version("made-up.dist"), "importlib.metadata" in sys.modules)
"""


def asked(child, **env):
    return child.python(ASK, env=env).stdout.split()


def test_what_is_not_installed_costs_no_import(child):
    child.write("made_up.py", "")
    child.distribution("made-up-disk")
    assert asked(child) == ["None", "False"]


@pytest.mark.parametrize(
    "path",
    [
        "made_up_dist-2.5.dist-info/METADATA",
        "Made_Up.Dist-2.5.dist-info/METADATA",
        "made_up_dist-2.5-py3.9.egg-info/PKG-INFO",
        "made_up_dist.egg-info/PKG-INFO",
    ],
)
def test_metadata_are_found_in_every_form(child, path):
    child.write(path, "Metadata-Version: 2.1\nName: made-up-dist\nVersion: 2.5\n")
    assert asked(child) == ["2.5", str("egg" in path)]


def test_metadata_in_a_zip_file_are_found(child):
    path = child.folder / "all.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("made_up_dist-2.5.dist-info/METADATA", "Name: made-up-dist\nVersion: 2.5\n")
    assert asked(child, PYTHONPATH=str(path)) == ["2.5", "True"]
