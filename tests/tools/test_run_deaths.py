"""``cudaguard run`` tells why a program died, and nothing of one that did not."""

from __future__ import annotations

import ctypes.util
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from cudaguard.tools.run.crash import filled

from ..documents import valid
from ..features.extensions.conftest import Builder
from ..processes import state_of

RUN = (sys.executable, "-m", "cudaguard", "run")
SEGFAULT = "import ctypes; ctypes.string_at(0)"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")


@pytest.fixture
def library(child):
    """Compiles a library whose constructor does something; returns its path."""
    shutil.which("cc") or pytest.skip("no C compiler")
    build, includes = Builder(child.folder), ("signal", "stdlib", "unistd")
    start = "".join(f"#include <{one}.h>\n" for one in includes) + "__attribute__((constructor))"
    return lambda name, does: build(f"{name}.so", f"{start} static void f(void) {{ {does}; }}\n")


@pytest.fixture
def run(child):
    """Runs `cudaguard run` and returns (process, text of the report, document)."""

    def run(*arguments, env=None, options=()):
        report = child.folder / "report.json"
        done = child.command(
            *RUN, "--report", report, *options, *arguments, env=env, check=False, timeout=60
        )
        before, found, text = done.stderr.partition("\ncudaguard run: ")
        done.stderr = before
        return done, text if found else "", valid("run", report.read_text(encoding="utf-8"))

    return run


def frames(document):
    return [(os.path.basename(f["file"]), f["function"], f["source"]) for f in document["stack"]]


# --- the ways to die ----------------------------------------------------------------


def test_segmentation_fault_in_a_call(child, run):
    path = child.write(
        "train.py", "import ctypes, sys\ndef step():\n    ctypes.string_at(0)\nprint(1)\nstep()\n"
    )
    plain = child.command(sys.executable, path, check=False)
    done, text, document = run(path, options=("--with-arguments",))
    assert (done.returncode, done.stdout, done.stderr) == (-11, plain.stdout, plain.stderr)
    assert plain.returncode == -11
    assert text.startswith("train.py crashed (SIGSEGV) in step, at train.py:3.\n")
    assert f"    {path}:3 in step: ctypes.string_at(0)\n    {path}:5 in <module>: step()\n" in text
    assert ("train.py", "step", "ctypes.string_at(0)") in frames(document)
    assert document["ended"]["status"] == 128 + 11
    assert document["running"] == []


def test_call_that_calls_itself_is_shown_once(child, run):
    path = child.write("d.py", "import os\ndef f(n):\n    f(n - 1) if n else os.abort()\nf(30)\n")
    text = run(path)[1]
    assert text.count(":3 in f") + text.count("\n    (the same 30 more times)\n") == 2


def test_load_that_kills_is_named(child, run, library):
    """By an import, by ctypes, by SIGKILL, and where it hangs; what failed or ended is not."""
    path = library("broken", "abort()")
    done = ctypes.util.find_library("m")
    script = child.write(
        "train.py",
        f"""
        import ctypes, sys
        for name in ("./train.py", "/no/such.so", {done!r}):
            try: ctypes.CDLL(name)
            except OSError: pass
        if sys.argv[1:]:
            ctypes.CDLL({str(path)!r})
        import broken
        """,
    )
    env = {"PYTHONPATH": str(child.folder)}
    done, text, document = run(script, env=env)
    assert done.returncode == -signal.SIGABRT
    step = {"kind": "load", "name": "broken", "file": str(path), "where": f"{script}:8"}
    assert document["running"] == [step]
    assert f"running: load broken from {path} at {script}:8" in text
    assert text.startswith("train.py crashed (SIGABRT) while importing broken, at train.py:8.\n")
    assert document["library"] == {"file": str(path), "distribution": ""}
    gdb = "gdb -batch -ex run -ex backtrace --args "
    causes, _, stacks = text.partition("  running: ")
    assert gdb in causes
    assert "library: " in causes
    assert "Python stack" in stacks
    _, _, document = run(script, "by-ctypes", env=env)
    assert [step["name"] for step in document["running"]] == [str(path)]
    library("broken", "kill(getpid(), 9)")
    done, text, document = run(script, env=env)
    assert (done.returncode, document["ended"]["signal"]) == (-9, "SIGKILL")
    assert document["running"][0]["file"] == str(path)
    assert "killed by SIGKILL, sender unknown" in text
    library("broken", "for (;;) pause()")
    done, _, document = run(script, options=["--timeout", "1"], env=env)
    assert done.returncode == 124
    assert document["running"][0]["file"] == str(path)


