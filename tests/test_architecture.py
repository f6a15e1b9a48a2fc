"""The shape of the package: imports point downwards only, and the core stays the core.

The checks take the folder of a package, so that the last test can plant faults and see each
check fail.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

import cudaguard

PACKAGE = Path(cudaguard.__file__).parent

# A part of the package -> its level; a module imports only from levels below its own, or from
# its own part.
LEVELS = {
    "calls": -2,
    "files": -1,
    "text": -1,
    "errors": 0,
    "model": 0,
    "array_interface": 1,
    "checks": 1,
    "config": 1,
    "devices": 1,
    "extensions": 1,
    "gpus": 1,
    "rules": 2,
    "policy": 3,
    "probe": 3,
    "layers": 3,
    "hook": 4,
    "actions": 4,
    "report": 4,
    "repairs": 5,
    "detectors": 6,
    "loads": 7,
    "slots": 8,
    "engine": 9,
    "hindsight": 10,
    "activation": 11,
    "wiring": 12,
    "arrays": 13,
    "graphs": 13,
    "known": 13,
    "doctor": 13,
    "cli": 14,
    "_ipython": 14,
    "_pytest": 14,
    "_rapids": 14,
    "__init__": 15,
    "__main__": 15,
}
VOCABULARY = (
    "calls", "errors", "files", "text", "model", "config", "extensions", "checks", "gpus",
)  # fmt: skip
ALLOWED = {("cli", "__init__"): "the command line tells the version"}
# Programs and start-up files that lie in the package but are never imported as a part of it.
SCRIPTS = ("_bisect", "_demo", "_reproducers", "_site")
# A front end is loaded by its host, which is there then.
HOSTS = {"_pytest": "pytest"}
DEPENDENCIES = {"importlib_metadata", "packaging", "tomli", "tomllib", "wrapt", "pynvml"}
LONGEST = 350  # lines


class Import(NamedTuple):
    """One import of one module."""

    target: str
    line: int
    at_top: bool  # executed when the module is imported
    for_types: bool  # under `if TYPE_CHECKING:`


class Module:
    """A parsed module of the package."""

    def __init__(self, folder: Path, path: Path) -> None:
        parts = path.relative_to(folder).with_suffix("").parts
        self.path = path
        self.part = parts[0]
        self.name = ".".join(part for part in parts if part != "__init__") or "__init__"
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        found: list[Import] = []

        def walk(node: ast.AST, at_top: bool, for_types: bool) -> None:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = "cudaguard" if node.level else node.module or ""
                names = [
                    f"{base}.{alias.name}" if base.startswith("cudaguard") else base
                    for alias in node.names
                ]
            else:
                names = []
            found.extend(Import(name, getattr(node, "lineno", 0), at_top, for_types)
                         for name in names)  # fmt: skip
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                at_top = False
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                negated = isinstance(node.test, ast.UnaryOp)
                for child in node.body:
                    walk(child, at_top, for_types or not negated)
                for child in node.orelse:
                    walk(child, at_top, for_types or negated)
                return
            for child in ast.iter_child_nodes(node):
                walk(child, at_top, for_types)

        walk(self.tree, True, False)
        return found


class Package:
    """All modules below a folder, and the arrows among them."""

    def __init__(self, folder: Path) -> None:
        self.modules = {
            module.name: module
            for path in sorted(folder.rglob("*.py"))
            if not set(path.relative_to(folder).parts) & set(SCRIPTS)
            for module in [Module(folder, path)]
        }

    def resolve(self, target: str) -> str | None:
        """Return the module of ours that `target` names or lies in, None for foreign ones."""
        if target.partition(".")[0] != "cudaguard":
            return None
        inner = target.partition(".")[2]
        while inner and inner not in self.modules:
            inner = inner.rpartition(".")[0]
        return inner or "__init__"

    def arrows(self, module: Module) -> list[tuple[str, Import]]:
        """Return (module imported, import) for all imports of ours in a module."""
        resolved = [(self.resolve(found.target), found) for found in module.imports]
        return [(target, found) for target, found in resolved if target is not None]


def part_of(name: str) -> str:
    return name.partition(".")[0]


def modules_without_a_level(package: Package) -> list[str]:
    return [
        f"{m.name}: {m.part} has no level" for m in package.modules.values() if m.part not in LEVELS
    ]


def upward_arrows(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        for target, found in package.arrows(module)
        if part_of(target) != module.part
        and (module.part, part_of(target)) not in ALLOWED
        and LEVELS.get(part_of(target), 99) >= LEVELS.get(module.part, 99)
    ]


def cycles(package: Package) -> list[str]:
    graph = {
        name: {t for t, _ in package.arrows(m) if t not in (name, "__init__")}
        for name, m in package.modules.items()
    }
    found, done = [], set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            found.append(" -> ".join((*trail[trail.index(name) :], name)))
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    return found


def standard_library() -> set[str]:
    names = getattr(sys, "stdlib_module_names", None)
    if names is None:  # Python 3.9
        folder = Path(sysconfig.get_path("stdlib"))
        files = [*folder.iterdir(), *(folder / "lib-dynload").iterdir()]
        names = {file.name.partition(".")[0] for file in files} | set(sys.builtin_module_names)
    return {*names, "_frozen_importlib", "_frozen_importlib_external", "cudaguard"}


def third_party_imports(package: Package) -> list[str]:
    standard = standard_library()
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in package.modules.values()
        for found in module.imports
        if not found.for_types
        and part_of(found.target) not in {*standard, HOSTS.get(module.part)}
        and (found.at_top or part_of(found.target) not in DEPENDENCIES)
    ]


def beyond_the_vocabulary(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        if module.part in ("report", "probe")
        for target, found in package.arrows(module)
        if part_of(target) not in (*VOCABULARY, module.part)
    ]


def impure_policy(package: Package) -> list[str]:
    faults = []
    for module in package.modules.values():
        if module.part == "policy":
            faults += [
                f"{module.name}:{found.line} imports {found.target}"
                for found in module.imports
                if part_of(found.target)
                in ("os", "sys", "importlib", "subprocess", "pathlib", "io")
            ]
            for node in ast.walk(module.tree):
                told = isinstance(node, ast.Attribute) and node.attr in ("modules", "environ")
                done = isinstance(node, ast.Name) and node.id in ("open", "print", "__import__")
                # The facts that a caller hands in are what policy is made for.
                if (told and not ast.unparse(node).startswith("facts.")) or done:
                    faults.append(f"{module.name}:{node.lineno} touches {ast.unparse(node)}")
    return faults


def too_long(package: Package) -> list[str]:
    return [
        f"{m.name}: {len(m.text.splitlines())} lines"
        for m in package.modules.values()
        if len(m.text.splitlines()) > LONGEST
    ]


def hook_imports_actions(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        if module.part == "hook"
        for target, found in package.arrows(module)
        if part_of(target) == "actions"
    ]


def calls_that_programs_replace(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in package.modules.values()
        if module.part in ("hook", "detectors", "loads")
        for found in module.imports
        if not found.for_types and part_of(found.target) in ("os", "io")
    ]


CHECKS = [
    modules_without_a_level, upward_arrows, cycles, third_party_imports, beyond_the_vocabulary,
    impure_policy, hook_imports_actions, too_long, calls_that_programs_replace,
]  # fmt: skip


@pytest.fixture(scope="module")
def package():
    return Package(PACKAGE)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package_has_no_such_fault(package, check):
    assert check(package) == []


def test_walker_sees_the_whole_package(package):
    assert {"__init__", "wiring", "hook.loader", "rules.catalog", "cli.run"} <= set(package.modules)
    assert {"activation", "layers", "errors"} <= {
        t for t, _ in package.arrows(package.modules["wiring"])
    }
    assert any(found.target == "packaging.version" or "packaging" in found.target
               for found in package.modules["policy.versions"].imports)  # fmt: skip


OTHER_FILES = (
    "__init__.py",
    "actions/scope.py",
    "config.py",
    "engine.py",
    "hook/__init__.py",
    "hook/loader.py",
    "model.py",
    "policy/__init__.py",
    "rules/catalog.py",
    "wiring.py",
)


@pytest.mark.parametrize(
    ("check", "file", "text"),
    [
        (modules_without_a_level, "extra/new.py", ""),
        (upward_arrows, "model.py", "from cudaguard.config import Settings"),
        (upward_arrows, "hook/x.py", "def f():\n    from cudaguard import wiring"),
        (upward_arrows, "report/x.py", "import cudaguard.hook.loader"),
        (upward_arrows, "engine.py", "import cudaguard"),
        (upward_arrows, "rules/x.py", "if TYPE_CHECKING:\n    import cudaguard.engine"),
        (cycles, "hook/x.py", "from cudaguard.hook.y import z"),
        (third_party_imports, "engine.py", "import numpy"),
        (third_party_imports, "engine.py", "try:\n    import packaging\nfinally:\n    pass"),
        (third_party_imports, "engine.py", "class A:\n    from wrapt import wrap"),
        (third_party_imports, "engine.py", "def f():\n    import torch"),
        (third_party_imports, "engine.py", "def f():\n    import pytest"),
        (third_party_imports, "engine.py", "if not TYPE_CHECKING:\n    import packaging"),
        (beyond_the_vocabulary, "report/x.py", "from cudaguard.rules.catalog import RULES"),
        (beyond_the_vocabulary, "probe/x.py", "def f():\n    from cudaguard import policy"),
        (impure_policy, "policy/x.py", "import os"),
        (impure_policy, "policy/x.py", "def f(sys):\n    return sys.modules"),
        (impure_policy, "policy/x.py", "def f():\n    return open('x')"),
        (hook_imports_actions, "hook/x.py", "def f():\n    from cudaguard.actions.scope import s"),
        (calls_that_programs_replace, "hook/x.py", "import os"),
        (calls_that_programs_replace, "hook/x.py", "def f():\n    from os import stat"),
        (too_long, "engine.py", "\n" * (LONGEST + 1)),
    ],
)  # fmt: skip
def test_each_check_finds_a_planted_fault(tmp_path, check, file, text):
    files = dict.fromkeys(OTHER_FILES, "")
    files["hook/y.py"] = "import cudaguard.hook.x"
    for name, content in {**files, file: text}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert len(check(Package(tmp_path))) == 1
    (tmp_path / file).write_text("", encoding="utf-8")
    assert check(Package(tmp_path)) == [] or check is modules_without_a_level
