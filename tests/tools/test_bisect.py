"""``cudaguard bisect`` on programs that really crash, hang and fail."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys

import pytest

from cudaguard.tools.main import main

from ..documents import valid
from ..processes import state_of

BISECT = (sys.executable, "-m", "cudaguard", "bisect")
SEGFAULT = "import sys, ctypes\nif {before!r} in sys.modules: ctypes.string_at(0)\n"
EXIT = "import sys\nif {before!r} in sys.modules: sys.exit(3)\n"
NAMES = [f"m{number}" for number in range(1, 16)]
IMPORT_ALL = "".join(f"import {name}\n" for name in NAMES)


@pytest.fixture
def bisect(child):
    """Runs the command; returns exit status and the JSON document."""

    def bisect(*arguments, env=None):
        options = ("--with-arguments", "--format", "json")
        done = child.command(*BISECT, *options, *arguments, env=env or {}, check=False)
        assert done.stdout, done.stderr
        return done.returncode, valid("bisect", done.stdout)

    return bisect


@pytest.fixture
def planted(child):
    """Fifteen modules, one of which crashes if another came before; returns the script."""
    for name in NAMES:
        child.write(f"{name}.py", "")
    child.write("m11.py", SEGFAULT.format(before="m4"))
    return child.write("train.py", IMPORT_ALL)


# --- what is found --------------------------------------------------------------------------------


def test_planted_pair_among_fifteen(bisect, child, planted):
    """The rule keeps the program from crashing, the small program crashes as it does."""
    assert child.command(sys.executable, planted, check=False).returncode == -signal.SIGSEGV
    outputs = ("-o", "rule.toml", "-o", "all.json")
    status, found = bisect(*outputs, "train.py")
    assert status == 1
    assert (found["verdict"], found["failing"]) == ("order", ["m4", "m11"])
    assert found["working"] == ["m11", "m4"]
    assert found["failure"]["text"] == "SIGSEGV"
    assert found["program_works"] is found["rule"]["cures"] is True
    assert found["guard"] == {"cures": False, "rules": []}
    assert found["runs"] <= 20
    assert any("m11.py" in line for line in found["evidence"])
    run = (sys.executable, "-m", "cudaguard", "run", "train.py")
    assert child.command(*run, check=False).returncode != 0
    child.command(*run, env={"CUDAGUARD_CONFIG": "rule.toml"})
    assert valid("bisect", (child.folder / "all.json").read_text()) == found


def test_list_of_imports(bisect, planted):
    status, found = bisect("--imports", "m1,m4,m7,m11,m12")
    assert (status, found["failing"]) == (1, ["m4", "m11"])
    assert found["rule"]["cures"] is True


def test_module_as_a_program_with_options_of_its_own(bisect, child, planted):
    child.write("pkg/__init__.py", "")
    code = f"import sys\nassert sys.argv[1:] == ['-n', '1']\n{IMPORT_ALL}"
    child.write("pkg/train.py", code)
    status, found = bisect("-m", "pkg.train", "-n", "1")
    assert (status, found["failing"], found["program_works"]) == (1, ["m4", "m11"], True)


def test_program_elsewhere_gets_its_own_modules(bisect, child):
    """Also where imports are made alone; modules of the current folder are no part of it."""
    child.write("program/early.py", "")
    child.write("program/late.py", EXIT.format(before="early"))
    child.write("program/train.py", "import early, late\n")
    child.write("late.py", "raise SystemExit('of the wrong folder')\n")
    (child.folder / "link.py").symlink_to("program/train.py")
    _, found = bisect("link.py")
    assert (found["failing"], found["program_works"]) == (["early", "late"], True)


def test_three_that_fail_together_and_another_failure_in_between(bisect, child):
    """Without `base` the others fail as well, but in another way."""
    child.write("base.py", "")
    child.write("first.py", "import sys\nassert 'base' in sys.modules, 'base comes first'\n")
    child.write("last.py", "import os, sys\nif 'first' in sys.modules: os.kill(os.getpid(), 9)\n")
    child.write("train.py", "import base, first, last\n")
    _, found = bisect("train.py")
    assert found["failing"] == ["base", "first", "last"]
    assert found["failure"]["text"] == "SIGKILL"
    assert found["unsure"] > 0


@pytest.mark.incidents
def test_hang_and_nothing_is_left_behind(bisect, child):
    child.write("a.py", "")
    child.write(
        "c.py",
        """
        import subprocess, sys, time
        if "a" in sys.modules:
            sleeper = subprocess.Popen(["sleep", "600"])
            with open("pids.txt", "a") as file:
                file.write(f"{sleeper.pid}\\n")
            time.sleep(600)
        """,
    )
    child.write("train.py", "import a, c\n")
    status, found = bisect("--timeout", "3", "train.py")
    assert (status, found["failing"], found["working"]) == (1, ["a", "c"], ["c", "a"])
    assert found["failure"]["kind"] == "hang"
    pids = (child.folder / "pids.txt").read_text().split()
    assert len(pids) >= 3
    assert {*map(state_of, pids)} == {"Z"}


FLAKY = """
    import os, sys
    if "a" in sys.modules:
        with open("count", "a") as file:
            file.write("x")
        if os.path.getsize("count") % 3 == 0:
            os.abort()
