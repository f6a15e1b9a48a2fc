"""``cudaguard doctor --diff``: real bundles, and the same with what other hosts would say."""

from __future__ import annotations

import copy

import pytest

from cudaguard.core.checks import CheckResult
from cudaguard.core.findings import Finding
from cudaguard.files.layout import Page
from cudaguard.system.packages import Site
from cudaguard.tools.common import UsageError, json_text
from cudaguard.tools.doctor.command import bundle, document
from cudaguard.tools.doctor.inventory import compare, facts_of, inventory, labels, read_facts, write

from ..documents import valid
from .doctor import PURE
from .doctor import planted as planted


@pytest.fixture(scope="module")
def real():
    """What this environment has, as data."""
    checks = [CheckResult("CG905", "installed distributions", "ok", "looked at: 3")]
    report = document(checks, {}, "0.1.0")
    found = inventory(Site())
    found["gpu"].update(driver="", models=[], pci_devices=0)
    found["system"]["libc"] = "glibc 2.36"
    return {**report, "inventory": {**found, "torch": {}, "libraries": {}, "conda": []}}


@pytest.fixture
def report(real):
    """The same, to be changed."""
    return copy.deepcopy(real)


def text_of(*reports, verbose=False):
    """Compares reports called a, b ...; returns the words."""
    page = Page(verbose=verbose)
    write(compare([facts_of(one) for one in reports], "abcdefghijklm"[: len(reports)]), page)
    return str(page)


def saved(child, name, report, **changes):
    """Writes a bundle with this report."""
    return child.write(name, bundle(report, json_text({**report, **changes})))


def test_bundles_of_two_hosts(planted, child):
    """Only how long each check took differs, and then a package."""
    for name in ("doctor-a.md", "doctor-b.md", "doctor-c.md"):
        if name == "doctor-c.md":
            planted.distribution("xformers", "0.0.35")
            planted.distribution("some-thing", "2.0", WHEEL=PURE)
        assert planted.run("--bundle", name, "--only", "CG905")[0] == 0
    alike = planted.run("--diff", "doctor-a.md", "doctor-b.md")
    assert alike == (0, "2 reports: alike in what matters\n", "")
    status, out, err = planted.run("--diff", "doctor-a.md", "doctor-c.md", "-o", "diff.json")
    assert (status, out, err) == (1, "", "")
    found = valid("doctor-diff", (child.folder / "diff.json").read_text())
    assert found["reports"] == ["a", "c"]
    assert found["groups"][1]["differences"] == [
        {"kind": "package", "name": "xformers", "reference": "", "here": "0.0.35"}
    ]
    (folded,) = [one for one in found["folded"] if one["kind"] == "package"]
    assert folded["name"] == "some-thing"
    assert folded["values"] == [
        {"value": "", "reports": ["a"]}, {"value": "2.0", "reports": ["c"]},
    ]  # fmt: skip


def test_what_seldom_matters_is_counted_and_listed_on_request(report, real):
    report["inventory"]["system"].update(kernel="5.4", memory_bytes=1)
    report["inventory"]["variables"]["PATH"] = "/elsewhere"
    report["inventory"]["python"]["prefix"] = "/elsewhere"
    assert text_of(real, report).splitlines() == [
        "2 reports: alike in what matters", "",
        "4 minor differences (--verbose)",
    ]  # fmt: skip
    assert "memory_bytes" in text_of(real, report, verbose=True)


CUDNN = {"name": "cudnn", "version": "9.8", "build": "h8_1", "source": "conda-forge"}


@pytest.mark.parametrize(
    ("key", "change", "line"),
    [
        ("gpu", {"driver": "535.183.01"}, "driver    kernel module: absent -> 535.183.01"),
        ("gpu", {"models": ["NVIDIA L4"] * 2}, "GPUs      none -> 2 x NVIDIA L4"),
        ("gpu", {"pci_devices": 4}, "GPUs      none -> 4 on the PCI bus, models unknown"),
        ("system", {"libc": "glibc 2.31"}, "system    libc: glibc 2.36 -> glibc 2.31"),
        ("conda", [CUDNN], "conda     cudnn: absent -> 9.8"),
        ("torch", {"cuda": "12.4"}, "torch     cuda: absent -> 12.4"),
        ("libraries", {"libcudnn.so.9": "/x.9.1"}, "library   libcudnn.so.9: absent -> /x.9.1"),
        ("variables", {"NCCL_P2P_DISABLE": "1"}, "variable  NCCL_P2P_DISABLE: absent -> 1"),
        ("variables", {"CUDA_X": ["x"]}, "variable  CUDA_X: absent -> ['x']"),
    ],
)
def test_what_matters(report, real, key, change, line):
    found = report["inventory"][key]
    found.extend(change) if isinstance(found, list) else found.update(change)
    assert f"  {line}" in text_of(real, report).splitlines()


