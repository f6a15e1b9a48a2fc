"""Packages that fit one another in pairs of releases: told before the import that fails."""

from __future__ import annotations

import pytest

FITS = (*("0.12.1 2.12.0", "0.10.0 2.10.0+cu130", "0.8.0 2.9.0", "0.1.1 2.5.1"),)
FITS_NOT = ("0.11.0 2.10.0", "0.7.0 2.7.1+cu126", "0.2.1 2.5.1")


def told(child, module, **versions):
    """What is said of the import of a module in an environment of these packages."""
    for name, version in versions.items():
        child.distribution(name.replace("_", "-"), version)
        child.write(f"{name}.py", "")
    return child.python(f"import cudaguard; cudaguard.install()\nimport {module}").stderr


@pytest.mark.parametrize("pair", [*FITS, *FITS_NOT])
def test_torchcodec_and_torch(child, pair):
    codec, torch = pair.split()
    said = told(child, "torchcodec", torchcodec=codec, torch=torch)
    if pair in FITS:
        assert said == ""
    else:
        title = "torchcodec's README lists another torch for this version of torchcodec"
        assert f"[CG048] {title}.\n" in said
        assert f"installed: torchcodec {codec}, torch {torch}\n" in said
        assert "Install a pair that its README lists" in said


def test_torchcodec_without_torch_is_another_matter(child):
    assert told(child, "torchcodec", torchcodec="0.7.0") == ""


@pytest.mark.parametrize(("extra", "is_told"), [("usd_core", True), ("numpy_usd", False)])
def test_usd_beside_isaac_sim(child, extra, is_told):
    assert ("[CG049]" in told(child, "isaacsim", isaacsim="5.0.0", **{extra: "25.8"})) is is_told
