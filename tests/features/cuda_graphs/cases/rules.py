"""Rules about what torch.compile compiles. torch is imported before the guard is installed."""

import copy
import functools

import torch
from graph_tools import Pool, Replay, findings, raised, warned

import cudaguard
from cudaguard.features.cuda_graphs.repair.use import graph_use, how_compiled

ONE, TWO = torch.ones(2, 2), torch.full((2, 2), 2.0)
COMPILE = torch.compile


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        if "first" not in self.cache:
            self.cache["first"] = x * 3
        return x * 2 + self.cache["first"] * 0


class Small(Encoder):
    pass


class Keeper(Encoder):
    pass


class Other(torch.nn.Module):
    def forward(self, x):
        return x * 2


def encode(x):
    return x * 2


class Holder:
    class Inner(Other):
        pass


def guard(*actions, mode="fix", enable=(), **more):
    rules = [
        cudaguard.Rule(
            id=f"LOCAL{number}",
            watch=("torch",),
            actions=(action,),
            grade="opt-in",
            why="It is a test.",
            **more,
        )
        for number, action in enumerate(actions)
    ]
    return cudaguard.guard(mode, rules=rules, enable=[*enable, *(rule.id for rule in rules)])


def is_held(compiled):
    with warned():  # of what the encoder keeps
        compiled(ONE)
    first = compiled(ONE)
    compiled(TWO)
    return torch.equal(first, ONE * 2)


def case_without_a_rule_nothing_is_replaced():
    with cudaguard.guard():
        assert torch.compile is COMPILE


def case_torch_compile_is_put_back():
    with cudaguard.guard(enable=["CG027"]):
        ours = torch.compile
        assert ours is not COMPILE
        assert ours.__wrapped__ is COMPILE
        assert (ours.__name__, ours.__doc__) == (COMPILE.__name__, COMPILE.__doc__)
        with cudaguard.guard(enable=["CG028"]):
            assert torch.compile.__wrapped__ is COMPILE  # one layer, not two
    assert torch.compile is COMPILE
    guard = cudaguard.install(enable=["CG027"])
    assert torch.compile is not COMPILE
    guard.uninstall()
    assert torch.compile is COMPILE
    # A copy that somebody has kept does what the original does.
    compiled = ours(encode, mode="reduce-overhead", fullgraph=True)
    assert torch.equal(ours(encode, backend="eager")(ONE), TWO)
    assert how_compiled(compiled) is None


def case_a_later_patch_over_ours_stays():
    calls = []
    with guard({"disable_cuda_graphs": True, "target": "rules.encode"}):
        ours = torch.compile

        @functools.wraps(ours)
        def patched(model=None, **keywords):
            calls.append(sorted(keywords))
            return ours(model, **keywords)

        torch.compile = patched
        compiled = torch.compile(encode, mode="reduce-overhead")
        assert graph_use(compiled).is_used is False
    try:
        assert torch.compile is patched
        compiled = torch.compile(encode, mode="reduce-overhead")
        assert compiled.get_compiler_config()["triton.cudagraphs"] is True
        assert calls == [["mode"], ["mode"]]
    finally:
        torch.compile = COMPILE


def case_clone_by_class():
    for kind in (Encoder, Small):
        for name in ("Encoder", "Small"):
            torch._dynamo.reset()  # it gives up on code that is compiled too often
            with guard({"clone_outputs": True, "target": f"rules.{name}"}):
                module = kind()
                module.compile(backend=Pool())
                forms = [
                    torch.compile(kind().forward, backend=Pool()),
                    torch.compile(kind(), backend=Pool()),
                    torch.compile(backend=Pool())(kind()),
                    module,
                ]
                # A class counts with its sub-classes, not with its bases.
                named = kind is Small or name == "Encoder"
                assert [is_held(form) for form in forms] == [named] * 4, (kind, name)


