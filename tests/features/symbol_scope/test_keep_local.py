"""Which libraries a rule may keep out of the global symbol scope."""

from __future__ import annotations

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.registry import Registry, entry_of
from cudaguard.core.rule import Rule


@pytest.fixture
def core():
    """A guard whose one rule has the widest pattern."""
    rule = Rule("WIDE", ("pkg",), "why", actions=({"load_local": "lib*.so*"},))
    made = Dispatch()
    made.reporter.mode = "fix"
    made.put_in_force(Registry([(entry_of(rule), "test")], {}))
    return made


def test_library_of_its_own_is_kept_local(core):
    stays_local, opened = core.native.scope_of_library("/pkg/libother.so.1")
    assert stays_local
    assert core.reporter.changes == ()
    opened()
    (change,) = core.reporter.changes
    assert change == "libother.so.1: kept in local symbol scope by WIDE (stays)"


@pytest.mark.parametrize(
    "name", ["libtorch_global_deps.so", "libgomp-a34b3233.so.1", "libcudart.so.12", "libc.so.6"]
)
def test_wide_pattern_takes_nothing_from_what_is_global_on_purpose(core, name):
    assert core.native.scope_of_library(f"/pkg/{name}") is None


def test_other_names_are_no_business_of_the_rule(core):
    assert core.native.scope_of_library("/pkg/plugin.so") is None
