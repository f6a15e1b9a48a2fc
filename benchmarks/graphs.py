"""What `graph_safe` adds to a compiled callable, in a fresh interpreter, as in ``child.py``.

The callable is really compiled, by a compiler of torch's that adds nothing (backend "eager"), and
returns small tensors of a CPU: what is left is Python. Prints CPU seconds per call, and bytes.
"""

from __future__ import annotations

import sys

from child import in_turns, loop_of, print_all

SIZE = 16


def model(torch):
    """What returns seven tensors, some of which share memory: about what SAM2's encoder returns."""

    class Encoder(torch.nn.Module):
        def forward(self, x):
            parts = [x + number for number in range(4)]
            wide = (x[:1] * 2).expand(SIZE, SIZE)
            return {"features": parts[-1], "levels": parts, "row": parts[0][1], "wide": wide}

    return Encoder().eval()


def by_hand(torch, call):
    """What programs write: a copy of each tensor, of whatever it is a part."""

    def copy(value):
        return value.clone() if isinstance(value, torch.Tensor) else value

    return lambda x: torch.utils._pytree.tree_map(copy, call(x))


def calling():
    """A call by each strategy, beside the bare one; once the first calls are over."""
    import torch

    from cudaguard import graph_safe

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    x = torch.ones(SIZE, SIZE)
    bare = torch.compile(model(torch).forward, backend="eager")
    calls = {"cpu": bare, "again": bare, "by hand": by_hand(torch, bare)}
    calls["clone"] = graph_safe(bare)
    for call in calls.values():
        for _ in range(5):
            call(x)
    loops = {name: loop_of("compiled(x)", compiled=call, x=x) for name, call in calls.items()}
    print_all(in_turns(loops, rounds=10, number=10))
    for name in ("cpu", "by hand", "clone"):
        print("bytes of" if name == "cpu" else f"bytes of {name}", held(torch, calls[name](x)))


def held(torch, result):
    """The bytes of memory that a result keeps alive."""
    tensors = torch.utils._pytree.tree_leaves(result)
    memories = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    return sum(tensor.untyped_storage().nbytes() for tensor in memories.values())


TASKS = (calling,)

if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    {task.__name__: task for task in TASKS}[sys.argv[1]](*sys.argv[2:])
