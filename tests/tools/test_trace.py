"""``cudaguard trace``: what is mapped when and by whom, from real programs, crashing ones too."""

from __future__ import annotations

import re
import shutil
import signal
import sys

import pytest

from ..documents import valid
from ..hooks.conftest import compiler as compiler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")
TRACE = (sys.executable, "-m", "cudaguard", "trace")
CRASHING = "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n"
LOADER = '#include <dlfcn.h>\nvoid *load(void) {{ return dlopen("{}", RTLD_NOW); }}\n'


@pytest.fixture
def library(compiler):
    """Compiles a shared object; returns its path."""

    def build(name, source="", *flags):
        source = source or f"int in_{re.sub('[^a-z]', '_', name)}(void) {{ return 1; }}\n"
        return compiler.library(name, source, "-Wl,--no-as-needed", *flags)

    return build


@pytest.fixture
def traced(child):
    """Runs a program under trace; returns the document and how it went."""

    def run(program: str, *options: object, env: dict[str, str] | None = None, check: bool = True):
        path = child.write("main.py", program)
        command = (*TRACE, "-o", "trace.json", *options, path)
        done = child.command(*command, env=env, check=check)
        text = (child.folder / "trace.json").read_text(encoding="utf-8")
        return valid("trace", text), done

    return run


def steps(document, *kinds, process=0):
    found = document["processes"][process]["steps"]
    return [step for step in found if not kinds or step["kind"] in kinds]


def step(document, name, process=0):
    """The one step of that name, or of a file of that name."""
    found = [
        step
        for step in steps(document, process=process)
        if name in (step["name"], step["name"].rpartition("/")[2])
    ]
    assert len(found) == 1, (name, found)
    return found[0]


def files(step):
    return [library["file"].rpartition("/")[2] for library in step["mapped"]]


# --- the program is as without us ---------------------------------------------------------


def test_trace_that_cannot_be_recorded_says_so(child):
    """It would tell that no library was mapped."""
    path = child.write("tell.py", "import sys; print(sys.argv[1:]); sys.exit(7)")
    done = child.command(*TRACE, path, "-o", "x", env={"TMPDIR": "/no/such"}, check=False)
    assert (done.returncode, done.stdout) == (7, "['-o', 'x']\n")
    assert done.stderr.endswith("exit status 7\n")
    assert "cudaguard trace: libraries may be missing from this trace: [Errno 2] No " in done.stderr


def test_files_show_no_arguments(child):
    """Of the program, and of what it starts; a line of source is no argument, and stays out too."""
    start = "import subprocess; subprocess.run([sys.executable, '-m', 'child', *sys.argv[1:]])\n"
    child.write("child.py", "print('child')\n")
    child.write("tell.py", f"import sys, os\n{start}os.abort()  # s3cr3t\n")
    words = ("--api-key", "s3cr3t", "db.password=s3cr3t")
    outputs = ("t.json", "t.txt")
    options = [part for name in outputs for part in ("-o", name)]
    child.command(*TRACE, *options, "tell.py", *words, check=False)
    texts = {name: (child.folder / name).read_text(encoding="utf-8") for name in outputs}
    assert not any("s3cr3t" in text for text in texts.values())
    assert "tell.py <3 arguments>" in texts["t.txt"]
    programs = [one["program"] for one in valid("trace", texts["t.json"])["processes"]]
    if sys.version_info >= (3, 10):  # before, Python does not tell them
        assert programs == [["tell.py", "<3 arguments>"], ["-m", "child", "<3 arguments>"]]
    done = child.command(*TRACE, "tell.py", *words, check=False)
    assert "tell.py --api-key s3cr3t db.password=s3cr3t" in done.stderr
    child.command(*TRACE, "--with-arguments", "-o", "t.txt", "tell.py", *words, check=False)
    assert "tell.py --api-key s3cr3t db" in (child.folder / "t.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--format", "json", "x.py"], "standard output belongs to the program"),
        (["-o", "-", "x.py"], "standard output belongs to the program"),
        (["-o", "no/such/folder.json", "x.py"], "No such file"),
        (["--mode", "never", "x.py"], "--mode"),
        ([], "expected a script"),
    ],
)
def test_wrong_usage_starts_nothing(child, arguments, problem):
    child.write("x.py", "open('started', 'w')")
    done = child.command(*TRACE, *arguments, check=False)
    is_file = problem == "No such file"
    assert done.returncode == (3 if is_file else 2)
    assert bool(done.stdout) is ("json" in arguments)  # the error, as the program has not begun
    assert re.search(problem, done.stderr)
    assert re.fullmatch(r"cudaguard trace: .*\n(  run: cudaguard trace --help\n)?", done.stderr)
    assert not (child.folder / "started").exists()