def test_import_in_another_thread_is_not_blamed(child, run):
    child.write("decord.py", "import time; print('began', flush=True); begun = 1; time.sleep(60)")
    script = child.write(
        "train.py",
        """
        import ctypes, sys, threading, time
        threading.Thread(target=__import__, args=("decord",), daemon=True).start()
        while not hasattr(sys.modules.get("decord"), "begun"):
            time.sleep(0.01)
        ctypes.string_at(0)
        """,
    )
    done, _, document = run(script)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "began\n")
    assert document["running"] == []
    assert document["stack"][0]["function"] == "string_at"


@pytest.mark.parametrize("mode", ["observe", "fix"])
def test_known_error_is_explained_once(child, run, mode):
    """By the report, or by a note on the error where a guarded block noted it."""
    load = "raise ImportError('x.so: undefined symbol: _ZN2at4_ops5zeros4callE')\n"
    script = child.write("train.py", load)
    done, text, document = run(script, options=("--mode", mode))
    assert done.returncode == 1
    assert document["error"]["finding"]["id"] == "CG869"
    assert document["error"]["is_said"] is False
    assert "because: [CG869] " in text
    assert f"{done.stderr}{text}".count("rebuild it against the installed torch") == 1
    assert document["mode"] == mode
    # No order of imports cures it.
    assert document["command"] == "cudaguard check-extension x.so"
    script = child.write("train.py", f"import cudaguard\nwith cudaguard.guard():\n    {load}")
    done, text, document = run(script, options=("--mode", mode))
    is_noted = mode == "fix" and sys.version_info >= (3, 11)  # errors take no notes before
    assert document["error"]["is_said"] is is_noted
    assert f"{done.stderr}{text}".count("rebuild it against the installed torch") == 1


def test_error_of_the_guard_is_not_explained_again(child, run, library):
    """Its text has what is wrong and the remedy; the explanation of the loader's line knows less.

    In other modes the error is the loader's, and is explained.
    """
    name = "_ZN3c104cuda9SetDeviceEi"
    path = library("broken", f"extern void {name}(void); {name}()")
    script = child.write("train.py", "import broken\n")
    for mode, is_guards in (("strict", True), ("observe", False)):
        _, text, document = run(
            script, options=("--mode", mode), env={"PYTHONPATH": str(child.folder)}
        )
        assert document["error"]["text"].startswith("ExtensionError: ") is is_guards
        assert (f"[{document['error']['finding']['id']}]" in text) is not is_guards
        assert document["command"] == f"cudaguard check-extension {path}"


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("cudaguard trace SCRIPT", ("a b.py", "-t", "s"), "cudaguard trace 'a b.py' -t s"),
        ("cudaguard trace SCRIPT", (), ""),
        ("cudaguard check-extension FILE", ("a.py",), ""),
        ("cudaguard run SCRIPT", ("a.py",), ""),
        ("nvidia-smi", (), "nvidia-smi"),
        ("", ("a.py",), ""),
    ],
)
def test_command_of_an_explanation_is_filled(command, words, expected):
    assert filled(command, words) == expected


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("1/0", 1),
        ("raise KeyboardInterrupt", -2),
        ("import os; os.kill(os.getpid(), 15)", -15),
        ("import faulthandler; faulthandler.enable(); import os; os._exit(139)", 139),
    ],
)
def test_nothing_is_said_of_other_ends(child, run, code, status):
    plain = child.command(sys.executable, "-c", code, check=False)
    done, text, document = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (status, plain.stdout, plain.stderr)
    assert plain.returncode == status
    assert text == ""
    assert document["ended"]["kind"] == ("signal" if status < 0 else "exited")


