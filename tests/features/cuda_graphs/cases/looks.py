"""What is seen of results and of what calls leave behind: ``watch``, ``parked``, torch's errors."""

import gc
import weakref
from collections import deque
from typing import NamedTuple
from unittest.mock import patch

import torch
from graph_tools import Counting, Pool, Replay, findings, raised, warned
from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

import cudaguard
from cudaguard.features.cuda_graphs.repair import kept

ONE, TWO, THREE = (torch.full((4, 4), float(number)) for number in (1, 2, 3))


def place_in(finding):
    """Return where the tensor is that a finding is about: in all wordings its shape follows."""
    return finding.what.partition(" (")[0].rpartition(" ")[2]


def line_of(text):
    """Where this file has a line that ends so."""
    with open(__file__) as file:
        (number,) = (n for n, line in enumerate(file, 1) if line.rstrip().endswith(text))
    return f"{__file__}:{number}"


# --- results that somebody holds ------------------------------------------------------------


def case_watch_names_both_lines():
    watched = cudaguard.graph_safe(Replay(), strategy="watch")
    with warned() as texts:
        first = watched(ONE)  # made here
        watched(TWO)  # overwritten here
        assert texts == []
        for _ in range(3):
            watched(THREE)
    assert torch.equal(first, THREE)  # results are handed out as they are
    made, by = line_of("# made here"), line_of("# overwritten here")
    (text,) = texts
    assert text == (
        f"[CG853] The call at {by} overwrote the result (4, 4) of the call at {made}, which the "
        "program still holds."
    )


def case_watch_through_a_compiled_function():
    compiled = torch.compile(lambda x: {"y": [x * 2]}, backend=Pool())
    watched = cudaguard.graph_safe(compiled, strategy="watch")
    with warned() as texts:
        first = watched(ONE)
        for _ in range(2):
            watched(TWO)
    assert len(texts) == 1
    assert torch.equal(first["y"][0], TWO * 2)


def case_watch_tells_nothing_where_nothing_is_held():
    watched = cudaguard.graph_safe(Replay(), strategy="watch")
    with warned() as texts:
        for x in (ONE, TWO, THREE):
            result = watched(x)
            assert torch.equal(result, x)
            del result
            gc.collect()
    assert texts == []


def case_watch_tells_nothing_of_what_gives_way_to_the_next_result():
    """It is held while the next call is under way, and by nobody after that."""
    watched = cudaguard.graph_safe(Replay(), strategy="watch")
    with warned() as texts:
        result = ONE
        for number in range(6):
            result = watched(result + number)
    assert texts == []


class Recorded:
    """As torch hands out results of a recorded graph: the same object each time, which it holds."""

    def __init__(self):
        self.memory = torch.empty(4, 4)
        torch._C._set_cached_tensors_enabled(True)
        torch._C._add_cached_tensor(self.memory)

    def __call__(self, x):
        self.memory.data.copy_(x)
        return {"one": self.memory, "again": [self.memory]}

    def close(self):
        torch._C._remove_cached_tensor(self.memory)
        torch._C._set_cached_tensors_enabled(False)


def case_watch_where_torch_holds_the_results_itself():
    recorded = Recorded()
    assert recorded(ONE)["one"] is recorded(TWO)["one"]
    watched = cudaguard.graph_safe(recorded, strategy="watch")
    try:
        with warned() as texts:
            for x in (ONE, TWO, THREE, ONE):
                result = watched(x)
        assert texts == []
        assert result["one"] is result["again"][0]
        assert result["one"].data_ptr() == recorded.memory.data_ptr()
        del result
        with warned() as texts:
            first = watched(TWO)
            for x in (THREE, ONE):
                watched(x)
        assert len(texts) == 1
        assert torch.equal(first["one"], ONE)
        with warned() as texts:
            safe = cudaguard.graph_safe(recorded)
            first, second = safe(ONE), safe(TWO)
        assert texts == []
        assert torch.equal(first["one"], ONE)
        assert torch.equal(second["one"], TWO)
    finally:
        recorded.close()


