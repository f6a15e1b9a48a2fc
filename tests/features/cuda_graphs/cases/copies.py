"""What ``graph_safe(..., strategy="clone")`` hands out."""

import collections
import dataclasses
import typing

import torch
from graph_tools import Counting, Pool, Replay, raised, warned

import cudaguard

ONE, TWO = torch.ones(4, 4), torch.full((4, 4), 2.0)


def outputs(function):
    """What a protected call returns, after the memory was written to by another call."""
    call = cudaguard.graph_safe(Replay(function))
    result = call(ONE)
    call(TWO)
    return result


def case_a_held_result_is_overwritten_without_it_and_not_with_it():
    bare = Replay()
    held = bare(ONE)
    bare(TWO)
    assert held._version == 0  # nothing is counted, as by a graph
    assert torch.equal(held, TWO)
    assert torch.equal(outputs(lambda memory: memory), ONE)


def case_results_of_a_really_compiled_function():
    def double(x):
        return {"double": x * 2, "sums": [x + 1, x.sum()]}

    bare = torch.compile(double, backend=Pool())
    inputs = [torch.full((2,), float(number)) for number in range(6)]
    results = [bare(x) for x in inputs]
    assert all(torch.equal(result["double"], results[5]["double"]) for result in results)
    safe = cudaguard.graph_safe(bare)
    for x, result in zip(inputs, [safe(x) for x in inputs]):
        assert torch.equal(result["double"], x * 2)
        assert torch.equal(result["sums"][0], x + 1)
        assert torch.equal(result["sums"][1], x.sum())


# --- tensors ----------------------------------------------------------------------------------


def case_arguments_and_parameters_are_handed_on_as_they_are():
    layer = torch.nn.Linear(2, 2)
    x, y = torch.ones(2, 2), torch.ones(2)

    def run(x, more):
        return x, x[0], layer.weight, more["y"], x * 2

    result = cudaguard.graph_safe(run)(x, more={"y": y})
    assert result[0] is x
    assert result[1].data_ptr() == x.data_ptr()
    assert result[2] is layer.weight
    assert result[3] is y
    assert torch.equal(result[4], x * 2)


def case_gradients_are_the_same():
    def run(x, w):
        y = torch.relu(x @ w)
        return {"y": y, "again": y, "row": y[1], "sum": (y * y).sum()}

    def gradients(function):
        torch.manual_seed(3)
        x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        result = function(x, w)
        assert result["y"] is result["again"]
        (result["y"].sum() * 3 + result["row"].sum() + result["sum"]).backward()
        return x.grad, w.grad

    plain = gradients(run)
    for function in (run, torch.compile(run, backend="aot_eager")):
        for one, other in zip(plain, gradients(cudaguard.graph_safe(function))):
            assert torch.equal(one, other)


def case_inference_mode_of_the_caller_is_that_of_the_copy():
    def run(x):
        with torch.inference_mode():
            y = x * 2
            return y, y[:1]

    call = cudaguard.graph_safe(run)
    assert not any(tensor.is_inference() for tensor in call(ONE))
    with torch.inference_mode():
        assert all(tensor.is_inference() for tensor in call(ONE))
        assert torch.equal(call(ONE)[0], TWO)


def case_forms_of_tensors():
    """What has no memory of the plain kind is copied all the same, also two of the same memory."""

    class Marked(torch.Tensor):
        pass

    def run(x):
        y = torch.view_as_complex((x * 3).reshape(-1, 2))
        negative = torch.imag((y * 2).conj())
        quantized = torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)
        return (
            *(y.conj(), y[1:].conj(), x.to_sparse(), x.clone().as_subclass(Marked)),
            *(negative, negative[1:]),  # they are marked, like the conjugates, and not computed
            *(quantized, quantized[1:], x.sum(), x.bfloat16() > 0, (x + 1)[:0]),
            torch.empty(2, 3, device="meta"),
        )

    x = torch.rand(4, 4)
    plain, safe = run(x), cudaguard.graph_safe(run)(x)
    for one, other in list(zip(plain, safe))[:-1]:
        assert type(one) is type(other)
        assert (one.dtype, one.layout, one.shape) == (other.dtype, other.layout, other.shape)
        dense = (t.to_dense() if t.is_sparse else t for t in (one, other))
        assert torch.equal(*(t.dequantize() if t.is_quantized else t for t in dense))
    assert (safe[-1].device.type, safe[-1].shape) == ("meta", (2, 3))


# --- containers -------------------------------------------------------------------------------


class Pair(typing.NamedTuple):
    first: object
    second: object


class OwnPair(tuple):
    def __new__(cls, first, second):
        made = super().__new__(cls, (first, second))
        made.note = "kept"
        return made


class Named(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """As the output classes of transformers: a dataclass, and a dictionary of the fields set."""

    loss: object = None
    logits: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        state = super().__reduce__()
        values = tuple(getattr(self, field.name) for field in dataclasses.fields(self))
        return (state[0], values, *state[2:])


@dataclasses.dataclass(frozen=True)
class Frozen:
    tensor: object
    number: int
    unset: object = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True)
class ByHand:
    __slots__ = ("value",)
    value: object


