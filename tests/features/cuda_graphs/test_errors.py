"""What needs no torch: its error about overwritten outputs, wording, rules, and bad arguments."""

from __future__ import annotations

import sys

import pytest

from cudaguard.core.rule_check import check_rule
from cudaguard.errors import RuleError
from cudaguard.features.cuda_graphs import messages as wording
from cudaguard.features.cuda_graphs.known_errors import Overwritten, overwritten
from cudaguard.model import Rule

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT.format(TRACE), Overwritten(False, "/srv/block.py:7", "attend")),
        (TEXT.format(NO_TRACE), Overwritten(False, "", "")),
        (GRADIENT.format(TRACE), Overwritten(True, "/srv/block.py:7", "attend")),
        (GRADIENT.format(NO_TRACE), Overwritten(True, "", "")),
        (NEWER.format(TRACE), Overwritten(False, "/srv/block.py:7", "attend")),
        (NEWER.format(NO_TRACE), Overwritten(False, "", "")),
        (OTHER_TAIL.format(TRACE), Overwritten(False, "/srv/block.py:7", "attend")),
        (
            TEXT.format('File "/my nets/a b.py", line 3, in f'),
            Overwritten(False, "/my nets/a b.py:3", "f"),
        ),
        # As a terminal shows it, after a traceback of the consumer.
        (
            'File "/srv/consumer.py", line 1, in use\n  x + 1\nRuntimeError: ' + TEXT.format(TRACE),
            Overwritten(False, "/srv/block.py:7", "attend"),
        ),
        (
            'File "/srv/consumer.py", line 1, in use\n  x + 1\nRuntimeError: '
            + TEXT.format(NO_TRACE),
            Overwritten(False, "", ""),
        ),
        (
            TEXT.format('File "<string>", line 3, in <lambda>'),
            Overwritten(False, "<string>:3", "<lambda>"),
        ),
    ],
)
def test_text_of_torch_is_read(text, expected):
    assert overwritten(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CUDA error: an illegal memory access was encountered",
        "Error: accessing tensor output of another kind that has been overwritten",
        "These live storage data ptrs are in the cudagraph pool but not accounted for",
        TEXT.format(TRACE).upper(),
    ],
)
def test_other_errors_are_let_be(text):
    assert overwritten(text) is None


def test_words_on_a_tensor_that_was_overwritten():
    finding = wording.overwritten("/srv/block.py:7", "attend", is_gradient=False)
    assert (finding.id, finding.severity) == ("CG851", "error")
    assert finding.what == (
        "A later call of a compiled function with CUDA graphs overwrote a tensor that attend made "
        "at /srv/block.py:7."
    )
    assert "silently" in finding.consequence
    assert "y = f(x).clone()" in finding.remedy
    assert "cudaguard.graph_safe(f)" in finding.remedy
    assert "rule CG039" in finding.remedy
    assert "cudagraph_mark_step_begin() does not help" in finding.remedy
    assert "SAM2" not in finding.remedy
    assert len(finding.links) == 1
    plain = wording.overwritten("", "", is_gradient=False)
    assert plain.what.startswith("A later call of a compiled function")
    lambda_ = wording.overwritten("/srv/a.py:1", "", is_gradient=False)
    assert "overwrote a tensor that a function made at /srv/a.py:1." in lambda_.what


def test_words_on_a_gradient():
    finding = wording.overwritten("/srv/block.py:7", "attend", is_gradient=True)
    assert (finding.id, finding.severity) == ("CG851", "error")
    assert finding.what.endswith("overwrote a gradient that attend made at /srv/block.py:7.")
    assert "set_to_none=True" in finding.remedy
    assert "clone()" not in finding.remedy  # of no use to a gradient


@pytest.mark.parametrize(
    ("producer", "is_sam2"),
    [
        ("/site-packages/sam2/modeling/position_encoding.py:112", True),
        ("/site-packages/sam2/modeling/memory_encoder.py:112", False),
        ("/srv/position_encoding.pyx:112", False),
    ],
)
def test_words_on_the_cache_of_sam2(producer, is_sam2):
    finding = wording.overwritten(producer, "forward", is_gradient=False)
    assert ("enable rule CG028" in finding.remedy) is is_sam2
    assert ("stored_tensors='copy'" in finding.remedy) is is_sam2
    assert any("sam2/issues/460" in link for link in finding.links) is is_sam2


