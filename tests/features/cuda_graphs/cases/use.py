"""Whether a compiled callable uses CUDA graphs, and what made it so.

Run once as it is, and once with TORCHINDUCTOR_CUDAGRAPHS=1, which turns them on by default.
"""

import os

import torch
from graph_tools import raised

import cudaguard
from cudaguard.features.cuda_graphs.repair.use import (
    graph_use,
    how_compiled,
    use_by_arguments,
    without_graphs,
)

BY_DEFAULT = os.environ.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
OPTION = "triton.cudagraphs"
# Arguments of torch.compile, and whether they use graphs.
INDUCTOR = [
    ({}, BY_DEFAULT),
    ({"backend": "inductor"}, BY_DEFAULT),
    ({"mode": "default"}, BY_DEFAULT),
    ({"mode": "reduce-overhead"}, True),
    ({"mode": "max-autotune"}, True),
    # It says nothing of graphs, so that the default decides.
    ({"mode": "max-autotune-no-cudagraphs"}, BY_DEFAULT),
    ({"options": {OPTION: True}}, True),
    ({"options": {OPTION: False}}, False),
    ({"options": {"max_autotune": True}}, BY_DEFAULT),
    ({"name": "mine"}, BY_DEFAULT),
]


def custom(graph, _inputs):
    return graph.forward


def function(x):
    return x + 1


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def forms(keywords):
    """What torch.compile makes of everything that it takes."""
    yield "function", torch.compile(function, **keywords)
    yield "decorator", torch.compile(**keywords)(lambda x: x)
    yield "method", torch.compile(Model().forward, **keywords)
    yield "module", torch.compile(Model(), **keywords)
    module = Model()
    module.compile(**keywords)
    yield "in place", module


def check(keywords, expected):
    for more in ({}, {"fullgraph": True}):
        for form, compiled in forms({**keywords, **more}):
            use = graph_use(compiled)
            assert use.is_used is expected, (keywords, more, form, use)
            # Asked from torch, where it says so.
            ask = getattr(compiled, "get_compiler_config", None)
            if ask is not None and ask() is not None:
                assert ask()[OPTION] is expected, (keywords, more, form)


def case_before_the_guard_has_seen_anything():
    for keywords, expected in INDUCTOR:
        check(keywords, expected)
    check({"backend": "cudagraphs"}, True)
    check({"backend": "eager"}, None)
    check({"backend": custom}, None)
    assert graph_use(function).is_used is None
    assert graph_use(Model()).is_used is None


def case_with_the_arguments_known():
    with cudaguard.guard(enable=["CG027"]):
        for keywords, expected in INDUCTOR:
            check(keywords, expected)
        check({"backend": "cudagraphs"}, True)
        check({"backend": "eager"}, False)
        check({"backend": custom}, None)


def case_what_made_it_so():
    because = [
        ({"mode": "reduce-overhead"}, "mode='reduce-overhead'"),
        ({"options": {OPTION: True}}, "options has triton.cudagraphs=True"),
        ({"backend": "cudagraphs"}, "backend='cudagraphs'"),
        ({}, f"torch._inductor.config.triton.cudagraphs is {BY_DEFAULT}"),
    ]
    for keywords, words in because:
        assert use_by_arguments(keywords).because == words
        with cudaguard.guard(enable=["CG027"]):
            assert graph_use(torch.compile(function, **keywords)).because == words
    unseen = graph_use(torch.compile(function, mode="max-autotune", fullgraph=True))
    assert unseen.because == "its compiler options have triton.cudagraphs=True"


def case_spelling_and_modes_that_torch_does_not_know():
    assert use_by_arguments({"options": {"triton.cudagraphs": 1}}).is_used is True
    assert use_by_arguments({"options": {"max-autotune": True}}).is_used is BY_DEFAULT
    assert use_by_arguments({"mode": "no such mode"}).is_used is None


def case_arguments_that_were_seen_are_kept_as_long_as_the_callable():
    import gc
    import weakref

    with cudaguard.guard(enable=["CG027"]):
        compiled = torch.compile(function, mode="reduce-overhead", dynamic=True)
        assert how_compiled(compiled)["dynamic"] is True
        assert how_compiled(cudaguard.graph_safe(compiled))["mode"] == "reduce-overhead"
        reference = weakref.ref(compiled)
        del compiled
        gc.collect()
        assert reference() is None