def case_clone_by_name_of_a_function_or_of_a_class_within():
    with guard(
        {"clone_outputs": True, "target": "rules.encode"},
        {"clone_outputs": True, "target": "rules.Holder.Inner"},
    ):
        assert is_held(torch.compile(encode, backend=Pool()))
        assert is_held(torch.compile(backend=Pool())(encode))
        assert is_held(torch.compiler.compile(encode, backend=Pool()))
        assert is_held(torch.compile(Holder.Inner(), backend=Pool()))
        assert not is_held(torch.compile(Other(), backend=Pool()))
        assert not is_held(torch.compile(lambda x: x * 2, backend=Pool()))


def case_no_graphs_by_rule():
    given = {"mode": "max-autotune", "fullgraph": True, "dynamic": False}
    before = len(cudaguard.status().events)
    with guard({"disable_cuda_graphs": True, "target": "rules.Encoder"}):
        for model in (Encoder(), Small().forward):
            compiled = torch.compile(model, **given)
            assert graph_use(compiled).is_used is False
            kept = how_compiled(compiled)
            assert kept["options"]["max_autotune"] is True
            assert (kept["fullgraph"], kept["dynamic"], kept.get("mode")) == (True, False, None)
        assert (
            torch.compile(Encoder(), mode="reduce-overhead").dynamo_ctx.compiler_config[
                "triton.cudagraphs"
            ]
            is False
        )
        assert (
            torch.compile(Other(), mode="reduce-overhead").dynamo_ctx.compiler_config[
                "triton.cudagraphs"
            ]
            is True
        )
        events = cudaguard.status().events[before:]
        events = [event.name for event in events if event.kind == "repair"]
        assert events == [
            "rules.Encoder",
            "rules.Small",
            "rules.Encoder",
        ]


def case_no_graphs_by_rule_where_there_are_none_or_nothing_else():
    with guard({"disable_cuda_graphs": True, "target": "rules.encode"}):
        for keywords in ({}, {"backend": "eager"}, {"backend": "cudagraphs"}):
            compiled = torch.compile(encode, **keywords)
            assert how_compiled(compiled) == keywords
        assert graph_use(compiled).is_used is True


def case_arguments_that_do_not_concern_us_pass():
    seen = []

    def spy(model=None, **keywords):
        seen.append(keywords)
        return model

    torch.compile = spy
    try:
        with guard({"clone_outputs": True, "target": "rules.encode"}):
            torch.compile(encode, mode="max-autotune", name="mine", recompile_limit=3)
            torch.compile(backend="eager", unknown=1)
            torch.compile(model=Other(), dynamic=None)
    finally:
        torch.compile = COMPILE
    assert seen == [
        {"mode": "max-autotune", "name": "mine", "recompile_limit": 3},
        {"backend": "eager", "unknown": 1},
        {"dynamic": None},
    ]


def case_wrong_arguments_are_torch_s_own_errors():
    bad = [((encode, 1), {}), ((encode,), {"no_such": 1}), ((3,), {"mode": "max-autotune"})]

    def errors():
        for arguments, keywords in bad:
            try:
                torch.compile(*arguments, **keywords)
            except Exception as error:
                yield type(error), str(error)

    plain = list(errors())
    assert plain
    with guard({"clone_outputs": True, "target": "rules.encode"}):
        assert list(errors()) == plain


def case_modes_of_the_guard():
    for mode in ("observe", "warn"):
        for verb in ("clone_outputs", "copy_held_outputs", "disable_cuda_graphs"):
            torch._dynamo.reset()
            with guard({verb: True, "target": "rules.Encoder"}, mode=mode):
                assert not is_held(torch.compile(Encoder(), backend=Pool()))
                compiled = torch.compile(Encoder().forward, mode="reduce-overhead", fullgraph=True)
                assert graph_use(compiled).is_used is True
    for mode in ("fix", "strict"):
        torch._dynamo.reset()
        with guard({"clone_outputs": True, "target": "rules.Encoder"}, mode=mode):
            assert is_held(torch.compile(Encoder(), backend=Pool()))
    with guard({"clone_outputs": True, "target": "rules.Encoder"}, mode="off"):
        assert torch.compile is COMPILE