def case_containers_keep_their_classes_and_what_is_not_a_tensor():
    marker = object()
    unchanged = {"none": [marker, None, 3]}

    def make(memory):
        named = Named(b=memory, a=1)
        default = collections.defaultdict(list, t=memory)
        own = OwnPair(memory, [memory])
        return [Pair(memory, marker), (memory, "text"), named, default, unchanged, own]

    pair, plain, named, default, same, own = outputs(make)
    assert type(pair) is Pair
    assert pair.second is marker
    assert plain == (pair.first, "text")
    assert (type(named), list(named), named["a"]) == (Named, ["b", "a"], 1)
    assert type(default) is collections.defaultdict
    assert default.default_factory is list
    assert default["t"] is named["b"] is own[0] is own[1][0] is pair.first  # one copy
    assert same is unchanged
    assert (type(own), own.note) == (OwnPair, "kept")
    assert torch.equal(pair.first, ONE)


def case_containers_of_the_callable_itself_are_not_written_to():
    kept = {}

    def run(x):
        kept["x"] = [x * 2]
        return kept

    result = cudaguard.graph_safe(run)(ONE)
    assert result["x"] is not kept["x"]
    assert result["x"][0] is not kept["x"][0]
    frozen = Frozen(ONE * 2, 1)
    before = frozen.tensor
    assert cudaguard.graph_safe(lambda: frozen)().tensor is not before
    assert frozen.tensor is before


def case_output_class_of_transformers():
    result = outputs(lambda memory: Output(loss=memory.sum(), logits=memory))
    assert type(result) is Output
    assert list(result) == ["loss", "logits"]
    assert result.logits is result["logits"]
    assert torch.equal(result.logits, ONE)
    only = outputs(lambda memory: Output(logits=memory))
    assert (list(only), only.loss) == (["logits"], None)


def case_dataclasses():
    nested = outputs(lambda memory: Frozen(Frozen([memory], 1), 3))
    assert (type(nested), nested.number) == (Frozen, 3)
    assert not hasattr(nested, "unset")
    assert torch.equal(nested.tensor.tensor[0], ONE)
    for kind in (dataclasses.make_dataclass("Made", ["value"], frozen=True, slots=True), ByHand):
        result = outputs(kind)
        assert type(result) is kind
        assert torch.equal(result.value, ONE)


def case_result_of_an_operator_with_names():
    result = outputs(lambda memory: torch.return_types.max((memory, memory.long())))
    assert type(result) is torch.return_types.max
    assert torch.equal(result.values, ONE)
    assert torch.equal(result.indices, ONE.long())


def case_containers_that_stand_for_one_another():
    def nest(memory):
        inner = [memory]
        loop = {"inner": inner, "again": inner}
        loop["self"] = loop
        return loop

    made = cudaguard.graph_safe(Replay(nest))(ONE)
    assert made["inner"] is made["again"]


# --- the callable -----------------------------------------------------------------------------


def case_transforms_of_functions():
    def run(x):
        y = x * 2
        return y, y[:1]

    safe = cudaguard.graph_safe(run)
    for one, other in zip(torch.func.vmap(run)(ONE), torch.func.vmap(safe)(ONE)):
        assert torch.equal(one, other)
    assert torch.equal(torch.func.grad(lambda x: safe(x)[0].sum())(ONE), TWO)


def case_nothing_is_added_while_a_caller_is_compiled():
    def add(x):
        return x + 1

    # torch looks through what it has compiled itself, to the function: not so the other one.
    for function in (torch.compile(add, backend="eager"), add):
        inner = cudaguard.graph_safe(function)
        backend = Counting()
        outer = torch.compile(lambda x, inner=inner: inner(x) * 2, backend=backend, fullgraph=True)
        assert torch.equal(outer(ONE), TWO * 2)
        (graph,) = backend.graphs
        called = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        assert len(called) == 2, called  # an addition and a product: no copy


def case_errors_come_out_as_they_are():
    class Own(RuntimeError):
        pass

    error = Own("text", 3)

    def fail(x):
        raise error

    safe = cudaguard.graph_safe(fail)
    assert raised(Own, safe, 1) is error
    assert not hasattr(error, "__notes__")
    assert error.__cause__ is None
    assert str(raised(TypeError, safe, 1, 2)) == str(raised(TypeError, fail, 1, 2))
    for kind in (KeyboardInterrupt, SystemExit):

        def leave(kind=kind):
            raise kind

        raised(kind, cudaguard.graph_safe(leave))


def case_attributes_of_the_compiled_function_stay():
    def encode(x):
        """Encodes."""
        return x + 1

    compiled = torch.compile(encode, mode="reduce-overhead")
    safe = cudaguard.graph_safe(compiled)
    assert safe.__wrapped__ is compiled
    assert safe._torchdynamo_orig_callable is encode
    assert safe.get_compiler_config()["triton.cudagraphs"] is True
    assert (safe.__name__, safe.__doc__) == ("encode", "Encodes.")
    assert cudaguard.graph_safe(safe).__wrapped__ is compiled  # one layer, not two


def case_callable_without_graphs_is_given_back():
    for how in ({}, {"mode": "max-autotune-no-cudagraphs"}, {"options": {"max_autotune": True}}):
        compiled = torch.compile(lambda x: x, **how)
        for strategy in ("clone", "no-graphs"):
            assert cudaguard.graph_safe(compiled, strategy=strategy) is compiled


def case_failure_of_ours_hands_out_the_result():
    """Also where the program's filters make an error of a warning that is not ours."""

    class Stubborn(list):
        problem = TypeError

        def __copy__(self):
            raise self.problem("no copies")

    safe = cudaguard.graph_safe(lambda x: Stubborn([x * 2]))
    with warned() as texts:
        for Stubborn.problem in (TypeError, UserWarning):
            assert type(safe(ONE)) is Stubborn
    (text,) = texts
    assert "[CG807]" in text
