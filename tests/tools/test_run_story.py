"""What a journal and a dump of faulthandler say of a process that died."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.tools.run.record import Line, read_events, read_faults
from cudaguard.tools.run.story import fitting, likeliest, processes_of, short, story_of


def line(kind, name, where="", thread=1, pid=7, **details):
    return Line(pid, thread, 0.0, where, kind, name, details)


def mapping(file, module=""):
    return line("mapping", file, "a.py:1", **({"module": module} if module else {}))


# --- the story ---------------------------------------------------------------------------


def running(*lines):
    return [(step.kind, step.name) for step in story_of(lines, 7).running]


def test_what_was_running_is_what_had_begun_and_not_ended():
    """Threads, processes, and imports and loads of one name are kept apart."""
    a, end_of_a, load = line("import", "a"), line("imported", "a"), mapping("/x.so")
    assert running(a, end_of_a, line("import", "b")) == [("import", "b")]
    assert running(a, mapping("/a/_c.so", "a._c")) == [("import", "a"), ("load", "a._c")]
    for end in ("loaded", "failed"):
        assert running(load, line(end, "/x.so")) == []
    assert running(a, load, end_of_a) == []
    assert running(a, line("failed", "a"), load) == [("load", "/x.so")]
    others = line("imported", "a", thread=2), line("imported", "a", pid=8), line("loaded", "a")
    assert running(a, *others) == [("import", "a")]
    assert running(line("import", "a", pid=8)) == []


def test_what_another_thread_was_importing_is_not_what_died():
    lines = [line("import", "a", thread=1), line("import", "b", thread=2)]
    assert [step.name for step in story_of(lines, 7, 2).running] == ["b"]
    assert story_of(lines, 7, 3).running == ()
    assert [step.name for step in story_of(lines, 7).running] == ["a", "b"]  # nobody knows


def test_what_came_before_the_program_was_started_anew_does_not_count():
    lines = [
        *(line("install", "fix"), line("import", "a"), line("mapped", "/x.so")),
        *(line("error", "Old: x"), line("repair", "CG001 x"), line("finding", "CG812", id="CG812")),
        *(line("start", "python"), line("install", "warn")),
    ]
    story = story_of(lines, 7)
    assert story == story_of(lines[-1:], 7)
    assert story.mode == "warn"


# --- rules -----------------------------------------------------------------------------------

SCOPE = Rule("L1", ("glob",), "w", actions=({"load_local": "libglob*.so*"},))
ORDER = Rule("L2", ("late",), "w", needs=("early",))
DEFAULT = Rule("L3", ("late",), "w", actions=({"set_env": "A", "value": "1"},))


def fits(rules, *lines, cured=()):
    found = likeliest(fitting(rules, story_of(lines, 7), cured))
    return [(fit.rule.id, fit.is_certain, fit.libraries) for fit in found]


Z = line("import", "z")
GLOBAL = (line("import", "glob"), line("mapped", "/p/libglob.so.2"), line("imported", "glob"))


def test_scope_rule_may_fit_whatever_is_loaded_later():
    assert fits([SCOPE], *GLOBAL, Z) == [("L1", False, ("/p/libglob.so.2",))]
    assert fits([SCOPE], *GLOBAL, Z, cured=["L1"]) == []
    assert fits([SCOPE], Z) == []
    acted = line("repair", "libglob.so", rule="L1", verb="load_local", subject="libglob.so")
    assert fits([SCOPE], *GLOBAL, acted, Z) == []
    other = line("repair", "L1 of a name", rule="L7", verb="load_local", subject="L1 of a name")
    assert fits([SCOPE], *GLOBAL, other, Z) == fits([SCOPE], *GLOBAL, Z)


def test_rule_about_order_fits_its_module_only():
    assert fits([ORDER, DEFAULT], line("import", "late")) == [("L2", True, ())]
    assert fits([ORDER], line("import", "late"), line("imported", "late"), Z) == []


def test_rule_that_names_what_was_running_goes_before_those_that_may_fit():
    found = fits([SCOPE, ORDER], *GLOBAL, line("import", "late"))
    assert [id for id, _, _ in found] == ["L2"]


# --- files -----------------------------------------------------------------------------------


def test_lines_that_were_cut_are_left_out(tmp_path):
    path = tmp_path / "journal"
    good = '{"pid": 1, "kind": "import", "name": "a", "time": 1, "thread": 1, "where": ""}'
    path.write_bytes(f'{good}\n{good[:40]}\n\xff\n[]\n{{"pid": 1}}\n{good}\n'.encode("latin-1"))
    assert [entry.module for entry in read_events(str(path))] == ["a", "a"]
    assert read_events(str(tmp_path / "none")) == []


def test_c_frames_as_python_3_14_writes_them(tmp_path):
    path = tmp_path / "faults"
    path.write_text(
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f0 [python] (most recent call first):\n"
        '  File "a b.py", line 3 in f\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/lib/libx.so", at f+0x1 [0x7f]\n'
        "  <truncated rest of calls>\n\n"
        "Extension modules: numpy (total: 1)\n"
    )
    (fault,) = read_faults(str(path))
    assert fault.frames == (("a b.py", 3, "f"),)
    assert fault.c_frames == ('Binary file "/lib/libx.so", at f+0x1 [0x7f]',)


def test_fault_on_windows_is_no_death(tmp_path):
    """It is written down before the program gets to handle it; a supervisor knows who died."""
    text = (
        "Windows fatal exception: access violation\n\n"
        "Current thread 0x000000dc (most recent call first):\n"
        '  File "C:\\env\\Lib\\site-packages\\torch\\__init__.py", line 281 in load\n'
        '  File "C:\\Python\\Lib\\runpy.py", line 88 in _run_code\n\n'
    )
    (tmp_path / "faults-7").write_text(text)
    (dump,) = read_faults(str(tmp_path / "faults-7"))
    assert (dump.what, len(dump.frames)) == ("access violation", 2)
    assert [short(file) for file, *_ in dump.frames] == ["torch\\__init__.py", "runpy.py"]
    began = line("start", "python", parent=1, program=["app.py"])
    assert not processes_of([began], {7: [dump]})[7].how
    ended = line("child", "7", pid=1, signal=0xC0000005)
    found = processes_of([began, ended], {7: [dump]})[7]
    assert found.how == "crashed (access violation, 0xC0000005)"
