"""``cudaguard bisect`` on programs that really crash, hang and fail."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from ..conftest import clean_environment
from ..decord_fault import needs_fault
from ..documents import valid

BISECT = (sys.executable, "-m", "cudaguard", "bisect")
SEGFAULT = "import sys, ctypes\nif {before!r} in sys.modules: ctypes.string_at(0)\n"
NAMES = [f"m{number}" for number in range(1, 16)]


@pytest.fixture
def bisect(child):
    """Runs the command; returns exit status, the JSON document, and stderr."""

    def bisect(*arguments, env=None):
        done = child.command(*BISECT, "--format", "json", *arguments, env=env or {}, check=False)
        document = valid("bisect", done.stdout) if done.stdout else None
        return done.returncode, document, done.stderr

    return bisect


@pytest.fixture
def planted(child):
    """Fifteen modules, one of which crashes if another came before; returns the script."""
    for name in NAMES:
        child.write(f"{name}.py", "")
    child.write("m11.py", SEGFAULT.format(before="m4"))
    return child.write("train.py", "".join(f"import {name}\n" for name in NAMES))


def test_planted_pair_among_fifteen(bisect, child, planted):
    assert child.command(sys.executable, planted, check=False).returncode == -signal.SIGSEGV
    status, found, _ = bisect("train.py")
    assert status == 1
    assert (found["verdict"], found["failing"]) == ("order", ["m4", "m11"])
    assert found["working"] == ["m11", "m4"]
    assert found["failure"]["signal"] == "SIGSEGV"
    assert found["program_works"] is True
    assert found["runs"] <= 20
    assert any("m11.py" in line for line in found["evidence"])


def test_rule_and_program_are_ready_for_use(bisect, child, planted):
    """The rule keeps the program from crashing, the small program crashes as it does."""
    _, found, _ = bisect("-o", "rule.toml", "-o", "small.py", "-o", "all.json", "train.py")
    assert found["rule"]["cures"] is True
    assert found["guard"] == {"cures": False, "rules": []}
    run = (sys.executable, "-m", "cudaguard", "run")
    assert child.command(*run, "train.py", check=False).returncode != 0
    child.command(*run, "train.py", env={"CUDAGUARD_CONFIG": "rule.toml"})
    child.command(sys.executable, "-m", "cudaguard", "rules", "check", "rule.toml")
    assert child.command(sys.executable, "small.py", check=False).returncode == -signal.SIGSEGV
    assert json.loads((child.folder / "all.json").read_text())["failing"] == ["m4", "m11"]


def test_files_that_are_there_are_left_alone(child, planted):
    path = child.write("rule.toml", "mine")
    done = child.command(*BISECT, "-o", "rule.toml", "train.py", check=False)
    assert (done.returncode, done.stdout, path.read_text()) == (2, "", "mine")
    assert "is there already" in done.stderr


def test_server_that_a_run_has_detached_is_ended_with_it(bisect, child, tmp_path):
    told = tmp_path / "servers"
    child.write("m1.py", "")
    child.write("m2.py", "import sys\nif 'm1' in sys.modules: sys.exit(3)\n")
    child.write(
        "serve.py",
        f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                with open({str(told)!r}, "a") as file:
                    print(os.getpid(), file=file)
                time.sleep(600)
            os._exit(0)
        os.wait()
        while not os.path.exists({str(told)!r}):
            time.sleep(0.01)
        import m1, m2
        """,
    )
    status, found, _ = bisect("serve.py")
    assert (status, found["failing"]) == (1, ["m1", "m2"])
    servers = told.read_text().split()
    assert servers
    assert not [pid for pid in servers if os.path.exists(f"/proc/{pid}")]


def test_list_of_imports(bisect, planted):
    status, found, _ = bisect("--imports", "m1,m4,m7,m11,m12")
    assert (status, found["failing"]) == (1, ["m4", "m11"])
    assert found["rule"]["cures"] is True
    assert found["reproducer"]["fails"] is True


def test_module_as_a_program_with_options_of_its_own(bisect, child, planted):
    child.write("pkg/__init__.py", "")
    lines = "".join(f"import {name}\n" for name in NAMES)
    child.write("pkg/train.py", f"import sys\nassert sys.argv[1:] == ['-n', '1']\n{lines}")
    status, found, _ = bisect("-m", "pkg.train", "-n", "1")
    assert (status, found["failing"]) == (1, ["m4", "m11"])
    assert found["program_works"] is True


