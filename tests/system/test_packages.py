"""What is installed, as metadata of either form tells it."""

from __future__ import annotations

import quopri  # noqa: F401  # metadata of some forms are read with it, also without a path to it
import sys

import pytest

from cudaguard.system.packages import installed

METADATA = "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is the whole path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("form", ["thing-1.0.dist-info", "thing.egg-info", "EGG-INFO"])
def test_requirements_of_either_form(folder, form):
    place = folder / "thing-1.0-py3.egg" if form == "EGG-INFO" else folder
    info = place / form
    info.mkdir(parents=True)
    if form.endswith("dist-info"):
        (info / "METADATA").write_text(f"{METADATA}Requires-Dist: torch>=2\nRequires-Dist: numpy\n")
    else:
        (info / "PKG-INFO").write_text(METADATA)
        (info / "requires.txt").write_text("torch>=2\nnumpy\n")
    if form == "EGG-INFO":
        sys.path[:] = [str(place)]
    (found,) = installed().found
    assert (found.name, found.version) == ("thing", "1.0")
    assert found.requires == ("torch>=2", "numpy")


def test_distribution_without_requirements(folder):
    info = folder / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (found,) = installed().found
    assert found.requires == ()