def test_words_on_what_is_seen():
    told = wording.parked("Enc.cache[(8, 8)]", (2, 3), is_copied=False)
    assert (told.id, told.severity) == ("CG852", "warning")
    assert told.what == ("A compiled call stored Enc.cache[(8, 8)] (2, 3).")
    assert "stored_tensors='copy'" in told.remedy
    moved = wording.parked("Enc.cache[(8, 8)]", (2, 3), is_copied=True)
    assert (moved.id, moved.severity) == ("CG852", "info")
    stale = wording.stale("a.py:1", (2,), "b.py:2")
    assert (stale.id, stale.severity) == ("CG853", "warning")
    assert stale.what == (
        "The call at b.py:2 overwrote the result (2,) of the call at a.py:1, which the program "
        "still holds."
    )
    lacks = wording.no_generation_cloning("CG039", "triton.some", "2.13.0")
    assert (lacks.id, lacks.severity) == ("CG896", "warning")
    assert lacks.what.startswith(
        "Rule CG039 has no effect with torch 2.13.0: cudaguard cannot set torch._inductor.config."
    )
    assert "cudaguard.graph_safe(fn)" in lacks.remedy
    unknown = wording.not_copied("pkg.Box")
    assert unknown.id == "CG854"
    assert unknown.what == "graph_safe does not copy tensors in the attributes of a pkg.Box."


# --- the grammar of rules -------------------------------------------------------------------


def rule(*actions, grade="opt-in", watch=("torch",)):
    return Rule("MINE1", watch, "It is a test.", actions=actions, grade=grade)


@pytest.mark.parametrize(
    ("action", "watch"),
    [
        ({"record_compile_args": True}, "torch"),
        ({"copy_held_outputs": True, "target": "*"}, "torch._inductor.config"),
        ({"clone_outputs": True, "target": "pkg.Encoder"}, "torch"),
        ({"copy_held_outputs": True, "target": "pkg.mod.Outer.Inner"}, "torch"),
        ({"disable_cuda_graphs": True, "target": "pkg.mod.function"}, "torch"),
        ({"clone_outputs": True, "target": "Größe"}, "torch"),
    ],
)
def test_action_that_fits(action, watch):
    assert check_rule(rule(action, watch=(watch,)), "here").actions == (action,)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"record_compile_args": True, "target": "pkg.Encoder"}, "which takes no parameters"),
        ({"clone_outputs": True}, "'target' is missing"),
        *(
            ({"clone_outputs": True, "target": name}, "target: expected the full name of a class")
            for name in ("", "pkg.", "pkg..Encoder", "pkg.1st", "pkg.Encoder.*", " pkg.Encoder",
                         "*", True, ["pkg.Encoder"])
        ),
        ({"clone_output": True, "target": "pkg.Encoder"}, "did you mean {'clone_outputs': True, "),
        ({"Clone_outputs": True, "target": "a"}, "did you mean {'clone_outputs': True, "),
        ({"clone_outputs": 1, "target": "pkg.Encoder"}, "clone_outputs: expected true, got 1"),
    ],
)  # fmt: skip
def test_action_that_does_not_fit(action, words):
    with pytest.raises(RuleError) as caught:
        check_rule(rule(action), "here")
    text = str(caught.value)
    assert text.startswith(f"here: rule 'MINE1', actions: got {action!r}: ")
    assert words in text


def test_everything_is_copied_by_the_setting_of_torch_only():
    with pytest.raises(RuleError, match=r"watch: copy_held_outputs with target '\*' takes watch"):
        check_rule(rule({"copy_held_outputs": True, "target": "*"}), "here")


@pytest.mark.parametrize("grade", ["automatic", "report"])
@pytest.mark.parametrize(
    "verb", ["clone_outputs", "copy_held_outputs", "disable_cuda_graphs", "record_compile_args"]
)
def test_action_must_be_switched_on(verb, grade):
    """It takes memory, or the speed that somebody has asked for."""
    target = {} if verb == "record_compile_args" else {"target": "pkg.Encoder"}
    with pytest.raises(RuleError, match=f"{verb} can change what a program does: grade must be"):
        check_rule(rule({verb: True, **target}, grade=grade), "here")


def test_rules_of_the_catalog_are_opt_in():
    from cudaguard.features.cuda_graphs.rules import RULES

    grades = {rule.id: rule.grade for rule in RULES}
    assert grades == dict.fromkeys(("CG027", "CG028", "CG039"), "opt-in")


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
        attempt(len, stored_tensors="show")
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
        "ValueError strategy is 'copy', expected one of auto, clone, generation, no-graphs, watch",
        "ValueError stored_tensors is 'show', expected 'auto', 'report', 'copy' or None",
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
    "cudaguard [CG851] A later call of a compiled function with CUDA graphs overwrote a tensor "
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
        assert done.stderr.count("GraphWarning: [CG851] A later call of") == 1


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_is_noted_where_nothing_is_changed(child, mode):
    done = child.python(f"{PASSES}\nconsume({mode!r}, RuntimeError(TEXT))", flags=("-W", "always"))
    assert done.stdout.splitlines()[0] == "none"
    assert done.stderr == ""


