"""Libraries loaded with `ctypes`: one that must stay local does, by whatever door it comes.

Two small libraries stand for real ones: `libpolluter` exports a name that `libvictim` has its own
copy of. Loaded with RTLD_GLOBAL, the polluter's copy serves the victim as well.
"""

from __future__ import annotations

import shutil
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems search per library")
POLLUTER = "int which(void) { return 1; }\n"
VICTIM = "int which(void) { return 2; }\nint ask(void) { return which(); }\n"
# Under a guard the rule is given by the tests below; `bare` runs ignore it.
RULE = """
import sys
def guard(mode="fix"):
    import cudaguard
    cudaguard.install(mode, rules=[cudaguard.Rule(
        "LOCAL1", ("target",), "test", actions=({"load_local": "libpolluter.so*"},))])
"""
ASK = "import ctypes; print(ctypes.CDLL('./libvictim.so').ask())"


@pytest.fixture
def libraries(pair, compiler):
    """The two libraries in the children's folder."""
    for name, source in (("libpolluter.so", POLLUTER), ("libvictim.so", VICTIM)):
        compiler.put(pair.child.folder / name, source)
    return pair


DOORS = {
    "keyword": "ctypes.CDLL('./libpolluter.so', mode=ctypes.RTLD_GLOBAL)",
    "position": "ctypes.CDLL('./libpolluter.so', ctypes.RTLD_GLOBAL)",
    "all-keywords": "ctypes.CDLL(mode=ctypes.RTLD_GLOBAL, name='./libpolluter.so')",
    "other-flags": "import os; ctypes.CDLL('./libpolluter.so', os.RTLD_NOW | os.RTLD_GLOBAL)",
    "path": "import pathlib; ctypes.CDLL(pathlib.Path('libpolluter.so').resolve(), 256)",
    "absolute": "import os; ctypes.CDLL(os.path.abspath('libpolluter.so'), 256)",
    "PyDLL": "ctypes.PyDLL('./libpolluter.so', ctypes.RTLD_GLOBAL)",
    "more-arguments": "ctypes.CDLL('./libpolluter.so', 256, None, True)",
    "early-import": "EarlyCDLL('./libpolluter.so', 256)",
    "sub-class": "Own('./libpolluter.so')",
    "loader": "ctypes.LibraryLoader(Own).LoadLibrary('./libpolluter.so')",
    "attribute": "ctypes.LibraryLoader(Own)['./libpolluter.so']",
}
EARLY = """
import ctypes
from ctypes import CDLL as EarlyCDLL
class Own(EarlyCDLL):
    def __init__(self, name, *arguments): super().__init__(name, ctypes.RTLD_GLOBAL)
"""


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_library_stays_local_by_every_door(libraries, door):
    """Red without the guard, green with it; `ctypes` was there before the guard."""
    red = libraries.bare(EARLY, door, ASK)
    green = libraries.bare(RULE, EARLY, "guard()", door, ASK)
    assert (red.lines, green.lines, green.err) == (["1"], ["2"], "")


def test_library_named_by_bytes(libraries):
    """Not every version of `ctypes` takes them; the guard makes no difference to that."""
    code = """
        import ctypes
        try:
            ctypes.CDLL(b"./libpolluter.so", ctypes.RTLD_GLOBAL)
        except TypeError as error:
            print(error)
        """
    red = libraries.bare(code, ASK).lines
    green = libraries.bare(RULE, "guard()", code, ASK).lines
    assert green == (["2"] if red == ["1"] else red)


def test_guard_before_ctypes(libraries):
    lines = libraries.bare(
        RULE,
        """
        guard()
        print("ctypes" in sys.modules, "_ctypes" in sys.modules)
        """,
        EARLY,
        DOORS["keyword"],
        ASK,
    ).lines
    assert lines == ["False False", "2"]


def test_guard_put_up_while_ctypes_is_half_imported(libraries):
    """There is no class to patch yet; it is made up for at the next watched import."""
    libraries.modules("target.py")
    lines = libraries.bare(
        RULE,
        """
        class Late:
            def find_spec(self, name, path=None, target=None):
                if name == "struct":
                    sys.meta_path.remove(self)
                    print(hasattr(sys.modules["ctypes"], "CDLL"))
                    guard()
        sys.modules.pop("struct", None)
        sys.meta_path.insert(0, Late())
        import ctypes, target
        """,
        DOORS["keyword"],
        ASK,
    ).lines
    assert lines == ["False", "2"]


def test_repair_is_recorded_and_told_to_nobody(libraries):
    ran = libraries.bare(
        RULE,
        "guard()\nimport ctypes, cudaguard",
        DOORS["keyword"],
        DOORS["keyword"],
        """
        status = cudaguard.status()
        print(status.findings, [e.kind for e in status.events if "libpolluter.so" in e.name])
        print([entry for entry in status.changes if "polluter" in entry])
        """,
    )
    assert ran.err == ""
    assert ran.lines == [
        "() ['repair', 'repair']",
        "['libpolluter.so: kept in local symbol scope by LOCAL1 (stays)']",
    ]


@pytest.mark.parametrize("mode", ["warn", "observe"])
def test_modes_that_change_nothing_say_so(libraries, mode):
    ran = libraries.bare(
        RULE,
        f"guard({mode!r})\nimport ctypes, cudaguard",
        DOORS["keyword"],
        ASK,
        libraries.FINDINGS,
    )
    assert ran.lines == ["1", "LOCAL1"]
    assert ("SymbolScopeWarning" in ran.err) == (mode == "warn")


def test_other_libraries_stay_global_and_are_kept_apart(libraries):
    shutil.copy(libraries.child.folder / "libpolluter.so", libraries.child.folder / "libother.so")
    code = "import ctypes; ctypes.CDLL('./libother.so', 256); print(ctypes.CDLL(None).which())"
    assert libraries.bare(RULE, "guard()", code, ASK).lines == ["1", "2"]


def test_later_patch_of_somebody_else_stays(libraries):
    ran = libraries.bare(
        RULE,
        """
        import ctypes, cudaguard
        guard()
        ours, calls = ctypes.CDLL.__init__, []
        def theirs(self, *arguments, **keywords):
            calls.append(arguments)
            ours(self, *arguments, **keywords)
        ctypes.CDLL.__init__ = theirs
        cudaguard.uninstall()
        print(ctypes.CDLL.__init__ is theirs)
        """,
        DOORS["position"],
        "print(calls)",
        ASK,
        """
        guard()
        print(ctypes.CDLL.__init__ is theirs)
        cudaguard.uninstall()
        print(ctypes.CDLL.__init__ is theirs)
        """,
    )
    assert ran.err.count("Warning: [CG812]") == ran.err.count("Warning: [") == 1
    assert ran.lines == ["True", "[('./libpolluter.so', 256)]", "1", "False", "True"]
