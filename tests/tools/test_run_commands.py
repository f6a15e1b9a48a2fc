"""``cudaguard run`` runs any command: console scripts, shell wrappers, other environments."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

RUN = (sys.executable, "-m", "cudaguard", "run")
# Also where the guard has its packages from.
TELL = """\
import sys
guard = sys.modules.get("cudaguard.api")
print(guard and guard.status().mode, sys.prefix, sys.argv[1:], "packaging" in sys.modules)
"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="#! lines and POSIX environments")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A virtual environment that has neither cudaguard nor what it requires."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture
def script(child):
    """Writes an executable file."""

    def script(name, first_line, text=TELL):
        path = child.write(name, f"{first_line}\n{text}")
        path.chmod(0o755)
        return path

    return script


def told(child, *command, env=None, options=()):
    done = child.command(*RUN, *options, *command, env=env)
    assert done.stderr == ""
    return done.stdout


def on_path(folder):
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_console_script_on_path(child, script):
    script("bin/serve", f"#!{sys.executable}")
    expected = f"fix {sys.prefix} ['model', '-m', 'x'] False\n"
    assert told(child, "serve", "model", "-m", "x", env=on_path(child.folder / "bin")) == expected


def test_console_script_of_an_environment_that_is_not_activated(child, tmp_path):
    """The scripts beside our own Python are found, though they are not on PATH."""
    env = {"PATH": "/usr/bin:/bin"}
    assert told(child, "pytest", "--version", env=env).startswith("pytest ")


@pytest.mark.parametrize("kind", ["plain", "shell"])
def test_program_of_an_environment_that_lacks_cudaguard(child, other, script, kind):
    """The guard comes along, and the program does not see what it requires."""
    python = other / "bin" / "python"
    line = (
        f"#!{python}"
        if kind == "plain"
        else f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''"
    )
    path = script("tool", line)
    assert told(child, path, "a") == f"fix {other} ['a'] False\n"
    assert child.command(path).stdout == f"None {other} [] False\n"


def test_rules_work_in_an_environment_that_lacks_what_they_require(child, other, script):
    """Versions of a rule are compared with `packaging`, which that environment has not."""
    path = script(
        "tool",
        f"#!{other / 'bin' / 'python'}",
        """
import importlib.metadata, os, sys, victim
print(os.environ.get("VICTIM"), [name for name in sys.modules if name.startswith("packaging")])
""",
    )
    child.write("victim.py", "")
    child.distribution("victim", "1.5")
    rules = """
        enable = ["LOCAL1"]

        [[rules]]
        id = "LOCAL1"
        watch = ["victim"]
        dist = ["victim<2"]
        why = "a test"
        grade = "opt-in"
        actions = [{ set_env = "VICTIM", value = "set" }]
        """
    config = child.write("cudaguard.toml", rules)
    env = {"CUDAGUARD_CONFIG": str(config), "PYTHONPATH": str(child.folder)}
    assert told(child, "--quiet", path, env=env) == "set []\n"


def test_shell_wrapper(child, other, script):
    wrapper = script("python.sh", "#!/bin/sh", f'exec "{other}/bin/python" "$@"\n')
    path = child.write("tell.py", TELL)
    assert told(child, "./python.sh", path, "b") == f"fix {other} ['b'] False\n"
    assert told(child, wrapper, "-c", TELL) == f"fix {other} [] False\n"


def test_python_as_a_command(child, other):
    """As people write it: the interpreter, then the program."""
    path = child.write("tell.py", TELL)
    name = os.path.basename(sys.executable)
    env = on_path(os.path.dirname(sys.executable))
    assert told(child, name, path, env=env) == f"fix {sys.prefix} [] False\n"
    assert told(child, other / "bin" / "python", path) == f"fix {other} [] False\n"


def test_file_wins_over_a_command_on_path_and_a_folder_does_not(child, script):
    script("bin/serve", f"#!{sys.executable}", "print('on PATH')\n")
    (child.folder / "serve").mkdir()
    env = on_path(child.folder / "bin")
    assert told(child, "serve", env=env) == "on PATH\n"
    (child.folder / "serve").rmdir()
    child.write("serve", "print('here')\n")
    assert told(child, "serve", env=env) == "here\n"


def test_source_runs_in_our_python_and_a_script_in_its_own(child, other, script):
    line = f"#!{other / 'bin' / 'python'}"
    assert told(child, script("train.py", line)) == f"fix {sys.prefix} [] False\n"
    assert told(child, script("tool", line)) == f"fix {other} [] False\n"


def test_status_and_signal_of_a_command_that_is_no_python(child, script):
    status = script("status", "#!/bin/sh", "exit 7\n")
    assert child.command(*RUN, status, check=False).returncode == 7
    dies = script("dies", "#!/bin/sh", "kill -TERM $$\n")
    assert child.command(*RUN, dies, check=False).returncode == -15


def test_prompt_after_the_program_is_the_programs_own(child):
    """Python shows one in each process that has the option; the report of one host of many."""
    run = shlex.join(RUN)
    for python in (sys.executable, run.replace(" -m", " -i -m"), f"{run} -i"):
        done = child.command("sh", "-c", f"echo 'print(x)' | {python} -i -c 'x = 5'; echo $?")
        assert (done.stdout, done.stderr.count(">>>")) == ("5\n0\n", 2)
    env = {"PYTHONINSPECT": "1"}
    assert told(child, "-c", "print(1)", env=env, options=("--report", "end-%h.json")) == "1\n"
    assert (child.folder / f"end-{os.uname().nodename.partition('.')[0]}.json").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["nonsuch"],
            "nonsuch: no such file here, and no such command on PATH; a module is run by -m\n",
        ),
        (["-X", "dev", "./wrapper"], "-X dev: ./wrapper is not run by this Python"),
        (["./text"], "./text is not executable; run: chmod +x ./text"),
        (["-u", sys.executable, "x.py"], "put the options of Python after"),
    ],
)
def test_wrong_usage(child, script, words, expected):
    script("wrapper", "#!/bin/sh", "exit 0\n")
    child.write("text", "#!/bin/sh\nexit 0\n")
    done = child.command(*RUN, *words, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
