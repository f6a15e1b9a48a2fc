"""`status()`: what it says, and that asking changes nothing."""

from __future__ import annotations

import json


def test_status_without_a_guard_is_off_and_empty(program):
    assert program.output(
        """
        s = cudaguard.status()
        print(s.mode, s.watched, s.events, s.findings, s.rules, s.changes)
        """
    ) == ["off () () () () ()"]


def test_status_while_the_guard_is_up_names_what_is_watched_changed_and_in_force(program):
    assert program.output(
        """
        import ctypes
        cudaguard.install(rules=[rule()], disable=["CG001"], children=True)
        s = cudaguard.status()
        print(s.mode, "target" in s.watched, "decord" in s.watched,
              list(s.watched) == sorted(s.watched))
        print(s.rules == cudaguard.active_rules(), "ORDER1" in [r.id for r in s.rules])
        for item in s.changes:
            print(item)
        """
    ) == [
        "fix True False True",
        "True True",
        "sys.meta_path: one finder",
        "importlib.machinery.ExtensionFileLoader.create_module",
        "sys.setdlopenflags",
        "ctypes.CDLL.__init__",
        "os.environ['CUDAGUARD']",
    ]


def test_status_after_uninstall_keeps_what_was_seen_and_lists_only_what_stays(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        import target
        during = cudaguard.status()
        cudaguard.uninstall()
        s = cudaguard.status()
        print(s.mode, s.watched, s.rules, s.changes)
        print(s.events[: len(during.events)] == during.events, s.findings == during.findings)
        """
    ) == ["off () () ('needed: imported before target by ORDER1 (stays)',)", "True True"]


def test_every_entry_that_uninstall_cannot_take_back_says_so(program):
    assert program.output(
        """
        import ctypes
        cudaguard.install(rules=[
            rule(),
            rule("SCOPE", watch=("other",), needs=(), actions=({"load_local": "libanl.so*"},)),
        ], children=True)
        import target
        ctypes.CDLL("libanl.so.1", mode=ctypes.RTLD_GLOBAL)
        before = [item for item in cudaguard.status().changes if item.endswith("(stays)")]
        cudaguard.uninstall()
        print(list(cudaguard.status().changes) == before, len(before))
        print(before[1])
        """
    ) == ["True 2", "libanl.so.1: kept in local symbol scope by SCOPE (stays)"]


def test_events_kept_in_memory_are_bounded(program):
    assert program.output(
        """
        from cudaguard.core.journal import MEMORY_LIMIT
        cudaguard.install().mode
        from cudaguard.core.lifecycle import activation
        for number in range(MEMORY_LIMIT + 5):
            activation.core.journal.note("import", str(number))
        events = cudaguard.status().events
        print(len(events) == MEMORY_LIMIT, events[-1].name == str(MEMORY_LIMIT + 4))
        """
    ) == ["True True"]


def test_finding_has_all_the_parts_a_user_needs(program):
    (text,) = program.output(
        """
        import json
        cudaguard.install("observe", rules=[rule(links=("https://example.org/1",))])
        import target
        (finding,) = cudaguard.status().findings
        print(json.dumps(finding.to_dict()))
        """
    )
    finding = json.loads(text)
    assert finding["id"] == finding["rule"] == "ORDER1"
    assert finding["severity"] == "warning"
    assert finding["what"] == "target was imported before needed."
    assert finding["consequence"] == "target needs needed."
    assert finding["evidence"] == ["imported at <string>:5"]
    assert "needed" in finding["remedy"]
    assert finding["links"] == ["https://example.org/1"]


def test_snapshot_does_not_change_afterwards(program):
    assert program.output(
        """
        cudaguard.install("observe", rules=[rule()])
        s = cudaguard.status()
        copy = s.replace()
        import target
        cudaguard.uninstall()
        print(s == copy, s == cudaguard.status(), len(s.findings))
        """
    ) == ["True False 0"]


def test_asking_imports_no_foreign_module_and_changes_nothing(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        modules, finders, environment = set(sys.modules), list(sys.meta_path), dict(os.environ)
        first = cudaguard.status()
        print([m for m in set(sys.modules) - modules if not m.startswith("cudaguard")])
        print(sys.meta_path == finders, dict(os.environ) == environment)
        print(first == cudaguard.status())
        """
    ) == ["[]", "True True", "True"]


def test_namespace_package_runs_nothing_that_could_go_past_the_guard(program):
    """`nvidia` is one: no loader of ours can stand in for its, and nothing is lost by it."""
    program.write("space/part.py", "")
    assert program.output(
        """
        cudaguard.install(rules=[rule(watch=("space",), needs=())])
        import space.part
        print(cudaguard.status().findings)
        """
    ) == ["()"]


def test_module_that_was_imported_past_the_guard_is_found_by_asking(program):
    done = program.run(
        """
        import importlib.util
        cudaguard.install(rules=[rule()])
        sys.modules["target"] = importlib.util.module_from_spec(
            importlib.util.spec_from_file_location("target", "target.py"))
        print(found(), [f.severity for f in cudaguard.status().findings])
        print(found())
        """
    )
    assert done.stdout.splitlines() == ["CG811 ['info']", "CG811"]
    assert done.stderr == ""
