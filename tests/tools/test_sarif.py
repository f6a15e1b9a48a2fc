"""``--format sarif``: what GitHub code scanning asks of a document.

The schema of the standard is asked in tests/incidents/test_sarif.py.
"""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest

from .sarif_documents import ALL, CUDAGUARD, of_doctor, of_extension, of_lint, written


def run_of(document):
    """Returns the only run, having looked at what is the same for all."""
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    return run


@pytest.mark.parametrize("command", ALL)
def test_what_github_requires_of_each_result(child, command):
    status, document = ALL[command](child)
    run = run_of(document)
    assert run["tool"]["driver"]["name"] == f"cudaguard {command}"
    assert run["automationDetails"]["id"] == f"cudaguard-{command}/"
    assert run["results"]
    assert (status == 1) is any(one["level"] == "error" for one in run["results"])
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["level"] in ("note", "warning", "error")
        assert one["message"]["text"]
        (location,) = one["locations"]  # without a file GitHub refuses the whole document
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"


def test_columns_and_addresses_of_lint(child):
    _, document = of_lint(child)
    notebook, file = run_of(document)["results"]
    place = file["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20folder/tr%C3%A4in%25.py"
    assert place["region"] == {"startLine": 1, "startColumn": 17, "endColumn": 18}
    assert run_of(document)["columnKind"] == "unicodeCodePoints"
    (related,) = file["relatedLocations"]
    assert related["physicalLocation"]["region"] == {
        "startLine": 2, "startColumn": 8, "endColumn": 9,
    }  # fmt: skip
    assert notebook["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert notebook["message"]["text"].startswith("cell 1, line 2: b is imported before a")


def test_quiet_half(child):
    """Nothing found: a document without results, which closes the alerts of before."""
    child.write("right.py", "import a\nimport b\n")
    child.write("cudaguard.toml", "")
    for command in (("lint", "right.py"), ("doctor", "--only", "CG905")):
        status, document = written(child, *command)
        assert (status, run_of(document)["results"]) == (0, [])


def test_extension_is_named_by_its_file(child):
    _, document = of_extension(child)
    (one,) = run_of(document)["results"]
    assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ext%231.so"
    assert one["ruleId"] == "not-elf"
    outside = child.folder / "down"
    outside.mkdir()
    done = child.command(
        "sh", "-c", f"cd down && {' '.join(CUDAGUARD)} check-extension --format sarif ../ext#1.so",
        check=False,
    )  # fmt: skip
    (one,) = run_of(json.loads(done.stdout))["results"]
    artifact = one["locations"][0]["physicalLocation"]["artifactLocation"]
    assert unquote(artifact["uri"]) == f"file://{child.folder / 'ext#1.so'}"
    assert "uriBaseId" not in artifact


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), "pyproject.toml"),
        (("setup.py", "requirements.txt"), "requirements.txt"),
        (("environment.yml",), "environment.yml"),
    ],
)
def test_findings_about_the_environment_stand_at_the_file_that_declares_it(child, files, expected):
    for file in files:
        child.write(file, "")
    _, document = of_doctor(child)
    results = run_of(document)["results"]
    for one in results:
        (location,) = one["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == expected
        assert location["logicalLocations"][0]["name"]
    told = [one for one in results if one["message"]["text"].startswith("decord 0.6.0: ")]
    assert [one["ruleId"] for one in told] == ["CG901"]


def test_findings_in_one_line_of_one_file_have_prints_of_their_own(child):
    """GitHub makes one alert of those with the same rule, line and print."""
    _, document = of_doctor(child)
    _, again = of_doctor(child)
    prints = [
        [one["partialFingerprints"]["primaryLocationLineHash"] for one in run_of(doc)["results"]]
        for doc in (document, again)
    ]
    assert len(prints[0]) > 1
    assert len(set(prints[0])) == len(prints[0])
    assert prints[0] == prints[1]


def test_check_that_failed_is_a_notification(child):
    """A document without results would say that all is well."""
    child.write(
        "site/sitecustomize.py",
        """
        import cudaguard.system.distributions as d
        def fail(*_): raise ZeroDivisionError("planted")
        d.listed_files = fail
        """,
    )
    status, document = of_doctor(child)
    run = run_of(document)
    assert status == 3
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (note,) = invocation["toolExecutionNotifications"]
    reason = "CG905: the check itself failed: ZeroDivisionError: planted"
    assert note == {"level": "error", "message": {"text": reason}}


def test_names_and_homes_are_redacted(child):
    child.write("site/decord-0.6.0.dist-info/METADATA", "Name: decord\nVersion: 0.6.0\n")
    env = {"PYTHONPATH": str(child.folder / "site"), "HOME": str(child.folder)}
    done = child.command(*CUDAGUARD, "doctor", "--format", "sarif", check=False, env=env)
    assert str(child.folder) not in done.stdout
    assert run_of(json.loads(done.stdout))["results"]
