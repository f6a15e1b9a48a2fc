"""Rule plug-ins from real ``.dist-info`` folders: found at install, imported at the first hit."""

from __future__ import annotations

import sys

import pytest

GOOD = """
print("plug-in imported")
import cudaguard
RULE = cudaguard.Rule(id="PLUG1", watch=("target",), needs=("needed",), why="Says the plug-in.")
TWO = cudaguard.Rule(id="PLUG2", watch=("target",), needs=("other",), why="Says the plug-in.")
BOTH = [RULE, TWO]
class Holder:
    rules = (RULE,)
def generate():
    yield RULE
GENERATED = generate()
NAMED = RULE.replace(id="CG500")
"""


def add_plugin(program, value, *, name="target", folder="plug-1.0.dist-info", code=GOOD):
    """Make the entry point ``name = value`` visible on the children's path."""
    program.write(f"{folder}/entry_points.txt", f"[cudaguard.rules]\n{name} = {value}\n")
    program.write("plug.py", code)


@pytest.mark.parametrize("value", ["RULE", "BOTH", "Holder.rules", "GENERATED", "RULE [extra]"])
def test_value_is_a_rule_or_an_iterable_and_is_in_force_for_the_import_that_hit(program, value):
    add_plugin(program, f"plug:{value}")
    expected = "needed other target" if value == "BOTH" else "needed target"
    assert program.output("cudaguard.install(); import target; print(order(), found())") == [
        "plug-in imported",
        f"{expected} ",
    ]


def test_value_is_imported_at_the_first_hit_only(program):
    add_plugin(program, "plug:RULE")
    assert program.output(
        """
        cudaguard.install()
        print("target" in cudaguard.status().watched, "plug" in sys.modules)
        import other, needed
        print("plug" in sys.modules)
        import target
        del sys.modules["target"], sys.modules["plug"]
        import target
        cudaguard.uninstall()
        cudaguard.install()
        del sys.modules["target"]
        import target
        print("plug" in sys.modules, [r.id for r in cudaguard.active_rules()][-1])
        """
    ) == ["True False", "False", "plug-in imported", "False PLUG1"]


@pytest.mark.parametrize(
    ("code", "value", "evidence"),
    [
        ("raise RuntimeError('boom')", "plug:RULE", "RuntimeError: boom"),
        ("import sys; sys.exit('bye')", "plug:RULE", "SystemExit: bye"),
        (GOOD, "plug:MISSING", "AttributeError: "),
        (GOOD, "no_such_plug:RULE", "ModuleNotFoundError: No module named 'no_such_plug'"),
        (GOOD, "plug", "RuleError: "),
        (GOOD, "", "ValueError: "),
        (GOOD, "plug:Holder", "RuleError: "),
        (GOOD, "plug:NAMED", "RuleError: "),
        ("RULE = [1, 2]", "plug:RULE", "RuleError: "),
        ("RULE = 'CG001'", "plug:RULE", "RuleError: "),
        ("def f():\n    yield 1 / 0\nRULE = f()", "plug:RULE", "ZeroDivisionError: "),
        ("def broken(:", "plug:RULE", "SyntaxError: "),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "fix", "strict"])
def test_plugin_that_cannot_be_used_is_reported_once_and_the_import_goes_on(
    program, mode, code, value, evidence
):
    add_plugin(program, value, code=code)
    done = program.run(
        f"""
        cudaguard.install({mode!r})
        for _ in range(2):
            import target
            del sys.modules["target"]
        cudaguard.uninstall()
        cudaguard.install({mode!r})
        import target
        print(order(), found())
        (finding,) = cudaguard.status().findings
        print(finding.evidence[0])
        """
    )
    lines = [line for line in done.stdout.splitlines() if line != "plug-in imported"]
    assert lines[0] == "target CG805"
    assert lines[1].startswith(evidence)
    assert done.stderr.count("[CG805]") == (0 if mode == "observe" else 1)


def test_interrupt_in_a_plugin_passes(program):
    add_plugin(program, "plug:RULE", code="raise KeyboardInterrupt")
    assert program.output(
        """
        cudaguard.install()
        try:
            import target
        except KeyboardInterrupt:
            print("interrupted")
        """
    ) == ["interrupted"]


def test_one_plugin_that_fails_does_not_cost_the_other(program):
    add_plugin(program, "plug:RULE")
    program.write("bad-1.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = bad_plug:RULE\n")
    done = program.run("cudaguard.install(); import target; print(order(), found())")
    assert done.stdout.splitlines() == ["plug-in imported", "needed target CG805"]


