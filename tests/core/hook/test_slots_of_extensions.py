"""Extension modules and the slots around an import, without rules; see test_slots.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("lazily", [True, False])
def test_extension_behind_a_lazy_loader_without_the_patch(native, slots, lazily):
    """It is mapped when it is registered, so the finder's loader alone must act then."""
    (native.child.folder / "target.py").unlink()
    native.extension("target", "MULTI_PHASE")
    lines = slots(f"""
        import importlib.util
        spec = importlib.util.find_spec("target")
        if {lazily}: spec.loader = importlib.util.LazyLoader(spec.loader)
        host.slots = Slots(before=(say("before"),))
        importlib.util.module_from_spec(spec)
        log.append("registered")
    """)
    assert lines == ["before", "registered"]


def test_windows_around_native_parts_of_a_watched_package(native, slots):
    native.extension("part", "MULTI_PHASE", at="package")
    lines = slots("""
        import glob, importlib.util
        patch = ExtensionPatch(host)
        patch.watched = {"package": None}
        patch.put_up()
        host.slots = Slots((say("never"),), (window("1"),))
        for name in ("package.part", "package.deep.part", "packages.part", "other.package.part"):
            log.append(name)
            file = glob.glob("package/part.*.so")[0]
            importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, file))
    """)
    window = ["open 1", "close 1 NoneType"]
    assert lines == [
        "package.part",
        *window,
        "package.deep.part",
        *window,
        "packages.part",
        "other.package.part",
    ]


@pytest.mark.parametrize("route", ["import target", "by_file('target')"])
def test_windows_around_the_mapping_of_an_extension(native, slots, route):
    (native.child.folder / "target.py").unlink()
    native.extension("target", "MULTI_PHASE")
    lines = slots(f"""
        import glob, importlib.util
        def mapped():
            log.append(any("/target." in line for line in open("/proc/self/maps")))
        def opener(spec):
            mapped()
            return lambda error: mapped()
        def by_file(name):
            spec = importlib.util.spec_from_file_location(name, glob.glob(name + ".*.so")[0])
            importlib.util.module_from_spec(spec)
        patch = ExtensionPatch(host)
        patch.watched = finder.watched
        patch.put_up()
        host.slots = Slots((say("before"),), (opener,))
        {route}
    """)
    assert lines[:3] == ["before", "False", "True"]
    assert "before" not in lines[1:]