def case_watch_tells_nothing_where_the_values_are_the_same():
    watched = cudaguard.graph_safe(Replay(), strategy="watch")
    unclear = torch.full((4, 4), float("nan"))
    with warned() as texts:
        kept = [watched(unclear), watched(unclear)]
    assert texts == []
    del kept


def case_watch_tells_nothing_where_the_program_has_written():
    watched = cudaguard.graph_safe(lambda x: x * 2, strategy="watch")
    with warned() as texts:
        first = watched(ONE)
        first.add_(1)
        second = watched(ONE)
    assert texts == []
    assert second is not first


def case_watch_of_types_of_elements():
    def run(memory):
        return memory.sum(), memory > 1, memory.bfloat16(), memory.to(torch.complex64), memory[:0]

    watched = cudaguard.graph_safe(run, strategy="watch")
    with warned() as texts:
        kept = [watched(x) for x in (ONE, TWO, ONE)]
    assert texts == []
    del kept
    flags = torch.zeros(3, dtype=torch.bool)

    def flip():
        flags.data.logical_not_()
        return flags.data

    watched = cudaguard.graph_safe(flip, strategy="watch")
    with warned() as texts:
        kept = [watched(), watched(), watched()]
    (text,) = texts
    assert text.startswith("[CG853] The call at ")
    assert " overwrote the result (3,) of " in text
    del kept


def case_watch_with_gradients():
    x = torch.ones(3, requires_grad=True)
    watched = cudaguard.graph_safe(lambda x: x * 2, strategy="watch")
    with warned() as texts:
        (watched(x).sum() + watched(x).sum()).backward()
    assert x.grad.tolist() == [4, 4, 4]
    assert texts == []


# --- what calls leave in a module -----------------------------------------------------------


class PositionEncoding(torch.nn.Module):
    """Keeps what it computes, as SAM2's does."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        key = tuple(x.shape[-2:])
        if key in self.cache:
            return self.cache[key][None] + x * 0
        made = torch.arange(key[0] * key[1]).reshape(1, *key) + x * 0
        self.cache[key] = made[0]
        return made


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.position = PositionEncoding()
        self.cache = {"mine": torch.zeros(1)}  # from before: nothing to tell

    def forward(self, x):
        return x + self.position(x)


def calls(parked, encoder, count=6, backend=None, size=4):
    backend = backend or Counting()
    compiled = torch.compile(encoder.forward, backend=backend, fullgraph=True, dynamic=False)
    if parked != "bare":
        compiled = cudaguard.graph_safe(compiled, stored_tensors=parked)
    results = [compiled(torch.full((1, size, size), float(n))) for n in range(count)]
    return results, len(getattr(backend, "graphs", ()))


def case_parked_tensor_is_told_of_once_and_left():
    expected, compilations = calls("bare", Encoder())
    assert compilations == 2  # the cache is an argument at the second
    encoder = Encoder()
    with warned() as texts:
        results, count = calls("report", encoder)
    (text,) = texts
    assert text == ("[CG852] A compiled call stored PositionEncoding.cache[(4, 4)] (4, 4).")
    assert count == compilations
    assert all(torch.equal(one, other) for one, other in zip(results, expected))


def case_parked_tensor_is_copied():
    expected, compilations = calls("bare", Encoder(), size=5)
    encoder = Encoder()
    with warned() as texts, findings() as found:
        results, count = calls("copy", encoder, size=5)
    assert texts == []  # repaired: not warned of
    (finding,) = found
    assert finding.severity == "info"
    assert finding.what == (
        "cudaguard replaced PositionEncoding.cache[(5, 5)] (5, 5), stored by a compiled call, "
        "with a copy."
    )
    assert count == compilations
    assert all(torch.equal(one, other) for one, other in zip(results, expected))


def case_what_is_copied_is_not_overwritten():
    for parked, is_right in ((None, False), ("copy", True)):
        encoder = Keeps()
        compiled = torch.compile(encoder.forward, backend=Pool())
        safe = cudaguard.graph_safe(compiled, stored_tensors=parked)
        safe(ONE)
        kept = encoder.kept["a"]
        for x in (TWO, THREE, TWO):
            safe(x)
            assert encoder.kept["a"] is kept  # copied once
        assert torch.equal(encoder.kept["a"], ONE * 5) is is_right


class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        self.kept["a"] = self.kept["a"] if "a" in self.kept else x * 5
        return x + 1


class Everywhere(torch.nn.Module):
    """Leaves one tensor in an attribute, one in a list, one in a dictionary."""

    def __init__(self):
        super().__init__()
        self.listed = []
        self.mapped = {}

    def forward(self, x):
        self.last = x * 2
        self.listed.append(x * 3)
        self.mapped["k"] = x * 4
        return x + 1


def case_places_that_are_looked_through():
    for parked in ("report", "copy"):
        module = Everywhere()
        compiled = torch.compile(module.forward, backend=Pool())
        safe = cudaguard.graph_safe(compiled, stored_tensors=parked)
        with findings() as found, cudaguard.guard("observe"):
            safe(ONE)
        what = sorted(map(place_in, found))
        assert what == ["Everywhere.last", "Everywhere.listed[0]", "Everywhere.mapped['k']"]
        assert torch.equal(module.last, TWO)
        assert torch.equal(module.listed[0], THREE)


def case_only_the_first_calls_are_looked_at():
    module = Keeps()

    def run(self, x):
        self.kept[len(self.kept)] = x + 1
        return x

    safe = cudaguard.graph_safe(run.__get__(module), stored_tensors="report")
    with findings() as found, cudaguard.guard("observe"):
        for _ in range(8):
            safe(ONE)
    told = [place_in(f) for f in found]
    assert told == [f"Keeps.kept[{number}]" for number in range(4)]


class Counts(torch.nn.Module):
    """Leaves a tensor on its device, and one on the CPU."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        result = x * 2
        self.kept["half"], self.kept["calls"] = result[:2], torch.ones(1)
        return result