def test_check_that_fails_on_one_host(report, real):
    """Its finding is told; a check that has nothing to look at is as good as one that is well."""
    (check,) = report["checks"]
    check["status"] = "skipped"
    assert text_of(real, report) == "2 reports: alike in what matters"
    check["status"] = "warning"
    check["findings"] = [Finding("CG905", "half has no version.").to_dict()]
    text = text_of(real, report)
    assert "  check     CG905 installed distributions: ok -> warning\n" in text
    assert "  finding   only there: CG905: half has no version." in text
    assert "  finding   not there: CG905: half has no version." in text_of(report, real)


def test_build_is_told_where_the_version_is_the_same(report):
    other = copy.deepcopy(report)
    for one, build in ((report, "cp311-linux"), (other, "cp311-manylinux")):
        package = {"name": "torch", "version": "2.9", "build": build, "source": "pip"}
        one["inventory"]["packages"] = [package]
    told = "torch     torch: 2.9, cp311-linux, pip -> 2.9, cp311-manylinux, pip"
    assert told in text_of(report, other)


def test_one_host_of_many(report, real):
    """The largest group is what the others are compared to, wherever it stands."""
    report["inventory"]["gpu"]["driver"] = "550.1"
    lines = text_of(report, *[real] * 11).splitlines()
    assert lines[0] == "12 reports: 11 are alike, the others (1) differ from them"
    assert lines[2] == "b, c, d, e and 7 more (--verbose) -> a: 1 difference"
    assert lines[3] == "  driver    kernel module: absent -> 550.1"
    assert text_of(report, real).startswith("2 reports: they differ\n")


BLOCK = "# cudaguard doctor\n\n```json\n{}\n```\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "b.md cannot be read: No such file or directory. run: ls -l b.md"),
        ("", "b.md is no bundle of doctor. Write one there. run: cudaguard doctor --bundle"),
        ("\udcff", "b.md is no bundle"),
        (BLOCK.format("{"), "b.md is no bundle"),
        (BLOCK.format("[" * 100_000), "b.md is no bundle"),
        (BLOCK.format("[]"), "b.md is no bundle"),
        (BLOCK.format('{"schema": 1, "tool": "trace"}'), "b.md is no bundle"),
        (BLOCK.format('{"schema": 2, "tool": "doctor"}'), "b.md was written by another version"),
        (BLOCK.format('{"schema": 1, "tool": "doctor"}'), "b.md has no inventory"),
    ],
)
def test_file_that_is_no_bundle(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "b.md").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"\Ab\.md ") as raised:
        read_facts("b.md")
    assert f"{raised.value} run: {raised.value.command}".startswith(said)


@pytest.mark.parametrize(
    "damage",
    [{"gpu": {}}, {"gpu": 3}, {"packages": [3]}, {"packages": [{"name": "x"}]}, {"torch": []}],
)
def test_bundle_that_was_damaged(child, report, damage):
    report["inventory"].update(damage)
    path = saved(child, "b.md", report)
    with pytest.raises(UsageError, match=r"b\.md is damaged\. Write it again\."):
        read_facts(str(path))


def test_wrong_usage(planted, child, report):
    saved(child, "a.md", report)
    saved(child, "none.md", report, inventory=None)
    for arguments, said in (
        (["a.md"], "got 1 file, expected two or more"),
        (["a.md", "none.md"], "none.md has no inventory"),
    ):
        status, out, err = planted.run("--diff", *arguments)
        assert (status, out) == (2, "")
        assert said in err
    assert planted.run("--diff", "a.md", "a.md", "-o", "no/such/file")[0] == 3


def test_control_sequences_are_not_passed_on(planted, child, report):
    saved(child, "a.md", report)
    report["inventory"]["variables"]["CUDA_X"] = "\033[2J"
    saved(child, "b.md", report)
    status, out, _ = planted.run("--diff", "a.md", "b.md")
    assert status == 1
    assert "\033" not in out


def test_labels_tell_files_apart():
    assert labels(["x/doctor-a.md", "x/doctor-b.md"]) == ["a", "b"]
    assert labels(["a/doctor.md", "b/doctor.md"]) == ["a/doctor.md", "b/doctor.md"]
    assert labels(["doctor-a.md", "b.md"]) == ["doctor-a", "b"]