# --- who has mapped what ------------------------------------------------------------------


def test_load_by_ctypes_has_its_line_its_modules_and_what_came_along(traced, child, library):
    inner = library("libinner.so", "", "-Wl,-soname,libinner.so.3")
    outer = library("libouter.so", "", inner)
    shutil.copy(inner, inner.parent / "libinner.so.3")
    child.write("pack/__init__.py", "from pack import deep\n")
    child.write("pack/deep.py", f"import ctypes\n\nctypes.CDLL({str(outer)!r})\n")
    env = {"LD_LIBRARY_PATH": str(inner.parent)}
    document, _ = traced("import json\nimport pack\n", env=env)
    load = step(document, "libouter.so")
    assert (load["kind"], load["state"], load["depth"]) == ("library", "done", 1)
    assert load["importing"] == ["__main__", "pack", "pack.deep"]
    assert load["where"].endswith("pack/deep.py:3")
    assert files(load) == ["libouter.so", "libinner.so.3"]
    assert load["mapped"][1]["name"] == "libinner.so.3"
    assert load["mapped"][1]["bytes"] == inner.stat().st_size
    above = step(document, "pack")
    assert (above["kind"], above["where"].rpartition("/")[2]) == ("import", "main.py:2")
    assert (
        above["at"] <= load["at"] <= load["at"] + load["seconds"] <= above["at"] + above["seconds"]
    )


def test_what_c_code_loads_is_put_to_the_import_around_it(traced, child, library):
    lib = library("libquiet.so")
    loader = library("libloader.so", LOADER.format(lib))
    child.write("pack.py", f"import ctypes\nctypes.CDLL({str(loader)!r}).load()\n")
    more = library("libmore.so", LOADER.format(library("liblast.so")))
    child.write("later.py", "")
    program = f"import pack, ctypes\nctypes.CDLL({str(more)!r}).load()\nimport later\n"
    document, done = traced(program)
    assert "libquiet.so" in files(step(document, "pack"))
    assert "libquiet.so" not in files(step(document, "libloader.so"))
    # In no import, and not put to the next one.
    assert files(step(document, "later")) == []
    assert [files(found) for found in steps(document, "unseen")] == [["liblast.so"]]
    assert (done.stdout, done.stderr) == ("", "")  # it goes to a file
    assert document["ended"] == {"kind": "exited", "status": 0, "signal": None, "stack": []}


def test_refused_library_and_failed_import(traced, child):
    child.write("sour.py", "raise ValueError('sour')\n")
    document, done = traced(
        """
        import ctypes
        try: ctypes.CDLL("./libnowhere.so")
        except OSError: pass
        import sour
        """,
        check=False,
    )
    assert step(document, "libnowhere.so")["state"] == "failed"
    assert step(document, "sour")["state"] == "failed"
    assert (done.returncode, document["ended"]["status"]) == (1, 1)
    assert "ValueError: sour" in [step["name"] for step in steps(document, "error")]
    assert document["summary"]["died_in"] == ""


def test_imports_are_seen_where_the_pth_line_was_first(child, wheel_python):
    child.write("pack.py", "")
    path = child.write("main.py", "import pack")
    command = wheel_python.parent / "cudaguard"
    child.command(command, "trace", "-o", "t.json", path)
    document = valid("trace", (child.folder / "t.json").read_text())
    assert step(document, "pack")["state"] == "done"


def test_processes_below_are_traced(traced, library):
    lib = str(library("libworker.so"))
    document, _ = traced(
        f"""
        import ctypes, multiprocessing, os

        def work(name):
            ctypes.CDLL({lib!r})

        if __name__ == "__main__":
            for how in ("spawn", "fork"):
                process = multiprocessing.get_context(how).Process(target=work, args=(how,))
                process.start()
                process.join()
        """
    )
    loading = [
        process
        for process in document["processes"]
        if any(step["name"].endswith("libworker.so") for step in process["steps"])
    ]
    assert len(loading) == 2
    assert not any(process["is_program"] for process in loading)
    assert document["processes"][0]["is_program"]
    assert document["processes"][0]["pid"] in [process["parent"] for process in loading]


# --- CUDA ---------------------------------------------------------------------------------