def case_what_lies_on_the_cpu_beside_a_device():
    """No graph writes there. Where all is on the CPU, as in other tests, all is told of."""
    for device, places in (("meta", ["half"]), ("cpu", ["calls", "half"])):
        module = type(f"Counts{device}", (Counts,), {})()
        safe = cudaguard.graph_safe(
            torch.compile(module.forward, backend="eager"), stored_tensors="report"
        )
        with findings() as found, cudaguard.guard("observe"):
            for _ in range(3):
                safe(torch.ones(4, 4, device=device))
        told = sorted(map(place_in, found))
        assert told == [f"Counts{device}.kept[{place!r}]" for place in places]


class Both(NamedTuple):
    first: object
    second: int


class Nested(torch.nn.Module):
    """Leaves tensors in containers within containers, some of which cannot be written to."""

    def __init__(self):
        super().__init__()
        self.cache = {"a": {1: [None, "x"]}}
        self.recent = deque(maxlen=2)
        self.both = Both(None, 1)

    def forward(self, x):
        if self.both.first is None:
            self.cache["a"][1][0] = x * 2
            self.recent.append((x * 3, 7))
            self.both = Both(x * 4, 1)
        return x + 1


def case_parked_in_containers_within_containers():
    for parked in ("report", "copy"):
        module = type(f"Nested{parked}", (Nested,), {})()
        safe = cudaguard.graph_safe(module.forward, stored_tensors=parked)
        inner, recent = module.cache["a"][1], module.recent
        with findings() as found, cudaguard.guard("observe"):
            safe(ONE)
            left = inner[0], recent[0][0], module.both.first
            safe(TWO)
        names = [place_in(finding) for finding in found]
        kind = type(module).__name__
        assert names == [f"{kind}.cache['a'][1][0]", f"{kind}.recent[0][0]", f"{kind}.both[0]"]
        assert [torch.equal(a, ONE * n) for a, n in zip(left, (2, 3, 4))] == [True] * 3
        assert (inner[0], recent[0][0], module.both.first) == left  # copied once
        assert module.cache["a"][1] is inner
        assert module.recent is recent
        assert (type(module.both), module.both.second, recent[0][1]) == (Both, 1, 7)


