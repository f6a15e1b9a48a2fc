"""``cudaguard lint --fix`` and ``--diff``: what is moved, what stays, and what becomes of files."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import stat
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard import Rule
from cudaguard.system.source_file import source_of
from cudaguard.tools.lint import messages as say
from cudaguard.tools.lint.command import execute
from cudaguard.tools.lint.found import findings, fixed

from ..documents import valid

AB = Rule("R1", ("b",), "b wants a first", needs=("a",))
BC = Rule("R2", ("c",), "c wants b first", needs=("b",))
LINT = (sys.executable, "-m", "cudaguard", "lint", "--config", "cudaguard.toml")
RULES = "[[rules]]\nid = 'LOCAL1'\nwatch = ['b']\nneeds = ['a']\nwhy = 'b wants a first'\n"


def fix(code, *rules, path="train.py"):
    data = code if isinstance(code, bytes) else textwrap.dedent(code).encode()
    return fixed(path, data, rules or (AB,))


def fixed_text(code, *rules):
    return fix(code, *rules).after.decode()


def left(data, *rules):
    """Return why --fix leaves what is found to its author."""
    source = source_of("train.py", data)
    return [one["reason"] for one, _ in findings(source, rules or (AB,), "")]


S = "\n# isort: split\n"
FIXED = {
    "next to each other": ("import b\nimport a\n", f"import a\n{S}import b\n"),
    "others stay in order": (
        "import os\n\nimport b\nimport c\n\nimport a\nimport d\n\nx = 1\n",
        f"import os\n\nimport a\n{S}import b\nimport c\n\nimport d\n\nx = 1\n",
    ),
    "blank lines of a paragraph that is gone": (
        "import b\n\nimport a\n\nx = 1\n",
        f"import a\n{S}import b\n\nx = 1\n",
    ),
    "comments go with their statement": (
        "import os\n# of b\nimport b  # b\n# of a, 1\n# of a, 2\nimport a  # noqa\n# below\n",
        f"import os\n# of a, 1\n# of a, 2\nimport a  # noqa\n{S}# of b\nimport b  # b\n# below\n",
    ),
    "comments on top are those of the file": (
        "#!/usr/bin/env python\n# License\nimport b\nimport a\n",
        f"#!/usr/bin/env python\n# License\nimport a\n{S}import b\n",
    ),
    "in parentheses": (
        "import b\nfrom a import (  # why\n    x,\n)  # end\nimport c\n",
        f"from a import (  # why\n    x,\n)  # end\n{S}import b\nimport c\n",
    ),
    "over two lines": ("import b, \\\n    c\nimport a\n", f"import a\n{S}import b, \\\n    c\n"),
    "docstring and __future__ stay": (
        '"""Doc."""\nfrom __future__ import annotations\n\nimport b\nimport a\n',
        f'"""Doc."""\nfrom __future__ import annotations\n\nimport a\n{S}import b\n',
    ),
    "the guard stays first": (
        "import cudaguard\n\ncudaguard.install()\n\nimport b\nimport a\n",
        f"import cudaguard\n\ncudaguard.install()\n\nimport a\n{S}import b\n",
    ),
    "no new line at the end": ("import b\nimport a", f"import a\n{S}import b"),
    "new lines of Windows": (
        "import b\r\nfrom a import x\r\n",
        "from a import x\r\n\r\n# isort: split\r\nimport b\r\n",
    ),
    "form feed elsewhere": (
        "x = '\x0c'\nimport b\nimport a\n",
        f"x = '\x0c'\nimport a\n{S}import b\n",
    ),
    "once": (
        "import b\nimport a\nx = 1\nimport b\n",
        f"import a\n{S}import b\nx = 1\nimport b\n",
    ),
    "a split that is there": (
        "import x\n\n# isort: split\nimport b\nfrom a import y\n",
        f"import x\n{S}from a import y\n{S}import b\n",
    ),
}


@pytest.mark.parametrize("case", FIXED)
def test_fixed(case):
    before, after = FIXED[case]
    change = fix(before.encode())
    assert (change.after.decode(), change.problem) == (after, "")
    assert change.count == 1
    assert left(change.after) == []
    assert fix(change.after).after == change.after


LEFT = {
    "import b, a": say.ONE_STATEMENT,
    "import b\nx = 1\nimport a": say.not_an_import(2),
    "import b\nimport cudaguard\ncudaguard.install()\nimport a": say.not_an_import(3),
    "import b; x = 1\nimport a": say.shared_line(1),
    "import b\nx = 1; import a": say.not_an_import(2),
    "import b\nimport a; x = 1": say.shared_line(2),
    "x = 1; import b\nimport a": say.shared_line(1),
    "if x:\n    import b\nimport a": say.NESTED,
    "import b\ntry:\n    import a\nexcept ImportError:\n    pass": say.NESTED,
    "if x:\n    import b\n    import a": say.NESTED,
    "import b\n__import__('a')": say.CALL,
    "import b\nfrom c import *\nimport a": say.star(2),
    "import b\nfrom a import *": say.star(2),
    "import b as x\nimport a as x": say.same_name("x", 1, 2),
    "from b import x\nfrom a import x": say.same_name("x", 1, 2),
    "import b\n# fmt: off\nimport a\n# fmt: on": say.steered(2, "# fmt: off"),
    "import b\n# isort: split\nimport a": say.PINNED,
    "import b\n# isort: split\n\n# of a\nimport a": say.PINNED,
    "import b\n\n# %%\nimport a": say.steered(3, "# %%"),
    "\\\nimport b\nimport a": say.shared_line(2),
}


@pytest.mark.parametrize("code", LEFT)
def test_left_to_the_author(code):
    change = fix(code.encode())
    assert (change.after, change.count, change.problem) == (change.before, 0, "")
    assert left(change.before) == [LEFT[code]]


def test_names_of_one_meaning_are_no_obstacle():
    assert fixed_text("import a.x\nimport b.y\n") == "import a.x\nimport b.y\n"
    assert fixed_text("import b.y\nimport x.u\nimport a\nimport x.v\n").startswith("import a\n")
    assert fixed_text("import b\nimport os.path\nimport a, os\n").startswith("import a, os\n")


def test_several_rules():
    assert fixed_text("import c\nimport b\nimport a\n", AB, BC) == (
        f"import a\n{S}import b\n{S}import c\n"
    )
    needs = Rule("R3", ("a",), "", needs=("x", "y"))
    assert fixed_text("import a\nimport y\nimport x\n", needs) == (
        f"import x\n{S}import y\n{S}import a\n"
    )


def test_split_below_is_passed():
    assert fixed_text("import b\n# isort: split\nimport c\nimport a\n") == (
        f"import a\n{S}import b\n# isort: split\nimport c\n"
    )


def test_rules_that_contradict_each_other():
    """Every order is wrong: the file stays as it is, and that is said."""
    change = fix("import b\nimport a\n", AB, Rule("R2", ("a",), "", needs=("b",)))
    assert change.after == change.before
    assert change.problem == say.CONTRADICTION


def test_silenced_statement_stays():
    change = fix("import b  # cudaguard: ignore[R1]\nimport a\n")
    assert change.after == change.before


@pytest.mark.parametrize(
    "code",
    [
        "# -*- coding: latin-1 -*-\nimport b\nimport a  # ü\n".encode("latin-1"),
        "\ufeffimport b\nimport a  # ü\n".encode(),
        "# coding: shift_jis\nimport b\nimport a  # 漢字\n".encode("shift_jis"),
    ],
    ids=["latin-1", "mark", "shift_jis"],
)
def test_encoding_is_kept(code):
    change = fix(code)
    assert change.count == 1
    mark = b"\xef\xbb\xbf"
    assert change.after.startswith(code[:3])
    assert change.after.count(mark) == change.before.count(mark)
    lines = [data.replace(mark, b"").splitlines() for data in (change.before, change.after)]
    assert sorted([*lines[0], b"", say.SPLIT.encode()]) == sorted(lines[1])
    ast.parse(change.after)


LINES = st.sampled_from(
    [
        "import a", "import b", "import c", "from a import x", "from b import x, y", "import a.d",
        "from c import (\n    x as z,\n    # in\n)", "import a, c", "import d  # d", "x = 1", "",
        "# comment", "import b; import a", "# isort: split", "if x:\n    import b\n    import a",
    ]
)  # fmt: skip


@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_any_program_keeps_its_statements_and_comments(lines, newline, is_ended):
    code = "\n".join(lines).replace("\n", newline) + newline * is_ended
    change = fix(code.encode(), AB, BC)
    before, after = (ast.parse(data).body for data in (change.before, change.after))
    assert sorted(map(ast.dump, before)) == sorted(map(ast.dump, after))
    others = [[ast.dump(n) for n in body if not isinstance(n, (ast.Import, ast.ImportFrom))]
              for body in (before, after)]  # fmt: skip
    assert others[0] == others[1]
    written = [[line for line in data.decode().split(newline) if line.strip()]
               for data in (change.before, change.after)]  # fmt: skip
    assert Counter(written[0]) - Counter(written[1]) == Counter()
    assert set(Counter(written[1]) - Counter(written[0])) <= {say.SPLIT}
    if not change.problem:
        assert all(left(change.after, AB, BC))
        assert fix(change.after, AB, BC).after == change.after


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def lint(child):
    """Runs the command in a folder with a rule; returns exit status, stdout, stderr."""
    child.write("cudaguard.toml", RULES)

    def lint(*arguments):
        done = child.command(*LINT, *arguments, check=False)
        return done.returncode, done.stdout, done.stderr

    return lint


def test_fix(lint, child):
    child.write("src/train.py", "import b\nfrom a import x\n")
    child.write("src/left.py", "import b, a\n")
    child.write("src/right.py", "import a\nimport b\n")
    right = os.stat(child.folder / "src/right.py")
    status, out, err = lint("--fix", "src")
    assert status == 1
    assert out.startswith("src/left.py:1:8: LOCAL1")
    assert out.endswith("--fix leaves this to you: one statement imports both; write two\n")
    assert err == "cudaguard lint: fixed 1 finding in 1 file, 1 finding in 3 files left\n"
    fixed_file = child.folder / "src/train.py"
    assert fixed_file.read_text() == "from a import x\n\n# isort: split\nimport b\n"
    now = os.stat(child.folder / "src/right.py")
    assert (now.st_ino, now.st_mtime_ns) == (right.st_ino, right.st_mtime_ns)
    (child.folder / "src/left.py").unlink()
    assert lint("--fix", "src") == (0, "", "cudaguard lint: 0 findings in 2 files\n")


def test_fix_that_leaves_nothing(lint, child):
    child.write("train.py", "import b\nimport a\n")
    status, out, _ = lint("--fix", "--format", "json", "train.py")
    document = valid("lint", out)
    assert (status, document["fixed"], document["findings"]) == (0, 1, [])


@pytest.mark.skipif(not shutil.which("patch"), reason="no patch(1) here")
@pytest.mark.parametrize(
    "text",
    [
        "import b\nfrom a import x\n",
        "import b\r\nfrom a import x\r\n",
        "x = 'ü'\nimport b\n\n\nimport a  # ü",
        "\ufeffimport b\nimport a",
    ],
)
def test_diff_is_what_fix_does(lint, child, text):
    path = child.folder / "train.py"
    path.write_bytes(text.encode())
    done = subprocess.run(
        [*LINT, "--diff", "train.py"], cwd=child.folder, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.endswith(b"would fix 1 finding in 1 file, 0 findings in 1 file left\n")
    assert path.read_bytes() == text.encode()
    (child.folder / "change.patch").write_bytes(done.stdout)
    child.command("patch", "--binary", "-p0", "-i", "change.patch")
    patched = path.read_bytes()
    path.write_bytes(text.encode())
    assert lint("--fix", "train.py")[0] == 0
    assert path.read_bytes() == patched


def test_diff_tells_of_what_is_left_on_standard_error(lint, child):
    child.write("train.py", "import b, a\n")
    status, out, err = lint("--diff", "train.py")
    assert (status, out) == (1, "")
    assert "train.py:1:8: LOCAL1 b is imported before a" in err
    assert "--fix leaves this to you: one statement imports both" in err
    child.write("train.py", "import a\nimport b\n")
    assert lint("--diff", "train.py")[:2] == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
class TestFiles:
    """What becomes of the file itself."""

    def test_mode_is_kept(self, lint, child):
        child.write("train.py", "import b\nimport a\n")
        (child.folder / "train.py").chmod(0o751)
        assert lint("--fix", "train.py")[0] == 0
        assert stat.S_IMODE((child.folder / "train.py").stat().st_mode) == 0o751
        assert sorted(os.listdir(child.folder)) == ["cudaguard.toml", "train.py"]

    def test_link_stays_and_its_target_is_fixed(self, lint, child):
        child.write("real/train.py", "import b\nimport a\n")
        (child.folder / "train.py").symlink_to("real/train.py")
        assert lint("--fix", "train.py")[0] == 0
        assert (child.folder / "train.py").is_symlink()
        assert (child.folder / "real/train.py").read_text() == f"import a\n{S}import b\n"

    def test_read_only_file_is_an_error(self, lint, child):
        path = child.folder / "train.py"
        child.write("train.py", "import b\nimport a\n")
        path.chmod(0o444)
        status, out, err = lint("--fix", "train.py")
        assert status == 3
        assert "train.py: cannot be fixed: the file is read-only" in err
        assert out.startswith("train.py:1:8: LOCAL1")
        assert path.read_text() == "import b\nimport a\n"
        assert lint("--diff", "train.py")[0] == 1

    def test_other_hard_links_are_an_error(self, lint, child):
        path = child.folder / "train.py"
        child.write("train.py", "import b\nimport a\n")
        os.link(path, child.folder / "other.py")
        status, _, err = lint("--fix", "train.py")
        assert (status, path.read_text()) == (3, "import b\nimport a\n")
        assert "cannot be fixed: the file has other hard links" in err

    def test_full_disk_leaves_all_as_it_was(self, lint, child):
        child.write("train.py", "import b\nimport a\n")
        command = f"ulimit -f 0; exec {shlex.join((*LINT, '--fix', 'train.py'))}"
        done = child.command("sh", "-c", command, check=False)
        assert done.returncode == 3
        assert "train.py: cannot be fixed: File too large" in done.stderr
        assert (child.folder / "train.py").read_text() == "import b\nimport a\n"
        assert sorted(os.listdir(child.folder)) == ["cudaguard.toml", "train.py"]

    def test_file_that_changes_in_the_meantime_is_left(self, child, monkeypatch, capsys):
        """As when an editor saves it."""
        from argparse import Namespace

        from cudaguard.tools.lint import report

        child.write("cudaguard.toml", RULES)
        child.write("train.py", "import b\nimport a\n")
        path = child.folder / "train.py"

        def fixed_late(*arguments):
            change = fixed(*arguments)
            path.write_text("import b\nimport a\n# saved\n")
            return change

        monkeypatch.setattr(report, "fixed", fixed_late)
        monkeypatch.setenv("CUDAGUARD_CONFIG", str(child.folder / "cudaguard.toml"))
        args = {"config": None, "fix": True, "diff": False, "format": "text", "verbose": False}
        assert execute(Namespace(path=[str(path)], **args)) == 3
        assert "was changed in the meantime" in capsys.readouterr().err
        assert path.read_text().endswith("# saved\n")
        assert sorted(os.listdir(child.folder)) == ["cudaguard.toml", "train.py"]
