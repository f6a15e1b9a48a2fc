"""The built-in orders, each with packages of the versions that its rule is about.

The packages are stand-ins: the one that comes first by mistake ends the process, as the real ones
were reported to do.
"""

from __future__ import annotations

import sys

import pytest

from cudaguard.tools.explain import RULES

# Rule -> what is installed (distribution: version), and the lines of the program.
ORDERS = {
    "CG041": (
        {"unsloth": "2026.10.9", "transformers": "4.57"},
        "from transformers import gymapi\nfrom unsloth import gymapi",
    ),
}
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="these rules are for Linux")


def made_up(child, dists):
    """Install stand-ins: each package notes whether those it must follow were there."""
    for dist, version in dists.items():
        child.distribution(dist, version)
        child.write(f"{dist}/__init__.py", "gymapi = None\n")


def test_every_order_of_the_catalog_is_here():
    assert {rule.id for rule in RULES if rule.needs and "context" not in rule.needs} == set(ORDERS)


@LINUX_ONLY
@pytest.mark.parametrize("id", ORDERS)
def test_order_is_kept_where_the_program_imports_both(child, id):
    dists, lines = ORDERS[id]
    rule = next(rule for rule in RULES if rule.id == id)
    made_up(child, dists)
    for early in rule.watch:  # dies without the others
        order = f"[name for name in sys.modules if name in {rule.needs!r}] != {[*rule.needs]!r}"
        text = f"import sys\nif {order}:\n    sys.exit('crash')\n"
        child.write(f"{early}/__init__.py", f"{text}gymapi = None\n")
    child.write("train.py", f"import cudaguard\ncudaguard.install()\n{lines}\nprint('trained')\n")

    def run(**env):
        done = child.command(sys.executable, "train.py", env=env, check=False)
        return done.stdout.strip(), done.stderr.strip()

    assert run(CUDAGUARD="off") == ("", "crash")
    assert run(CUDAGUARD_RULES=f"-{id}") == ("", "crash")
    assert run() == ("trained", "")
