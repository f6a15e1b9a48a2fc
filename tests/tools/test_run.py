"""``cudaguard run`` behaves as ``python`` does, and its children are guarded too."""

from __future__ import annotations

import json
import os
import sys

import pytest

from ..hooks.conftest import compiler as compiler
from ..processes import CHILDREN

TELL = """
    import json, sys
    import __main__
    guard = sys.modules.get("cudaguard.api")
    print(json.dumps({
        "argv": sys.argv, "path": sys.path, "name": __name__, "stdin": sys.stdin.read(),
        "file": getattr(__main__, "__file__", None),
        "package": __main__.__package__, "spec": __main__.__spec__ and __main__.__spec__.name,
        "flags": [sys.flags.optimize, sys.flags.dont_write_bytecode],
        "mode": guard and guard.status().mode,
    }))
"""
RUN = (sys.executable, "-m", "cudaguard", "run")
NOTHING = "expected a script or command, -m MODULE, -c CODE, or - for a program on standard input"


def told(done):
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_program_sees_what_it_sees_under_python(child, how):
    path = child.write("pkg/tell.py", TELL)
    program = {
        "script": [path, "--mode", "x", "-m"],
        "module": ["-m", "pkg.tell", "-c", "y"],
        "code": ["-c", path.read_text(), "--", "z"],
    }[how]
    plain = told(child.command(sys.executable, *program))
    guarded = told(child.command(*RUN, *program))
    assert guarded.pop("mode") == "fix"
    assert plain.pop("mode") is None
    assert guarded == plain


@pytest.mark.parametrize(
    "start",
    [
        ["-O", "-B", "-m", "cudaguard", "run"],
        ["-I", "-O", "-X", "dev", "-m", "cudaguard", "run", "-B", "-W", "default"],
        ["-m", "cudaguard", "run", "-Wignore::ImportWarning", "-X", "dev", "-OB"],
        ["-IOBm", "cudaguard", "run"],
    ],
)
def test_interpreter_options_reach_the_program(child, editable_python, start):
    path = child.write("tell.py", TELL)
    seen = told(child.command(editable_python, *start, path, "-S"))
    assert (seen["flags"], seen["mode"], seen["argv"][1:]) == ([1, 1], "fix", ["-S"])


def test_options_of_the_program_are_not_taken_for_pythons(child, wheel_python):
    path = child.write("tell.py", TELL)
    command = wheel_python.parent / "cudaguard"
    for program in (["-m", "tell"], [path], ["-mtell"], ["-um", "tell"]):
        seen = told(child.command(command, "run", *program, "-m", "-O"))
        assert (seen["flags"], seen["argv"][1:]) == ([0, 0], ["-m", "-O"])