def case_parked_of_every_form_of_a_module():
    for form in ("method", "module", "in place", "forward"):
        kind = type(f"Form{form.replace(' ', '')}", (Keeps,), {})
        module = kind()
        if form == "method":
            compiled = torch.compile(module.forward, backend="eager")
        elif form == "module":
            compiled = torch.compile(module, backend="eager")
        else:
            compiled = module
            if form == "in place":
                module.compile(backend="eager")
            else:
                module.forward = torch.compile(module.forward, backend="eager")
        safe = cudaguard.graph_safe(compiled, stored_tensors="report")
        with warned() as texts:
            safe(ONE)
        (text,) = texts
        assert f" stored {kind.__name__}.kept['a'] " in text, form


def case_parked_is_told_of_by_itself():
    """A copy of the results does not cure it, and whoever asks for one is to know."""
    for how, told in (({}, 1), ({"strategy": "watch"}, 1), ({"stored_tensors": None}, 0)):
        module = type(f"By{len(how)}{told}", (Keeps,), {})()
        safe = cudaguard.graph_safe(torch.compile(module.forward, backend="eager"), **how)
        with warned() as texts:
            safe(ONE)
        assert len(texts) == told, how
        assert all("[CG852]" in text for text in texts)


def case_what_every_call_leaves_is_copied_every_time():
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = {}

        def forward(self, x):
            self.last = x * 2
            self.seen["one"] = x * 3
            return x + 1

    for parked, is_right in (("copy", True), (None, False)):
        module, held = Last(), []
        safe = cudaguard.graph_safe(
            torch.compile(module.forward, backend=Pool()), stored_tensors=parked
        )
        numbers = range(1, 9)
        for number in numbers:
            safe(ONE * number)
            held.append((module.last, module.seen["one"]))
        right = [
            torch.equal(last, TWO * number) and torch.equal(one, THREE * number)
            for number, (last, one) in zip(numbers, held)
        ]
        assert right == [is_right] * 7 + [True], parked
        module.seen.clear()  # whatever the program does there between calls
        del module.last
        assert torch.equal(safe(ONE), TWO)
        torch._dynamo.reset()


def case_what_the_program_stores_between_calls_is_its_own():
    module = type("Own", (Keeps,), {})()
    safe = cudaguard.graph_safe(
        torch.compile(module.forward, backend="eager"), stored_tensors="copy"
    )
    with findings() as found:
        safe(ONE)
        kept = module.kept["mine"] = ONE * 7
        module.other = module.kept["a"]
        safe(ONE)
    assert len(found) == 1
    assert module.kept["mine"] is kept


def case_buffer_that_a_call_replaces():
    class Average(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4, 4))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.mean = self.mean * 0.5 + x
            self.count.add_(1)  # in its own memory: that is not overwritten
            return x + 1

    for parked, is_right in ((None, False), ("copy", True)):
        torch._dynamo.reset()
        module = Average()
        safe = cudaguard.graph_safe(
            torch.compile(module.forward, backend=Pool()), stored_tensors=parked
        )
        with findings() as found:
            safe(ONE)
            first = module.mean
            safe(TWO)
        assert torch.equal(first, ONE) is is_right
        assert [place_in(f) for f in found] == ["Average.mean"] * is_right
        assert sorted(module.state_dict()) == ["count", "mean"]


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(4, 4)

    def forward(self, x):
        self.state = self.state * 0.5 + x
        return self.state + 1


def recur(count, hold):
    """Return the addresses at which the state of a recurrent module was read, and the results."""
    seen = []

    def looking(graph, inputs):
        names = [node for node in graph.graph.nodes if node.op == "placeholder"]
        states = [
            at for at, node in enumerate(names)
            if node.meta["tensor_dict"].get("_dynamo_static_input_type")
        ]  # fmt: skip
        assert len(states) == 1

        def run(*arguments):
            seen.append(arguments[states[0]].data_ptr())
            return graph.forward(*arguments)

        return run

    torch._dynamo.reset()
    module = Recurrent()
    made = torch.compile(module, backend=looking)
    safe = cudaguard.graph_safe(made, stored_tensors="copy")
    results = []
    for _ in range(count):
        held = hold(module)
        results.append((safe(ONE), module.state.clone()))
    del held
    return seen, results, module


