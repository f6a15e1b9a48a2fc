"""The forks of decord: one has the same fault, one must be left alone under the same name."""

from __future__ import annotations

import pytest

from ..decord_fault import DECODE
from .marks import ON_LINUX

pytestmark = ON_LINUX

PROGRAM = f"\n    import decord{DECODE}"
GUARDED = f"""
    import cudaguard
    cudaguard.install("strict"){PROGRAM}
    from cudaguard.core.lifecycle import activation
    print([f"{{r.rule}} {{r.verb}} {{r.subject}}" for r in activation.core.reporter.repairs])
    print([f for f in cudaguard.status().findings if f.severity != "info"])
"""
OPENCV = ("opencv-python-headless==4.10.0.84", "numpy==2.0.2")


@pytest.fixture
def run(child, cached_environment, root):
    """Runs code in an environment with one fork of decord and this checkout on the path."""

    def run(fork, code):
        python = cached_environment(fork, *OPENCV, "packaging", "importlib-metadata")
        done = child.python(code, python=str(python), env={"PYTHONPATH": str(root)})
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("fork", ["eva-decord==0.6.1", "eva-decord==0.6.0"])
def test_eva_decord_has_the_fault_and_is_repaired(run, fork):
    assert run(fork, PROGRAM) == ["none"]
    assert run(fork, GUARDED) == ["right", "['CG001 load_local libdecord.so']", "[]"]


def test_decord2_is_left_alone(run):
    assert run("decord2==3.4.0", PROGRAM) == ["right"]
    assert run("decord2==3.4.0", GUARDED) == ["right", "[]", "[]"]
