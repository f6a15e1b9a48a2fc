"""What works on which GPU: the verdict, what torch asks for, what is to be installed."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from cudaguard.features.gpu_architectures.findings import cannot_run
from cudaguard.features.gpu_architectures.policy import (
    TARGETS,
    TORCH_WHEELS,
    Torch,
    asked_for,
    can_compile,
    has_code,
    nvrtc_for,
    torch_for,
)
from cudaguard.files import os


@pytest.mark.parametrize(
    ("device", "release", "expected"),
    [
        ((9, 0), "2.1.2", True),
        ((8, 9), "2.1.2", True),
        ((12, 0), "2.1.2", False),
        ((12, 1), "2.8.0", True),  # GB10
        ((10, 3), "2.8.0", True),  # B300
        ((7, 0), "2.8.0", True),
        ((7, 0), "2.11.0", False),
        ((6, 1), "2.8.0", False),
        ((9, 0), "2.0.1", False),
        ((8, 9), "2.0.1", True),  # compute_86
    ],
)
def test_wheels_of_pypi(device, release, expected):
    assert has_code(Torch(release, TORCH_WHEELS[release]), device) is expected


@pytest.mark.parametrize(
    ("device", "release", "nvrtc", "expected"),
    [
        ((12, 1), "2.8.0", (12, 8), False),
        ((12, 1), "2.8.0", (12, 9), True),
        ((10, 3), "2.8.0", (12, 8), False),
        ((7, 0), "2.11.0", (13, 0), False),
        # An RTX 4090 with the torch of many a paper.
        ((8, 9), "1.12.1+cu113", (11, 3), False),
        ((8, 9), "1.10.0+cu113", (11, 3), False),
        ((8, 9), "1.13.1+cu117", (11, 7), True),
        ((8, 9), "1.13.1+cu116", (11, 6), True),
        ((8, 9), "2.0.1+cu118", (11, 8), True),
        # Nobody knows what that NVRTC knows.
        ((8, 9), "1.12.1+cu113", None, True),
        ((8, 9), "1.9.0+cu102", (10, 2), True),
    ],
)
def test_what_is_compiled_at_run_time(device, release, nvrtc, expected):
    assert can_compile(Torch(release, ()), nvrtc, device) is expected


def test_what_torch_asks_for():
    new, old = Torch("2.0.1", ()), Torch("1.12.1", ())
    assert asked_for((8, 9), new, (11, 7)) == 86
    assert asked_for((8, 9), new, (11, 8)) == 89
    assert asked_for((8, 9), old, (11, 7)) == 89
    assert asked_for((7, 5), new, (11, 7)) == 75
    assert asked_for((8, 9), Torch("main", ()), (11, 7)) == 89


def test_torch_that_does_not_say_what_it_has_code_for():
    assert has_code(Torch("2.8.0", ()), (12, 1))


@pytest.mark.parametrize(
    ("device", "major", "nvrtc", "torch"),
    [
        ((12, 1), 12, "nvidia-cuda-nvrtc-cu12==12.9.*", "torch>=2.8.0"),
        ((12, 0), 12, "nvidia-cuda-nvrtc-cu12==12.8.*", "torch>=2.8.0"),
        ((10, 7), 13, "nvidia-cuda-nvrtc==13.4.*", "torch>=2.8.0"),
        ((8, 9), 11, "nvidia-cuda-nvrtc-cu11==11.8.*", "torch"),
        ((7, 0), 13, "", "torch<2.11.0"),
        ((6, 1), 13, "", "torch<2.8.0"),
        ((3, 5), 12, "", ""),
    ],
)
def test_what_is_to_be_installed(device, major, nvrtc, torch):
    assert (nvrtc_for([device], major), torch_for(device)) == (nvrtc, torch)


@pytest.mark.parametrize("release", TORCH_WHEELS)
def test_what_is_advised_runs(release):
    """Each architecture of a release: its cure admits that release."""
    from packaging.requirements import Requirement

    for flag in TORCH_WHEELS[release]:
        digits = flag.partition("_")[2]
        advised = torch_for((int(digits[:-1]), int(digits[-1])))
        assert Requirement(advised).specifier.contains(release), flag


def test_no_torch_is_advised_where_the_wheels_are_others(monkeypatch):
    """Those on PyPI for AArch64 and Windows were not read, and many have no code for GPUs."""
    torch = Torch("2.0.0", ("sm_80",))
    for machine, command in (("x86_64", "pip install 'torch>=2.1.2'"), ("aarch64", "")):
        one = SimpleNamespace(machine=machine)
        monkeypatch.setattr(os, "uname", lambda one=one: one, raising=False)
        assert cannot_run(torch, {0: (9, 0)}, loud=True).command == command


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
    assert shown == {release: sorted(known) for release, known in TARGETS.items()}
    for release, flags in TORCH_WHEELS.items():
        numbers = " ".join(flag[3:] for flag in flags)
        assert re.search(rf"^\| {release}[^|]*\| [^|]+ \| {numbers} \|$", text, re.MULTILINE), (
            release
        )
