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


@pytest.fixture
def install(child):
    """Makes stand-ins for packages, which have a name, a version and nothing else."""

    def install(*names):
        for name in names:
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n"
            child.write(f"{name}-2.0.dist-info/METADATA", text)
            child.write(f"{name}.py", "")

    return install


@pytest.mark.parametrize("case", MEMORY)
def test_memory_is_not_taken_in_advance(child, install, case):
    names, rule, variable, value = MEMORY[case]
    install(*names)
    code = f"import cudaguard, os; cudaguard.install(); import {names[0]}"
    code += f"; print(os.environ.get({variable!r}))"
    assert child.python(code).stdout.strip() == "None"
    done = child.python(code, env={"CUDAGUARD_RULES": f"+{rule}"})
    assert (done.stdout.strip(), done.stderr) == (value, "")
    done = child.python(code, env={"CUDAGUARD_RULES": f"+{rule}", variable: "mine"})
    assert done.stdout.strip() == "mine"


def test_memory_of_one_alone_is_its_own(child, install):
    install("jax")
    code = "import cudaguard, os; cudaguard.install(); import jax"
    code += "; print(os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'))"
    assert child.python(code, env={"CUDAGUARD_RULES": "+CG014"}).stdout.strip() == "None"
