"""What the cases share."""

import contextlib
import warnings

import torch

from cudaguard.errors import CudaGuardWarning


@contextlib.contextmanager
def warned():
    """The texts of the guard's warnings in the block, their first lines."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    ours = (w.message for w in caught if issubclass(w.category, CudaGuardWarning))
    texts.extend(str(message).splitlines()[0] for message in ours)


class Replay:
    """Stands for a graph: every call writes its results to the same memory, and counts no version.

    Args:
        function: Makes the result from the memory, a tensor like the argument.
    """

    def __init__(self, function=lambda memory: memory):
        self.function = function
        self.memory = None

    def __call__(self, x):
        if self.memory is None:
            self.memory = torch.empty_like(x)
        self.memory.data.copy_(x.data)
        return self.function(self.memory.data)


class Pool:
    """A backend of torch.compile whose graphs all write their results to the same memory."""

    def __init__(self):
        self.memory = {}

    def __call__(self, graph, _inputs):
        def run(*arguments):
            results = graph.forward(*arguments)
            # Counted from the end, so that one more result takes the place of the first.
            return tuple(self.place(n - len(results), r) for n, r in enumerate(results))

        return run

    def place(self, number, result):
        key = number, result.shape, result.dtype
        if key not in self.memory:
            self.memory[key] = torch.empty_like(result)
        self.memory[key].data.copy_(result.data)
        return self.memory[key].data


class Counting:
    """A backend that runs what it is given, and keeps the graphs."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, _inputs):
        self.graphs.append(graph)
        return graph.forward


def raised(kind, function, *arguments, **more):
    """The error that a call raises, which must be of exactly this class."""
    try:
        function(*arguments, **more)
    except BaseException as error:
        if type(error) is kind:
            return error
        raise
    raise AssertionError(f"no {kind.__name__}")
