"""Warnings: their category and place, how often, from which process, and the user's filters."""

from __future__ import annotations

import pytest

WARN = "cudaguard.install('warn', rules=[rule()])\n"
HEAD = "ImportOrderWarning: [ORDER1]"


@pytest.fixture
def warned(program):
    """Runs code behind `WARN`."""
    return lambda code, **how: program.run(WARN + code, **how)


def test_warning_points_at_the_users_import_statement(program):
    path = program.write(
        "main.py",
        """
        from scene import *
        cudaguard.install("warn", rules=[rule()])
        def load():
            import target          # line 5
        load()
        """,
    )
    done = program.child.command(*program.python, path)
    assert f"{path}:5: {HEAD} target was imported before needed." in done.stderr
    assert "  import target          # line 5\n" in done.stderr


def test_warning_points_at_the_module_that_imports_and_not_at_the_machinery(warned, program):
    program.write("between.py", "import importlib\n\nimportlib.import_module('target')\n")
    done = warned("import between")
    assert f"{program.folder / 'between.py'}:3: {HEAD}" in done.stderr


def test_too_late_points_at_the_call_of_install(program):
    path = program.write(
        "main.py", "from scene import *\nimport target\n\ncudaguard.install(rules=[rule()])\n"
    )
    done = program.child.command(*program.python, path)
    assert f"{path}:4: ImportOrderWarning: [CG802]" in done.stderr


def test_scope_warning_points_at_the_load(program):
    path = program.write(
        "main.py",
        """
        from scene import *
        import ctypes
        scope = rule(needs=(), actions=({"load_local": "libanl.so*"},))
        cudaguard.install("warn", rules=[scope])
        ctypes.CDLL("libanl.so.1", mode=ctypes.RTLD_GLOBAL)
        ctypes.cdll.LoadLibrary("libanl.so.1")
        """,
    )
    done = program.child.command(*program.python, path)
    assert (
        f"{path}:6: SymbolScopeWarning: [ORDER1] The program exposes libanl.so.1 to every "
        in done.stderr
    )
    assert done.stderr.count("SymbolScopeWarning") == 1


def test_finding_is_warned_of_once_per_process(warned):
    done = warned("""
import warnings
warnings.simplefilter("always")
for _ in range(3):
    import target
    del sys.modules["target"]
cudaguard.uninstall()
cudaguard.install("warn")
import target
print(found())
""")
    assert done.stdout.split() == ["ORDER1"]
    assert done.stderr.count("[ORDER1]") == 1


def test_every_finding_gets_its_own_warning_in_spite_of_the_default_filter(program):
    # The default action shows one text per place; two findings at one line are two texts.
    done = program.run(
        "cudaguard.install('warn', rules=[rule(), rule('TWO', needs=('other',))]); import target"
    )
    assert done.stderr.count("[ORDER1]") == done.stderr.count("[TWO]") == 1


def test_warning_can_be_caught_and_has_the_documented_classes(program):
    assert program.output(
        WARN
        + """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import target
(one,) = caught
print(one.category is cudaguard.ImportOrderWarning)
print([c.__module__ + "." + c.__name__ for c in one.category.__mro__[:3]])
"""
    ) == [
        "True",
        "['cudaguard.ImportOrderWarning', 'cudaguard.CudaGuardWarning', 'builtins.UserWarning']",
    ]


@pytest.mark.parametrize(
    "filters",
    [
        "warnings.simplefilter('ignore')",
        "warnings.filterwarnings('ignore', category=cudaguard.CudaGuardWarning)",
        "warnings.filterwarnings('ignore', category=cudaguard.ImportOrderWarning)",
        "warnings.filterwarnings('ignore', message=r'\\[ORDER1\\]')",
        "warnings.filterwarnings('ignore', module='__main__')",
    ],
)
def test_users_filters_silence_the_warning_but_not_the_finding(program, filters):
    assert program.output(
        WARN + f"import warnings; {filters}\nimport target\nprint(order(), found())"
    ) == ["target ORDER1"]


# --- filters that make errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    "filters",
    [
        "warnings.simplefilter('error')",
        "warnings.simplefilter('error', UserWarning)",
        "warnings.simplefilter('error', Warning)",
        "warnings.filterwarnings('error', message='.*ORDER1')",
        "for c in (cudaguard.SymbolScopeWarning, UserWarning): warnings.simplefilter('error', c)",
    ],
)
def test_general_error_filter_does_not_break_the_import_and_the_text_is_printed(warned, filters):
    done = warned(f"import warnings\n{filters}\nimport target\nprint(order(), found())")
    assert done.stdout.splitlines() == ["target ORDER1"]
    assert HEAD in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flags", [("-W", "error"), ("-W", "error::UserWarning")], ids=" ".join)
def test_interpreter_option_for_errors_does_not_break_the_import(warned, flags):
    done = warned("import target\nprint(order(), found())", flags=flags)
    assert done.stdout.splitlines() == ["target ORDER1"]
    assert HEAD in done.stderr


