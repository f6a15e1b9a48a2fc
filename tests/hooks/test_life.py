"""Coming late, leaving early, many threads, forks, other interpreters, and the end of all."""

from __future__ import annotations

import os
import sys

import pytest


def test_install_while_the_target_is_half_imported(pair):
    """The guard is put up by the very module it watches: too late for this import, and told."""
    pair.modules("prereq.py")
    pair.child.write(
        "target.py",
        """
        import cudaguard, ran
        rule = cudaguard.Rule("LOCAL1", ("target",), "test", needs=("prereq",))
        cudaguard.install(rules=[rule])
        ran.names.append("target")
        """,
    )
    ran = pair.bare(
        "import cudaguard, target",
        pair.NAMES,
        pair.FINDINGS,
        "import importlib as i; i.reload(target)",
    )
    assert ran.lines == ["target", "CG802"]
    assert "target was imported before cudaguard could repair it (rule LOCAL1)" in ran.err


def test_rule_added_while_its_target_is_in_flight(pair):
    """It has come through the hook: that it is half imported is no reason for a complaint."""
    pair.modules("prereq.py")
    pair.module(
        "target.py",
        """
        import cudaguard
        rule = cudaguard.Rule("LOCAL2", ("target",), "test", needs=("later",))
        cudaguard.add_rule(rule)
        """,
    )
    pair.modules("later.py")
    ran = pair.guarded("import target", pair.NAMES, pair.FINDINGS)
    assert (ran.lines, ran.err) == (["prereq target"], "")


def test_uninstall_between_find_spec_and_exec_module(pair):
    """The load in flight completes; it leaves nothing of ours behind and complains of nothing."""
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        """
        import importlib.util
        spec = importlib.util.find_spec("target")
        cudaguard.uninstall()
        module = importlib.util.module_from_spec(spec)
        sys.modules["target"] = module
        spec.loader.exec_module(module)
        import ran
        print(ran.names.count("target"), type(module.__loader__).__name__, spec.loader)
        """,
        pair.FINDINGS,
        proof="",
    )
    assert ran.err == ""
    assert [line.split(" <")[0] for line in ran.lines] == ["1 SourceFileLoader"]


def test_uninstall_by_the_target_itself(pair):
    pair.modules("prereq.py", "second.py")
    pair.module("target.py", "import cudaguard; cudaguard.uninstall()\n")
    ran = pair.guarded("import target, second", pair.NAMES, watch=("target", "second"), proof="")
    assert (ran.lines, ran.err) == (["prereq target second"], "")


def test_import_at_exit(pair):
    """Neither output nor a failure of ours while the interpreter takes itself down."""
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        """
        import atexit
        def last():
            import target, ran
            print(*ran.names)
        atexit.register(last)
        """,
        proof="",
    )
    assert (ran.lines, ran.err) == (["prereq target"], "")


@pytest.mark.parametrize("where", ["module", "sys"])
def test_import_in_a_destructor_at_the_very_end(pair, where):
    """What an import can still do there depends on the version; the guard adds nothing to it."""
    pair.modules("target.py", "prereq.py")
    code = """
        import sys
        class Late:
            def __del__(self):
                try:
                    import target
                except BaseException as error:
                    print(type(error).__name__)
                else:
                    print("imported")
        late = Late()
        """
    keep = "" if where == "module" else "sys.late = late; del late"
    pair.same(code, keep, proof="")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_fork_while_another_thread_is_in_a_watched_import(pair):
    """The child has that thread's locks but not the thread; ours must not be among them."""
    pair.modules("prereq.py", "second.py")
    pair.child.write(
        "gate.py", "import threading\ninside, out = threading.Event(), threading.Event()"
    )
    pair.module("target.py", "import gate\ngate.inside.set()\ngate.out.wait(20)\n")
    ran = pair.guarded(
        """
        import gate, os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        thread = threading.Thread(target=__import__, args=("target",), daemon=True)
        thread.start()
        gate.inside.wait(20)
        pid = os.fork()
        if pid == 0:
            import signal
            signal.alarm(20)
            try:
                del sys.modules["prereq"]
                import ran, second
                assert ran.names == ["prereq", "prereq", "second"]
                cudaguard.uninstall()
                cudaguard.install()
                os._exit(7)
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        gate.out.set()
        thread.join(20)
        print(os.WIFEXITED(status) and os.WEXITSTATUS(status), "target" in sys.modules)
        """,
        watch=("target", "second"),
        proof="",
    )
    assert (ran.lines, ran.err) == (["7 True"], "")


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
id = interpreters.create()
"""


def test_subinterpreter_starts_unguarded_and_does_not_crash(pair):
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        "import target",
        SUBINTERPRETER,
        """
        interpreters.run_string(id, '''if True:
            import sys
            assert not any(type(f).__name__ == "GuardFinder" for f in sys.meta_path)
            sys.path.insert(0, "")
            import target, ran
            with open("names.txt", "w") as file: print(*ran.names, file=file)
        ''')
        interpreters.destroy(id)
        import importlib
        importlib.reload(target)
        """,
        pair.NAMES,
    )
    assert (pair.child.folder / "names.txt").read_text() == "target\n"
    assert (ran.lines, ran.err) == (["prereq target target"], "")


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 crashes now and then by itself")
def test_guard_inside_a_subinterpreter(pair):
    pair.modules("target.py", "prereq.py")
    pair.child.write(
        "inside.py",
        """
        import cudaguard
        rule = cudaguard.Rule("LOCAL1", ("target",), "test", needs=("prereq",))
        cudaguard.install(rules=[rule])
        import target, ran, sys
        cudaguard.uninstall()
        gone = not any("cudaguard" in type(f).__module__ for f in sys.meta_path)
        with open("names.txt", "a") as file: print(*ran.names, gone, file=file)
        """,
    )
    pair.guarded(
        SUBINTERPRETER,
        f"""
        code = "import sys; sys.path[:] = ['', *%r]; import inside" % {sys.path!r}
        for each in (id, interpreters.create(), interpreters.create()):
            interpreters.run_string(each, code)
            interpreters.destroy(each)
        """,
        proof="cudaguard.uninstall()",
    )
    assert (pair.child.folder / "names.txt").read_text() == "prereq target True\n" * 3