def test_abort(bisect, child):
    for name in "abcd":
        child.write(f"{name}.py", "")
    child.write("d.py", "import os, sys\nif {'a', 'c'} <= set(sys.modules): os.abort()\n")
    child.write("train.py", "import a, b, c, d\n")
    _, found, _ = bisect("train.py")
    assert found["failing"] == ["a", "c", "d"]
    assert found["working"] == ["d", "a", "c"]
    assert found["failure"]["signal"] == "SIGABRT"


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os; os.kill(os.getpid(), 9)", {"kind": "signal", "signal": "SIGKILL"}),
        (
            "from resource import *; setrlimit(RLIMIT_AS, (1 << 30, 1 << 30)); bytearray(1 << 31)",
            {"kind": "status", "status": 1, "error": "MemoryError"},
        ),
    ],
    ids=["killed", "out of memory"],
)
def test_killed_and_out_of_memory(bisect, child, code, failure):
    child.write("a.py", "")
    child.write("b.py", "")
    child.write("c.py", f"import sys\nif 'b' in sys.modules:\n    {code}\n")
    child.write("train.py", "import a, b, c\n")
    status, found, _ = bisect("train.py")
    assert (status, found["failing"], found["working"]) == (1, ["b", "c"], ["c", "b"])
    assert {key: found["failure"][key] for key in failure} == failure


@pytest.mark.incidents
def test_hang_and_nothing_is_left_behind(bisect, child):
    child.write("a.py", "")
    child.write("b.py", "")
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
    child.write("train.py", "import a, b, c\n")
    status, found, err = bisect("--timeout", "3", "train.py")
    assert (status, found["failing"], found["working"]) == (1, ["a", "c"], ["c", "a"])
    assert found["failure"]["kind"] == "hang"
    assert "does not end" in err
    pids = (child.folder / "pids.txt").read_text().split()
    assert len(pids) >= 3
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid):
    """Is that process there, and not merely waiting to be buried?"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    child.write("b.py", "")
    child.write("c.py", FLAKY)
    child.write("train.py", "import a, b, c\n")
    assert bisect("train.py")[:2][0] == 0
    status, found, _ = bisect("-n", "3", "train.py")
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
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"], found["rule"]) == (125, "by-chance", None)


WRONG = """
    import sys
    import noise, early, sound, late
    if late.is_spoilt:
        sys.exit(3)