"""


def test_flaky_failure_takes_repeats(bisect, child):
    child.write("a.py", "")
    child.write("c.py", FLAKY)
    child.write("train.py", "import a, c\n")
    assert bisect("train.py")[0] == 0
    status, found = bisect("-n", "3", "train.py")
    assert (status, found["failing"], found["working"]) == (1, ["a", "c"], ["c", "a"])


CHANCE = """
    import os, sys
    import a, b
    with open("count", "a") as file:
        file.write("x")
    if os.path.getsize("count") != 2:
        sys.exit(3)
"""


def test_failure_by_chance_is_not_put_down_to_an_order(bisect, child):
    """The program works once, when other imports happen to stand in front."""
    child.write("a.py", "")
    child.write("b.py", "")
    child.write("train.py", CHANCE)
    status, found = bisect("train.py")
    assert (status, found["verdict"], found["rule"]) == (125, "by-chance", None)
    assert found["command"] == "cudaguard bisect -n 5 train.py"


@pytest.fixture
def _wrong(child):
    """A program that fails by itself: its imports alone do not."""
    for name in ("noise", "sound", "early"):
        child.write(f"{name}.py", "")
    child.write("late.py", "import sys\nis_spoilt = 'early' in sys.modules\n")
    code = "import sys\nimport noise, early, sound, late\nprint(sys.argv)\n"
    child.write("train.py", f"{code}if late.is_spoilt: sys.exit(3)\n")


@pytest.mark.usefixtures("_wrong")
def test_wrong_exit_status_of_the_program_itself(bisect):
    """Imports alone do not fail: the program is tried with imports in front."""
    status, found = bisect("train.py")
    assert (status, found["failing"], found["working"]) == (1, ["early", "late"], ["late", "early"])
    assert found["failure"] == {"kind": "exit", "text": "3"}
    assert found["rule"]["cures"] is True


@pytest.mark.usefixtures("_wrong")
def test_documents_show_no_arguments(child):
    """Nor what the program has printed."""
    command = (*BISECT, "-o", "all.json", "train.py", "--key", "s3cr3t")
    assert "train.py --key s3cr3t" in child.command(*command, check=False).stdout
    text = (child.folder / "all.json").read_text(encoding="utf-8")
    assert "s3cr3t" not in text
    assert valid("bisect", text)["program"] == ["train.py", "<2 arguments>"]


def test_import_that_must_come_before_what_the_program_does(bisect, child):
    """There is no other import to order it with: no rule can say that."""
    child.write("late.py", "import os\nis_spoilt = 'SPOILT' in os.environ\n")
    child.write("train.py", "import os\nos.environ['SPOILT'] = '1'\nimport late\n"
                "assert not late.is_spoilt\n")  # fmt: skip
    status, found = bisect("train.py")
    assert (status, found["verdict"], found["working"]) == (1, "order", ["late"])
    assert found["rule"] is None
    assert found["what"].endswith("unless late is imported first of all.")


def test_import_that_needs_a_later_one(bisect, child):
    """The crashed program never came to its last import, but names it."""
    lost = "raise ImportError('libprovider.so: cannot open shared object file')"
    child.write("provider.py", "")
    child.write("other.py", "")
    child.write("ext.py", f"import sys\nif 'provider' not in sys.modules:\n    {lost}\n")
    child.write("train.py", "import other\nimport ext\nimport provider\n")
    status, found = bisect("train.py")
    assert (status, found["verdict"]) == (1, "needs")
    assert (found["first"], found["then"]) == (["provider"], ["ext"])
    assert found["rule"]["cures"] is True


def test_packages_that_own_modules_and_lazy_calls_import_are_looked_into(bisect, child):
    """What a package imports while it is imported itself comes with it, and is not counted."""
    child.write("site-packages/early.py", "import within\n")
    child.write("site-packages/within.py", "")
    child.write("site-packages/crash/__init__.py", SEGFAULT.format(before="early"))
    child.write("site-packages/crash/inner.py", "")
    child.write("site-packages/lazy.py", "def use():\n    from crash import inner\n")
    child.write("mine.py", "import early, json, lazy\nlazy.use()\n")
    child.write("train.py", "import mine\n")
    _, found = bisect("train.py", env={"PYTHONPATH": str(child.folder / "site-packages")})
    assert found["imports"][:3] == ["early", "lazy", "crash"]
    assert found["failing"] == ["early", "crash"]


def test_no_order_works(bisect, child):
    child.write("broken.py", "import os; os.abort()\n")
    child.write("fine.py", "")
    child.write("train.py", "import fine, broken\n")
    status, found = bisect("train.py")
    assert (status, found["verdict"], found["failing"]) == (1, "together", ["broken"])
    assert (found["rule"], found["command"]) == (None, "")  # it knows the answer


def test_order_is_not_the_cause(bisect, child):
    child.write("fine.py", "")
    child.write("train.py", "import fine\n1/0\n")
    status, found = bisect("train.py")
    assert (status, found["verdict"]) == (125, "unexplained")
    assert found["failure"]["text"] == "ZeroDivisionError: division by zero"
    assert found["what"].endswith("no order of imports cures it.")
    assert "runner.py" not in str(found["evidence"])
    child.write("train.py", "import fine, os\nos.abort()\n")
    command = bisect("train.py")[1]["command"]  # `run` would ask to bisect
    assert command.endswith(" -ex run -ex backtrace --args " + command.split()[-2] + " train.py")


def test_program_that_works(bisect, child):
    child.write("train.py", "import json\n")
    status, found = bisect("train.py")
    assert (status, found["verdict"], found["runs"]) == (0, "works", 1)


def test_folder_and_zip_file_are_programs(bisect, child):
    child.write("app/helper.py", "")
    child.write("app/__main__.py", "import helper, os, sys\nos.abort() if sys.argv[1:] else None\n")
    shutil.make_archive(str(child.folder / "app"), "zip", child.folder / "app")
    for program in ("app", "app.zip"):
        assert bisect(program)[1]["verdict"] == "works"
        found = bisect(program, "--die")[1]
        assert (found["failure"]["text"], found["imports"]) == ("SIGABRT", ["helper"])


def test_missing_module_whose_folder_a_later_import_adds(bisect, child):
    child.write("one.py", "")
    child.write("elsewhere/hidden_part.py", "")
    child.write("adds_folder.py", "import sys\nsys.path.append('elsewhere')\n")
    child.write("train.py", "import one, hidden_part, adds_folder\n")
    _, found = bisect("train.py")
    assert (found["first"], found["then"]) == (["adds_folder"], ["hidden_part"])


# --- the runs -------------------------------------------------------------------------------------


def test_own_install_of_the_program_is_off(bisect, child, planted):
    rule = "cudaguard.Rule('L1', ('m4',), 'w', needs=('m11',))"
    child.write("train.py", f"import cudaguard\ncudaguard.install(rules=[{rule}])\n{IMPORT_ALL}")
    child.command(sys.executable, "train.py")
    _, found = bisect("train.py", env={"CUDAGUARD": "strict"})
    assert found["failing"] == ["m4", "m11"]
    assert "cudaguard" not in found["imports"]
    assert found["guard"]["cures"] is True


def test_children_end_with_a_search_that_is_ended(child):
    child.write("train.py", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
                "time.sleep(600)\n")  # fmt: skip
    pid = child.folder / "pid"
    done = child.signaled(
        *BISECT, "train.py", number=signal.SIGTERM,
        once=lambda _: pid.exists() and pid.read_text(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")
    assert "Traceback" not in done.stderr
    assert state_of(pid.read_text()) == "Z"


TELL = """
    import json, multiprocessing, os, pickle, sys
    import __main__

    class Thing:
        pass

    def double(x):
        return 2 * x

    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            doubled = pool.map(double, [21])
        print(json.dumps({
            "argv": sys.argv, "path": sys.path, "file": __file__, "doubled": doubled,
            "main": __main__.__dict__ is globals(), "package": __package__,
            "spec": __spec__ is None, "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
            "variables": [name for name in os.environ if "BISECT" in name],
        }))