def case_without_graphs_there_are_none():
    for keywords, _ in INDUCTOR:
        check(without_graphs(keywords), False)


def case_the_other_arguments_stay():
    keywords = {"mode": "max-autotune", "fullgraph": True, "dynamic": False, "name": "mine"}
    before = dict(keywords)
    changed = without_graphs(keywords)
    assert keywords == before
    assert changed.pop("options") == {
        **torch._inductor.list_mode_options("max-autotune"),
        OPTION: False,
    }
    assert changed == {"fullgraph": True, "dynamic": False, "name": "mine"}
    changed = without_graphs({"options": {"max_autotune": True}})
    assert changed == {"options": {"max_autotune": True, OPTION: False}}
    for other in ({"backend": "eager", "dynamic": True}, {"backend": custom}):
        assert without_graphs(other) == other


def case_strategy_no_graphs_compiles_without():
    with cudaguard.guard(enable=["CG027"]):
        for keywords, expected in INDUCTOR:
            for more in ({}, {"fullgraph": True, "dynamic": False}):
                compiled = torch.compile(function, **keywords, **more)
                safe = cudaguard.graph_safe(compiled, strategy="no-graphs")
                if expected is False:
                    assert safe is compiled
                    continue
                assert graph_use(safe).is_used is False
                kept = how_compiled(safe)
                assert all(kept[name] == value for name, value in more.items())
                assert safe._torchdynamo_orig_callable is function
                mode = keywords.get("mode") or "default"
                for name, value in torch._inductor.list_mode_options(mode).items():
                    assert kept["options"][name] == (False if name == OPTION else value)
                if not more:  # what torch itself says of it
                    assert safe.get_compiler_config()[OPTION] is False


def case_strategy_no_graphs_of_a_method():
    with cudaguard.guard(enable=["CG027"]):
        model = Model()
        compiled = torch.compile(model.forward, mode="max-autotune", fullgraph=True)
        safe = cudaguard.graph_safe(compiled, strategy="no-graphs")
        assert safe._torchdynamo_orig_callable == model.forward
        assert graph_use(safe).is_used is False


def case_strategy_no_graphs_of_a_protected_callable():
    with cudaguard.guard(enable=["CG027"]):
        safe = cudaguard.graph_safe(torch.compile(function, mode="reduce-overhead"))
        made = cudaguard.graph_safe(safe, strategy="no-graphs")
        assert graph_use(made).is_used is False
        assert made._torchdynamo_orig_callable is function


def case_strategy_no_graphs_where_it_cannot_be_done():
    compiled = torch.compile(function, mode="reduce-overhead")
    error = raised(cudaguard.GraphError, cudaguard.graph_safe, compiled, strategy="no-graphs")
    assert "nobody has seen" in str(error)
    with cudaguard.guard(enable=["CG027"]):
        compiled = torch.compile(function, backend="cudagraphs")
        error = raised(cudaguard.GraphError, cudaguard.graph_safe, compiled, strategy="no-graphs")
        assert "backend='cudagraphs' is nothing but CUDA graphs" in str(error)
        assert graph_use(compiled).is_used is True


def case_mode_and_options_together_are_torch_s_own_error():
    both = {"mode": "reduce-overhead", "options": {OPTION: True}}
    text = str(raised(RuntimeError, torch.compile, function, **both))
    rule = cudaguard.Rule(
        id="LOCAL1",
        watch=("torch",),
        actions=({"disable_cuda_graphs": True, "target": "use.function"},),
        grade="opt-in",
        why="It is a test.",
    )
    with cudaguard.guard(rules=[rule], enable=["LOCAL1", "CG027"]):
        assert str(raised(RuntimeError, torch.compile, function, **both)) == text
        unknown = {"mode": "no such mode"}
        guarded = str(raised(RuntimeError, torch.compile, lambda x: x, **unknown))
    assert str(raised(RuntimeError, torch.compile, lambda x: x, **unknown)) == guarded
