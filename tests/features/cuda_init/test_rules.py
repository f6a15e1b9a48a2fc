"""The built-in rules about memory and variables, each with packages of the versions it is about."""

from __future__ import annotations

import pytest

# What is installed, the rule that is enabled, the program, and the variable that is to be set.
MEMORY = {
    "JAX beside torch": (("jax", "torch"), "CG014", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    "TensorFlow beside torch": (
        ("tensorflow", "torch"), "CG015", "TF_FORCE_GPU_ALLOW_GROWTH", "true"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMORY)
def test_memory_is_not_taken_in_advance_beside_another_library(child, case):
    names, rule, variable, value = MEMORY[case]
    child.distribution(names[0])
    child.write(f"{names[0]}.py", "")
    code = f"import cudaguard, os; cudaguard.install(); import {names[0]}"
    code += f"; print(os.environ.get({variable!r}))"
    assert child.python(code, env={"CUDAGUARD_RULES": f"+{rule}"}).stdout.strip() == "None"
    child.distribution(names[1])
    assert child.python(code).stdout.strip() == "None"
    done = child.python(code, env={"CUDAGUARD_RULES": f"+{rule}"})
    assert (done.stdout.strip(), done.stderr) == (value, "")
    done = child.python(code, env={"CUDAGUARD_RULES": f"+{rule}", variable: "mine"})
    assert done.stdout.strip() == "mine"