def test_plugin_that_imports_its_own_target_neither_recurses_nor_loads_it_twice(program):
    program.write("target.py", "print('target runs')\n")
    add_plugin(program, "plug:RULE", code="import target\n" + GOOD)
    assert program.output("cudaguard.install(); import target; print(order(), found())")[:2] == [
        "target runs",
        "plug-in imported",
    ]


def test_plugin_that_calls_add_rule_while_it_is_imported_is_served(program):
    add_plugin(program, "plug:RULE", code=GOOD + "cudaguard.add_rule(TWO)\n")
    assert program.output("cudaguard.install(); import target; print(order())") == [
        "plug-in imported",
        "other needed target",
    ]


@pytest.mark.parametrize(("word", "is_run"), [("", True), ("0", False)])
def test_plugin_that_lies_beside_a_script(child, word, is_run):
    """Its folder comes first on sys.path, and nobody has installed anything."""
    child.write("planted-1.0.dist-info/METADATA", "Name: planted\nVersion: 1.0\n")
    child.write(
        "planted-1.0.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = planted:RULES\n"
    )
    child.write("planted.py", "print('planted runs')\nRULES = []\n")
    child.write("target.py", "")
    script = child.write("train.py", "import cudaguard; cudaguard.install(); import target")
    done = child.command(sys.executable, script, env={"CUDAGUARD_PLUGINS": word})
    assert ("planted runs" in done.stdout) is is_run


@pytest.mark.parametrize(
    ("variable", "configuration", "is_used"),
    [("", "false", False), ("1", "false", True), ("0", "true", False), ("", "true", True)],
)
def test_variable_beats_configuration(program, variable, configuration, is_used):
    add_plugin(program, "plug:RULE")
    path = program.write("c.toml", f"plugins = {configuration}\n")
    code = (
        "cudaguard.install(config=sys.argv[1]); cudaguard.install(); import target; print(order())"
    )
    found = program.output(code, path, env={"CUDAGUARD_PLUGINS": variable})
    assert found == (["plug-in imported", "needed target"] if is_used else ["target"])


def test_plugins_are_not_looked_for_in_off(program):
    add_plugin(program, "plug:RULE")
    assert program.output("cudaguard.install('off'); import target; print(order())") == ["target"]


def test_rule_of_a_plugin_can_be_disabled_by_id(program):
    add_plugin(program, "plug:BOTH")
    assert program.output(
        "cudaguard.install(disable=['PLUG1']); import target; print(order())"
    ) == ["plug-in imported", "other target"]


def test_folder_without_plugins_is_looked_through_once(program):
    program.write("site/other-1.dist-info/entry_points.txt", "[console_scripts]\na = b:c\n")
    code = """
        read, _ = [], sys.path.append("site")
        sys.addaudithook(lambda event, args: event == "open" and read.append(str(args[0])))
        cudaguard.install()
        print(bool(cudaguard.status().woken_by), sum("other-1" in file for file in read))
        """
    assert program.output(code) == ["True 1"]


def test_plugin_on_a_path_that_is_added_later_is_found_at_the_first_watched_import(program):
    """As by a later .pth file: the first look, at the start, cannot see it."""
    add_plugin(program, "plug:RULE", folder="later/plug-1.0.dist-info")
    program.write("apex.py", "")
    assert program.output(
        """
        sys.path.append("later")
        import apex                         # any watched module
        print("target" in cudaguard.status().watched, "plug" in sys.modules)
        import target
        print(order())
        """,
        env={"CUDAGUARD": "fix"},
    ) == ["True False", "plug-in imported", "needed target"]


@pytest.mark.parametrize("door", [["-m", "cudaguard", "run", "--mode", "fix", "-c"], ["-c"]])
def test_plugin_works_through_the_doors_that_change_no_code(program, door):
    add_plugin(program, "plug:RULE")
    env = {"PYTHONPATH": str(program.folder), **({} if "run" in door else {"CUDAGUARD": "fix"})}
    code = "import target, sys; print('needed' in sys.modules)"
    done = program.child.command(sys.executable, *door, code, env=env)
    assert done.stdout.splitlines() == ["plug-in imported", "True"]


def test_time_limit_that_comes_in_a_plugin_reaches_the_program(program):
    add_plugin(program, "plug:RULE", code="import signal; signal.raise_signal(signal.SIGALRM)")
    assert program.output(
        """
        import signal
        def stop(*_): raise TimeoutError("enough")
        signal.signal(signal.SIGALRM, stop)
        cudaguard.install()
        try:
            import target
        except TimeoutError as error:
            print(error, found())
        """
    ) == ["enough "]