def test_library_that_crashes_as_it_is_cleaned_up(child, run, library):
    library("broken", "atexit(abort)")
    script = child.write("train.py", "import ctypes\nctypes.CDLL('./broken.so')")
    done, text, _ = run(script)
    assert done.returncode == -signal.SIGABRT
    where = " at exit, after loading broken.so, at train.py:2.\n"
    assert text.startswith(f"train.py crashed (SIGABRT){where}")
    assert "no Python stack here: the program's own code had ended" in text
    child.write("outer.py", "import ctypes\nctypes.CDLL('./broken.so')")  # not the program's own
    text = run("-c", "import outer", env={"CUDAGUARD_WATCH": "all"})[1]
    assert "crashed (SIGABRT) at exit, after importing outer, at <string>:1.\n" in text


def test_program_that_becomes_another(child, run, library):
    done, text, document = run("-c", "import os; os.execvp('sh', ['sh', '-c', 'kill -SEGV $$'])")
    assert done.returncode == -11
    assert "SIGSEGV left no Python stack here" in text
    assert document["stack"] == []
    library("fine", "")
    first = "import os, sys, ctypes; ctypes.CDLL('./fine.so'); os.execv(sys.executable, %r)"
    _, _, document = run("-c", first % [sys.executable, "-c", SEGFAULT])
    assert not any("fine" in file for file in document["mapped"])
    assert frames(document)[0][1] == "string_at"


def test_faulthandler_of_the_program_goes_before_ours(child, run):
    code = f"import faulthandler; faulthandler.enable(); {SEGFAULT}"
    for options, limit in (([], []), (["-X", "faulthandler"], ["--timeout", "60"])):
        code = SEGFAULT if options else code
        plain = child.command(sys.executable, *options, "-c", code, check=False)
        done, text, _ = run(*options, "-c", code, options=limit)
        assert "Fatal Python error: Segmentation fault" in done.stderr
        assert len(done.stderr.splitlines()) == len(plain.stderr.splitlines())
        assert text.startswith("the program crashed (SIGSEGV)")


def test_handler_that_came_after_ours_stays(child, run):
    """As a JVM's, by which it works: what the program switches off was never on."""
    code = """
    import faulthandler, os, signal
    signal.signal(signal.SIGSEGV, lambda *_: print("caught"))
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)
    """
    done, text, _ = run(child.write("train.py", code))
    assert (done.returncode, done.stdout, text) == (0, "caught\n", "")