"""


def test_wrong_exit_status_of_the_program_itself(bisect, child):
    """Imports alone do not fail: the program is tried with imports in front."""
    child.write("noise.py", "")
    child.write("sound.py", "")
    child.write("early.py", "")
    child.write("late.py", "import sys\nis_spoilt = 'early' in sys.modules\n")
    child.write("train.py", WRONG)
    status, found, _ = bisect("train.py")
    assert (status, found["failing"], found["working"]) == (1, ["early", "late"], ["late", "early"])
    assert found["with_program"] is True
    assert found["failure"] == {"kind": "status", "signal": "", "status": 3, "error": ""}
    assert found["reproducer"]["fails"] is True
    assert found["rule"]["cures"] is True


def test_import_that_must_come_before_what_the_program_does(bisect, child):
    """There is no other import to order it with: no rule can say that."""
    child.write("late.py", "import os\nis_spoilt = 'SPOILT' in os.environ\n")
    child.write("train.py", "import os\nos.environ['SPOILT'] = '1'\nimport late\n"
                "assert not late.is_spoilt\n")  # fmt: skip
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"], found["working"]) == (1, "order", ["late"])
    assert found["rule"] is None
    text = child.command(*BISECT, "train.py", check=False).stdout
    assert "unless late is imported first of all.\n" in text


def test_package_is_found_and_not_its_modules(bisect, child):
    child.write("pkg/__init__.py", "import sys\nif 'x' in sys.modules: sys.exit(3)\n")
    child.write("pkg/inner.py", "")
    child.write("x.py", "")
    child.write("train.py", "import x\nfrom pkg import inner\n")
    _, found, _ = bisect("train.py")
    assert (found["failing"], found["rule"]["cures"]) == (["x", "pkg"], True)


def test_other_failures_are_not_mixed_up(bisect, child):
    """Without `base` the others fail as well, but in another way."""
    child.write("base.py", "")
    child.write("first.py", "import sys\nassert 'base' in sys.modules, 'base comes first'\n")
    child.write("last.py", SEGFAULT.format(before="first"))
    child.write("train.py", "import base, first, last\n")
    _, found, _ = bisect("train.py")
    assert found["failing"] == ["base", "first", "last"]
    assert found["failure"]["kind"] == "signal"
    assert found["unsure"] > 0


def test_import_that_needs_a_later_one(bisect, child):
    """The crashed program never came to its last import, but names it."""
    child.write("provider.py", "")
    child.write("other.py", "")
    child.write(
        "ext.py",
        """
        import sys
        if "provider" not in sys.modules:
            raise ImportError("libprovider.so: cannot open shared object file")
        """,
    )
    child.write("train.py", "import other\nimport ext\nimport provider\n")
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"]) == (1, "needs")
    assert (found["first"], found["then"]) == (["provider"], ["ext"])
    assert found["rule"]["cures"] is True


def test_own_module_that_imports_others_is_looked_into(bisect, child):
    """What is found are the packages, not the file of the user that imports them."""
    child.write("site-packages/early.py", "")
    child.write("site-packages/crash.py", SEGFAULT.format(before="early"))
    child.write("mine.py", "import early\nimport json\nimport crash\n")
    child.write("train.py", "import mine\n")
    _, found, _ = bisect("train.py", env={"PYTHONPATH": str(child.folder / "site-packages")})
    assert found["imports"] == ["early", "crash"]
    assert found["failing"] == ["early", "crash"]


def test_late_import_by_a_package_counts_and_an_early_one_does_not(bisect, child):
    packages = child.folder / "site-packages"
    child.write("site-packages/early.py", "import within\n")
    child.write("site-packages/within.py", "")
    child.write("site-packages/crash.py", SEGFAULT.format(before="early"))
    child.write("site-packages/lazy.py", "def use():\n    import crash\n")
    child.write("train.py", "import early, lazy\nlazy.use()\n")
    _, found, _ = bisect("train.py", env={"PYTHONPATH": str(packages)})
    assert found["imports"] == ["early", "lazy", "crash"]
    assert found["failing"] == ["early", "crash"]


def test_no_order_works(bisect, child):
    child.write("broken.py", "import os; os.abort()\n")
    child.write("fine.py", "")
    child.write("train.py", "import fine, broken\n")
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"], found["failing"]) == (1, "together", ["broken"])
    assert found["rule"] is None
    assert found["command"] == "cudaguard run train.py"


def test_hang_in_every_order_leads_to_a_run_with_a_limit(bisect, child):
    """Without one it would hang as well."""
    child.write("broken.py", "import time; time.sleep(60)\n")
    child.write("fine.py", "")
    child.write("train.py", "import fine, broken\n")
    _, found, _ = bisect("--timeout", "3", "train.py")
    assert found["verdict"] == "together"
    assert found["command"] == "cudaguard run --timeout 3 train.py"


@pytest.mark.skipif(sys.platform != "linux", reason="it is no ELF file elsewhere")
def test_compiled_module_beside_the_program_is_found_by_the_small_program(bisect, child):
    child.write("broken.abi3.so", "no library")
    child.write("train.py", "import broken\n")
    _, found, _ = bisect("train.py")
    assert found["failing"] == ["broken"]
    assert found["reproducer"]["fails"] is True
    assert f"sys.path.insert(0, {str(child.folder)!r})" in found["reproducer"]["code"]


def test_order_is_not_the_cause(bisect, child):
    child.write("fine.py", "")
    child.write("train.py", "import fine\n1/0\n")
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"]) == (125, "unexplained")
    assert found["failure"]["error"] == "ZeroDivisionError: division by zero"
    assert found["guard"] == {"cures": False, "rules": []}
    text = child.command(*BISECT, "train.py", check=False).stdout
    assert "no order of imports cures it" in text
    assert "runner.py" not in text
    child.write("train.py", "1/0\n")
    text = child.command(*BISECT, "train.py", check=False).stdout
    assert "makes no imports whose order could be the cause" in text


def test_program_that_works(bisect, child):
    child.write("train.py", "import json\n")
    status, found, _ = bisect("train.py")
    assert (status, found["verdict"], found["runs"]) == (0, "works", 1)


BY_VARIABLE = """
    import os, sys
    names = [name for name in os.environ["CUDAGUARD_BISECT_IMPORTS"].split(",") if name]
    if names == ["m7"]:
        sys.exit(125)
    for name in names:
        __import__(name)
