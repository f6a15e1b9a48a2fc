"""Names are whatever somebody chose: no text output lets one steer a terminal or a build log."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from cudaguard import Finding

from .doctor import planted as planted

EVIL = "::error::ev\x1b[31mil\x9b1m\x07\n::error::x\r##vso[task.complete]\u202e"
SHOWN = "\\x3a:error::ev\\x1b[31mil\\x9b1m\\x07\\n::error::x\\r\\x23#vso[task.complete]\\u202e"
CUDAGUARD = (sys.executable, "-m", "cudaguard")
supervised = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="programs are supervised on Linux only"
)
RULE = """
[[rules]]
id = "LOCAL001"
watch = ["late"]
needs = ["early"]
title = {text}
why = {text}
verified = {text}
links = [{text}]
"""


def harmless(text: str) -> bool:
    """Would a terminal show all of it, and a log take none of it for a command?"""
    for line in text.split("\n"):
        steers = [one for one in line if not one.isprintable() and one != "\t"]
        is_command = "##vso[" in line or line.lstrip().startswith("::")
        if steers or is_command:
            return False
    return True


@pytest.fixture
def rules(child):
    """A configuration file with a rule whose words are hostile."""
    return child.write("rules.toml", RULE.format(text=json.dumps(EVIL)))


def shown(done, *, out="", err=""):
    """Check that both streams are harmless, and that the name is there as an escape."""
    assert harmless(done.stdout), done.stdout
    assert harmless(done.stderr), done.stderr
    assert out in done.stdout
    assert err in done.stderr


def test_warning_and_status(child):
    child.write("target.py", "")
    code = f"""
    import sys, cudaguard
    rule = cudaguard.Rule("LOCAL001", watch=["target"], why={EVIL!r}, grade="report")
    cudaguard.install("warn", rules=[rule])
    import target
    print(cudaguard.status())
    """
    done = child.python(code)
    shown(done, out=SHOWN, err=SHOWN)
    assert "LOCAL001" in done.stderr


def test_log_of_a_repair(child):
    code = f"""
    import logging, cudaguard
    logging.basicConfig(level="INFO", format="%(message)s")
    from cudaguard.core.reporter import log
    log({EVIL!r}, level="INFO")
    """
    shown(child.python(code), err=SHOWN.replace("\\n::", "\n\\x3a:"))


def test_lint(child, rules):
    name = f"{EVIL}.py"
    child.write(name, "import late\nimport early\n")
    child.write(f"{EVIL}2.py", "import (\n")
    done = child.command(*CUDAGUARD, "lint", "--config", rules, name, f"{EVIL}2.py", check=False)
    shown(done, out=f"{SHOWN}.py:1: LOCAL001", err=f"{SHOWN}2.py: ")
    done = child.command(
        *CUDAGUARD, "lint", "--config", rules, name, "--format", "json", check=False
    )
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["path"], found["why"]) == (name, EVIL)  # exact
    assert "##vso[" not in done.stdout


def test_check_extension(child):
    child.write(f"{EVIL}.so", "no library")
    shown(
        child.command(*CUDAGUARD, "check-extension", f"{EVIL}.so", check=False), out=f"{SHOWN}.so: "
    )
    shown(child.command(*CUDAGUARD, "check-extension", EVIL, check=False), err=SHOWN)


def test_rules(child, rules):
    env = {"CUDAGUARD_CONFIG": str(rules)}
    for words in (("rules", "list"), ("explain", "LOCAL001")):
        shown(child.command(*CUDAGUARD, *words, env=env), out=SHOWN)
    shown(child.command(*CUDAGUARD, "rules", "check", EVIL, check=False), err=SHOWN)
    done = child.command(*CUDAGUARD, "rules", "list", "--format", "json", env=env)
    assert EVIL in [rule["why"] for rule in json.loads(done.stdout)["rules"]]


def test_explain(child):
    finding = Finding("CG001", EVIL, evidence=[EVIL], remedy=EVIL, links=[EVIL])
    assert harmless(str(finding))
    assert finding.to_dict()["what"] == EVIL
    text = f"ImportError: /a/{EVIL}.so: undefined symbol: _ZN3c10{EVIL}"
    shown(child.command(*CUDAGUARD, "explain", text, check=False))
    shown(child.command(*CUDAGUARD, "explain", EVIL, check=False))


def test_doctor(child, planted):
    folder = planted.folder / f"{EVIL}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\n")
    planted.write(f"nvidia/{EVIL}.so")
    planted.distribution("nvidia-x", files=(f"nvidia/{EVIL}.so",))
    options = ("--only", "CG905", "--bundle", "bundle.md")
    for more in ((), ("-v",), ("-o", "report.txt")):
        _, out, err = planted.run(*options, *more)
        text = out + (child.folder / "report.txt").read_text() if "-o" in more else out
        assert harmless(text), text
        assert harmless(err)
        assert f"{SHOWN[5:]}-1.0.dist-info" in text  # within a path it is no command
    told, _, exact = (child.folder / "bundle.md").read_text().partition("## The report as JSON")
    assert harmless(told)
    assert SHOWN[5:] in told
    document = json.loads(exact.partition("```json\n")[2].rpartition("\n```")[0])
    assert EVIL in document["checks"][0]["findings"][0]["what"]


def test_commands_that_are_shown_run_nothing_of_a_name(planted):
    """Each ends by itself what a shell would take for a command."""
    for name in ("a", "b"):
        planted.write("a.so", name)
        planted.distribution(f"{name};:>planted;", files=("a.so",))
    _, checks = planted.checks()
    commands = [one["command"] for check in checks.values() for one in check["findings"]]
    words = [w for one in commands for w in shlex.shlex(one, posix=True, punctuation_chars=True)]
    assert [";:>planted;" in word for word in words if "planted;" in word] == [True] * 2


@supervised
def test_run(child):
    child.write(f"{EVIL}.py", "import ctypes\nctypes.string_at(0)\n")
    done = child.command(*CUDAGUARD, "run", "--report", "report.json", f"{EVIL}.py", check=False)
    shown(done, err=f"{SHOWN[5:]}.py")
    assert EVIL in json.loads((child.folder / "report.json").read_text())["command"]


@supervised
def test_trace(child):
    child.write(f"{EVIL}.py", "import ctypes, _json\nctypes.CDLL('libm.so.6')\n")
    shown(child.command(*CUDAGUARD, "trace", f"{EVIL}.py"), err="\\x1b[31mil")
    child.command(*CUDAGUARD, "trace", "-o", "t.json", "-o", "t.txt", f"{EVIL}.py")
    assert harmless((child.folder / "t.txt").read_text())
    assert "\x1b[31mil" in json.loads((child.folder / "t.json").read_text())["program"][0]


def test_bisect(child):
    child.write(f"{EVIL}.py", "raise SystemExit(7)\n")
    for form in ((), ("-o", "found.txt")):
        done = child.command(*CUDAGUARD, "bisect", *form, f"{EVIL}.py", check=False)
        shown(done, out=SHOWN)
    assert harmless((child.folder / "found.txt").read_text())


def test_words_that_only_look_like_commands_stay(child):
    code = "from cudaguard.files.text import printable_lines; print(printable_lines({!r}))"
    for text in ("at::Tensor std::__1::f", "a # b ## c", "C:\\new", "café 图 😀", "a\tb\nc"):
        assert child.python(code.format(text), env={"PYTHONUTF8": "1"}).stdout == f"{text}\n"
