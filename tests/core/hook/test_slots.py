"""What happens around an import, without rules: the three slots, and callbacks that fail.

A small host stands in the place of the engine; the finder, loader and patch are the real ones.
"""

from __future__ import annotations

import pytest


def test_order_of_all_slots(slots):
    assert slots("""
        host.slots = Slots(
            before=(say("before 1"), say("before 2")),
            around=(window("1"), window("2")),
            after=(say("after 1"), say("after 2")),
        )
        import target
    """) == [
        "before 1",
        "before 2",
        "open 1",
        "open 2",
        "runs target",
        "close 2 NoneType",
        "close 1 NoneType",
        "after 1",
        "after 2",
    ]


def test_windows_close_with_the_exception_of_the_module(slots):
    slots.pair.module("target.py", after="1 / 0\n")
    assert slots("""
        host.slots = Slots(around=(window("1"), window("2")), after=(say("never"),))
        try:
            import target
        except ZeroDivisionError:
            log.append("raised")
    """) == [
        "open 1",
        "open 2",
        "runs target",
        "close 2 ZeroDivisionError",
        "close 1 ZeroDivisionError",
        "raised",
    ]


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_windows_close_with_exceptions_of_all_kinds(slots, error):
    slots.pair.module("target.py", after=f"raise {error}\n")
    assert slots(f"""
        host.slots = Slots(around=(window("1"),))
        try:
            import target
        except {error}:
            log.append("raised")
    """) == ["open 1", "runs target", f"close 1 {error}", "raised"]


def test_opener_may_leave_nothing_to_close(slots):
    assert slots("""
        host.slots = Slots(around=(say("opened"), window("2")))
        import target
    """) == ["opened", "open 2", "runs target", "close 2 NoneType"]


FAILING = {
    "before": "before=(say('bad', ERROR), say('good'))",
    "open": "around=(window('bad', ERROR), window('good'))",
    "close": "around=(window('good'), window('bad', None, ERROR))",
    "after": "after=(say('bad', ERROR), say('good'))",
}


@pytest.mark.parametrize("slot", FAILING)
def test_failing_callback_is_reported_and_does_not_stop_its_siblings(slots, slot):
    chosen = FAILING[slot].replace("ERROR", "ValueError('a bug of ours')")
    lines = slots(f"host.slots = Slots({chosen})\nimport target")
    failures = [line for line in lines if "a bug of ours" in line]
    assert len(failures) == 1
    assert "bad" in failures[0]
    assert "runs target" in lines
    assert {"good", "close good NoneType"} & set(lines)


@pytest.mark.parametrize("slot", FAILING)
def test_failing_callback_is_called_again_at_the_next_import(slots, slot):
    chosen = FAILING[slot].replace("ERROR", "ValueError('a bug of ours')")
    lines = slots(f"""
        host.slots = Slots({chosen})
        import target
        del sys.modules["target"]
        import target
    """)
    assert sum("a bug of ours" in line for line in lines) == 2


@pytest.mark.parametrize("slot", FAILING)
def test_what_is_raised_on_purpose_passes(slots, slot):
    chosen = FAILING[slot].replace("ERROR", "CudaGuardError('on purpose')")
    lines = slots(f"""
        host.slots = Slots({chosen})
        try:
            import target
        except CudaGuardError as error:
            log.append(str(error))
        log.append("target" in sys.modules)
        log.append(len(host.failures))
    """)
    assert lines[-3:] == ["on purpose", "False", "0"]
    assert ("runs target" in lines) == (slot in ("close", "after"))
    if slot == "close":
        assert "close good NoneType" in lines, "one window stays open because of another"


def test_windows_opened_before_one_that_raises_on_purpose_are_closed(slots):
    lines = slots("""
        host.slots = Slots(around=(window("1"), window("2", KeyboardInterrupt()), window("3")))
        try:
            import target
        except KeyboardInterrupt:
            log.append("raised")
    """)
    assert lines == ["open 1", "open 2", "close 1 KeyboardInterrupt", "raised"]


def test_error_of_the_module_goes_before_one_raised_on_purpose_at_closing(slots):
    slots.pair.module("target.py", after="1 / 0\n")
    lines = slots("""
        host.slots = Slots(around=(window("1", None, CudaGuardError("on purpose")),))
        try:
            import target
        except ZeroDivisionError as error:
            log.append(error.__context__)
    """)
    assert lines == ["open 1", "runs target", "close 1 ZeroDivisionError", "None"]


def test_failure_to_decide_leaves_the_import_unguarded(slots):
    lines = slots("host.slots = ValueError('undecided')\nimport target")
    assert lines == [
        "runs target",
        "('deciding what to do for target', \"ValueError('undecided')\")",
    ]


def test_after_slot_gets_what_the_module_put_into_sys_modules(slots):
    slots.pair.module(
        "target.py", after="import sys\nclass Other: pass\nsys.modules[__name__] = Other\n"
    )
    lines = slots("""
        host.slots = Slots(after=(lambda spec, module: log.append((spec.name, module.__name__)),))
        import target
    """)
    assert lines == ["runs target", "('target', 'Other')"]


@pytest.mark.parametrize("slot", ["around=(window('1'),)", "after=(say('after'),)"])
def test_real_loader_is_back_before_module_code_runs(slots, slot):
    slots.pair.module(
        "target.py",
        """
        from host import log
        log.append((type(__loader__).__name__, __spec__.loader is __loader__))
        """,
    )
    lines = slots(f"host.slots = Slots({slot})\nimport target")
    assert "('SourceFileLoader', True)" in lines


def test_all_slots_again_at_reload(slots):
    lines = slots("""
        import importlib, target
        log.clear()
        host.slots = Slots((say("before"),), (window("1"),), (say("after"),))
        importlib.reload(target)
    """)
    assert lines == ["before", "open 1", "runs target", "close 1 NoneType", "after"]


def test_module_that_a_prerequisite_imported_has_its_slots_once(slots):
    lines = slots("""
        def cycle(spec):
            if spec.name == "target":
                log.append("cycle")
                host.slots = Slots((), (window("1"),), (say("after"),))
                import target
        host.slots = Slots((cycle,), (window("outer"),), (say("outer"),))
        import target
    """)
    assert lines == ["cycle", "open 1", "runs target", "close 1 NoneType", "after"]


def test_callback_that_comes_back_for_the_same_spec(slots):
    """The finder hands out one spec for ever: what is under way must not begin again."""
    lines = slots("""
        import importlib.util
        spec = importlib.util.spec_from_file_location("target", "target.py")
        class Same:
            def find_spec(self, name, path=None, target=None):
                return spec if name == "target" else None
        sys.meta_path.insert(1, Same())
        def again(spec):
            log.append("again")
            import target
        host.slots = Slots(before=(again,), after=(say("after"),))
        import target
        log.append(target.__spec__ is spec)
    """)
    assert lines == ["again", "runs target", "after", "True"]