def test_no_core_file_of_the_parent(child):
    path = child.write(
        "train.py",
        """
        import os, resource
        print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
        os.chdir("/proc")
        os.abort()
        """,
    )
    start = f"ulimit -c unlimited && exec {' '.join(RUN)} {path}"
    done = child.command("bash", "-c", start, check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stdout == f"{(resource.RLIM_INFINITY,) * 2}\n"  # its own limit is untouched
    assert [name for name in os.listdir(child.folder) if name.startswith("core")] == []


# --- what to do -----------------------------------------------------------------------


RULE = """
    [[rules]]
    id = "LOCAL001"
    title = "global takes over others"
    watch = ["globaliser"]
    actions = [{ load_local = "libglob*.so*" }]
    grade = "automatic"
    why = "its library is loaded with RTLD_GLOBAL"
"""


@pytest.mark.parametrize("mode", ["observe", "fix"])
def test_rule_that_fits(child, run, library, mode):
    """A library made global; then another one dies."""
    library("libglob", "")
    library("libglob_too", "")
    library("broken", "abort()")
    config = child.write("cudaguard.toml", RULE)
    load = "[ctypes.CDLL(f'./libglob{n}.so', ctypes.RTLD_GLOBAL) for n in ('', '_too')]"
    child.write("globaliser.py", f"import ctypes\n{load}")
    script = child.write("train.py", "import ctypes, globaliser\nimport broken\n")
    env = {"CUDAGUARD_CONFIG": str(config)}
    done, text, document = run(script, options=("--mode", mode), env=env)
    assert done.returncode == -signal.SIGABRT
    if mode == "fix":  # it has acted, and it was something else
        assert (document["rules"], document["remedy"]) == ([], "")
        assert "repaired: libglob.so and 1 more: kept in local symbol scope by LOCAL001" in text
        return
    (rule,) = document["rules"]
    assert (rule["id"], rule["is_certain"]) == ("LOCAL001", False)
    names = [os.path.basename(file) for file in rule["libraries"]]
    assert names == ["libglob.so", "libglob_too.so"]
    assert "because: LOCAL001 may fit: global takes over others" in text
    assert "fix: run it in mode fix, or put `import cudaguard; cudaguard.install()`" in text
    assert document["command"] == f"cudaguard bisect {script}"


def test_opt_in_rule_that_fits_cures_as_it_is_told(child, run, library):
    """Its module is not watched, as the rule is off: the program says that it imports it."""
    path = library("broken", "abort()")
    child.distribution("unsloth", "2026.1")
    child.write("unsloth.py", "")
    child.write(
        "transformers.py",
        f"import ctypes, sys\nif 'unsloth' not in sys.modules: ctypes.CDLL({str(path)!r})\n",
    )
    script = child.write("train.py", "import transformers\nprint('cured')\n")
    env = {"PYTHONPATH": str(child.folder)}
    done, text, document = run(script, env=env)
    assert done.returncode == -signal.SIGABRT
    assert [(rule["id"], rule["is_certain"]) for rule in document["rules"]] == [("CG041", True)]
    assert "because: CG041 fits: " in text
    first = 'import cudaguard; cudaguard.install(enable=["CG041"])'
    assert f"put `{first}` first" in document["remedy"]
    script.write_text(f"{first}\nimport transformers\nprint('cured')\n")
    assert child.command(sys.executable, script, env=env).stdout == "cured\n"


@pytest.mark.parametrize("kind", ["fault", "error"])
def test_module_as_a_program(child, run, kind):
    child.write("pkg/__init__.py", "")
    raises = "raise ImportError('undefined symbol: _ZN2at1')"
    end = "ctypes.string_at(0)" if kind == "fault" else raises
    path = child.write("pkg/train.py", f"import ctypes\n{end}\n")
    options = ("--with-arguments",)
    _, text, document = run("-m", "pkg.train", "--epochs", "1", options=options)
    frame = {"file": str(path), "line": 2, "function": "<module>", "source": end}
    assert {**frame, "is_program": True} in document["stack"]
    if kind == "fault":  # the traceback says the other
        assert f"{path}:2 in <module>: {end}" in text
        assert document["command"].endswith(" -m pkg.train --epochs 1")


@pytest.mark.parametrize("program", [("train.py",), ("-m", "train"), ("-c", "import train")])
def test_report_for_others_shows_no_arguments(child, run, program):
    """Nor a line of source; what is printed has both, those of the program's own files."""
    child.write("train.py", "import ctypes\nctypes.string_at(0)  # s3cr3t\n")
    is_own = program[0] != "-c"
    words = ("--api-key=s3cr3t", "--password", "s3cr3t", "https://u:s3cr3t@h/x?k=s3cr3t")
    _, text, document = run(*program, *words)
    assert "s3cr3t" not in str(document)
    count = len(words) + (program[0] == "-c")
    kept = ["-c"] if program[0] == "-c" else list(program)
    assert document["program"] == document["process"]["program"] == [*kept, f"<{count} arguments>"]
    assert (".py:2 in <module>: ctypes.string_at(0)  # s3cr3t" in text) is is_own
    whole = run(*program, *words, options=("--with-arguments",))[2]
    assert whole["program"][len(program) :] == [*words[:-1], "https://h/x"]
    assert ("ctypes.string_at(0)  # s3cr3t" in str(whole["stack"])) is is_own


# --- a disk that is full, files that cannot be written -----------------------------------


@pytest.mark.parametrize("limit", ["ulimit -f 0", "export TMPDIR=/no/such", "export TMPDIR=/proc"])
def test_program_does_not_notice_that_no_record_can_be_kept(child, limit):
    """RLIMIT_FSIZE stands in for a full disk: no byte can be written to a file."""
    code = "import numpy, ctypes; print(numpy.arange(3).sum()); raise SystemExit(5)"
    start = f'{limit}; exec {" ".join(RUN)} -c "{code}"'
    done = child.command("bash", "-c", start, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "3\n", "")
    start = f'{limit}; exec {" ".join(RUN)} -c "{SEGFAULT}"'
    done = child.command("bash", "-c", start, check=False)
    assert done.returncode == -11
    assert "cudaguard run: the program crashed (SIGSEGV)" in done.stderr
    assert "the run could not be recorded" in done.stderr
    assert "no traceback" not in done.stderr


def test_full_disk(child, tmp_path):
    """A real one, where mounting is allowed."""
    unshare = shutil.which("unshare")
    probe = unshare and subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True)
    if not probe or probe.returncode:
        pytest.skip("no user and mount namespaces here")
    script = (
        f"mount -t tmpfs -o size=8k none {tmp_path} && cd {tmp_path} && "
        f"head -c 4096 /dev/zero > fill; TMPDIR={tmp_path} {' '.join(RUN)} "
        '-c "import numpy, sys; print(len(sys.modules) > 50); sys.exit(6)"; status=$?; '
        "head -c 100000 /dev/zero > more 2>/dev/null; ls; exit $status"
    )
    done = child.command(unshare, "-rm", "bash", "-c", script, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (6, "True")
    assert done.stderr == ""
    assert "cudaguard-run" not in done.stdout


# --- the time is up -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--timeout", "0"], 2, "expected a number of seconds above 0"),
        (["--timeout", "soon"], 2, "expected a number of seconds above 0"),
        (["--exec", "--timeout", "5"], 2, "--timeout: --exec leaves nobody behind"),
        (["--exec", "--report", "r"], 2, "--report: --exec leaves nobody behind"),
        (["--report", "/no/such/file"], 3, "No such file or directory: '/no/such/file'"),
        (["--report", "/dev/full"], 4, "cudaguard run: no report: OSError: "),
    ],
)
def test_options_that_cannot_be_used(child, options, status, said):
    done = child.command(*RUN, *options, "-c", "raise SystemExit(4)", check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


@pytest.mark.incidents
@pytest.mark.parametrize(
    ("first", "then", "end", "said"),
    [
        ("native()", "wait()", "", "what needs one (OpenMP"),
        ("native()", "idle.get()", "", ""),
        ("native()", "end(15)", "os.wait()", "was killed (SIGTERM) after it was forked,"),
        ("native()", "end(6)", "", "crashed (SIGABRT) in <lambda>, at fork.py:"),
        ("native()", "wait()", "os.kill(pid, 15), os.wait()", ""),
        ("begin()", "end(15)", "os.wait()", ""),
    ],
)
def test_fork_that_lacks_threads_of_its_parent(child, run, library, first, then, end, said):
    start = "int pthread_create(long *, void *, void *, void *); long t; "
    path = str(library("native", f"{start}pthread_create(&t, 0, pause, 0)"))
    script = child.write(
        "fork.py",
        f"""
        import ctypes, os, queue, threading, time
        begin = threading.Thread(target=time.sleep, args=(60,), daemon=True).start
        native, wait, idle = lambda: ctypes.CDLL({path!r}), ctypes.CDLL(None).pause, queue.Queue()
        end = lambda number: ctypes.CDLL(None)["raise"](number)
        {first}
        if not (pid := os.fork()):
            {then}
        {end}
        time.sleep(60)
        """,
    )
    done, text, _ = run(script, options=["--timeout", "2"])
    text, lacks = done.stderr + text, "forked without the parent's native threads (1)"
    assert (said in text and lacks in text) if said else lacks not in text


def test_hang_is_ended_with_the_whole_tree_and_told(child, run):
    script = child.write(
        "hang.py",
        """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
        sleeper = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(100)"
        inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', %r])" % sleeper
        child = subprocess.Popen([sys.executable, "-c", inner])
        print(os.getpid(), child.pid, flush=True)
        def wait():
            while True:
                time.sleep(100)
        wait()
        """,
    )
    start = time.monotonic()
    done, text, document = run(script, options=["--timeout", "1.5"])
    assert done.returncode == 124
    assert time.monotonic() - start < 30
    pids, *rest = done.stdout.splitlines()
    assert rest == ["asked"]
    assert {*map(state_of, pids.split())} == {"Z"}
    assert done.stderr == ""
    assert text.startswith("hang.py timed out after 1.5 s in wait, at hang.py:10.\n  fix: see")
    assert (
        f"    {script}:10 in wait: time.sleep(100)\n    {script}:11 in <module>: wait()\n" in text
    )
    assert re.search(r"process \d+ was running, innermost call first:\n    subprocess.py:", text)
    assert any(frame["source"] == "" or "sleep" in frame["source"]
               for other in document["others"] for frame in other["stack"])  # fmt: skip
    assert document["ended"]["kind"] == "timeout"
    survivors = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "signal.signal(15, signal.SIG_IGN); time.sleep(100)" not in survivors.stdout


def test_place_of_a_hang_that_is_known_is_told(child, run):
    child.write("torch/utils/file_baton.py", "def wait(): __import__('time').sleep(60)")
    code = "from torch.utils.file_baton import wait; wait()"
    child.write("build.py", f"import subprocess as s, sys; s.run([sys.executable, '-c', '{code}'])")
    child.write("segfault.py", "def oom(): __import__('time').sleep(60)\noom()")  # just a name
    for words in (("-c", code), ("build.py",)):
        _, text, _ = run(*words, options=["--timeout", "2"])
        assert re.search(r"\[CG886\] torch waited[\s\S]+fix: delete the file named lock", text)
    assert "CG" not in run("segfault.py", options=["--timeout", "2"])[1]


@pytest.mark.parametrize(
    "code",
    [  # One is stopped; the other's handlers are gone, so a question by signal would kill it.
        "signal.signal(15, lambda *_: print('asked') or exit(0)); os.kill(os.getpid(), 19)",
        "os.execvp('bash', ['bash', '-c', 'trap \"echo asked; exit\" TERM; sleep 60 & wait'])",
    ],
)
def test_program_that_hears_no_question_is_asked_to_end(run, code):
    done, _, _ = run("-c", f"import os, signal; {code}", options=["--timeout", "1"])
    assert (done.returncode, done.stdout) == (124, "asked\n")


def test_last_words_are_in_order(child, run):
    """The report comes after all that the program wrote, through one pipe for both streams."""
    code = "import sys, os; print('x' * 1000000); sys.stdout.flush(); os.abort()"
    done = child.command("bash", "-c", f'{" ".join(RUN)} -c "{code}" 2>&1', check=False)
    assert re.match(r"x{1000000}\n\ncudaguard run: ", textwrap.dedent(done.stdout))


# --- what the program, or somebody else, has put into the record ----------------------------

PLANT = """
import os, sys, time
folder = os.environ["CUDAGUARD_RUN_FOLDER"]
journal, faults = os.path.join(folder, "journal"), os.path.join(folder, "faults-77")
def plant(time, rank=1):
    line = '{{"pid": 42, "kind": "%s", "name": "x", "thread": 1, "where": "", "time": %s, '
    with open(journal, "a") as file:
        for kind in ("start", "error"):
            file.write(line % (kind, time) + '"details": {{"rank": %s}}}}\\n' % rank)
{plant}
os.abort()
"""


@pytest.mark.parametrize(
    "plant",
    [
        "os.unlink(journal); os.symlink('/dev/zero', journal); os.mkfifo(faults)",
        "os.unlink(journal); os.mkfifo(journal); os.symlink('/dev/zero', faults)",
        "os.makedirs(os.path.join(faults, 'a')); os.mkfifo(os.path.join(folder, 'room'))",
        "open(journal, 'ab').write(os.urandom(1_000_000) + b'[' * 200_000 + b'\\n')",
        "open(faults, 'wb').write(b'Fatal Python error: x\\nCurrent thread 0x' + b'f' * 4000)",
        "os.symlink('/srv/secret', faults); os.symlink(secret, os.path.join(folder, 'room'))",
        "plant(-1); plant('NaN'); plant('1e999'); plant('1' + '0' * 400); plant(1.0, '9' * 5000)",
        "for n in range(300): open(f'{faults}{n}', 'w').truncate(1 << 26)",
        "open(os.path.join(folder, 'faults-x'), 'w'); time.sleep(1.5)",
        "os.chdir(folder); [os.mkdir('a') or os.chdir('a') for _ in range(1500)]",
    ],
)
@pytest.mark.parametrize("command", ["run", "trace"])
def test_what_is_planted_in_the_record_costs_no_report(child, command, plant):
    """Links are not followed: what they lead to is somebody's own."""
    secret = child.write("secret", 'Fatal Python error: secret\n  File "secret", line 1 in f\n')
    before = secret.read_text()
    plant = plant.replace("'/srv/secret'", "secret")
    script = child.write("train.py", f"secret = {str(secret)!r}\n{PLANT.format(plant=plant)}")
    program = (sys.executable, "-m", "cudaguard", command)
    env = {"TMPDIR": str(child.folder)}
    done = child.command(*program, script, env=env, check=False, timeout=60)
    after = child.command(*program, "-c", "", env=env, check=False)  # which removes what is left
    left = [name for name in os.listdir(child.folder) if name.startswith("cudaguard-run-")]
    subprocess.run(["rm", "-rf", *left], cwd=child.folder, check=True)
    assert not left or "chdir" in plant  # too deep for some Pythons
    assert (done.returncode, after.returncode) == (-signal.SIGABRT, 0)
    assert "no report" not in done.stderr
    assert "SIGABRT" in done.stderr
    assert "process 77" not in done.stderr or "symlink" not in plant
    assert secret.read_text() == before


def test_program_that_gave_up_its_rights_has_no_file_shown(child):
    """It still has the descriptor that faulthandler writes to, opened with the rights it had."""
    secret = child.write("secret", "s3cr3t\n")
    frame = f'Fatal Python error: Segmentation fault\n\n  File "{secret}", line 1 in f\n'
    code = f"""
        import faulthandler, os, signal
        faulthandler.disable.__wrapped__()
        name = f"{{os.environ['CUDAGUARD_RUN_FOLDER']}}/faults-{{os.getpid()}}"
        for number in map(int, os.listdir("/proc/self/fd")):
            if os.path.realpath(f"/proc/self/fd/{{number}}") == name:
                os.write(number, {frame!r}.encode())
        os.kill(os.getpid(), signal.SIGSEGV)
    """
    script = child.write("train.py", code)
    for command in ("run", "trace"):
        done = child.command(sys.executable, "-m", "cudaguard", command, script, check=False)
        assert f"{secret}:1 in f" in done.stderr
        assert "s3cr3t" not in done.stderr
