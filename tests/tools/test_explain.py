"""What `explain` makes of messages as they are printed, of errors, and of ids."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cudaguard
from cudaguard.core.explain import GENERAL_ID, known_errors
from cudaguard.core.known_errors import literal_in
from cudaguard.features._index import IDS as DETECTORS
from cudaguard.tools.explain import RULES
from cudaguard.tools.main import main

from ..documents import ERRORS, SAID, valid

# As they were printed; see the links of the entries.
EXAMPLES = [(id, text) for id, texts in ERRORS.items() for text in texts]
MESSAGES = {id: texts[0] for id, texts in ERRORS.items()}


@pytest.mark.parametrize(("id", "message"), EXAMPLES)
def test_message_is_known_alone_and_in_a_log(id, message):
    log = f"step 1\nstep 2: loss 0.5\n{message}\nexit status 1\n"
    for text in (message, log):
        finding = cudaguard.explain(text)
        assert finding is not None
        assert finding.id == id
        assert "{" not in finding.what + finding.remedy + finding.consequence
    if finding.evidence:
        assert any(line in log for line in finding.evidence)
        assert "step" not in finding.evidence[0] or id == "CG881"


def test_every_entry_has_its_message_and_an_id_of_its_own():
    ids = [known.id for known in known_errors()]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(MESSAGES)
    assert set(ids) <= set(DETECTORS)  # so that each can be switched off
    assert not set(DETECTORS) & {rule.id for rule in RULES}
    assert len({text for _, text in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize("known", known_errors(), ids=lambda known: known.id)
def test_id_of_a_message_explains_itself(known):
    finding = cudaguard.explain(known.id)
    assert finding.id == known.id
    assert finding.what
    assert finding.remedy
    for text in (finding.what, finding.remedy, finding.consequence, finding.command):
        assert "{" not in text
        assert "  " not in text
    assert "disable" not in finding.remedy


def test_every_id_explains_itself():
    """What it means, what to do, where to read on; how to switch it off comes last."""
    explained = {known.id for known in known_errors()}
    for id in sorted(set(DETECTORS) - explained):
        finding = cudaguard.explain(id)
        assert finding.what.endswith("."), id
        assert finding.consequence, id
        link, *_ = finding.links
        # Whatever the working directory is: of a checkout, or as it is installed.
        assert Path(link).is_absolute(), id
        assert Path(link).is_file(), id
        remedy, _, off = finding.remedy.rpartition("; or silence it: ")
        assert remedy, id
        assert id in off
        assert "{" not in str(finding)


def test_each_message_is_found_by_a_text_that_it_has():
    for known in known_errors():
        assert known.says or known.status or known.id == GENERAL_ID
        for pattern in known.says:
            assert len(literal_in(pattern)) >= 3, pattern
            for found in (re.search(pattern, example) for example in ERRORS[known.id]):
                assert found is None or literal_in(pattern) in found[0]


REPORTS = [
    pytest.param(id, remedy, text, id=report)
    for id, cures in SAID["message"].items()
    for remedy, said in cures.items()
    for report, text in said
]


@pytest.mark.parametrize(("id", "remedy", "text"), REPORTS)
def test_messages_of_public_reports(id, remedy, text):
    """Alone, and at the end of a log in which something harmless that is known stands before."""
    for said in (text, f"{HARMLESS}\nepoch 1\n{traceback_of(text)}\n"):
        finding = cudaguard.explain(said)
        assert finding is not None
        assert (finding.id, remedy in finding.remedy) == (id, True)
        assert "{" not in finding.what + finding.remedy + finding.command


# As TensorFlow says it where no GPU is wanted.
HARMLESS = (
    "2026-01-01 00:00:00.000000: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] "
    "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open "
    "shared object file: No such file or directory"
)


def traceback_of(text):
    frame = '  File "a.py", line 1, in <module>\n    f()'
    return f"Traceback (most recent call last):\n{frame}\n{text}"


def test_what_was_found_is_named():
    finding = cudaguard.explain(MESSAGES["CG868"])
    assert finding.what.startswith("libcudart.so.11.0 is not found: what needs it was built for")
    assert finding.command == "pip install nvidia-cuda-runtime-cu11"
    # A name that only begins like one of torch or GLib is the project's own.
    for name in ("torch_my_kernel", "g_my_state", "gzap"):
        found = cudaguard.explain(f"ImportError: /x/_ext.so: undefined symbol: {name}")
        assert (found.id, "linked without the object file" in found.what) == ("CG871", True)
    assert [len(cudaguard.explain(one).links) for one in ERRORS["CG878"]] == [2, 0, 0, 1]
    assert "GLIBCXX_3.4.30" in cudaguard.explain(MESSAGES["CG870"]).what
    member = "x.so: undefined symbol: _ZN3c1015SmallVectorBaseIjE8grow_podEPKvmm"
    assert "find c10::SmallVectorBase<...> of torch" in cudaguard.explain(member).what
    missing = "ImportError: /x/_ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
    assert cudaguard.explain(missing).command.endswith(" /x/_ext.so")
    assert "sm_121a" in cudaguard.explain(MESSAGES["CG863"]).what
    assert "in libhsa-runtime64.so." in cudaguard.explain(ERRORS["CG746"][-1]).what
    for name in ("absent_f", "_ZN3c104cuda9SetDeviceEi", "_PyUnicode_Ready"):  # no library is named
        assert cudaguard.explain(ImportError(f"undefined symbol: {name}")).what[:10] == "A library "
    asked = cudaguard.explain("vllm: ImportError: helper>=2.1 is required, found helper 1.9.0")
    assert asked.what.endswith(": helper>=2.1 (found: helper 1.9.0).")
    assert asked.command == "python -m pip install 'helper>=2.1'"


def test_function_that_the_program_asks_a_library_for_is_needed_by_no_library():
    ctypes = pytest.importorskip("ctypes")
    for library, name in ((None, "absent_f"), (None, "PyAbsent_F"), ("libc.so.6", "cudaAbsent")):
        with pytest.raises(AttributeError, match=f"undefined symbol: {name}") as raised:
            getattr(ctypes.CDLL(library), name)
        assert cudaguard.explain(raised.value) is None
        log = f"Traceback (most recent call last):\nAttributeError: {raised.value}\n"
        assert cudaguard.explain(log) is None


@pytest.mark.parametrize("said", SAID["compiler"], ids=lambda said: said["text"])
def test_messages_of_compilers_are_told_apart(said):
    for text in (said["text"], f"Traceback:\n{said['text']}\nexit status 1"):
        assert cudaguard.explain(text).id == said["id"]


@pytest.mark.parametrize("text", [*SAID["quiet"], *SAID["others"]])
def test_what_is_not_known_is_not_guessed_at(text):
    said = str(cudaguard.explain(text) or "")
    assert not re.search("." if text in SAID["quiet"] else r"(?i)cuda(?!guard)|torch|gpu", said)


# --- whole logs: what ended the program counts ------------------------------------------------

LOGS = {one["is"]: (one["text"], one.get("id")) for one in SAID["log"]}
_LOADING = "ImportError: libc10.so: cannot open shared object file: x"
LOGS["lines that go on for long behind the last traceback"] = (
    f"{traceback_of(_LOADING)}\n" + "INFO still serving\n" * 200_000,
    "CG867",
)
_STEPS = "step 17: loss 0.25\n" * 200_000
LOGS["an error without a traceback in the middle"] = (f"{_STEPS}{_LOADING}\n{_STEPS}", "CG867")
LOGS["a long log before it"] = (_STEPS + traceback_of(_LOADING), "CG867")


@pytest.mark.parametrize("log", LOGS)
def test_what_ended_the_program_is_explained(log):
    text, id = LOGS[log]
    finding = cudaguard.explain(text)
    assert (finding and finding.id) == id


def test_error_is_explained_by_one_that_led_to_it():
    for led in ("__cause__", "__context__"):
        error = ValueError("no such backend")
        setattr(error, led, ImportError(MESSAGES["CG867"]))
        assert cudaguard.explain(error).id == "CG867"
    error.__suppress_context__ = True  # raised `from None`
    assert cudaguard.explain(error) is None
    assert cudaguard.explain(ValueError("x")) is None
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert cudaguard.explain(first) is None


def test_error_that_cannot_say_what_it_is():
    class BadError(Exception):
        def __str__(self):
            raise ValueError("broken")

    assert cudaguard.explain(BadError()) is None
    with pytest.raises(BadError), cudaguard.guard():
        raise BadError
    assert not [f for f in cudaguard.status().findings if f.id == "CG807"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors take no notes before Python 3.11")
def test_note_can_be_switched_off_and_is_not_for_what_only_came_before():
    with pytest.raises(ImportError) as caught, cudaguard.guard(disable=["CG867"]):
        raise ImportError(MESSAGES["CG867"])
    assert not getattr(caught.value, "__notes__", [])
    error = ValueError("learning rate must be positive")
    error.__context__ = ImportError(MESSAGES["CG867"])
    with pytest.raises(ValueError, match="learning") as other, cudaguard.guard():
        raise error
    assert not getattr(other.value, "__notes__", [])


def test_functions_that_an_error_has_passed_tell_as_well():
    def _new_shared_cuda():
        raise RuntimeError("CUDA error: invalid resource handle")

    with pytest.raises(RuntimeError) as caught:
        _new_shared_cuda()
    assert cudaguard.explain(caught.value).id == "CG795"
    error = RuntimeError(str(caught.value))
    assert cudaguard.explain(error).id == "CG816"
    later = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    assert cudaguard.explain(later).id == "CG747"
    later.__context__ = error  # which has ended it
    assert cudaguard.explain(later).id == "CG816"


def test_ids():
    rule = cudaguard.explain("CG001")
    assert rule.rule == "CG001"
    assert "reproduced" in rule.evidence[0]
    assert rule.remedy.startswith("start the program with CUDAGUARD=fix; or")
    assert "disable=['CG001']" in rule.remedy
    assert "repairs" not in cudaguard.explain("CG049").remedy  # it only warns
    assert "enable=['CG013']" in cudaguard.explain(" CG013 ").remedy
    assert "fixed in cudf 25.10.0" in cudaguard.explain("CG069").evidence
    assert "is used in another" in cudaguard.explain("CG816").what
    assert cudaguard.explain("CG894").what.startswith("The NVRTC")
    assert cudaguard.explain("cg816\n") == cudaguard.explain("CG816")
    assert cudaguard.explain("CG799") is None


def test_rule_of_the_program_is_explained():
    rule = cudaguard.Rule(id="LOCAL777", watch=("nothing_there",), why="it says so")
    cudaguard.add_rule(rule)  # it watches nothing that exists: other tests do not notice
    assert cudaguard.explain("LOCAL777").consequence == "it says so"


@pytest.mark.parametrize("about", [None, 3, b"text", ["CG001"]])
def test_what_is_neither_error_nor_text(about):
    with pytest.raises(TypeError, match="takes an error, a text or an id"):
        cudaguard.explain(about)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors take no notes before Python 3.11")
def test_error_that_leaves_a_block_gets_a_note_once():
    error = ImportError(MESSAGES["CG867"])
    for _ in range(2):
        with pytest.raises(ImportError) as caught, cudaguard.guard():
            raise error
    (note,) = caught.value.__notes__
    assert note.startswith("cudaguard [CG867] The extension links libc10.so")


def test_error_that_is_not_known_and_one_that_is_only_watched_get_none():
    for mode, text in (("fix", "hello"), ("observe", MESSAGES["CG867"])):
        with pytest.raises(ImportError) as caught, cudaguard.guard(mode):
            raise ImportError(text)
        assert not getattr(caught.value, "__notes__", [])


def explain(*arguments, text="", verb="explain"):
    command = [sys.executable, "-m", "cudaguard", verb, *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )


def test_guarded_program_is_not_advised_to_install_the_guard():
    message = MESSAGES["CG867"]
    assert "cudaguard.install() on the first line does that" in cudaguard.explain(message).remedy
    with cudaguard.guard():
        assert cudaguard.explain(message).remedy == "import torch first"
        assert "install()" not in cudaguard.explain(ImportError(message)).remedy
    for known in known_errors():
        assert "cudaguard.install()" not in known.remedy, known.id


def test_command():
    done = explain("libpng", "error:", "bad parameters to zlib")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[CG878] libpng probably calls another library's copy of zlib")
    for arguments in (["-"], []):
        done = explain(*arguments, text=f"a log\n{MESSAGES['CG869']}\n")
        assert done.stdout.startswith("[CG869] ")
    done = explain("--format", "json", verb="cg002")
    assert valid("explain", done.stdout)["finding"]["id"] == "CG002"


@pytest.mark.parametrize("typed", SAID["typed"])
def test_what_is_typed_alone_is_completed(typed, capsys):
    assert main(["explain", typed]) == 0
    assert capsys.readouterr().out.startswith(f"[{SAID['typed'][typed]}] ")


def test_file_is_read_as_powershell_writes_it(tmp_path, capsys):
    path = tmp_path / "train.log"
    path.write_text(f"step 1\n{MESSAGES['CG869']}\n", encoding="utf-16")
    assert main(["explain", str(path)]) == 0
    assert capsys.readouterr().out.startswith("[CG869] ")


def test_command_names_the_program_of_a_traceback(tmp_path):
    program = tmp_path / "a b.py"
    text = f"""Traceback (most recent call last):
  File "{program}", line 1, in <module>
    f()
  File "{sys.prefix}/torch/x.py", line 2, in f