def case_rule_whose_condition_does_not_hold():
    """Also where another rule has torch.compile seen."""
    when = {"env": {"NO_SUCH_VARIABLE": True}}
    for enable in ((), ("CG027",)):
        with guard({"clone_outputs": True, "target": "rules.Encoder"}, when=when, enable=enable):
            assert (torch.compile is COMPILE) is not bool(enable)
            assert not is_held(torch.compile(Encoder(), backend=Pool()))


def case_stored_tensors_are_copied_by_rule():
    for verb, is_copy in (("copy_held_outputs", True), ("clone_outputs", False)):
        with guard({verb: True, "target": "rules.Encoder"}):
            encoder = Encoder()
            compiled = torch.compile(encoder.forward, backend=Pool())
            assert is_held(compiled)
            assert torch.equal(encoder.cache["first"], ONE * 3) is is_copy


def case_clone_by_rule_tells_of_what_it_does_not_cure():
    with guard({"clone_outputs": True, "target": "rules.Keeper"}):
        compiled = torch.compile(Keeper().forward, backend=Pool())
        with warned() as texts:
            compiled(ONE)
    assert texts == ["[CG852] A compiled call stored Keeper.cache['first'] (2, 2)."]


def case_of_two_rules_the_first_that_names_it_is_taken():
    with guard(
        {"clone_outputs": True, "target": "rules.Other"},
        {"disable_cuda_graphs": True, "target": "rules.Encoder"},
    ):
        compiled = torch.compile(Encoder().forward, mode="reduce-overhead", fullgraph=True)
        assert graph_use(compiled).is_used is False
        assert not hasattr(compiled, "_cudaguard_of")


def case_copies_of_a_module_by_rule():
    with guard({"clone_outputs": True, "target": "rules.Encoder"}):
        module = Encoder()
        module.compile(backend=Pool())
        twin = copy.deepcopy(module)
        assert twin._compiled_call_impl is None
        twin.compile(backend=Pool())
        assert is_held(twin)


def case_compiled_for_real_by_inductor():
    """The C++ compiler is needed here; everything else runs on other backends."""

    def run(x, y):
        z = torch.nn.functional.gelu(x @ y)
        return {"z": z, "sum": z.sum(dim=0), "again": z}

    x, y = torch.randn(8, 8), torch.randn(8, 8)
    expected = run(x, y)
    safe = cudaguard.graph_safe(torch.compile(run, mode="reduce-overhead"))
    with guard({"disable_cuda_graphs": True, "target": "rules.encode"}):
        by_rule = torch.compile(encode, mode="reduce-overhead")
        assert graph_use(by_rule).is_used is False
        assert by_rule.get_compiler_config()["triton.cudagraphs"] is False
        assert torch.equal(by_rule(ONE), TWO)
    first, second = safe(x, y), safe(x * 2, y)
    for name, value in expected.items():
        assert torch.allclose(first[name], value, atol=1e-5), name
    assert first["z"] is first["again"]
    assert not torch.allclose(second["z"], first["z"])


def case_error_of_torch_s_own_is_not_swallowed():
    def fail(x):
        raise ValueError("mine")

    fail.__module__, fail.__qualname__ = "rules", "encode"
    with guard({"clone_outputs": True, "target": "rules.encode"}):
        assert str(raised(ValueError, torch.compile(fail, backend="eager"), ONE)) == "mine"


def case_the_program_is_told_of_nothing():
    actions = (
        {"clone_outputs": True, "target": "rules.Other"},
        {"disable_cuda_graphs": True, "target": "rules.encode"},
    )
    with warned() as texts, findings() as found, guard(*actions):
        compiled = torch.compile(Other(), backend=Pool())
        first, _ = compiled(ONE), compiled(TWO)
        assert torch.equal(first, TWO)
        torch.compile(encode, mode="reduce-overhead")
    assert texts == found == []


def case_replay_stands_for_a_graph():
    """What the other cases rest on: without a rule results are overwritten."""
    assert not is_held(torch.compile(Encoder(), backend=Pool()))
    assert not is_held(torch.compile(encode, backend=Pool()))
    held = (replay := Replay())(ONE)
    replay(TWO)
    assert torch.equal(held, TWO)
