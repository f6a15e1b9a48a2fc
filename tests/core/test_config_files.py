"""Configuration files: what they may hold, and what is said of those that cannot be used."""

from __future__ import annotations

import os

import pytest

from cudaguard.config import FILE_KEYS, FILE_LIMIT, read_file
from cudaguard.errors import ConfigError

FULL = """
mode = "Strict"
enable = ["CG041"]
disable = ["CG001"]
journal = "journal-%p.jsonl"
plugins = false

[[rules]]
id = "MINE"
watch = ["torch"]
"""
PREFIXED = FULL.replace("[[rules]]", "[[tool.cudaguard.rules]]")


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(content, name="cudaguard.toml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path) -> str:
    """Return the message of the refusal, which names the file."""
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cudaguard.toml", FULL),
        ("any-name", FULL),
        ("crlf.toml", FULL.replace("\n", "\r\n")),
        ("bom.toml", b"\xef\xbb\xbf" + FULL.encode()),
        ("pyproject.toml", "[project]\nname = 'x'\n[tool.black]\n[tool.cudaguard]" + PREFIXED),
        ("any.toml", "[tool.cudaguard]" + PREFIXED),
    ],
)
def test_good_file(file, name, text):
    path = file(text, name)
    said = read_file(path)
    assert said.mode == "strict"
    assert said.switches == {"CG041": True, "CG001": False}
    assert said.journal == "journal-%p.jsonl"
    assert said.plugins is False
    assert said.tables == ({"id": "MINE", "watch": ["torch"]},)
    assert said.source == str(path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "enable = []\ndisable = []\n"])
def test_file_that_says_nothing(file, text):
    said = read_file(file(text))
    assert (said.mode, said.switches, said.journal, said.plugins, said.tables) == (
        None, {}, "", None, (),
    )  # fmt: skip


def test_path_may_be_a_string_bytes_or_begin_with_a_tilde(file, monkeypatch):
    path = file('mode = "warn"')
    monkeypatch.setenv("HOME", str(path.parent))
    for given_path in (path, str(path), os.fsencode(path), "~/cudaguard.toml"):
        assert read_file(given_path).mode == "warn"


def test_largest_file_is_read_and_one_byte_more_is_not(file):
    text = "mode = 'warn'\n#"
    assert read_file(file(text + "x" * (FILE_LIMIT - len(text)))).mode == "warn"
    assert f"larger than {FILE_LIMIT} bytes" in refusal(
        file(text + "x" * (FILE_LIMIT - len(text) + 1))
    )


@pytest.mark.parametrize("name", ["pyproject.toml", "other.toml"])
@pytest.mark.parametrize("text", ["[tool.black]\nx = 1\n", "tool = 3\n", "[tool]\ncudaguard = 1\n"])
def test_file_with_tools_needs_our_table(file, name, text):
    assert "expected a table [tool.cudaguard]" in refusal(file(text, name))


def test_pyproject_without_any_tool_needs_our_table(file):
    assert "expected a table [tool.cudaguard]" in refusal(file("mode = 'fix'", "pyproject.toml"))


# --- what cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none.toml", "No such file"),
        (".", "not a regular file"),
        ("pipe", "not a regular file"),  # refused, and not waited for
        ("/dev/zero", "not a regular file"),
        ("loop", "cannot read"),
        ("cudaguard.toml/below", "cannot read"),
    ],
)
def test_what_is_no_file(file, path, words):
    folder = file("").parent
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    assert words in refusal(folder / path)


@pytest.mark.parametrize("path", [3, object(), [], "", "a\0b", "x" * 5000, "\ud800"])
def test_what_is_no_path(path):
    with pytest.raises(ConfigError, match=r"expected the path of a TOML file|cannot read the"):
        read_file(path)


@pytest.mark.parametrize("data", [b"mode = '\xff'", b"\xff\xfe" + "mode".encode("utf-16-le")])
def test_file_that_is_not_utf8(file, data):
    assert "expected a TOML file in UTF-8" in refusal(file(data))


@pytest.mark.parametrize(
    "text",
    [
        "mode = fix",
        "\x7fELF\x02\x01\x01\0\0",
        "x = " + "[" * 5000,
        "x = " + "9" * 5000,
        "x = 2026-02-31",
    ],
    ids=range(5),
)
def test_file_that_is_not_toml(file, text):
    assert "not a valid TOML file" in refusal(file(text))


# --- what does not fit ------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["modes", "Mode", "rule", "contexts", ""])
def test_unknown_key_is_named_with_those_that_are_known(file, key):
    message = refusal(file(f"'{key}' = 1"))
    assert f"unknown key {key!r}; expected one of {', '.join(FILE_KEYS)}" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode = 'loud'", "mode: unknown mode 'loud'; expected one of off, observe, warn, fix"),
        ("mode = ''", "mode: unknown mode ''"),
        ("mode = 1", "mode: unknown mode 1"),
        ("mode = false", "mode: unknown mode False"),
        ("mode = ['fix']", "mode: unknown mode ['fix']"),
        ("enable = 'CG001'", "enable: expected a list of rule ids, got 'CG001'"),
        ("enable = {a = 1}", "enable: expected a list of rule ids"),
        ("disable = [1]", "disable: expected a rule id, got 1"),
        ("disable = ['']", "disable: expected a rule id, got ''"),
        ("enable = ['A']\ndisable = ['A']", "rule 'A' is both enabled and disabled"),
        ("journal = 1", "journal: expected a path, got 1"),
        ("journal = ['x']", "journal: expected a path"),
        ("plugins = 'no'", "plugins: expected true or false, got 'no'"),
        ("plugins = 0", "plugins: expected true or false, got 0"),
        ("rules = 'x'", "rules: expected tables, each headed [[rules]]"),
        ("rules = [1]", "rules: expected tables, each headed [[rules]]"),
        ("[rules]\nid = 'x'", "rules: expected tables, each headed [[rules]]"),
    ],
)
def test_wrong_value_names_file_key_and_what_was_expected(file, text, words):
    assert words in refusal(file(text))


@pytest.mark.parametrize("name", ["cudaguard.toml", "pyproject.toml"])
def test_nothing_is_read_from_the_working_directory(child, name):
    """Whoever writes there would decide what is preloaded. Named by the variable, it counts."""
    child.write(name, '[tool.cudaguard]\nmode = "observe"\n')
    code = "import cudaguard; print(cudaguard.install().mode, cudaguard.status().mode)"
    assert child.python(code).stdout == "fix fix\n"
    assert child.python(code, env={"CUDAGUARD_CONFIG": name}).stdout == "observe observe\n"
