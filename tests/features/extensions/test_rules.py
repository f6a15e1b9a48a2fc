"""Packages that fit one another in pairs of releases: told before the import that fails."""

from __future__ import annotations

import pytest

FITS = (*("0.12.1 2.12.0", "0.10.0 2.10.0+cu130", "0.8.0 2.9.0", "0.1.1 2.5.1"),)
FITS_NOT = {
    "0.11.0 2.10.0": "run: pip install 'torchcodec==0.10.*'",
    "0.7.0 2.7.1+cu126": "run: pip install 'torchcodec>=0.3,<0.6'",
    "0.7.0 2.3.0": "fix: silence this if it does not affect your program",
}


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
        assert "[CG048] torchcodec was made for another torch.\n" in said
        assert f"installed: torchcodec {codec}, torch {torch}\n" in said
        assert FITS_NOT[pair] in said


def test_torchcodec_without_torch_is_another_matter(child):
    assert told(child, "torchcodec", torchcodec="0.7.0") == ""


REFUSED = """
import ctypes
try:
    ctypes.CDLL({path!r})
except OSError as error:
    raise ImportError("no torchcodec") from error
"""


@pytest.mark.parametrize("codec", ["0.11.0", "0.10.0"])
def test_library_that_is_refused_for_that_reason_is_not_told_besides(child, build, codec):
    """What it lacks has been said; of a release that fits, why it is refused is another matter."""
    absent = build.library("libnvrtc.so.13", "int x;")
    path = build("torchcodec/libtorchcodec_core4.so", "int y;", "-Wl,--no-as-needed", absent)
    absent.unlink()
    child.distribution("torchcodec", codec)
    child.distribution("torch", "2.10.0")
    child.write("torchcodec/__init__.py", REFUSED.format(path=str(path)))
    said = child.python("import cudaguard; cudaguard.install()\nimport torchcodec", check=False)
    told = [line.split("[")[1][:5] for line in said.stderr.splitlines() if "Warning: [" in line]
    assert told == (["CG048"] if codec == "0.11.0" else ["CG841"])


@pytest.mark.parametrize(("extra", "is_told"), [("usd_core", True), ("numpy_usd", False)])
def test_usd_beside_isaac_sim(child, extra, is_told):
    assert ("[CG049]" in told(child, "isaacsim", isaacsim="5.0.0", **{extra: "25.8"})) is is_told