def case_state_of_a_recurrent_module_stays_at_few_addresses():
    expected, state = [], torch.zeros(4, 4)
    for _ in range(300):
        state = state * 0.5 + ONE
        expected.append((state + 1, state))
    with findings() as found:
        seen, results, _ = recur(300, lambda module: None)
    assert len(seen) == 300
    assert len(set(seen)) <= 3
    assert [f.id for f in found] == ["CG852"]
    assert all(torch.equal(a, b) for x, y in zip(results, expected) for a, b in zip(x, y))
    # Red: without keeping one of them, each copy has an address of its own.
    with patch.object(kept, "FRESH", 10**6):
        held = []
        seen, _, _ = recur(40, lambda module: held.append(module.state))
    assert len(set(seen)) == 40


def case_state_that_somebody_holds_is_never_written_over():
    views = {
        "tensor": lambda state: state,
        "view": lambda state: state[1:],
        "storage": lambda state: state.untyped_storage(),
        "numpy": lambda state: state.numpy(),
        "saved by autograd": lambda state: (state * torch.ones(4, 4, requires_grad=True)).sum(),
    }
    for what, view in views.items():
        held, copies = [], []

        def hold(module, view=view, held=held, copies=copies):
            held.append(view(module.state))
            copies.append((module.state.data_ptr(), module.state.clone()))

        with findings() as found:
            seen, results, _ = recur(20, hold)
        assert len(set(seen)) == 20, what
        if what == "tensor":  # it is told once
            (told,) = (f for f in found if f.id == "CG855")
            assert told.what.startswith("Recurrent.state (4, 4) gets a new address at every call")
        for one, (_, copy) in zip(held, copies):
            if what == "tensor":
                assert torch.equal(one, copy)
            elif what == "saved by autograd":
                one.backward()
        del held, results


def case_state_with_gradients_or_of_another_kind_is_copied_anew():
    class Growing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))
            self.state = torch.zeros(1)

        def forward(self, x):
            self.state = x * self.weight
            return x + 1

    module = Growing()
    safe = cudaguard.graph_safe(
        torch.compile(module, backend="eager", dynamic=False), stored_tensors="copy"
    )
    for _ in range(6):
        safe(ONE)
        assert module.state.requires_grad
    module.state.sum().backward()
    assert torch.equal(module.weight.grad, ONE)
    with torch.no_grad():
        for _ in range(6):
            safe(ONE)
            assert not module.state.requires_grad
    with torch.inference_mode():
        for number in range(6):
            safe(ONE * number)
            assert torch.equal(module.state, ONE * number)
    with torch.no_grad():
        for number in range(6):
            safe(ONE.double() * number)
            assert torch.equal(module.state, ONE.double() * number)


def case_parked_of_a_function_that_has_no_module():
    safe = cudaguard.graph_safe(lambda x: x * 2, stored_tensors="copy")
    assert torch.equal(safe(ONE), TWO)


def case_watch_and_parked_together():
    module = Keeps()
    compiled = torch.compile(module.forward, backend=Pool())
    safe = cudaguard.graph_safe(compiled, strategy="watch", stored_tensors="copy")
    with warned() as texts:
        safe(ONE)
        second = safe(TWO)
        safe(THREE)
        safe(THREE)
    assert [text[:7] for text in texts] == ["[CG853]"]
    assert torch.equal(module.kept["a"], ONE * 5)
    del second


# --- torch's own error ----------------------------------------------------------------------

TRACE = 'File "/a/net.py", line 3, in forward\n  y = g(x)\n File "/a/block.py", line 7, in g\n  z'


def failing(text):
    def fail(x):
        raise RuntimeError(text)

    return fail


def case_error_of_torch_is_explained():
    text = CUDAGraphTreeManager.format_dealloc_msg(TRACE)
    error = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE)
    assert str(error) == text
    (note,) = error.__notes__
    assert note.startswith(
        "cudaguard [CG851] A later call of a compiled function with CUDA graphs overwrote a tensor "
        "that g made at /a/block.py:7."
    )
    assert "cudagraph_mark_step_begin() does not help" in note
    outer = cudaguard.graph_safe(cudaguard.graph_safe(lambda x: failing(text)(x)))
    assert len(raised(RuntimeError, outer, ONE).__notes__) == 1