def test_other_errors_leave_the_block_as_they_are(child):
    done = child.python(f"{PASSES}\nconsume('fix', RuntimeError('mine'))", flags=("-W", "always"))
    assert done.stdout.splitlines() == ["none", "[]"]
    assert done.stderr == ""


def test_error_that_ends_a_program_under_run(child):
    program = child.write("program.py", f"raise RuntimeError({TEXT.format(TRACE)!r})")
    run = (sys.executable, "-W", "always", "-m", "cudaguard", "run", program)
    done = child.command(*run, check=False)
    assert done.returncode == 1
    assert "RuntimeError: Error: accessing tensor output of CUDAGraphs" in done.stderr
    words = "[CG851] A later call of a compiled function with CUDA graphs overwrote a tensor"
    assert done.stderr.count(f"cudaguard {words}" if HAS_NOTES else words) == 1
    assert "\ncudaguard run: " not in done.stderr  # there is no more to say


# --- torch.compile, with a stand-in ---------------------------------------------------------

# As torch has it: a decorator comes back by the global name, with all arguments spelled out.
TORCH = '''
from types import SimpleNamespace

__version__ = "0"
calls = []
Tensor = type("Tensor", (), {})
nn = SimpleNamespace(Module=type("Module", (), {}))
compiler = SimpleNamespace(is_compiling=lambda: False)


def compile(model=None, *, mode=None, **keywords):
    """Compiles."""
    if model is None:
        return lambda model: compile(model, mode=mode, **keywords)
    if not callable(model):
        raise TypeError("torch's own")
    calls.append((model.__name__, mode, keywords))
    return lambda *arguments: model(*arguments)
'''
SCENE = """
import cudaguard

def see(**how):
    return cudaguard.guard(enable=["CG027"], **how)

def plain(x=1):
    return x + 1
"""


@pytest.fixture
def lines(child):
    """Runs code with the stand-in; it must say nothing on stderr. Returns what it prints."""

    def lines(code):
        child.write("torch/__init__.py", TORCH)
        done = child.python(SCENE + code)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return lines


def test_torch_compile_is_replaced_by_rule_and_put_back(lines):
    assert lines("""
import torch
original = torch.compile
with cudaguard.guard():
    print(torch.compile is original)
with see():
    print(torch.compile is original, torch.compile.__wrapped__ is original, torch.compile.__doc__)
    print("torch.compile" in str(cudaguard.status().changes))
print(torch.compile is original)
for mode in ("observe", "warn", "fix", "strict"):
    with see(mode=mode):
        print(mode, torch.compile is original)
with see(mode="off"):
    print(torch.compile is original)
""") == [
        "True",
        "False True Compiles.",
        "True",
        "True",
        "observe False",
        "warn False",
        "fix False",
        "strict False",
        "True",
    ]


def test_torch_that_is_imported_after_the_guard(lines):
    assert lines("""
guard = cudaguard.install(enable=["CG027"])
import torch
from torch import compile
print(compile is torch.compile, torch.compile.__wrapped__.__module__)
guard.uninstall()
print(compile is torch.compile, hasattr(torch.compile, "__wrapped__"))
print(compile(plain, mode="max-autotune")(3), torch.calls)
""") == ["True torch", "False False", "4 [('plain', 'max-autotune', {})]"]


def test_every_way_to_call_it_passes_unchanged(lines):
    assert lines("""
import torch
with see():
    torch.compile(plain)
    torch.compile(plain, mode="default", dynamic=True, unknown=[1])
    torch.compile(model=plain, backend="eager")
    @torch.compile
    def one(x): return x
    @torch.compile(mode="reduce-overhead", fullgraph=True)
    def two(x): return x
    print(two(7), one(8))
    for arguments in ((plain, "x"), (3,)):
        try: torch.compile(*arguments)
        except TypeError as error: print(error)
for call in torch.calls: print(call)
""") == [
        "7 8",
        "compile() takes from 0 to 1 positional arguments but 2 were given",
        "torch's own",
        "('plain', None, {})",
        "('plain', 'default', {'dynamic': True, 'unknown': [1]})",
        "('plain', None, {'backend': 'eager'})",
        "('one', None, {})",
        "('two', 'reduce-overhead', {'fullgraph': True})",
    ]


def test_later_patch_is_left_in_place(lines):
    assert lines("""
import torch
with see():
    ours = torch.compile
    torch.compile = later = lambda *a, **k: ours(*a, **k)
print(torch.compile is later, torch.compile(plain, mode="default")(1), torch.calls)
""") == ["True 2 [('plain', 'default', {})]"]
