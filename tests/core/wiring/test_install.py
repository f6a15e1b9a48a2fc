"""`install` and `uninstall`: one handle, one guard, and nothing left behind."""

from __future__ import annotations

import pytest

import cudaguard


def test_second_install_returns_the_same_handle_and_adds_no_second_finder(program):
    assert program.output(
        """
        before = len(sys.meta_path)
        one = cudaguard.install()
        two = cudaguard.install()
        print(one is two, len(sys.meta_path) - before, repr(one))
        """
    ) == ["True 1 <cudaguard.Guard, mode fix>"]


def test_second_install_applies_its_mode_and_keeps_it_when_none_is_given(program):
    assert program.output(
        """
        handle = cudaguard.install("observe")
        print(mode())
        cudaguard.install("warn")
        print(mode(), handle.mode)
        cudaguard.install()
        print(mode())
        """
    ) == ["observe", "warn warn", "warn"]


def test_second_install_adds_rules_to_those_of_the_first(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule("ONE")])
        cudaguard.install(rules=[rule("TWO", needs=("other",))])
        print([r.id for r in cudaguard.active_rules() if not r.id.startswith("CG")])
        import target
        print(order())
        """
    ) == ["['ONE', 'TWO']", "needed other target"]


def test_built_in_rule_can_be_replaced_by_its_id(program):
    assert program.output(
        """
        mine = rule("CG001", watch=("decord",))
        cudaguard.install(rules=[mine])
        print([r for r in cudaguard.active_rules() if r.id == "CG001"] == [mine])
        """
    ) == ["True"]


def test_rule_added_before_install_is_in_force_after_every_install(program):
    assert program.output(
        """
        cudaguard.add_rule(rule("ONE"))
        print(mode(), "target" in cudaguard.status().watched)
        for _ in range(2):
            cudaguard.install()
            print("target" in cudaguard.status().watched)
            cudaguard.uninstall()
        """
    ) == ["off False", "True", "True"]


def test_rule_added_while_the_guard_is_up_is_in_force_at_once(program):
    assert program.output(
        """
        cudaguard.install()
        cudaguard.add_rule(rule())
        import target
        print(order())
        """
    ) == ["needed target"]


def test_active_rules_without_a_guard_are_those_install_would_put_in_force(program):
    path = program.config()
    assert program.output(
        """
        would = cudaguard.active_rules()
        print(mode(), [r.id for r in would if not r.id.startswith("CG")])
        cudaguard.install()
        print(cudaguard.active_rules() == would)
        """,
        env={"CUDAGUARD_CONFIG": path},
    ) == ["off ['FILE1']", "True"]


def test_handle_uninstalls_also_when_the_block_raises_and_lets_the_error_pass(program):
    assert program.output(
        """
        try:
            with cudaguard.install() as handle:
                print(handle is cudaguard.install())
                raise LookupError("mine")
        except LookupError as error:
            print(error, mode())
        """
    ) == ["True", "mine off"]


def test_uninstall_without_a_guard_does_nothing(program):
    assert program.output(
        """
        before = list(sys.meta_path)
        cudaguard.uninstall()
        cudaguard.uninstall()
        print(mode(), sys.meta_path == before)
        """
    ) == ["off True"]


@pytest.mark.parametrize("how", ["cudaguard.uninstall()", "handle.uninstall()"])
def test_uninstall_restores_what_install_has_changed(program, how):
    assert program.output(
        f"""
        import ctypes
        from importlib.machinery import ExtensionFileLoader

        def state():
            return (
                list(sys.meta_path),
                ExtensionFileLoader.__dict__["create_module"],
                ctypes.CDLL.__dict__["__init__"],
                dict(os.environ),
                sys.getdlopenflags(),
                list(sys.path),
                list(sys.path_hooks),
            )

        before = state()
        handle = cudaguard.install(rules=[rule()], children=True)
        during = state()
        print([now != then for now, then in zip(during, before)])
        import target
        {how}
        after = state()
        print([now == then for now, then in zip(after, before)])
        print(all(now is then for now, then in zip(after[1:3], before[1:3])))
        """
    ) == [
        "[True, True, True, True, False, False, False]",
        "[True, True, True, True, True, True, True]",
        "True",
    ]


MODES = "off, observe, warn, fix, strict (or 0, false, no for off; 1, on, true, yes for fix)"


@pytest.mark.parametrize("call", ["install", "guard"])
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "loud"}, "ConfigError", ("unknown mode 'loud'", MODES)),
        ({"mode": ""}, "ConfigError", ("unknown mode ''",)),
        ({"mode": 3}, "ConfigError", ("unknown mode 3",)),
        ({"mode": True}, "ConfigError", ("unknown mode True",)),
        ({"enable": ["CG799"]}, "ConfigError", ("'CG799' is not known", "CG001")),
        ({"enable": ["CG802"]}, "ConfigError", ("is a detector: on, unless it is disabled",)),
        ({"enable": "CG001"}, "ConfigError", ("enable: expected a list of rule ids",)),
        ({"disable": None}, "ConfigError", ("disable: expected a list of rule ids",)),
        ({"disable": ["  "]}, "ConfigError", ("disable: expected a rule id",)),
        ({"enable": ["A "], "disable": [" A"]}, "ConfigError", ("both enabled and disabled",)),
        ({"rules": ["CG001"]}, "RuleError", ("rules: expected a cudaguard.Rule",)),
        ({"rules": "CG001"}, "RuleError", ("rules: expected a list",)),
        ({"rules": None}, "RuleError", ("rules: expected a list",)),
        ({"config": "/no/such/file.toml"}, "ConfigError", ("/no/such/file.toml",)),
        ({"config": 3}, "ConfigError", ("expected the path of a TOML file",)),
    ],
    ids=str,
)
def test_bad_argument_is_refused_before_anything_is_changed(call, arguments, error, words):
    before = cudaguard.status()
    with pytest.raises(getattr(cudaguard, error)) as caught:
        getattr(cudaguard, call)(**arguments)
    for word in words:
        assert word in str(caught.value)
    if "config" not in arguments:
        assert str(caught.value).startswith(f"{call}()")
    assert cudaguard.status() == before
    assert before.mode == "off"
