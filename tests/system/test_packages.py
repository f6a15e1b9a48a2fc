"""What is installed, as metadata of either form tells it."""

from __future__ import annotations

import sys

import pytest

from cudaguard.system.packages import installed

METADATA = "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def thing():
    return next(dist for dist in installed().found if dist.name == "thing")


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
        sys.path.insert(0, str(place))
    assert (thing().version, thing().requires) == ("1.0", ("torch>=2", "numpy"))


def test_distribution_without_requirements(folder):
    info = folder / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    assert thing().requires == ()