"""


def test_program_sees_what_it_sees_under_python(child, root):
    """Its spawned processes work as well."""
    path = child.write("sub/tell.py", TELL)
    runner = root / "cudaguard" / "tools" / "bisect" / "_bisect" / "runner.py"
    plain = json.loads(child.command(sys.executable, path, "--x", "-m").stdout)
    env = {"CUDAGUARD_BISECT_IMPORTS": "json,no_such_module"}
    command = (sys.executable, runner, "script", path.parent, path, "--x", "-m")
    assert json.loads(child.command(*command, env=env).stdout) == plain


# --- what is written where ------------------------------------------------------------------------


def test_progress_and_report_in_text(child, planted):
    done = child.command(*BISECT, "train.py", check=False)
    assert done.stdout.startswith("train.py crashes with SIGSEGV when m4 is imported before m11.\n")
    assert "run 1: train.py: crashes with SIGSEGV\n" in done.stderr
    assert "The rule below cures it" in done.stdout
    assert '    watch = ["m4"]\n    needs = ["m11"]\n' in done.stdout
    assert "\r" not in done.stderr
    assert "\033" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "expected a script, -m MODULE, or --imports A,B,C"),
        ("nothing.py", "nothing.py: there is no such file"),
        ("-c", "put code in a file"),
        ("-m", "-m is followed by nothing"),
        ("--imports 'a;b'", "expected module names"),
        ("--imports ''", "expected module names"),
        ("--imports a train.py", "not both"),
        ("--timeout nan train.py", "expected a number of seconds above 0"),
        ("-n 0 train.py", "must be greater than 0"),
        ("-o no/such/rule.toml train.py", "there is no such folder"),
        ("-o train.py train.py", "the file is there already"),
        ("--nonsense train.py", "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, capsys, line, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["bisect", *shlex.split(line)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
