"""What is noted on torch's own error."""

import torch
from graph_tools import raised
from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

import cudaguard

ONE = torch.ones(4, 4)
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
        "cudaguard [CG851] A later call with CUDA graphs overwrote a tensor "
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
