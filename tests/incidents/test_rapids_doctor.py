"""``rapids doctor`` makes our checks among its own."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="extensions are ELF files"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

PINS = ("rapids-cli==0.2.0", "packaging", "importlib-metadata")
ENTRY_POINTS = "[rapids_doctor_check]\ncudaguard = cudaguard.tools.rapids:cudaguard_check\n"
# Needs a library of CUDA that is nowhere, as a package that was built for another one.
EXTENSION = "int made(void); void *PyInit_lost(void) { return made() ? 0 : 0; }"


@pytest.fixture
def rapids(cached_environment, child, root):
    """Runs ``rapids doctor`` with our check alone; the checkout is as if it were installed."""
    site = child.folder / "site"
    metadata = "Metadata-Version: 2.1\nName: cudaguard\nVersion: 0\n"
    child.write("site/cudaguard-0.dist-info/METADATA", metadata)
    child.write("site/cudaguard-0.dist-info/entry_points.txt", ENTRY_POINTS)

    def rapids(*options):
        python = cached_environment(*PINS)
        env = {"PYTHONPATH": f"{site}{os.pathsep}{root}", "COLUMNS": "300"}
        command = (python.with_name("rapids"), "doctor", *options, "cudaguard")
        return child.command(*command, env=env, check=False, timeout=120)

    return rapids


def test_environment_without_faults(rapids):
    done = rapids("--verbose")
    assert done.returncode == 0, done.stdout
    assert "All checks passed!" in done.stdout
    assert "checks made" in done.stdout


def test_what_is_found(rapids, child):
    site = child.folder / "site"
    library = "libcudart.so.11.0"
    child.write("made.c", "int made(void) { return 1; }")
    child.write("lost.c", EXTENSION)
    shared = ("cc", "-shared", "-fPIC", "-o")
    child.command(*shared, library, f"-Wl,-soname,{library}", "made.c")
    child.command(*shared, str(site / "lost.so"), "lost.c", library)
    (child.folder / library).unlink()
    add_distribution(child, "lost", "lost.so,,\n")
    done = rapids()
    assert done.returncode == 0  # it may be meant for another machine
    assert (
        f"lost.so of lost 1 would probably not load: lost.so needs {library}"
        in done.stdout.partition("Warning")[2]
    )
    for name in ("one", "two"):
        add_distribution(child, name, f"shared/library.so,sha256={name},9\n")
    child.write("site/shared/library.so", "the second")
    done = rapids()
    assert done.returncode != 0
    assert "[CG905]" in done.stderr
    assert "more: cudaguard doctor --verbose" in done.stderr


def add_distribution(child, name, record):
    folder = f"site/{name}-1.dist-info"
    child.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    child.write(f"{folder}/RECORD", record)
