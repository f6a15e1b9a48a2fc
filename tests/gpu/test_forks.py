"""Forks after CUDA was initialized, with a real torch: who is told, how often, and who is not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

IN_TORCH = "import torch\ntorch.cuda.init()"
IN_TORCHS_WORDS = "RuntimeError Cannot re-initialize CUDA in forked subprocess"
WORK = """
def work():
    for _ in range(2):
        attempt(lambda: {touch})  # use
    for finding in found("CG818"):
        print(finding.severity, *finding.evidence)
in_child(work)
print("parent", ids().count("CG818"), torch.ones(3, device="cuda").sum().item())
"""
TOUCHES = ["torch.cuda.init()", "torch.ones(1, device='cuda')", "torch.ones(1).cuda()"]


@pytest.mark.parametrize("touch", TOUCHES)
def test_child_that_uses_torch_is_told_once_with_the_line_of_the_initializer(program, touch):
    program.module("kaolin", IN_TORCH)
    start = "cudaguard.install()\nimport torch\nimport kaolin  # init\n"
    ran = program.run(start + WORK.format(touch=touch))
    (warning,) = ran.warnings
    use = program.where("use")
    assert warning.startswith(f"{use}: ForkWarning: [CG818] torch initializes CUDA at {use} ")
    first, second, finding, parent = ran.out
    assert first.startswith(IN_TORCHS_WORDS)
    assert second == first
    assert finding.startswith("warning in parent process ")
    assert f"kaolin initialized CUDA at {program.where('init')}" in finding
    assert parent == "parent 0 3.0"


def test_initialized_by_torch_in_the_program_itself(program):
    start = "cudaguard.install()\nimport torch\ntorch.cuda.init()  # init\n"
    ran = program.run(start + WORK.format(touch=TOUCHES[1]))
    assert ran.warned == ["CG818"]
    (told,) = [line for line in ran.out if line.startswith("warning in parent process ")]
    assert told.endswith(f": torch initialized CUDA at {program.where('init')}")
    assert ran.out[-1] == "parent 0 3.0"


@pytest.mark.parametrize("order", ["context, torch", "torch, context"])
def test_context_in_advance_and_torch_that_comes_before_or_after(program, order):
    """torch says what is wrong only if it knows of the initialization, which it did not make."""
    lines = {"context": "cudaguard.create_context()  # init", "torch": "import torch"}
    start = "\n".join(lines[word] for word in order.split(", "))
    ran = program.run(
        f"cudaguard.install()\n{start}\n"
        "print(torch.cuda._is_in_bad_fork(), flush=True)\n"
        "in_child(lambda: print(torch.cuda._is_in_bad_fork()))\n" + WORK.format(touch=TOUCHES[1])
    )
    parent_flag, child_flag, first, _, finding, parent = ran.out
    assert (parent_flag, child_flag) == ("False", "True")
    assert ran.warned == ["CG818"]
    assert "ForkWarning: [CG818] torch initializes CUDA at " in ran.err
    assert first.startswith(IN_TORCHS_WORDS)
    assert f"cudaguard initialized CUDA at {program.where('init')}" in finding
    assert parent == "parent 0 3.0"


@pytest.mark.parametrize("mode", ["observe", "warn", "fix", "strict"])
def test_guard_beside_torch_leaves_children_free_to_use_cuda(program, mode):
    """Law 2: had the guard, or its looks, initialized anything, the child would fail."""
    ran = program.run(
        f"""
        import ctypes
        cudaguard.install({mode!r}, context="auto")
        import torch
        driver()
        cudaguard.status()
        print(asked(), found("CG814", "CG815"))
        in_child(lambda: print(torch.ones(4, device="cuda").sum().item(), found("CG818")))
        print(asked(), torch.ones(5, device="cuda").sum().item())
        """
    )
    assert ran.warned == []
    assert ran.out == ["3 []", "4.0 []", "3 5.0"]


LOADER = """
cudaguard.install()
import torch
import kaolin  # init
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        {touch}
        return torch.full((2, 2), number).square(), os.getpid()

if __name__ == "__main__":
    loader = DataLoader(
        Squares(), batch_size=2, num_workers=2, multiprocessing_context={method!r}, pin_memory={pin}
    )
    total, workers = 0, set()
    try:
        for numbers, processes in loader:
            total += int(numbers.to("cuda").sum())
            workers.update(processes.tolist())
    except RuntimeError as error:
        print("RuntimeError", "Cannot re-initialize CUDA in forked" in str(error))
    print(total, len(workers), os.getpid() in workers)
"""
JOURNAL = {"CUDAGUARD_JOURNAL": "journal"}


@pytest.mark.parametrize("pin", [False, True])
def test_forked_workers_that_do_not_use_cuda_are_not_a_word_worth(program, pin):
    program.module("kaolin", IN_TORCH)
    ran = program.run(LOADER.format(touch="pass", method="fork", pin=pin), env=JOURNAL)
    assert ran.out == ["560 2 False"]
    assert ran.warned == []
    assert "cudaguard" not in ran.err
    journal = program.journal()
    assert "CG818" not in [line["name"].split(" ")[0] for line in journal]
    assert [line["kind"] for line in journal].count("fork") == 2


def test_forked_workers_that_use_cuda_are_warned_of_once_where_the_loader_is_used(program):
    program.module("kaolin", IN_TORCH)
    touch = "torch.ones(1, device='cuda')"
    ran = program.run(LOADER.format(touch=touch, method="fork", pin=False), env=JOURNAL)
    assert ran.out == ["RuntimeError True", "0 0 False"]
    assert ran.warned == ["CG818"]
    assert "ForkWarning: [CG818] " in ran.err
    assert f"but kaolin had initialized it at {program.where('init')}." in ran.err
    journal = program.journal()  # the workers have it as well, each of them once
    parent = next(line["pid"] for line in journal if line["kind"] == "fork")
    told = [
        line["pid"]
        for line in journal
        if line["kind"] == "finding" and line["name"].startswith("CG818") and line["pid"] != parent
    ]
    assert told
    assert len(told) == len(set(told))


def test_spawned_workers_may_use_cuda(program):
    program.module("kaolin", IN_TORCH)
    touch = "assert torch.ones(2, device='cuda').sum().item() == 2"
    ran = program.run(LOADER.format(touch=touch, method="spawn", pin=False), env=JOURNAL)
    assert ran.out == ["560 2 False"]
    assert ran.warned == []
    assert "CG818" not in [line["name"].split(" ")[0] for line in program.journal()]
