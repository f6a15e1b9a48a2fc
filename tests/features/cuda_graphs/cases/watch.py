"""What ``graph_safe(..., strategy="watch")`` tells, and what is noted on torch's own error."""

import torch
from graph_tools import Replay, raised, warned
from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

import cudaguard

ONE, TWO, THREE = (torch.full((4, 4), float(number)) for number in (1, 2, 3))


def line_of(text):
    """Where this file has a line that ends so."""
    with open(__file__) as file:
        (number,) = (n for n, line in enumerate(file, 1) if line.rstrip().endswith(text))
    return f"{__file__}:{number}"


def watch(function):
    return cudaguard.graph_safe(function, strategy="watch")


def case_both_lines_are_named():
    watched = watch(Replay())
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


def case_nothing_is_told_where_nothing_is_held():
    """A result is held while the next call is under way, and by nobody after that."""
    watched = watch(Replay())
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


def case_torch_holds_the_results_itself():
    recorded = Recorded()
    watched = watch(recorded)
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
    finally:
        recorded.close()


def case_nothing_is_told_where_the_values_are_the_same_or_the_program_has_written():
    unclear = torch.full((4, 4), float("nan"))
    watched, doubled = watch(Replay()), watch(lambda x: x * 2)
    with warned() as texts:
        held = [watched(unclear), watched(unclear), watched(unclear), doubled(ONE)]
        held[-1].add_(1)
        doubled(ONE), doubled(ONE)
    assert texts == []


def case_odd_tensors_and_gradients():
    forms = (
        lambda x: x.to("meta"),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda x: x.to_sparse(),
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.nested.nested_tensor([x, x]),
        lambda x: (x.sum(), x > 1, x.bfloat16(), x[:0]),
    )
    for form in forms:
        watched = watch(form)
        with warned() as texts:
            held = [watched(ONE), watched(TWO), watched(TWO)]
        assert len(held) == 3
        assert texts == []
    with torch.inference_mode(), warned() as texts:
        watched = watch(Replay())
        held = [watched(ONE), watched(TWO), watched(TWO)]
    assert len(texts) == 1
    x = torch.ones(3, requires_grad=True)
    watched = watch(lambda x: x * 2)
    (watched(x).sum() + watched(x).sum()).backward()
    assert x.grad.tolist() == [4, 4, 4]


# --- torch's own error ----------------------------------------------------------------------

TRACE = 'File "/a/net.py", line 3, in forward\n  y = g(x)\n File "/a/block.py", line 7, in g\n  z'


def failing(text):
    def fail(x):
        raise RuntimeError(text)

    return fail


def case_error_of_torch_is_explained():
    text = CUDAGraphTreeManager.format_dealloc_msg(TRACE)
    outer = cudaguard.graph_safe(cudaguard.graph_safe(lambda x: failing(text)(x)))
    error = raised(RuntimeError, outer, ONE)
    assert str(error) == text
    (note,) = error.__notes__
    assert note.startswith(
        "cudaguard [CG851] A later call of a compiled function with CUDA graphs overwrote a tensor "
        "that g made at /a/block.py:7."
    )
    text = CUDAGraphTreeManager.format_dealloc_msg(TRACE, is_grad_output=True)
    (note,) = raised(RuntimeError, cudaguard.graph_safe(failing(text)), ONE).__notes__
    assert "overwrote a gradient that g made at /a/block.py:7." in note


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


def case_error_that_cannot_say_what_it_is():
    class BadError(RuntimeError):
        def __str__(self):
            raise ValueError("broken")

    def boom(_):
        raise BadError

    raised(BadError, cudaguard.graph_safe(boom), ONE)