"""


def test_command(bisect, child, planted):
    child.write("try.py", BY_VARIABLE)
    command = f"{sys.executable} try.py"
    status, found, _ = bisect("--cmd", command, "--imports", "m1,m4,m7,m11")
    assert (status, found["failing"], found["working"]) == (1, ["m4", "m11"], ["m11", "m4"])
    assert found["failure"]["signal"] == "SIGSEGV"
    assert found["rule"]["cures"] is True


def test_command_that_has_imports_of_its_own(bisect, child, planted):
    child.write("try.py", BY_VARIABLE + "    import m4, m9, m11\n")
    command = f"exec {sys.executable} try.py"
    _, found, _ = bisect("--cmd", command, "--imports", "m4,m9,m11")
    assert (found["failing"], found["working"]) == (["m4", "m11"], ["m11", "m4"])
    assert found["with_program"] is True


def test_command_that_cannot_say(bisect):
    status, found, _ = bisect("--cmd", "exit 125", "--imports", "a,b")
    assert (status, found["verdict"]) == (125, "cannot-say")


MODE = """
    import os, sys
    guard = sys.modules.get("cudaguard.api")
    sys.exit({"off": 3, "warn": 4}.get(guard.status().mode if guard else "off", 5))
"""


def test_children_are_not_guarded_unless_asked(bisect, child):
    child.write("train.py", MODE)
    env = {"CUDAGUARD": "strict"}
    assert bisect("train.py", env=env)[1]["failure"]["status"] == 3
    assert bisect("--mode", "warn", "train.py", env=env)[1]["failure"]["status"] == 4


def test_own_install_of_the_program_is_off(bisect, child, planted):
    lines = "".join(f"import {name}\n" for name in NAMES)
    rule = "cudaguard.Rule('L1', ('m4',), 'w', needs=('m11',))"
    child.write("train.py", f"import cudaguard\ncudaguard.install(rules=[{rule}])\n{lines}")
    child.command(sys.executable, "train.py")
    _, found, _ = bisect("train.py")
    assert found["failing"] == ["m4", "m11"]
    assert "cudaguard" not in found["imports"]
    assert found["guard"]["cures"] is True


@needs_fault
def test_real_decord_and_opencv_without_being_told(bisect, child, root):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    program = root / "cudaguard" / "tools" / "_demo" / "decord_then_opencv.py"
    assert child.command(sys.executable, program, check=False).returncode == 1
    status, found, _ = bisect(program)
    assert status == 1
    assert (found["failing"], found["working"]) == (["decord", "cv2"], ["cv2", "decord"])
    assert found["guard"] == {"cures": True, "rules": ["CG001"]}
    assert found["versions"]["decord"] == "0.6.0"
    assert "CG001" in child.command(*BISECT, program, check=False).stdout


# --- what is written where ------------------------------------------------------------------------


def test_stdout_holds_the_document_alone(child, planted):
    done = child.command(*BISECT, "train.py", check=False)
    assert done.stdout.startswith("train.py is ended by SIGSEGV when m4 is imported before m11.\n")
    assert "run 1: train.py: ended by SIGSEGV\n" in done.stderr
    assert "\r" not in done.stderr
    assert "\033" not in done.stdout + done.stderr


def test_github(child, planted):
    done = child.command(*BISECT, "--format", "github", "train.py", check=False)
    assert done.stdout.startswith("::error title=cudaguard bisect::train.py is ended by SIGSEGV")
    assert done.stdout.count("\n") == 1
    assert "%0A" in done.stdout


@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False), ({}, False)],
)
def test_color_off_a_terminal(child, planted, variables, is_colored):
    variables = {"NO_COLOR": "", "FORCE_COLOR": "", **variables}
    done = child.command(*BISECT, "--imports", "m4,m11", env=variables, check=False)
    assert ("\033" in done.stdout) is is_colored
    command = (*BISECT, "--format", "json", "--imports", "m4,m11")
    assert "\033" not in child.command(*command, env=variables, check=False).stdout


def _on_a_terminal(child, command, **variables):
    """Run a command on a pseudo-terminal; return all that it wrote there."""
    leader, follower = pty.openpty()
    started = subprocess.Popen(
        command,
        cwd=child.folder,
        env=clean_environment(TERM="xterm", **variables),
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    written = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            written += data
    os.close(leader)
    assert started.wait(60) == 1
    return written.decode()


def test_line_rewrites_itself_on_a_terminal(child, planted):
    written = _on_a_terminal(child, [*BISECT, "train.py"], NO_COLOR="1")
    assert "\033" not in written
    progress, _, report = written.rpartition("\r" + " " * 20)
    assert progress.count("\r") > 10
    assert "\n" not in progress
    assert "run 1: train.py ..." in progress
    assert max(map(len, progress.split("\r"))) < 80
    assert "train.py is ended by SIGSEGV" in report


def test_headline_is_bold_on_a_terminal(child, planted):
    written = _on_a_terminal(child, [*BISECT, "--imports", "m4,m11"], NO_COLOR="")
    assert "\033[1mPython is ended by SIGSEGV when m4 is imported before m11.\033[0m" in written


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected a script, -m MODULE, or --imports A,B,C"),
        (["nothing.py"], "nothing.py: there is no such file"),
        (["-m"], "-m is followed by nothing"),
        (["--cmd", "true"], "--cmd needs --imports A,B,C"),
        (["--imports", "a;b"], "expected module names"),
        (["--imports", ""], "expected module names"),
        (["--imports", "a", "train.py"], "not both"),
        (["--timeout", "0", "train.py"], "must be greater than 0"),
        (["--timeout", "nan", "train.py"], "must be greater than 0"),
        (["-n", "0", "train.py"], "must be greater than 0"),
        (["-o", "no/such/rule.toml", "train.py"], "there is no such folder"),
        (["--mode", "nonsense", "train.py"], "expected one of off, observe, warn, fix, strict"),
        (["--nonsense", "train.py"], "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_usage(child, arguments, expected):
    child.write("train.py", "")
    done = child.command(*BISECT, *arguments, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr


def test_help_teaches_by_example(child):
    done = child.command(*BISECT, "--help")
    assert "cudaguard bisect --imports decord,torch,cv2" in done.stdout
    assert "CUDAGUARD_BISECT_IMPORTS" in done.stdout


def test_searching_process_imports_nothing_foreign(child, planted):
    done = child.python(
        """
        import sys
        from cudaguard.tools.main import main
        main(["bisect", "train.py"])
        foreign = ("m1", "m11", "numpy", "torch", "wrapt", "pynvml", "decord", "cv2")
        print([name for name in foreign if name in sys.modules])
        """
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_children_end_with_a_search_that_is_ended(child, number):
    child.write("train.py", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
                "time.sleep(600)\n")  # fmt: skip
    search = subprocess.Popen(
        [*BISECT, "train.py"], cwd=child.folder, env=clean_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # these tests may run under nohup
    )  # fmt: skip
    pid = child.folder / "pid"
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    search.send_signal(number)
    out, err = search.communicate(timeout=60)
    assert search.returncode == 128 + number
    assert out == b""
    assert b"Traceback" not in err
    assert not _runs(pid.read_text())


TELL = """
    import json, pickle, sys
    import __main__

    class Thing:
        pass

    print(json.dumps({
        "argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__,
        "main": __main__.__dict__ is globals(), "package": __package__, "spec": __spec__ is None,
        "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "variables": [name for name in __import__("os").environ if "BISECT" in name],
    }))
