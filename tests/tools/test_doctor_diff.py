"""``cudaguard doctor --diff``: real reports, and the same with what other hosts would say."""

from __future__ import annotations

import copy
import json

import pytest

from cudaguard.tools.doctor.comparison.facts import facts_of
from cudaguard.tools.doctor.comparison.groups import compare
from cudaguard.tools.doctor.comparison.messages import write as write_text
from cudaguard.tools.doctor.comparison.reading import labels
from cudaguard.tools.layout import Page

from ..documents import valid
from .doctor import planted as planted


@pytest.fixture
def report(planted, child):
    """A real report, as data."""
    status, _, err = planted.run("--format", "json", "--fail-on", "never", "-o", "real.json")
    assert (status, err) == (0, "")
    return json.loads((child.folder / "real.json").read_text())


@pytest.fixture
def write(child, report):
    """Writes reports that differ from the real one as `change` has it."""

    def write(name, change=lambda report: None):
        other = copy.deepcopy(report)
        change(other)
        return child.write(name, json.dumps(other))

    return write


def with_driver(version):
    def change(report):
        report["inventory"]["gpu"].update(driver=version, models=["NVIDIA L4"])

    return change


def compared(planted, *files):
    """Compare; returns the exit status and the document, held against its schema."""
    names = [str(file) for file in files]
    status, out, err = planted.run("--diff", *names, "--format", "json")
    assert err == ""
    return status, valid("doctor-diff", out)


def test_reports_of_one_host_are_alike(planted, report, write):
    """Only how long each check took differs."""
    planted.run("--format", "json", "--fail-on", "never", "-o", "again.json")
    status, found = compared(planted, "real.json", "again.json")
    assert (status, found["reports"]) == (0, ["real", "again"])
    assert found["groups"] == [{"reports": ["real", "again"], "differences": []}]
    assert found["folded"] == []
    assert planted.run("--diff", "real.json", "again.json") == (
        0, "2 reports: alike in what matters\n", "",
    )  # fmt: skip


def test_package_that_was_installed_on_one_host(planted, report):
    planted.distribution("xformers", "0.0.35")
    planted.distribution("some-thing", "2.0")
    planted.run("--format", "json", "--fail-on", "never", "-o", "b.json")
    status, found = compared(planted, "real.json", "b.json")
    assert status == 1
    assert found["groups"][1]["differences"] == [
        {"kind": "package", "name": "xformers", "reference": "", "here": "0.0.35"}
    ]
    folded = [one for one in found["folded"] if one["kind"] == "package"]
    assert folded == [
        {
            "kind": "package",
            "name": "some-thing",
            "values": [{"value": "", "reports": ["real"]}, {"value": "2.0", "reports": ["b"]}],
        }
    ]
    status, out, _ = planted.run("--diff", "real.json", "b.json")
    assert out.splitlines()[:4] == [
        "2 reports: they differ", "", "real -> b: 1 difference",
        "  package   xformers: absent -> 0.0.35",
    ]  # fmt: skip
    assert "some-thing" not in out
    assert "2 more differences seldom matter: --verbose lists them" in out
    assert "some-thing\n" in planted.run("--diff", "real.json", "b.json", "-v")[1]


def test_what_only_seldom_matters_gives_status_0(planted, write):
    def change(report):
        report["inventory"]["system"].update(kernel="5.4", memory_bytes=1)
        report["inventory"]["variables"]["PATH"] = "/elsewhere"
        report["inventory"]["python"]["prefix"] = "/elsewhere"

    status, found = compared(planted, write("a.json"), write("b.json", change))
    assert status == 0
    assert {one["name"] for one in found["folded"]} >= {"kernel", "memory_bytes", "prefix"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (with_driver("535.183.01"), "driver    kernel module: absent -> 535.183.01"),
        (with_driver(""), "GPUs      none -> 1 x NVIDIA L4"),
        (
            lambda report: report["inventory"]["system"].update(libc="glibc 2.31"),
            "system    libc: glibc 2.36 -> glibc 2.31",
        ),
        (
            lambda report: report["inventory"]["torch"].update(cuda="12.4"),
            "torch     cuda: absent -> 12.4",
        ),
        (
            lambda report: report["inventory"]["libraries"].update({"libcudnn.so.9": "/x.so.9.1"}),
            "library   libcudnn.so.9: absent -> /x.so.9.1",
        ),
        (
            lambda report: report["inventory"]["variables"].update(NCCL_P2P_DISABLE="1"),
            "variable  NCCL_P2P_DISABLE: absent -> 1",
        ),
        (
            lambda report: report["inventory"]["conda"].append(
                {"name": "cudnn", "version": "9.8", "build": "h8_1", "source": "conda-forge"}
            ),
            "conda     cudnn: absent -> 9.8",
        ),
        (
            lambda report: report.update(version="9.9"),
            "cudaguard version: 0.1.0 -> 9.9",
        ),
    ],
)
def test_what_matters(planted, report, write, change, line):
    report["inventory"]["gpu"].update(driver="", models=[], pci_devices=0)
    report["inventory"].update(torch={}, libraries={}, variables={}, conda=[])
    report["inventory"]["system"]["libc"] = "glibc 2.36"
    report["version"] = "0.1.0"
    status, out, _ = planted.run("--diff", str(write("a.json")), str(write("b.json", change)))
    assert status == 1
    assert f"  {line}\n" in out


