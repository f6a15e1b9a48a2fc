"""Whether a compiled callable uses CUDA graphs, and how it does without.

Run once as it is, and once with TORCHINDUCTOR_CUDAGRAPHS=1, which turns them on by default.
"""

import os

import torch
from graph_tools import raised

import cudaguard
from cudaguard.features.cuda_graphs.functions import disable_graphs, uses_graphs

BY_DEFAULT = os.environ.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
OPTION = "triton.cudagraphs"


def custom(graph, _inputs):
    return graph.forward


# Arguments of torch.compile, and whether they use graphs.
USES = [
    ({}, BY_DEFAULT),
    ({"backend": "inductor"}, BY_DEFAULT),
    ({"mode": "reduce-overhead"}, True),
    ({"mode": "max-autotune"}, True),
    # It says nothing of graphs, so that the default decides.
    ({"mode": "max-autotune-no-cudagraphs"}, BY_DEFAULT),
    ({"options": {OPTION: True}}, True),
    ({"options": {OPTION: False}}, False),
    ({"options": {"max-autotune": True}}, BY_DEFAULT),
]
OTHERS = [
    ({"backend": "cudagraphs"}, True),
    ({"backend": "eager"}, None),
    ({"backend": custom}, None),
]


def function(x):
    return x + 1


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def forms(keywords):
    """What torch.compile makes of everything that it takes."""
    for more in ({}, {"fullgraph": True, "dynamic": False}):
        given = {**keywords, **more}
        yield torch.compile(function, **given)
        yield torch.compile(**given)(lambda x: x)
        yield torch.compile(Model().forward, **given)
        yield torch.compile(Model(), **given)
        module = Model()
        module.compile(**given)
        yield module


def case_it_is_known_of_every_form():
    for keywords, expected in (*USES, *OTHERS):
        for compiled in forms(keywords):
            assert uses_graphs(compiled) is expected, (keywords, compiled)
            assert uses_graphs(cudaguard.graph_safe(compiled)) is expected
    assert uses_graphs(function) is uses_graphs(Model()) is None


def case_they_are_disabled_in_every_form_and_all_else_stays():
    for keywords, _ in USES:
        for compiled in forms(keywords):
            assert disable_graphs(compiled)
            assert uses_graphs(compiled) is False
    for keywords, expected in OTHERS:
        for compiled in forms(keywords):
            assert not disable_graphs(compiled)
            assert uses_graphs(compiled) is expected


def case_compiler_is_given_what_was_asked_for_but_graphs():
    """Also where it has compiled the callable already."""
    from torch._inductor import compile_fx as inductor

    given = []

    def compile_fx(graph, _inputs, config_patches=None, **_):
        given.append(config_patches)
        return graph.forward

    original, inductor.compile_fx = inductor.compile_fx, compile_fx
    try:
        compiled = torch.compile(function, mode="max-autotune", fullgraph=True)
        compiled(torch.ones(1))
        compiled(torch.ones(1))
        assert cudaguard.graph_safe(compiled, strategy="no-graphs") is compiled
        assert compiled(torch.ones(1)) == 2
    finally:
        inductor.compile_fx = original
    expected = torch._inductor.list_mode_options("max-autotune")
    assert given == [expected, {**expected, OPTION: False}]


def case_strategy_no_graphs_where_it_cannot_be_done():
    for backend in ("cudagraphs", custom):
        compiled = torch.compile(function, backend=backend)
        error = raised(cudaguard.GraphError, cudaguard.graph_safe, compiled, strategy="no-graphs")
        assert "mode='max-autotune-no-cudagraphs'" in str(error)
