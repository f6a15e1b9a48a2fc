"""Ways in which a guard could harm a program that has nothing to do with it; none may work."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.parametrize("imported", ["", "import importlib_metadata"])
def test_a_question_for_a_version_leaves_the_metadata_of_python_alone(program, imported):
    """Whoever imports importlib_metadata has its finder from then on, and Python's no longer."""
    assert program.output(
        f"""
        {imported}
        from importlib import metadata
        def seen():
            kinds = {{type(dist).__module__ for dist in metadata.distributions()}}
            return list(map(id, sys.meta_path)), kinds, "importlib_metadata" in sys.modules
        before = seen()
        with cudaguard.guard(rules=[rule(dist=("cudaguard",), when={{"python": ">=3"}})]):
            import target
        print(order(), seen() == before)
        """
    ) == ["needed target True"]


@pytest.mark.parametrize("door", ["install", "block"])
@pytest.mark.parametrize("fault", ["packaging", "showwarning"])
def test_fault_around_a_late_module_does_not_end_the_program(program, door, fault):
    program.write("packaging/__init__.py", "raise AttributeError('a broken packaging')")
    done = program.run(
        f"""
        import target, warnings
        late = rule(dist=("pytest",), grade="automatic")
        if {fault!r} == "showwarning":
            warnings.showwarning = lambda *a, **k: 1 / 0
            late = rule()
        else:
            import cudaguard.core.rule_check
            cudaguard.core.rule_check._requirement = lambda *a: None
        if {door!r} == "install":
            cudaguard.install(rules=[late])
        else:
            with cudaguard.guard(rules=[late]):
                pass
        print("goes on", mode())
        """
    )
    assert done.stdout.split("\n")[0] == f"goes on {'fix' if door == 'install' else 'off'}"


def test_blocked_module_is_not_late(program):
    """None in sys.modules says that the module must not be imported."""
    assert program.output(
        """
        sys.modules["target"] = None
        cudaguard.install("strict", rules=[rule(), rule("TWO", watch=("other",))])
        import other
        print(found())
        """
    ) == [""]


ODD_FINDER = """
class Odd:
    def __eq__(self, other):
        {answer}
    def find_spec(self, name, path=None, target=None):
        return None
odd = Odd()
sys.meta_path.insert(0, odd)
"""


@pytest.mark.parametrize("answer", ["return True", "raise ValueError('ambiguous')"])
def test_finders_are_told_apart_by_identity(program, answer):
    assert program.output(
        ODD_FINDER.format(answer=answer)
        + """
cudaguard.install(rules=[rule()])
import target
print(order(), sum(type(f).__name__ == "GuardFinder" for f in sys.meta_path))
cudaguard.uninstall()
print(any(f is odd for f in sys.meta_path), len([f for f in sys.meta_path if f is not odd]) >= 3)
"""
    ) == ["needed target 1", "True True"]


def test_what_is_decided_for_a_failed_import_is_decided_anew_for_the_next(program):
    """As in a notebook: the first import fails, something is installed or set, then it works."""
    program.write("target.py", "import missing\n")
    assert program.output(
        """
        cudaguard.install(rules=[rule(when={"env": {"FLAG": True}})])
        try:
            import target
        except ImportError:
            print("fails", order())
        open("missing.py", "w").close()
        os.environ["FLAG"] = "1"
        import importlib
        importlib.invalidate_caches()
        import target
        print(order())
        """
    ) == ["fails ", "needed target"]


# --- what is said about a library is what happened to it -------------------------------------

SCOPED = """
import ctypes
cudaguard.install({mode!r}, rules=[rule(needs=(), actions=({{"load_local": "lib[cr]*.so*"}},))])
def said():
    repairs = [e.name for e in cudaguard.status().events if e.kind == "repair"]
    return repairs, found(), [t for t in cudaguard.status().changes if "scope" in t]
"""


@pytest.mark.parametrize("mode", ["warn", "fix"])
def test_library_that_cannot_be_loaded_is_neither_repaired_nor_global(program, mode):
    assert program.output(
        SCOPED.format(mode=mode)
        + """
try:
    ctypes.CDLL("/no/such/libcuda.so", ctypes.RTLD_GLOBAL)
except OSError:
    print(said())
"""
    ) == ["([], '', [])"]


def test_handle_that_is_open_already_is_nobodys_business(program):
    assert program.output(
        SCOPED.format(mode="fix")
        + """
handle = ctypes.CDLL(None)._handle
ctypes.CDLL("libresolv.so.2", ctypes.RTLD_GLOBAL, handle)
ctypes.CDLL("libresolv.so.2", mode=ctypes.RTLD_GLOBAL, handle=handle)
print(said())
"""
    ) == ["([], '', [])"]


def test_reloaded_ctypes_is_patched_again(program):
    assert program.output(
        SCOPED.format(mode="fix")
        + """
import importlib
importlib.reload(ctypes)
cudaguard.install()
ctypes.CDLL("libresolv.so.2", ctypes.RTLD_GLOBAL)
print(said()[0])
cudaguard.uninstall()
print(hasattr(ctypes.CDLL.__init__, "__wrapped__"))
"""
    ) == ["['libresolv.so.2']", "False"]


# --- the edges of a process ------------------------------------------------------------------


def test_a_daemon_speaks_when_the_process_it_came_from_is_gone(program):
    """A forked worker is silent, since its parent speaks; a daemon is the program itself."""
    done = program.run(
        """
        import time
        cudaguard.install("warn", rules=[rule()])
        first = os.getpid()
        if os.fork():
            os._exit(0)
        for _ in range(1000):
            if os.getppid() != first:
                break
            time.sleep(0.01)
        import target
        """
    )
    assert done.stderr.count("[ORDER1]") == 1


def test_start_up_with_a_broken_package_and_no_stderr_prints_nothing(program):
    program.write("cudaguard/__init__.py", "raise RuntimeError('broken')")
    done = program.child.command(
        "sh",
        "-c",
        f"{sys.executable} -c 'print(1)' 2>&-",
        env={"CUDAGUARD": "fix", "PYTHONPATH": str(program.folder)},
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize("error", ["RecursionError", "MemoryError"])
@pytest.mark.parametrize("telling", ["works", "fails as well"])
def test_what_the_program_has_used_up_is_no_failure_of_ours(program, error, telling):
    """A program near its limits is one that may recover; it is not asked to report anything."""
    done = program.run(
        f"""
        from cudaguard.core.dispatch import Dispatch
        from cudaguard.core import findings
        cudaguard.install("strict", rules=[rule()])
        def short(*_):
            raise {error}
        Dispatch.record_import = as_ours(short)
        if {telling!r} != "works":
            findings.guard_failed = as_ours(short)
        import target
        print(order(), found())
        """
    )
    assert done.stdout.splitlines() == [
        "needed target CG807" if telling == "works" else "needed target "
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("watch", ["", "all"])
def test_program_that_forgets_the_modules_it_has_imported(program, watch):
    """As a test does that wants everything imported anew; ours are imported anew as well."""
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        status = cudaguard.status
        for name in [name for name in sys.modules if name.partition(".")[0] == "cudaguard"]:
            del sys.modules[name]
        import other, target
        print(order(), status().findings)
        """,
        env={"CUDAGUARD_WATCH": watch},
    ) == ["other needed target ()"]
