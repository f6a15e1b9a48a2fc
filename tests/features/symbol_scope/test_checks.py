"""CG915: what LD_PRELOAD puts before everything else, as doctor sees it."""

from __future__ import annotations

import json
import sys

import pytest

DOCTOR = (sys.executable, "-m", "cudaguard", "doctor", "--format", "json", "--only", "CG915")


@pytest.fixture
def examined(child):
    """Return status and findings of the check, with a value of LD_PRELOAD."""

    def examine(value: str):
        env = {"LD_PRELOAD": value} if value else {}
        done = child.command(*DOCTOR, env=env, check=False)
        (check,) = json.loads(done.stdout)["checks"]
        return check["status"], check["reason"], [one["what"] for one in check["findings"]]

    return examine


def test_nothing_is_preloaded(examined):
    assert examined("") == ("skipped", "LD_PRELOAD is not set", [])


def test_library_that_fits_is_fine(examined, compiler):
    good = compiler.library("libgood.so", "int good;")
    assert examined(f"{good} libm.so.6") == ("ok", "libraries: 2", [])


def test_file_that_is_not_there(examined):
    status, _, findings = examined("/nowhere/libgone.so:/nowhere/libgone.so")
    assert status == "warning"
    assert findings == ["LD_PRELOAD names /nowhere/libgone.so, which is not there."]


def test_file_that_is_no_library(examined, child):
    text = child.write("notes.txt", "no library")
    status, _, findings = examined(str(text))
    assert status == "warning"
    assert findings == [
        f"LD_PRELOAD names {text}, which cannot be read as a library for this machine."
    ]


def test_library_with_a_runtime_of_its_own(examined, tmp_path):
    import shutil
    import subprocess

    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    source, built = tmp_path / "own.cpp", tmp_path / "libown.so"
    source.write_text(
        '#include <iostream>\nextern "C" void say(int n) { std::cout << n; }\n', encoding="utf-8"
    )
    flags = ("-shared", "-fPIC", "-static-libstdc++", "-o", str(built), str(source))
    subprocess.run(("c++", *flags), check=True)
    status, _, findings = examined(str(built))
    assert status == "warning"
    assert findings == [f"LD_PRELOAD puts the C++ runtime inside {built} before libstdc++.so.6."]