@pytest.mark.parametrize("category", ["CudaGuardWarning", "ImportOrderWarning"])
@pytest.mark.parametrize("mode", ["warn", "fix"])
def test_error_filter_that_names_our_category_breaks_the_import(program, category, mode):
    program.write("needed.py", "raise RuntimeError('boom')\n")
    done = program.run(
        f"""
        import warnings
        warnings.filterwarnings("error", category=cudaguard.{category})
        cudaguard.install({mode!r}, rules=[rule()])
        try:
            import target
        except cudaguard.ImportOrderWarning as warning:
            print("raised", str(warning).splitlines()[0])
        print(order())
        import target
        print(order())
        """
    )
    expected = {"warn": "[ORDER1] target was imported", "fix": "[CG801] needed could not"}
    first, second, third = done.stdout.splitlines()
    assert first.startswith(f"raised {expected[mode]}")
    assert (second, third) == ("", "target")


def test_error_filter_for_another_category_of_ours_is_not_meant(warned):
    done = warned("""
import warnings
warnings.filterwarnings("error", category=cudaguard.SymbolScopeWarning)
import target
print(order())
""")
    assert done.stdout.splitlines() == ["target"]
    assert HEAD in done.stderr


@pytest.mark.parametrize(
    "sabotage", ["def show(*a, **k): raise OSError('closed')", "show = None", "show = 3"]
)
def test_replaced_showwarning_that_fails_does_not_break_the_import(warned, sabotage):
    code = f"import warnings\n{sabotage}\nwarnings.showwarning = show\n"
    done = warned(code + "import target\nprint(order())")
    assert done.stdout.splitlines() == ["target"]


@pytest.mark.parametrize("stream", ["None", "__import__('io').StringIO()"])
def test_program_without_a_usable_stderr_is_not_disturbed(warned, stream):
    done = warned(f"""
import warnings
warnings.simplefilter("error")
sys.stderr = {stream}
if sys.stderr is not None:
    sys.stderr.close()
import target
print(order())
""")
    assert done.stdout.splitlines() == ["target"]


# --- who speaks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "speaks"),
    [
        ({}, True), ({"LOCAL_RANK": "0"}, True), ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "7", "SLURM_LOCALID": "0"}, False),
        ({"LOCAL_RANK": "0", "SLURM_LOCALID": "5"}, True),
        ({"LOCAL_RANK": "", "SLURM_LOCALID": "5"}, False), ({"LOCAL_RANK": "first"}, True),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, False), ({"MPI_LOCALRANKID": "3"}, False),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "1"}, False),
        ({"PALS_LOCAL_RANKID": "1", "SLURM_LOCALID": "0"}, False),
        ({"FLUX_TASK_LOCAL_ID": "1"}, False), ({"JSM_NAMESPACE_LOCAL_RANK": "1"}, False),
        ({"RANK": "3"}, True),
    ],
    ids=str,
)  # fmt: skip
def test_only_local_rank_0_warns_and_the_others_log(program, env, speaks):
    done = program.run(
        "import logging; logging.basicConfig(stream=sys.stdout, format='%(levelname)s %(message)s')"
        "\n" + WARN + "import target; print(found())",
        env=env,
    )
    assert (HEAD in done.stderr) == speaks
    logged = done.stdout.startswith("WARNING [ORDER1] target was imported before needed.")
    assert logged != speaks
    assert done.stdout.splitlines()[-1] == "ORDER1"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_multiprocessing_does_not_warn(program, method):
    path = program.write(
        "main.py",
        f"""
        from scene import *
        import multiprocessing
        cudaguard.install("warn", rules=[rule()])

        def work():
            import target
            print("child", found(), flush=True)

        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            process = context.Process(target=work)
            process.start()
            process.join()
            import target
            print("parent", found())
        """,
    )
    done = program.child.command(*program.python, path)
    assert done.stdout.splitlines() == ["child ORDER1", "parent ORDER1"]
    assert done.stderr.count(HEAD) == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_of_multiprocessing_guarded_from_its_start_does_not_warn(program, method):
    # The main module imports the target before multiprocessing has finished its own start-up.
    path = program.write(
        "main.py",
        f"""
        import multiprocessing
        import target
        def work():
            import cudaguard
            print([f.id for f in cudaguard.status().findings], flush=True)
        if __name__ == "__main__":
            process = multiprocessing.get_context({method!r}).Process(target=work)
            process.start()
            process.join()
        """,
    )
    env = {"CUDAGUARD": "warn", "CUDAGUARD_CONFIG": program.config("warn")}
    done = program.child.command(*program.python, path, env=env)
    assert done.stdout.splitlines() == ["['FILE1']"]
    assert done.stderr.count("[FILE1]") == 1


def test_program_on_the_command_line_that_uses_multiprocessing_is_a_main_process(program):
    done = program.run(
        "from multiprocessing import Pool\n" + WARN + "import target\nprint(found())"
    )
    assert done.stdout.split() == ["ORDER1"]
    assert HEAD in done.stderr
