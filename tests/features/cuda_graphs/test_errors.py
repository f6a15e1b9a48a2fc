"""What needs no torch: its error about overwritten outputs, and bad arguments."""

from __future__ import annotations

import sys

import pytest

from cudaguard.core.known_errors import best_in
from cudaguard.features.cuda_graphs.findings import KNOWN

TRACE = """File "/srv/run.py", line 12, in main
    y = net(x)
  File "/srv/my net.py", line 40, in forward
    return self.block(x)
  File "/srv/block.py", line 7, in attend
    z = x @ y"""
# torch 2.5 to 2.13.
TEXT = (
    "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. "
    "Stack trace: {}. To prevent overwriting, clone the tensor outside of torch.compile() or call "
    "torch.compiler.cudagraph_mark_step_begin() before each model invocation."
)
# torch 2.13 and later.
GRADIENT = (
    "Error: accessing gradient tensor output of CUDAGraphs that has been overwritten by a "
    "subsequent run. Stack trace: {}. This can happen with torch.compile(mode='reduce-overhead') "
    "and gradient accumulation when a .grad tensor is allocated during CUDAGraph capture."
)
# torch 2.14 and 2.15.
NEWER = TEXT.partition("To prevent")[0] + (
    "To prevent overwriting, call torch.compiler.cudagraph_mark_step_begin() before each model "
    "invocation. If a tensor is a user-visible output that must remain live across generations, "
    "manually clone the tensor outside torch.compile(), or set torch._inductor.config.triton."
    "cudagraph_trees_generation_cloning = 'user_visible' to clone all user-visible tensors that "
    "persist across generations."
)
# Nothing may hang on the words after the trace.
OTHER_TAIL = TEXT.partition("Stack trace")[0] + "Stack trace: {}. Other words."
NO_TRACE = "[Could not find stack trace]"
HAS_NOTES = sys.version_info >= (3, 11)


MADE = "attend made at /srv/block.py:7"
CONSUMER = 'File "/srv/consumer.py", line 1, in use\n  x + 1\nRuntimeError: '


def overwritten(text):
    hit = best_in(text, KNOWN, [text])
    return None if hit is None else hit.finding


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (TEXT.format(TRACE), MADE),
        (TEXT.format(NO_TRACE), ""),
        (NEWER.format(TRACE), MADE),
        (OTHER_TAIL.format(TRACE), MADE),
        (TEXT.format('File "/my nets/a b.py", line 3, in f'), "f made at /my nets/a b.py:3"),
        # As a terminal shows it, after a traceback of the consumer.
        (CONSUMER + TEXT.format(TRACE), MADE),
        (CONSUMER + TEXT.format(NO_TRACE), ""),
        (TEXT.format('File "<string>", line 3, in <lambda>'), "<lambda> made at <string>:3"),
    ],
)
def test_text_of_torch_is_read(text, made):
    finding = overwritten(text)
    assert (finding.id, finding.severity) == ("CG851", "error")
    assert finding.what == (
        f"A later call with CUDA graphs overwrote a tensor{' that ' if made else ''}{made}."
    )
    assert "cudaguard.graph_safe(f)" in finding.remedy
    assert "cudagraph_mark_step_begin() does not help" in finding.remedy


@pytest.mark.parametrize(
    ("trace", "made"), [(TRACE, f" that {MADE}"), (NO_TRACE, "")], ids=("made", "no")
)
def test_text_about_a_gradient(trace, made):
    finding = overwritten(GRADIENT.format(trace))
    assert finding.what.endswith(f"overwrote a gradient{made}.")
    assert "set_to_none=True" in finding.remedy
    assert "clone()" not in finding.remedy  # of no use to a gradient


