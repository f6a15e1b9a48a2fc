"""What works on which GPU: the verdict, what torch asks for, what is to be installed."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from cudaguard.features.gpu_architectures.policy import (
    CANNOT_RUN,
    FINE,
    KNOWN,
    NO_JIT,
    NVRTC_WHEELS,
    TORCH_WHEELS,
    UNKNOWN,
    asked_for,
    cure_for,
    helps,
    torch_of,
    verdict,
)
from cudaguard.files import os
from cudaguard.system.torch_build import are_wheels_known


def wheel(release):
    """The torch of PyPI of a release, and the NVRTC it comes with."""
    flags, cuda = next((f, c) for v, c, f in TORCH_WHEELS if v == release)
    return torch_of(release, flags), cuda


@pytest.mark.parametrize(
    ("device", "torch", "expected"),
    [
        ((9, 0), "2.5.1", FINE),
        ((8, 9), "2.5.1", FINE),
        ((12, 0), "2.5.1", CANNOT_RUN),
        ((10, 0), "2.7.1", CANNOT_RUN),
        ((12, 0), "2.8.0", FINE),
        ((12, 1), "2.8.0", NO_JIT),  # GB10
        ((10, 3), "2.8.0", NO_JIT),  # B300
        ((12, 1), "2.11.0", FINE),
        ((7, 0), "2.8.0", FINE),
        ((7, 0), "2.11.0", CANNOT_RUN),
        ((6, 1), "2.8.0", CANNOT_RUN),
        ((6, 1), "2.7.1", FINE),
        ((9, 0), "2.0.1", CANNOT_RUN),
        ((8, 9), "2.0.1", FINE),  # compute_86
    ],
)
def test_wheels_of_pypi(device, torch, expected):
    assert verdict(device, *wheel(torch)) == expected


@pytest.mark.parametrize(
    ("release", "nvrtc", "expected"),
    [
        ("1.12.1+cu113", (11, 3), NO_JIT),  # an RTX 4090 with the torch of many a paper
        ("1.10.0+cu113", (11, 3), NO_JIT),
        ("1.13.1+cu117", (11, 7), FINE),
        ("1.13.1+cu116", (11, 6), FINE),
        ("2.0.1+cu118", (11, 8), FINE),
        ("1.12.1+cu113", None, UNKNOWN),
        ("1.9.0+cu102", (10, 2), UNKNOWN),
    ],
)
def test_rtx_4090_with_old_torch(release, nvrtc, expected):
    torch = torch_of(release, ("sm_37", "sm_80", "sm_86"))
    assert verdict((8, 9), torch, nvrtc) == expected


def test_what_torch_asks_for():
    new, old = torch_of("2.0.1", ()), torch_of("1.12.1", ())
    assert asked_for((8, 9), new, (11, 7)) == 86
    assert asked_for((8, 9), new, (11, 8)) == 89
    assert asked_for((8, 9), old, (11, 7)) == 89
    assert asked_for((7, 5), new, (11, 7)) == 75
    assert asked_for((12, 1), new, (12, 8)) == 121


def test_torch_that_does_not_say_what_it_has_code_for():
    assert verdict((12, 1), torch_of("2.8.0", ()), (12, 8)) == NO_JIT
    assert torch_of("main", ()).version == ()
    assert torch_of("2.6.0a0+git123", ()).version == (2, 6)


@pytest.mark.parametrize(
    ("devices", "candidate", "expected"),
    [
        ([(12, 1)], (12, 9), True),
        ([(12, 1), (10, 3)], (12, 9), True),
        ([(12, 1)], (12, 8), False),
        ([(12, 1)], None, False),
        ([(12, 1), (9, 0)], (12, 9), False),  # one works as it is
        ([(12, 1), (5, 0)], (12, 9), True),  # one that torch cannot use does not count
        ([(5, 0)], (12, 9), False),
        ([], (12, 9), False),
    ],
)
def test_where_another_nvrtc_helps(devices, candidate, expected):
    assert helps(candidate, devices, *wheel("2.8.0")) is expected


@pytest.mark.parametrize(
    ("device", "major", "release", "torch", "cuda"),
    [
        ((12, 1), 12, (12, 9), "torch>=2.8.0", (12, 8)),
        ((12, 0), 12, (12, 8), "torch>=2.8.0", (12, 8)),
        ((10, 7), 13, (13, 4), "torch>=2.8.0", (12, 8)),
        ((8, 9), 11, (11, 8), "torch", (11, 7)),
        ((9, 0), 12, (12, 0), "torch>=2.1.2", (12, 1)),
        ((7, 0), 13, None, "torch<2.11.0", (11, 7)),
        ((6, 1), 13, None, "torch<2.8.0", (11, 7)),
        ((3, 5), 12, None, "", None),
    ],
)
def test_what_is_to_be_installed(device, major, release, torch, cuda):
    cure = cure_for([device], major)
    assert (cure.release, cure.torch, cure.cuda) == (release, torch, cuda)
    assert cure.wheel == NVRTC_WHEELS[major]


@pytest.mark.parametrize("release", [row[0] for row in TORCH_WHEELS])
def test_what_is_advised_runs(release):
    """Each architecture of a release: its cure admits that release."""
    from packaging.requirements import Requirement

    _, _, flags = next(row for row in TORCH_WHEELS if row[0] == release)
    for flag in flags:
        digits = flag.partition("_")[2]
        advised = cure_for([(int(digits[:-1]), int(digits[-1]))], 12).torch
        assert Requirement(advised).specifier.contains(release), flag


def test_no_torch_is_advised_where_the_wheels_are_others(monkeypatch):
    """Those on PyPI for AArch64 and Windows were not read, and many have no code for GPUs."""
    assert cure_for([(9, 0)], 12).torch == "torch>=2.1.2"
    cure = cure_for([(9, 0)], 12, with_torch=False)
    assert (cure.release, cure.wheel, cure.torch) == ((12, 0), "nvidia-cuda-nvrtc-cu12", "")
    monkeypatch.setattr(sys, "platform", "linux")
    for machine, expected in (("x86_64", True), ("aarch64", False)):
        one = SimpleNamespace(machine=machine)
        monkeypatch.setattr(os, "uname", lambda one=one: one, raising=False)
        assert are_wheels_known() is expected
    monkeypatch.setattr(sys, "platform", "win32")
    assert not are_wheels_known()


def test_the_page_shows_the_tables(root):
    text = (root / "docs" / "howto" / "architectures.md").read_text(encoding="utf-8")
    shown = {}
    previous = []
    for row in re.findall(r"^\| (1\d\.\d[^|]*?) \| ([^|]+?) \|$", text, re.MULTILINE):
        numbers = [int(word) for word in re.findall(r"\d+", row[1])]
        previous = numbers = previous + numbers if row[1].startswith("these") else numbers
        major, first, last = re.fullmatch(
            r"(\d+)\.(\d+)(?:(?: to |, )\d+\.(\d+))?", row[0]
        ).groups()
        for minor in range(int(first), int(last or first) + 1):
            shown[int(major), minor] = sorted(numbers)
    assert shown == {release: sorted(known) for release, known in KNOWN.items()}
    for release, cuda, flags in TORCH_WHEELS:
        numbers = " ".join(flag[3:] for flag in flags)
        assert re.search(
            rf"^\| {release}[^|]*\| {cuda[0]}\.{cuda[1]} \| {numbers} \|$", text, re.MULTILINE
        ), release
