"""What docs/reference/cli.md shows of `bisect` and `lint` is what they print."""

from __future__ import annotations

import re
import sys
import zipfile

import pytest


@pytest.fixture
def document(root, child):
    """The document; the files that it shows lie in the children's folder."""
    text = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", text, re.DOTALL | re.M):
        child.write(name, code)
    child.write("cudaguard.toml", re.search(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.M)[1])
    return text


def shown(document, command):
    block = rf"^```console\n\$ cudaguard {command}[^\n]*\n```\n+```text\n(.*?)^```$"
    (found,) = re.findall(block, document, re.DOTALL | re.MULTILINE)
    return found


def settled(text, folder):
    """The text without what differs from run to run."""
    text = text.replace(str(folder), "/home/me")
    text = re.sub(r"\d+ runs in [\d.]+ s", "N runs in S s", text)
    return re.sub(r"\d{4}-\d\d-\d\d:", "DAY:", text)


def test_bisect(document, child):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    command = (sys.executable, "-m", "cudaguard", "bisect", "check_frames.py")
    done = child.command(*command, check=False)
    assert done.returncode == 1
    assert settled(done.stdout, child.folder) == settled(shown(document, "bisect"), "/home/me")


def test_lint(document, child):
    options = ("--config", "cudaguard.toml", "train.py")
    done = child.command(sys.executable, "-m", "cudaguard", "lint", *options, check=False)
    assert done.returncode == 1
    assert done.stdout == shown(document, "lint")
    change = child.command(
        sys.executable, "-m", "cudaguard", "lint", "--diff", *options, check=False
    )
    assert re.findall(r"^```diff\n(--- train.*?)^```$", document, re.DOTALL | re.M) == [
        change.stdout
    ]


def test_every_option_is_explained(document, child):
    for command in ("bisect", "lint"):
        text = child.command(sys.executable, "-m", "cudaguard", command, "--help").stdout
        section = document.partition(f"\n## {command}\n")[2].partition("\n## ")[0]
        general = document.partition("\n## bisect\n")[0]
        options = set(re.findall(r"^  (-\w|--[\w-]+)", text, re.MULTILINE)) - {"-h"}
        assert options
        for option in options:
            assert f"`{option}" in section + general or f" {option} " in section, option


def test_what_the_commands_need_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert "cudaguard/tools/bisect/_bisect/runner.py" in names
    assert {f"cudaguard/tools/schema/{name}.json" for name in ("bisect", "lint")} <= names