def test_who_initialized_cuda(traced, child, driver_stubs):
    child.write("pack.py", "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n")
    env = driver_stubs.environment()
    document, _ = traced("import ctypes\nimport pack\nprint('on')", env=env)
    (found,) = steps(document, "cuda")
    assert (found["what"], found["actor"], found["how"]) == ("initialized", "pack", "import")
    assert document["summary"]["initializer"] == "pack"
    load = step(document, "libcuda.so.1")
    assert load["importing"] == ["__main__", "pack"]
    assert load["at"] <= found["at"]


def test_looking_calls_nothing_of_cuda(traced, driver_stubs, tmp_path):
    log = tmp_path / "calls"
    program = "import ctypes\ncu = ctypes.CDLL('libcuda.so.1')\n"
    document, _ = traced(program, env=driver_stubs.environment(log=log))
    assert document["summary"]["initializer"] is None
    assert not any(call.name == "cuInit" for call in driver_stubs.calls(log))


# --- crashes ------------------------------------------------------------------------------


def test_library_whose_constructor_aborts(traced, child, library):
    lib = library("libcrashing.so", CRASHING)
    child.write("pack.py", f"import ctypes\nctypes.CDLL({str(lib)!r})\n")
    document, done = traced("import pack", check=False)
    assert done.returncode == -signal.SIGABRT
    ended = document["ended"]
    assert (ended["kind"], ended["status"], ended["signal"]) == ("signal", 134, "SIGABRT")
    assert any(line.endswith("pack.py:2 in <module>") for line in ended["stack"])
    assert step(document, "pack")["state"] == "unfinished"
    assert step(document, "libcrashing.so")["state"] == "unfinished"
    assert document["summary"]["died_in"].endswith("libcrashing.so")
    assert document["processes"][0]["ended"] is None
    child.command(*TRACE, "-o", "t.txt", "main.py", check=False)
    text = (child.folder / "t.txt").read_text(encoding="utf-8")
    assert "✗ crashed (SIGABRT) in libcrashing.so\n" in text


def test_time_limit(traced, child):
    child.write("pack.py", "import time\ntime.sleep(60)\n")
    document, done = traced("import pack", "--timeout", "1.5", check=False)
    assert (done.returncode, document["ended"]["kind"]) == (124, "timeout")
    assert document["summary"]["died_in"] == "pack"


# --- what is shown ------------------------------------------------------------------------


def test_text_says_it_line_by_line(child, library):
    lib = library("libown.so")
    child.write("empty.py", "")
    child.write("pack.py", f"import ctypes, empty\nctypes.CDLL({str(lib)!r})\n")
    path = child.write("main.py", "import pack")
    text = child.command(*TRACE, path).stderr
    assert re.search(r"\n +\d\.\d{3}  +\d\.\d{3}  import pack \(main\.py:1\)\n", text)
    assert re.search(r"\n +\d\.\d{3}  +\d\.\d{3}    dlopen libown\.so \(pack\.py:2\)\n", text)
    assert "\033" not in text
    assert "import empty" not in text
    assert "import empty" in child.command(*TRACE, "--verbose", path).stderr


def test_home_folder_is_not_shown(traced, child):
    child.write("pack.py", "")
    document, _ = traced("import pack", env={"HOME": str(child.folder)})
    assert step(document, "pack")["where"] == "~/main.py:1"
    assert str(child.folder) not in str(document)


# --- the document ---------------------------------------------------------------------------


def test_document_shows_what_is_printed(child, root):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    text = (root / "docs" / "howto" / "trace.md").read_text(encoding="utf-8")
    program = re.search(r"^```python\n# (video\.py)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    shown = re.search(
        r"\$ cudaguard trace video\.py\n```\n\n"
        r"(?:<!-- [^\n]* -->\n)?```text\n(.*?)^```$",
        text,
        re.DOTALL | re.MULTILINE,
    )
    child.write(*program.groups())
    printed = child.command(*TRACE, "video.py").stderr
    pattern = r"^ +\d[\d. ]* {2,}((?:dlopen|import decord|import cv2|▲ CG001) ?\S*)"
    rows = re.findall(pattern, shown[1], re.MULTILINE)
    assert len(rows) == 5
    assert re.findall(pattern, printed, re.MULTILINE) == rows


# --- cost of what is not asked for --------------------------------------------------------


def test_run_is_not_traced(child):
    code = "import sys; print('cudaguard.elf.process' in sys.modules)"
    done = child.command(sys.executable, "-m", "cudaguard", "run", "-c", code)
    assert done.stdout == "False\n"