def case_error_about_a_gradient():
    text = CUDAGraphTreeManager.format_dealloc_msg(TRACE, is_grad_output=True)
    (note,) = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE).__notes__
    assert "overwrote a gradient that g made at /a/block.py:7." in note
    assert "zero_grad(set_to_none=True)" in note


def case_error_without_a_trace():
    text = CUDAGraphTreeManager.format_dealloc_msg(None)
    (note,) = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE).__notes__
    assert note.startswith("cudaguard [CG851] A later call of a compiled function")


def case_error_in_sam2_s_position_encoding():
    trace = 'File "/sam2/modeling/position_encoding.py", line 112, in forward\n  pos = x'
    text = CUDAGraphTreeManager.format_dealloc_msg(trace)
    (note,) = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE).__notes__
    assert "enable rule CG028" in note
    assert "stored_tensors='copy'" in note


def case_error_outside_of_a_protected_call():
    """The consumer raises, anywhere: what leaves the block gets the note."""

    class Poisoned(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function is torch.Tensor.shape.__get__:
                return torch.Size([1])
            raise RuntimeError(CUDAGraphTreeManager.format_dealloc_msg(TRACE))

    poisoned = ONE.as_subclass(Poisoned)

    def consume():
        with cudaguard.guard():
            return poisoned + 1

    (note,) = raised(RuntimeError, consume).__notes__
    assert "that g made at /a/block.py:7" in note


def case_error_in_every_mode():
    for mode, notes in (("observe", 0), ("warn", 1), ("fix", 1), ("strict", 1)):
        trace = f'File "/a/{mode}.py", line 1, in f\n  x'
        text = CUDAGraphTreeManager.format_dealloc_msg(trace)
        with warned() as texts, findings() as found, cudaguard.guard(mode):
            error = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE)
        assert len(getattr(error, "__notes__", ())) == notes, mode
        assert str(error) == text
        assert texts == []
        if notes:
            assert [f.id for f in found] == ["CG851"], mode


def case_watch_under_inference_mode_and_on_odd_tensors():
    forms = (
        lambda x: x.to("meta"),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda x: x.to_sparse(),
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.nested.nested_tensor([x, x]),
    )
    for form in forms:
        watched = cudaguard.graph_safe(form, strategy="watch")
        with warned() as texts:
            held = [watched(ONE), watched(TWO)]
        assert len(held) == 2
        assert texts == []
    with torch.inference_mode(), warned() as texts:
        watched = cudaguard.graph_safe(Replay(), strategy="watch")
        held = [watched(ONE), watched(TWO), watched(TWO)]
    assert len(texts) == 1


def case_parked_argument_is_the_caller_s_and_what_was_parked_may_go():
    class Keeper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.made = {}

        def forward(self, x):
            self.last = x
            self.made["once"] = x * 2
            return x + 1

    keeper = Keeper()
    safe = cudaguard.graph_safe(
        torch.compile(keeper.forward, backend="eager"), stored_tensors="copy"
    )
    with findings() as told:
        for _ in range(6):
            safe(ONE)
            assert keeper.last is ONE
    assert {place_in(f) for f in told} == {"Keeper.made['once']"}
    gone = weakref.ref(keeper.made.pop("once"))
    gc.collect()
    assert gone() is None


def case_what_was_left_and_told_of_may_go():
    module = type("Gone", (Keeps,), {})()
    safe = cudaguard.graph_safe(
        torch.compile(module.forward, backend="eager"), stored_tensors="report"
    )
    with warned() as texts:
        for _ in range(6):
            safe(ONE)
    assert len(texts) == 1
    gone = weakref.ref(module.kept.pop("a"))
    gc.collect()
    assert gone() is None


def case_error_that_cannot_say_what_it_is():
    class BadError(RuntimeError):
        def __str__(self):
            raise ValueError("broken")

    def boom(_):
        raise BadError

    raised(BadError, cudaguard.graph_safe(boom), ONE)
