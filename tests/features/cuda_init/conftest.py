"""The fixture `program`: with the stub driver, or with the driver of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .program import Program, RealGPUs, RealProgram, look_for_gpus

if TYPE_CHECKING:
    from .. import native_fixtures


@pytest.fixture(scope="session")
def gpus() -> RealGPUs:
    """The GPUs of this machine."""
    return look_for_gpus()


@pytest.fixture
def program(request: pytest.FixtureRequest, child: Any) -> Program:
    """A program that finds the stub drivers; in the test's variant "real", those of the machine."""
    if getattr(request, "param", "stub") == "real":
        return RealProgram(child, request.getfixturevalue("gpus"))
    stubs: native_fixtures.DriverStubs = request.getfixturevalue("driver_stubs")
    return Program(child, stubs)
