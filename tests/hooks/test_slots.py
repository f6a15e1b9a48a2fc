"""What happens around an import, without rules: the three slots, and callbacks that fail.

A small host stands in the place of the engine; the finder, loader and patch are the real ones.
"""

from __future__ import annotations

import pytest


def test_order_of_all_slots(slots):
    assert slots("""
        host.slots = ImportCallbacks(
            before=(say("before 1"), say("before 2")),
            around=(window("1"), window("2")),
            after=(say("after 1"), say("after 2")),
        )
        import target
    """) == [
        "before 1", "before 2", "open 1", "open 2", "runs target", "close 2 NoneType",
        "close 1 NoneType", "after 1", "after 2",
    ]  # fmt: skip


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_windows_close_with_exceptions_of_all_kinds(slots, error):
    slots.pair.module("target.py", after=f"raise {error}\n")
    assert slots(f"""
        host.slots = ImportCallbacks(around=(window("1"),))
        try:
            import target
        except {error}:
            log.append("raised")
    """) == ["open 1", "runs target", f"close 1 {error}", "raised"]


FAILING = {
    "before": "before=(say('bad', ERROR), say('good'))",
    "open": "around=(window('bad', ERROR), window('good'))",
    "close": "around=(window('good'), window('bad', None, ERROR))",
    "after": "after=(say('bad', ERROR), say('good'))",
}


@pytest.mark.parametrize("slot", FAILING)
def test_failing_callback_is_reported_and_does_not_stop_its_siblings(slots, slot):
    chosen = FAILING[slot].replace("ERROR", "ValueError('a bug of ours')")
    lines = slots(f"host.slots = ImportCallbacks({chosen})\nimport target")
    failures = [line for line in lines if "a bug of ours" in line]
    assert len(failures) == 1
    assert "bad" in failures[0]
    assert "runs target" in lines
    assert {"good", "close good NoneType"} & set(lines)


@pytest.mark.parametrize("slot", FAILING)
def test_what_is_raised_on_purpose_passes(slots, slot):
    chosen = FAILING[slot].replace("ERROR", "CudaGuardError('on purpose')")
    lines = slots(f"""
        host.slots = ImportCallbacks({chosen})
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
        opened = window("1"), window("2", KeyboardInterrupt()), window("3")
        host.slots = ImportCallbacks(around=opened)
        try:
            import target
        except KeyboardInterrupt:
            log.append("raised")
    """)
    assert lines == ["open 1", "open 2", "close 1 KeyboardInterrupt", "raised"]


def test_error_of_the_module_goes_before_one_raised_on_purpose_at_closing(slots):
    slots.pair.module("target.py", after="1 / 0\n")
    lines = slots("""
        host.slots = ImportCallbacks(around=(window("1", None, CudaGuardError("on purpose")),))
        try:
            import target
        except ZeroDivisionError as error:
            log.append(error.__context__)
    """)
    assert lines == ["open 1", "runs target", "close 1 ZeroDivisionError", "None"]


def test_module_that_a_prerequisite_imported_has_its_slots_once(slots):
    lines = slots("""
        def cycle(spec):
            if spec.name == "target":
                log.append("cycle")
                host.slots = ImportCallbacks((), (window("1"),), (say("after"),))
                import target
        host.slots = ImportCallbacks((cycle,), (window("outer"),), (say("outer"),))
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
        host.slots = ImportCallbacks(before=(again,), after=(say("after"),))
        import target
        log.append(target.__spec__ is spec)
    """)
    assert lines == ["again", "runs target", "after", "True"]