def test_check_that_fails_on_one_host(planted, report):
    """Its finding is told; a check that has nothing to look at is as good as one that is well."""
    planted.write("half-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: half\n")
    planted.run("--format", "json", "--fail-on", "never", "-o", "b.json")
    status, out, _ = planted.run("--diff", "real.json", "b.json")
    assert status == 1
    assert "  check     CG905 installed distributions: ok -> warning\n" in out
    assert "  finding   only there: CG905: " in out
    other = copy.deepcopy(report)
    for check in other["checks"]:
        check["status"] = {"ok": "skipped", "skipped": "ok"}.get(check["status"], check["status"])
    assert len(compare([report, other], ["a", "b"])["groups"]) == 1


def told(found):
    page = Page()
    write_text(found, page)
    return str(page)


def test_build_is_told_where_the_version_is_the_same(report):
    def one(build):
        other = copy.deepcopy(report)
        package = {"name": "torch", "version": "2.9", "build": build, "source": "pip"}
        other["inventory"]["packages"] = [package]
        return other

    text = told(compare([one("cp311-linux"), one("cp311-manylinux")], ["a", "b"]))
    assert "torch     torch: 2.9, cp311-linux, pip -> 2.9, cp311-manylinux, pip" in text


def test_one_host_of_many(planted, write):
    """The largest group is what the others are compared to, wherever it stands."""
    files = [write("node0.json", with_driver("550.1"))]
    files += [write(f"node{number}.json", with_driver("580.2")) for number in range(1, 12)]
    status, found = compared(planted, *files)
    assert status == 1
    assert [len(group["reports"]) for group in found["groups"]] == [11, 1]
    assert found["groups"][1]["reports"] == ["node0"]
    _, out, _ = planted.run("--diff", *map(str, files))
    lines = out.splitlines()
    assert lines[0] == "12 reports: 11 are alike, the others (1) differ from them"
    assert lines[2] == "node1, node2, node3, node4 and 7 more (--verbose) -> node0: 1 difference"
    assert lines[3] == "  driver    kernel module: 580.2 -> 550.1"


def test_no_two_alike(report):
    others = [copy.deepcopy(report) for _ in range(3)]
    for number, other in enumerate(others):
        other["inventory"]["gpu"]["driver"] = str(number)
    assert told(compare(others, ["a", "b", "c"])).startswith("3 reports: no two are alike\n")


def test_bundle_is_a_report(planted, report):
    planted.run("--bundle", "b.md", "--fail-on", "never")
    assert compared(planted, "real.json", "b.md")[0] == 0


def test_output_file(planted, child, write):
    status, out, err = planted.run(
        "--diff", str(write("a.json")), str(write("b.json")), "--format", "json", "-o", "diff.json"
    )
    assert (status, out, err) == (0, "", "")
    valid("doctor-diff", (child.folder / "diff.json").read_text())
    arguments = ("--diff", "a.json", "b.json", "-o", "no/such/file")
    assert planted.run(*arguments)[0] == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "b.json cannot be read: No such file or directory.\n  run: ls -l b.json"),
        (b"", "b.json is no report of doctor. Write one there.\n  run: cudaguard doctor"),
        (b"\xff\xfe", "b.json is no report of doctor."),
        (b"[" * 100_000, "b.json is no report of doctor."),
        (b"[]", "b.json is no report of doctor."),
        (b"# cudaguard doctor\n\n```json\n{\n```\n", "b.json is no report of doctor."),
        (b'{"schema": 1, "tool": "trace"}', "b.json is no report of doctor."),
        (b'{"schema": 2, "tool": "doctor"}', "b.json was written by another release"),
        (b'{"schema": 1, "tool": "doctor"}', "b.json is damaged: KeyError: 'checks'"),
    ],
)
def test_file_that_is_no_report(planted, child, report, content, said):
    if content is not None:
        (child.folder / "b.json").write_bytes(content)
    status, out, err = planted.run("--diff", "real.json", "b.json")
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_report_without_inventory(planted, write):
    file = write("b.json", lambda report: report.update(inventory=None))
    status, _, err = planted.run("--diff", "real.json", str(file))
    assert status == 2
    assert "has no inventory" in err


@pytest.mark.parametrize("change", ["torch", "variables", "libraries"])
def test_values_of_another_kind_are_compared_as_texts(planted, write, change):
    """Schemas let values of such tables be; a report may have been edited."""
    file = write("b.json", lambda report: report["inventory"][change].update(cuda=["x"]))
    status, out, err = planted.run("--diff", "real.json", str(file))
    assert (status, err) == (1, "")
    assert "absent -> ['x']" in out


def test_wrong_usage(planted, report):
    status, _, err = planted.run("--diff", "real.json")
    assert status == 2
    assert "got 1 file, expected two or more" in err
    assert planted.run("--diff", "real.json", "real.json", "--format", "github")[0] == 2


def test_labels_tell_files_apart():
    assert labels(["x/doctor-a.json", "x/doctor-b.json"]) == ["a", "b"]
    assert labels(["a/doctor.json", "b/doctor.json"]) == ["a/doctor.json", "b/doctor.json"]
    assert labels(["doctor-a.json", "b.json"]) == ["doctor-a", "b"]
    assert labels(["a.json", "a.json"]) == ["a.json (1)", "a.json (2)"]


def test_control_sequences_are_not_passed_on(planted, write):
    file = write("b.json", lambda report: report["inventory"]["variables"].update(CUDA_X="\033[2J"))
    assert "\033" not in planted.run("--diff", "real.json", str(file))[1]


def test_facts_have_one_value_each_and_all_kinds_are_known(report):
    facts = facts_of(report)
    assert all(isinstance(value, str) for value in facts.values())
    assert len(facts) > 20
