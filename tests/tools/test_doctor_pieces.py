"""The pure parts of the doctor: statuses, gates, ages, orders, drivers, wheels."""

from __future__ import annotations

import re

import pytest

from cudaguard.core.checks import FAILED_ITSELF, CheckResult, status_of
from cudaguard.core.findings import Finding
from cudaguard.features._index import IDS as DETECTORS
from cudaguard.features.duplicate_libraries.checks import cuda_of_wheel
from cudaguard.files.layout import Page
from cudaguard.tools.doctor.checks import CHECKS, all_checks
from cudaguard.tools.doctor.command import bundle, document, lay_out
from cudaguard.tools.explain import RULES


def finding(severity):
    return Finding("CG901", "it is so", severity=severity)


def test_ids_of_checks_are_in_their_range_and_each_is_declared():
    assert [check.id for check in all_checks().values()] == list(CHECKS)
    assert all(re.fullmatch(r"CG9\d\d", id) for id in CHECKS)
    assert not set(CHECKS) & {*DETECTORS, *(rule.id for rule in RULES)}
    for check in all_checks().values():
        assert check.title.strip()
        assert check.about.endswith(".")
        assert check.option in ("", "--deep")
        assert callable(check.run)


@pytest.mark.parametrize(
    ("key", "version", "major"),
    [
        ("nvidia-cublas-cu12", "12.4.5.8", "12"), ("nvidia-cublas", "13.1.0.3", "13"),
        ("nvidia-cudnn-cu13", "9.20.0.48", "13"), ("cupy-cuda12x", "13.6.0", "12"),
        ("cupy-cuda118", "11.0", "11"), ("nvidia-dali-cuda120", "1.35", "12"),
        ("nvidia-ml-py", "12.560", ""), ("nvidia-cudnn-frontend", "1.5", ""),
        ("cupy", "13.6.0", ""), ("torch", "2.6", ""),
    ],
)  # fmt: skip
def test_cuda_of_a_wheel(key, version, major):
    assert cuda_of_wheel(key, version) == major


def told(report, *, verbose=False):
    page = Page(verbose=verbose)
    lay_out(report, page)
    return str(page)


def test_text_has_all_of_a_warning_and_one_line_of_a_note():
    whole = Finding("CG901", "what", severity="warning", evidence=("seen",), consequence="then",
                    remedy="cure", command="run it", links=("https://example.org",))  # fmt: skip
    checks = [
        CheckResult(
            "CG901", "title", "warning", "looked at", 3, [whole, whole.replace(severity="info")]
        ),
        CheckResult("CG903", "other", "broken", f"{FAILED_ITSELF}: oh"),
    ]
    report = document(checks, {"python": "3"}, "0")
    assert told(report).splitlines() == [
        "cudaguard 0, python 3", "", "broken   CG903  other (the check itself failed: oh)",
        "warning  CG901  title: 1 warning (looked at)", "  warning: what", "    then",
        "    because: seen", "    fix: cure", "    more: https://example.org", "    run: run it",
        "note     CG901  what", "", "1 warning in 1 check; 1 check could not be made",
        "A broken check is a fault of cudaguard: please report it, with --bundle FILE.",
        "run: run it",
    ]  # fmt: skip
    assert told(report, verbose=True).count("    then\n") == 2


def test_what_is_fine_or_skipped_is_counted_and_listed_on_request():
    checks = [
        CheckResult("CG901", "a", "ok", "looked at"),
        *(CheckResult(f"CG90{n}", "b", "skipped", "no torch") for n in (2, 3)),
        CheckResult("CG915", "c", "skipped", "no driver is there"),
        CheckResult("CG905", "d", "skipped", "not set"),
        CheckResult("CG906", "e", "skipped", "nothing is linked"),
        CheckResult("CG918", "f", "ok"),
    ]
    report = document(checks, {}, "0")
    assert told(report).splitlines()[2:] == [
        "ok       2 checks",
        "skipped  5 checks: no torch (CG902, CG903); not set (CG905); and 2 more (--verbose)",
        "",
        "no faults found in 2 checks",
    ]
    whole = told(report, verbose=True).splitlines()
    assert whole[2:5] == [
        "ok       CG901  a (looked at)", "ok       CG918  f", "skipped  CG902  b (no torch)",
    ]  # fmt: skip
    assert len(whole) == 11


def test_command_is_that_of_the_worst_finding():
    def found(severity):
        return Finding("CG901", severity, severity=severity, command=f"cure {severity}")

    order = ("info", "warning", "error")
    checks = [
        CheckResult(f"CG90{n}", "t", status_of([found(one)]), findings=[found(one)])
        for n, one in enumerate(order)
    ]
    lines = told(document(checks, {}, "0")).splitlines()
    assert lines[-2:] == ["1 error, 1 warning in 3 checks", "run: cure error"]
    assert lines[2].startswith("fail ")
    assert told(document(checks[:1], {}, "0")).endswith("no faults found in 1 check")


def test_fence_of_a_bundle_is_longer_than_what_is_in_it():
    report = document([CheckResult("CG901", "a ``` b", "ok")], {"python": "3"}, "0")
    assert "````text\ncudaguard 0" in bundle(report, "{}")