RuntimeError: {MESSAGES["CG818"]}
"""
    assert f"  run: cudaguard trace '{program}'\n" in explain("-", text=text).stdout
    assert "SCRIPT" not in explain(MESSAGES["CG818"]).stdout


def test_interrupted_wait_for_the_lock_of_a_build():
    frame = 'File "/x/torch/utils/file_baton.py", line 50, in wait'
    text = f"Traceback (most recent call last):\n  {frame}\n    time.sleep(1)\nKeyboardInterrupt\n"
    finding = cudaguard.explain(text)
    assert finding.id == "CG886"
    assert finding.command == "find ~/.cache/torch_extensions $TORCH_EXTENSIONS_DIR -name lock"
    assert cudaguard.explain(text.replace("in wait", "in release")) is None


def test_command_that_knows_nothing():
    done = explain("hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no match" in done.stderr
    done = explain("--format", "json", "hello")
    assert (done.returncode, valid("explain", done.stdout)["finding"]) == (1, None)
    assert "standard input is empty" in explain().stderr
    assert "no-such.log: there is no such file" in explain("no-such.log").stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors take notes from Python 3.11 on")
def test_note_on_an_error_names_the_program(child):
    code = "import cudaguard\nwith cudaguard.guard():\n    raise RuntimeError({!r})\n"
    code = code.format(MESSAGES["CG878"])
    path = child.write("my train.py", code)
    said = child.command(sys.executable, path, check=False).stderr
    assert f"  run: cudaguard run '{path}'" in said
    said = child.command(sys.executable, "-c", code, check=False).stderr
    assert "  run: cudaguard run SCRIPT" in said