def test_program_from_standard_input(child):
    start = " ".join(map(str, RUN))
    done = child.command("sh", "-c", f"echo 'import sys; print(sys.argv)' | {start} - one")
    assert done.stdout == "['-', 'one']\n"


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 does not tell whether -u was given")
def test_unbuffered_output_stays_unbuffered(child):
    code = "import sys; print(sys.stdout.write_through)"
    done = child.command(sys.executable, "-u", "-m", "cudaguard", "run", "-c", code)
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [("import sys; sys.exit(7)", 7), ("1/0", 1), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_exit_status_and_signal_are_the_programs(child, code, status):
    assert child.command(*RUN, "-c", code, check=False).returncode == status


@pytest.mark.parametrize(("option", "is_same"), [("--exec", 1), ("--mode=off", 1), ("", 0)])
def test_pid_stays_the_same_where_the_command_becomes_the_program(child, option, is_same):
    """For what insists on being the process that was started; and where there is no guard."""
    options = [option] if option else []
    done = child.command(
        *("sh", "-c", 'echo $$; exec "$@"', "sh", *RUN, *options),
        *("-c", "import os; print(os.getpid())"),
    )
    first, second = done.stdout.split()
    assert (first == second) == is_same


def test_the_record_costs_the_program_no_modules(child):
    code = "import sys; print(*sorted(sys.modules))"
    names = [
        {name for name in child.command(*RUN, *options, "-c", code).stdout.split()
         if not name.startswith("cudaguard")}
        for options in (["--exec"], [])
    ]  # fmt: skip
    assert names[1] - names[0] <= {"faulthandler", "_json"}


def test_option_beats_the_variable_and_that_the_file(child):
    path = child.write("tell.py", TELL)
    done = child.command(*RUN, "--mode", "strict", path, env={"CUDAGUARD": "warn"})
    assert told(done)["mode"] == "strict"
    done = child.command(*RUN, "--mode=strict", path, env={"CUDAGUARD": "off"})
    assert told(done)["mode"] is None  # the kill switch
    config = child.write("cudaguard.toml", 'mode = "observe"')
    env = {"CUDAGUARD_CONFIG": str(config)}
    assert told(child.command(*RUN, path, env=env))["mode"] == "observe"
    assert told(child.command(*RUN, path, env={**env, "CUDAGUARD": "warn"}))["mode"] == "warn"


@pytest.mark.parametrize("more", [{}, {"CUDAGUARD": "fix"}])
def test_configuration_that_cannot_be_used_is_told_and_keeps_no_program_from_running(child, more):
    """It may be set for all users of a machine."""
    env = {"CUDAGUARD_CONFIG": "/no/such.toml", **more}
    command = (sys.executable, "-m", "cudaguard", "run", "-c")
    done = child.command(*command, "import cudaguard; print(cudaguard.status().mode)", env=env)
    assert done.stdout == "fix\n"
    assert "[CG806] /no/such.toml: cannot read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], NOTHING),
        (["-m"], "-m is followed by nothing"),
        (["-c"], "-c is followed by nothing"),
        (["--nonsense", "x.py"], "unrecognized arguments: --nonsense"),
        (["--tiemout", "3", "x.py"], "did you mean --timeout?"),
        (["-u"], NOTHING),
        (["-uE", "x.py"], "-uE: cannot guard a program run with -I, -E or -S; remove that option"),
        (["-um"], "-um is followed by nothing"),
        (["--mode", "nonsense", "x.py"], "expected one of off, observe, warn, fix, strict"),
        (["--mode"], "expected one argument"),
    ],
)
def test_wrong_usage_is_told_with_status_2(child, arguments, expected):
    done = child.command(*RUN, *arguments, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_short_option_for_verbose_is_ours_as_in_every_command(child):
    done = child.command(*RUN, "-v", "-c", "print(1)")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_users_own_sitecustomize_still_runs(child):
    child.write("own/sitecustomize.py", "import sys; sys.stdout.write('own\\n')")
    env = {"PYTHONPATH": str(child.folder / "own")}
    code = "import sitecustomize, sys; print(sitecustomize.__file__, 'cudaguard' in sys.modules)"
    done = child.command(*RUN, "-c", code, env=env)
    lines = done.stdout.splitlines()
    assert lines.count("own") == 2  # once for the launcher's interpreter, once for the program's
    assert lines[-1] == f"{child.folder / 'own' / 'sitecustomize.py'} True"


def test_children_are_guarded(child):
    mode, of_launch = "cudaguard.status().mode", "cudaguard.api.activation.core.end.is_wanted"
    # The .pth line alone puts the guard up as well, and does not look at what ends the program.
    path = child.write("parent.py", CHILDREN.replace(mode, f"f'{{{mode}}} {{{of_launch}}}'"))
    done = child.command(sys.executable, "-u", "-m", "cudaguard", "run", "--mode", "warn", path)
    assert sorted(done.stdout.split("\n")[:-1]) == [
        "fork warn True",
        "forkserver warn True",
        "isolated off False",  # -I says that environment variables do not count
        "spawn warn True",
        "subprocess warn True",
    ]


def test_python_of_another_environment_is_left_alone(child, tmp_path):
    """A grandchild with its own environment gets its own sitecustomize and nothing of ours."""
    other = tmp_path / "other"
    child.command(sys.executable, "-m", "venv", "--without-pip", other)
    code = f"""
import subprocess
look = "import sys; print('cudaguard' in sys.modules, any('_site' in p for p in sys.path))"
subprocess.run([{str(other / "bin" / "python")!r}, "-c", look], check=True)
"""
    assert child.command(*RUN, "-c", code).stdout == "False False\n"


def test_works_from_a_folder_that_only_the_parent_has_on_its_path(child, root, tmp_path):
    """`python -m cudaguard` from a checkout, with an environment that lacks the package."""
    other = tmp_path / "other"
    child.command(sys.executable, "-m", "venv", "--without-pip", other)
    start = (
        f"import sys; sys.path.insert(0, {str(root)!r}); "
        "from cudaguard.tools.main import main; main(['run', '-c', sys.argv[1]])"
    )
    look = "import sys; print('cudaguard' in sys.modules, sys.argv)"
    assert child.command(other / "bin" / "python", "-c", start, look).stdout == "True ['-c']\n"


def test_empty_entry_of_python_path_stays_the_working_directory(child):
    """`PYTHONPATH=src:$PYTHONPATH` ends in a colon where the variable was not set."""
    child.write("tools/train.py", "import models, helper; print('found')")
    child.write("models.py", "")
    child.write("src/helper.py", "")
    env = {"PYTHONPATH": f"src{os.pathsep}"}
    assert child.command(*RUN, "tools/train.py", env=env).stdout == "found\n"


def test_where_no_process_can_be_started_the_program_takes_our_place(child, compiler, tmp_path):
    source = "#include <errno.h>\nint fork(void) { errno = EAGAIN; return -1; }"
    folder = tmp_path / "temporary"
    folder.mkdir()
    code = "import os; print(os.environ['CUDAGUARD'], os.getpid()); raise SystemExit(5)"
    done = child.command(
        *(sys.executable, "-m", "cudaguard", "run", "-c", code),
        env={"LD_PRELOAD": str(compiler.library("none.so", source)), "TMPDIR": str(folder)},
        check=False,
    )
    assert done.returncode == 5
    assert done.stdout.startswith("fix ")
    assert done.stderr.startswith("cudaguard run: no process can be supervised: ")
    assert list(folder.iterdir()) == []


def test_record_of_what_is_loaded_again_and_again_stays_small(child):
    done = child.command(
        *RUN,
        "-c",
        """if True:
        import ctypes, importlib, os
        for number in range(300):
            ctypes.CDLL("libm.so.6" if number else None)
            try:
                importlib.import_module("libnot_there")
                ctypes.CDLL("/libnot_there.so")
            except (ImportError, OSError):
                pass
        folder = os.environ["CUDAGUARD_RUN_FOLDER"]
        print(sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder)))
    """,
    )
    assert int(done.stdout) < 20_000
