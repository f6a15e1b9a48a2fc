"""The timeline of a trace, from journals written by hand."""

from __future__ import annotations

from cudaguard.tools.run.record import Line
from cudaguard.tools.trace import native_only, rows_of, traced_processes

PID = 7


def journal(*lines, pid=PID):
    """Read lines of a journal: (kind, name, details), or with a thread's number in front."""
    found = []
    for number, line in enumerate(lines):
        thread, (kind, name, *details) = (
            (line[0], line[1:]) if isinstance(line[0], int) else (1, line)
        )
        found.append(Line(pid, thread, 1000.0 + number, "", kind, name, *details or [{}]))
    return found


def steps(*lines):
    (process,) = traced_processes(journal(*lines), PID)
    return process["steps"]


def mapped(step):
    return [library["file"] for library in step["mapped"]]


def test_mapped_when_the_next_load_begins_belongs_to_the_load_around_it():
    outer, inner = steps(
        ("mapping", "/a.so", {"module": "a", "importing": ["__main__"]}),
        ("mapped", "/a.so"),  # noted as the inner load begins: nobody knows the cause yet
        ("mapped", "/liba.so"),
        ("mapping", "/b.so", {"importing": ["__main__", "a"]}),
        ("mapped", "/b.so", {"by": "/b.so"}),
        ("loaded", "/b.so"),
        ("mapped", "/late.so", {"by": "/a.so"}),
        ("loaded", "/a.so"),
    )
    assert (mapped(outer), mapped(inner)) == (["/a.so", "/liba.so", "/late.so"], ["/b.so"])
    assert (outer["kind"], inner["kind"]) == ("extension", "library")
    assert (outer["depth"], inner["depth"]) == (0, 1)
    assert (outer["seconds"], outer["state"]) == (7, "done")


def test_threads_do_not_close_each_others_steps():
    one, other = steps(
        (1, "import", "one"), (2, "import", "other"), (1, "failed", "one"), (2, "imported", "other")
    )
    assert (one["state"], one["seconds"], one["thread"]) == ("failed", 2, 0)
    assert (other["state"], other["seconds"], other["thread"]) == ("done", 2, 1)


def test_end_of_an_import_ends_what_it_left_open():
    found = steps(("import", "a"), ("mapping", "x.so"), ("imported", "a"), ("import", "b"))
    assert [step["depth"] for step in found] == [0, 1, 0]
    assert [step["state"] for step in found] == ["done", "unfinished", "unfinished"]


def test_program_that_becomes_another_one_and_its_children():
    lines = journal(("start", "python", {"parent": 1, "program": ["a.py"]}), ("import", "a"))
    lines += journal(("import", "c"), pid=9)  # a fork: it has no start
    lines += journal(("start", "python", {"parent": 1, "program": ["b.py"]}), ("end", ""))
    first, second, fork = traced_processes(lines, PID)
    assert [p["program"] for p in (first, second, fork)] == [["a.py"], ["b.py"], []]
    assert (first["ended"], fork["parent"], fork["pid"]) == (None, None, 9)
    assert second["ended"] is not None


def test_what_is_there_at_the_start_and_what_nobody_saw():
    start, load, unseen = steps(
        ("mapped", "/libc.so"),
        ("mapped", "/libm.so"),
        ("mapping", "x.so"),
        ("loaded", "x.so"),
        ("mapped", "/one.so"),
        ("mapped", "/other.so"),
    )
    assert (start["kind"], mapped(start)) == ("start", ["/libc.so", "/libm.so"])
    assert (unseen["kind"], mapped(unseen)) == ("unseen", ["/one.so", "/other.so"])
    assert mapped(load) == []


def test_only_native_keeps_what_leads_to_a_library():
    process = {
        "steps": steps(
            ("import", "pure"), ("import", "inner"), ("imported", "inner"), ("imported", "pure"),
            ("import", "outer"), ("import", "middle"), ("mapping", "x.so"), ("loaded", "x.so"),
            ("imported", "middle"), ("import", "beside"), ("imported", "beside"),
            ("imported", "outer"), ("import", "sour"), ("failed", "sour"),
        )
    }  # fmt: skip
    names = [step["name"] for step in native_only(process)["steps"]]
    assert names == ["outer", "middle", "x.so", "sour"]


def with_names(process):
    for step in process["steps"]:
        for library in step["mapped"]:
            library["name"] = library["file"].rpartition("/")[2]
    return process


def extension(module, *more):
    file = f"/site-packages/{module}.so"
    return (
        ("mapping", file, {"module": module}),
        *(("mapped", name, {"by": file}) for name in (file, *more)),
        ("loaded", file),
    )


def test_extensions_in_a_row_that_brought_nothing_are_one_row():
    lines = (*extension("a"), *extension("b"), *extension("c", "/x/libbig.so"), *extension("d"))
    rows = rows_of(with_names({"steps": steps(*lines)}))
    assert [row["names"] for row in rows] == [["a", "b"], ["c"], ["d"]]
    assert [row["brought"] for row in rows] == [[], ["libbig.so"], []]
    assert sum(len(row["mapped"]) for row in rows) == 5


def test_event_and_the_finding_about_it_are_one_row():
    what = {"kind": "initialized", "actor": "a", "how": "import", "device": -1}
    found = {"id": "CG814", "what": "a initialized CUDA at x:1.", "severity": "info"}
    other = {"id": "CG812", "what": "b takes over", "severity": "warning"}
    process = {
        "steps": steps(
            ("cuda", "a initialized CUDA", what),
            ("finding", "CG814 a initialized CUDA at x:1.", found),
            ("finding", "CG812 b takes over", other),
        )
    }
    assert [row["name"] for row in rows_of(process)] == ["a initialized CUDA", "b takes over"]
