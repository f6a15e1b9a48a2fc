"""Runs the same code with and without the guard, in interpreters of their own."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

import pytest

LIMIT = 60  # seconds; a hang must fail, a slow machine must not
ADDRESS = re.compile("0x[0-9a-f]+")
NOTE = "import ran; ran.names.append(__name__)\n"


class Ran(NamedTuple):
    """What a child process left."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Pair:
    """One folder of modules, and code that is run in it under the guard or without it.

    Modules written by `module` append their name to ``ran.names`` each time they are executed.
    """

    # Code that prints what was executed, in order; and the ids of the findings.
    NAMES = "import ran; print(*ran.names)"
    FINDINGS = "for found in cudaguard.status().findings: print(found.id)"

    def __init__(self, child) -> None:
        self.child = child
        child.write("ran.py", "names = []\n")

    def module(self, name: str, code: str = "", after: str = "") -> None:
        """Write a module: `code` runs before its execution is noted, `after` behind that."""
        text = textwrap.dedent(code) + NOTE + textwrap.dedent(after)
        self.child.write(name, text)

    def modules(self, *names: str) -> None:
        """Write modules that do nothing but note their execution."""
        for name in names:
            self.module(name)

    def bare(self, *code: str, **options) -> Ran:
        """Run pieces of code in an interpreter that has never heard of the guard."""
        return self._run(code, options)

    def guarded(
        self,
        *code: str,
        watch: tuple[str, ...] = ("target",),
        needs: tuple[str, ...] = ("prereq",),
        mode: str = "fix",
        proof: str | None = None,
        **options,
    ) -> Ran:
        """Run code behind `install()` with one rule.

        `proof` is code that fails where the guard did not stand in between; by default it
        wants every watched module noticed.
        """
        parts = [
            "import cudaguard, sys",
            f"RULE = cudaguard.Rule(id='LOCAL1', watch={watch!r}, needs={needs!r}, why='test')",
            f"cudaguard.install({mode!r}, rules=[RULE])",
            *code,
        ]
        if proof is None:
            proof = f"""
                arrived = {{e.name for e in cudaguard.status().events if e.kind == "import"}}
                assert arrived >= set({watch!r}), f"past the guard: {{arrived}}"
            """
        parts.append(proof)
        return self._run(parts, options)

    def same(self, *code: str, **options) -> list[str]:
        """Run code both ways; all it prints must be equal but for addresses. Returns the lines."""
        names = ("watch", "needs", "mode", "proof")
        # As many lines in front as under the guard: line numbers must not differ.
        plain = self.bare(
            "pass\n" * 2 + "pass", *code, **{k: v for k, v in options.items() if k not in names}
        )
        watched = self.guarded(*code, **options)
        assert watched.out == plain.out
        assert watched.err == plain.err
        return watched.lines

    def _run(self, parts, options) -> Ran:
        code = "\n".join(textwrap.dedent(part) for part in parts)
        done = self.child.python(code, **{"timeout": LIMIT, **options})
        return Ran(ADDRESS.sub("0x", done.stdout), ADDRESS.sub("0x", done.stderr))


@pytest.fixture
def pair(child) -> Pair:
    """Modules in a folder, run with and without the guard."""
    return Pair(child)
