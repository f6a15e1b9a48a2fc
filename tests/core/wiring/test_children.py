"""Children: whom `install` guards beyond this process, and what a fork inherits."""

from __future__ import annotations

import pytest

ASK = "import cudaguard; print(cudaguard.status().mode, flush=True)"


@pytest.mark.parametrize(("children", "expected"), [(False, "off"), (True, "strict")])
def test_subprocess_is_guarded_only_on_request(program, children, expected):
    assert program.output(
        f"""
        import subprocess
        cudaguard.install("strict", children={children})
        print(subprocess.check_output([sys.executable, "-c", sys.argv[1]], text=True).strip())
        """,
        ASK,
    ) == [expected]


def test_install_in_the_main_module_guards_spawned_children_by_itself(program):
    path = program.write(
        "main.py",
        """
        from scene import *
        import multiprocessing
        cudaguard.install("observe", rules=[rule("MINE")])
        def work():
            print(mode(), [r.id for r in cudaguard.active_rules()][-1], flush=True)
        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
        """,
    )
    assert program.child.command(*program.python, path).stdout.split() == ["observe", "MINE"]


@pytest.mark.parametrize(
    "change", ["os.environ['CUDAGUARD'] = 'off'", "del os.environ['CUDAGUARD']"]
)
def test_variable_the_program_has_changed_since_is_left_alone(program, change):
    assert program.output(
        f"""
        cudaguard.install("warn", children=True)
        {change}
        now = dict(os.environ)
        cudaguard.uninstall()
        print(dict(os.environ) == now)
        """
    ) == ["True"]


def test_installing_off_with_children_does_not_lock_the_guard_out(program):
    assert program.output(
        "cudaguard.install('off', children=True); cudaguard.install('warn'); print(mode())"
    ) == ["warn"]


def test_kill_switch_is_left_to_the_children_as_it_is(program):
    assert program.output(
        "cudaguard.install('strict', children=True); print(mode(), os.environ['CUDAGUARD'])",
        env={"CUDAGUARD": "0"},
    )[0].startswith("off ")


def test_block_inside_does_not_export_its_mode(program):
    block = "with cudaguard.guard('strict'): print('CUDAGUARD' in os.environ)"
    assert program.output(f"cudaguard.install('warn')\n{block}") == ["False"]


def test_forked_child_inherits_the_guard_and_its_changes_stay_its_own(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        pid = os.fork()
        if pid == 0:
            import target
            os.write(1, (order() + " " + mode() + "\\n").encode())
            cudaguard.uninstall()
            os.write(1, (mode() + "\\n").encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(mode(), order())
        """
    ) == ["needed target fix", "off", "fix "]


def test_fork_while_another_thread_holds_our_lock_does_not_hang_the_child(program):
    assert program.output(
        """
        import threading
        from cudaguard.core.lifecycle import activation
        cudaguard.install(rules=[rule()])
        held, go = threading.Event(), threading.Event()
        def hold():
            with activation.lock:
                held.set()
                go.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            with cudaguard.guard("strict"):
                import target
                os.write(1, (order() + " " + mode() + "\\n").encode())
            cudaguard.uninstall()
            os._exit(0)
        os.waitpid(pid, 0)
        go.set()
        thread.join()
        """,
        flags=("-W", "ignore::DeprecationWarning"),
        timeout=30,
    ) == ["needed target strict"]


def test_finding_of_the_parent_is_known_to_the_forked_child_and_not_the_other_way_round(program):
    done = program.run(
        """
        cudaguard.install("warn", rules=[rule(), rule("TWO", watch=("other",))])
        import target
        pid = os.fork()
        if pid == 0:
            import other
            os.write(1, (found() + "\\n").encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(found())
        """
    )
    assert done.stdout.splitlines() == ["ORDER1 TWO", "ORDER1"]
    assert done.stderr.count("Warning: [") == 1  # the parent speaks


def test_block_guards_what_is_started_inside(program):
    assert program.output(
        """
        import subprocess
        def asked():
            return subprocess.check_output([sys.executable, "-c", sys.argv[1]], text=True).strip()
        with cudaguard.guard("warn", children=True):
            print(asked())
        print(asked(), "CUDAGUARD" in os.environ)
        with cudaguard.guard("warn"):
            print(asked())
        """,
        ASK,
    ) == ["warn", "off False", "off"]


def test_last_block_that_wants_children_guarded_puts_the_variable_back(program):
    assert program.output(
        """
        first = cudaguard.guard("warn", children=True)
        second = cudaguard.guard("observe", children=True)
        said = lambda: print(os.environ.get("CUDAGUARD"))
        first.__enter__()
        second.__enter__()
        said()
        first.__exit__(None, None, None)
        said()
        second.__exit__(None, None, None)
        said()
        """,
        env={"CUDAGUARD": "fix"},
    ) == ["observe", "observe", "fix"]