@pytest.mark.parametrize(
    ("producer", "is_sam2"),
    [
        ("/site-packages/sam2/modeling/position_encoding.py", True),
        ("/site-packages/sam2/modeling/memory_encoder.py", False),
    ],
)
def test_cache_of_sam2_is_cured_by_its_rule(producer, is_sam2):
    finding = overwritten(TEXT.format(f'File "{producer}", line 112, in forward'))
    assert ("enable rule CG028" in finding.remedy) is is_sam2
    assert any("sam2/issues/460" in link for link in finding.links) is is_sam2


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: an illegal memory access was encountered",
        "Error: accessing tensor output of another kind that has been overwritten",
        TEXT.format(TRACE).upper(),
    ],
)
def test_other_errors_are_let_be(text):
    assert overwritten(text) is None


# --- graph_safe without torch ---------------------------------------------------------------


def test_graph_safe_without_torch(child):
    done = child.python(
        """
        import sys
        import cudaguard

        def attempt(*arguments, **keywords):
            try:
                cudaguard.graph_safe(*arguments, **keywords)
            except Exception as error:
                print(type(error).__name__, error)

        attempt(len)
        attempt(len, strategy="no-graphs")
        attempt(3)
        attempt(len, strategy="copy")
        print("torch" in sys.modules, issubclass(cudaguard.GraphError, RuntimeError))
        """
    )
    assert done.stderr == ""
    missing = (
        "GraphError graph_safe() takes what torch.compile has returned, and torch is not imported"
    )
    assert done.stdout.splitlines() == [
        missing,
        missing,
        "GraphError graph_safe() takes a compiled callable, not int 3",
        "ValueError strategy is 'copy', expected one of clone, no-graphs",
        "False True",
    ]


# --- errors that pass -----------------------------------------------------------------------

PASSES = f"""
import sys
import cudaguard

TEXT = {TEXT.format(TRACE)!r}


def consume(mode, error):
    try:
        with cudaguard.guard(mode):
            with cudaguard.guard():
                raise error
    except Exception as caught:
        assert caught is error and str(caught) == error.args[0]
        for note in getattr(caught, "__notes__", ["none"]):
            print(note.splitlines()[0])
    print([f.id for f in cudaguard.status().findings])
"""
NOTE = (
    "cudaguard [CG851] A later call with CUDA graphs overwrote a tensor "
    "that attend made at /srv/block.py:7."
)


@pytest.mark.parametrize("mode", ["warn", "fix", "strict"])
def test_error_that_leaves_the_block_is_explained(child, mode):
    code = f"{PASSES}\nconsume({mode!r}, RuntimeError(TEXT))"
    done = child.python(code, flags=("-W", "always"))
    found = "['CG851']"
    if HAS_NOTES:  # once, although two blocks are left
        assert done.stdout.splitlines() == [NOTE, found]
        assert done.stderr == ""
    else:
        assert done.stdout.splitlines() == ["none", found]
        assert done.stderr.count("GraphWarning: [CG851] A later call with") == 1


@pytest.mark.parametrize(
    ("mode", "text", "found"),
    [("observe", "TEXT", "['CG851']"), ("off", "TEXT", "[]"), ("fix", "'mine'", "[]")],
)
def test_other_modes_and_errors_leave_the_block_as_they_are(child, mode, text, found):
    done = child.python(
        f"{PASSES}\nconsume({mode!r}, RuntimeError({text}))", flags=("-W", "always")
    )
    assert done.stdout.splitlines() == ["none", found]
    assert done.stderr == ""


def test_error_that_ends_a_program_under_run(child):
    program = child.write("program.py", f"raise RuntimeError({TEXT.format(TRACE)!r})")
    run = (sys.executable, "-W", "always", "-m", "cudaguard", "run", program)
    done = child.command(*run, check=False)
    assert done.returncode == 1
    assert "RuntimeError: Error: accessing tensor output of CUDAGraphs" in done.stderr
    words = "[CG851] A later call with CUDA graphs overwrote a tensor"
    assert done.stderr.count(words) == 1
    assert "\ncudaguard run: " not in done.stderr  # there is no more to say