"""


def test_program_sees_what_it_sees_under_python(child, root):
    path = child.write("sub/tell.py", TELL)
    runner = root / "cudaguard" / "tools" / "bisect" / "_bisect" / "runner.py"
    plain = json.loads(child.command(sys.executable, path, "--x", "-m").stdout)
    env = {"CUDAGUARD_BISECT_IMPORTS": "json,no_such_module"}
    command = (sys.executable, runner, "script", path, "--x", "-m")
    assert json.loads(child.command(*command, env=env).stdout) == plain


def test_spawned_processes_of_the_program_work(child, root):
    path = child.write(
        "spawn.py",
        """
        import multiprocessing

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [21]))
        """,
    )
    runner = root / "cudaguard" / "tools" / "bisect" / "_bisect" / "runner.py"
    assert child.command(sys.executable, runner, "script", path).stdout == "[42]\n"


def test_console_script_of_this_environment(child):
    """A command is taken for the script that it is; as are `python` and what follows it."""
    for name in ("first", "second"):
        child.write(f"{name}.py", f"import sys\nsys.{name} = True\n")
    text = f"#!{sys.executable}\nimport first, second, sys\nsys.exit(sys.argv[1] == 'fail')\n"
    path = child.write("bin/serve", text)
    path.chmod(0o755)
    env = {
        "PATH": f"{path.parent}{os.pathsep}{os.path.dirname(sys.executable)}",
        "PYTHONPATH": str(child.folder),
    }
    name = os.path.basename(sys.executable)
    bisect = (sys.executable, "-m", "cudaguard", "bisect")
    for command in (("serve",), (name, str(path))):
        done = child.command(*bisect, *command, "well", env=env, check=False)
        assert done.returncode == 0, done.stderr
        assert "serve well" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nonsuch"], "nonsuch: no such file here, and no such command on PATH"),
        (["./wrapper"], "./wrapper is not run by this Python"),
        ([sys.executable, "-c", "pass"], "put the code of -c in a file"),
    ],
)
def test_command_whose_imports_cannot_be_tried(child, words, expected):
    child.write("wrapper", "#!/bin/sh\nexit 1\n").chmod(0o755)
    done = child.command(sys.executable, "-m", "cudaguard", "bisect", *words, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
