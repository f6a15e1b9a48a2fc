"""Rules about what torch.compile compiles. torch is imported before the guard is installed."""

import torch
from graph_tools import Pool, raised, warned

import cudaguard
from cudaguard.features.cuda_graphs.functions import uses_graphs

ONE, TWO = torch.ones(2, 2), torch.full((2, 2), 2.0)
COMPILE = torch.compile
GRAPHS = {"mode": "reduce-overhead", "fullgraph": True}


class Encoder(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Small(Encoder):
    pass


class Other(torch.nn.Module):
    def forward(self, x):
        return x * 2


def encode(x):
    return x * 2


class Holder:
    class Inner(Other):
        pass


def guard(*actions, mode="fix", **more):
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
    return cudaguard.guard(mode, rules=rules, enable=[rule.id for rule in rules])


def clone(name):
    return {"clone_outputs": True, "target": f"rules.{name}"}


def no_graphs(name):
    return {"disable_cuda_graphs": True, "target": f"rules.{name}"}


def is_held(compiled):
    first = compiled(ONE)
    compiled(TWO)
    return torch.equal(first, ONE * 2)


def case_torch_compile_is_replaced_by_rule_only_and_put_back():
    with cudaguard.guard():
        assert torch.compile is COMPILE
    with cudaguard.guard(enable=["CG028"]):
        ours = torch.compile
        assert ours.__wrapped__ is COMPILE
        assert (ours.__name__, ours.__doc__) == (COMPILE.__name__, COMPILE.__doc__)
        with guard(clone("encode")):
            assert torch.compile.__wrapped__ is COMPILE  # one layer, not two
    assert torch.compile is COMPILE
    # What somebody has kept of it, as under a later patch, does what the original does.
    assert not is_held(ours(encode, backend=Pool()))


def case_clone_by_class():
    for kind in (Encoder, Small):
        for name in ("Encoder", "Small"):
            torch._dynamo.reset()  # it gives up on code that is compiled too often
            with guard(clone(name)):
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
    with guard(clone("encode"), clone("Holder.Inner")):
        assert is_held(torch.compile(encode, backend=Pool()))
        assert is_held(torch.compile(backend=Pool())(encode))
        assert is_held(torch.compiler.compile(encode, backend=Pool()))
        assert is_held(torch.compile(Holder.Inner(), backend=Pool()))
        assert not is_held(torch.compile(Other(), backend=Pool()))
        assert not is_held(torch.compile(lambda x: x * 2, backend=Pool()))


def case_no_graphs_by_rule():
    before = len(cudaguard.status().events)
    with guard(no_graphs("Encoder")):
        for model in (Encoder(), Small().forward):
            assert uses_graphs(torch.compile(model, **GRAPHS)) is False
        assert uses_graphs(torch.compile(Other(), **GRAPHS)) is True
        # Where there are none, or nothing else, it stays as it is, and nothing is told.
        for keywords in ({}, {"backend": "eager"}, {"backend": "cudagraphs"}):
            expected = uses_graphs(COMPILE(Encoder(), **keywords))
            assert uses_graphs(torch.compile(Encoder(), **keywords)) is expected
    events = cudaguard.status().events[before:]
    names = [event.name for event in events if event.kind == "repair"]
    assert names == ["rules.Encoder", "rules.Small"]


def case_arguments_pass_and_wrong_ones_are_torch_s_own_errors():
    seen = []
    bad = [((encode, 1), {}), ((encode,), {"no_such": 1}), ((3,), {"mode": "max-autotune"})]

    def errors():
        for arguments, keywords in bad:
            try:
                torch.compile(*arguments, **keywords)
            except Exception as error:
                yield type(error), str(error)

    plain = list(errors())
    assert plain
    with guard(clone("encode"), no_graphs("encode")):
        assert list(errors()) == plain
    torch.compile = lambda model=None, **keywords: seen.append(keywords) or model
    try:
        with guard(clone("encode")):
            torch.compile(encode, mode="max-autotune", name="mine")
            torch.compile(backend="eager", unknown=1)
            torch.compile(model=Other(), dynamic=None)
    finally:
        torch.compile = COMPILE
    assert seen == [
        {"mode": "max-autotune", "name": "mine"},
        {"backend": "eager", "unknown": 1},
        {"dynamic": None},
    ]


def case_modes_of_the_guard():
    for mode in ("observe", "warn", "fix", "strict"):
        torch._dynamo.reset()
        repairs = mode in ("fix", "strict")
        with guard(clone("Encoder"), mode=mode):
            assert is_held(torch.compile(Encoder(), backend=Pool())) is repairs
        with guard(no_graphs("Encoder"), mode=mode):
            assert uses_graphs(torch.compile(Encoder().forward, **GRAPHS)) is not repairs
    with guard(clone("Encoder"), mode="off"):
        assert torch.compile is COMPILE


def case_rule_whose_condition_does_not_hold():
    """Also where another rule has torch.compile seen."""
    with guard(clone("Encoder"), when={"env": {"NO_SUCH_VARIABLE": True}}):
        for enable in ((), ("CG028",)):
            with cudaguard.guard(enable=enable):
                assert not is_held(torch.compile(Encoder(), backend=Pool()))


def case_compiled_for_real_by_inductor():
    """The C++ compiler is needed here; everything else runs on other backends."""

    def run(x, y):
        z = torch.nn.functional.gelu(x @ y)
        return {"z": z, "sum": z.sum(dim=0), "again": z}

    x, y = torch.randn(8, 8), torch.randn(8, 8)
    expected = run(x, y)
    safe = cudaguard.graph_safe(torch.compile(run, mode="reduce-overhead"))
    with guard(no_graphs("encode")):
        by_rule = torch.compile(encode, mode="reduce-overhead")
        assert uses_graphs(by_rule) is False
        assert torch.equal(by_rule(ONE), TWO)
    first, second = safe(x, y), safe(x * 2, y)
    for name, value in expected.items():
        assert torch.allclose(first[name], value, atol=1e-5), name
    assert first["z"] is first["again"]
    assert not torch.allclose(second["z"], first["z"])


def case_the_program_is_told_of_nothing_and_its_errors_are_its_own():
    def fail(x):
        raise ValueError("mine")

    fail.__module__, fail.__qualname__ = "rules", "encode"
    before = len(cudaguard.status().findings)
    with warned() as texts, guard(clone("Other"), clone("encode"), no_graphs("Encoder")):
        compiled = torch.compile(Other(), backend=Pool())
        assert is_held(compiled)
        torch.compile(Encoder(), mode="reduce-overhead")
        assert str(raised(ValueError, torch.compile(fail, backend="eager"), ONE)) == "mine"
    assert texts == []
    assert len(cudaguard.status().findings) == before
