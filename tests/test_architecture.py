"""The shape of the package: imports point downwards only, the core stays the core, and size falls.

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

# The floors of the house, from below; a module imports only from its own floor or from below.
FLOORS = ("ground", "elf", "system", "hooks", "core", "features", "api", "tools")
GROUND = {"config", "errors", "files", "model"}
FACE = {
    "__init__": "tools", "__main__": "tools",  # the first names everything, lazily
    "kernel": "hooks",  # what is there first
}  # fmt: skip
# Programs and start-up files that lie in the package but are never imported as a part of it.
SCRIPTS = ("_bisect", "_site")
# A front end is loaded by its host, which is there then.
HOSTS = {"tools.pytest": "pytest"}
DEPENDENCIES = {"importlib_metadata", "packaging", "tomli", "tomllib", "wrapt", "pynvml"}
LONGEST = 700  # lines; a file is split when it has two subjects, never because it is long
GENERATED = "features._index"
# The ratchet. These only fall: whoever removes something lowers them to what is left, and what is
# added has to make as much needless (see CONTRIBUTING.md).
CEILINGS = {
    "lines of the package": 32812,
    "modules of the package": 159,
    "lines of data in the package": 3231,
    "lines of the tests": 44168,
    "lines loaded by install()": 649,
    "lines loaded by install(); import ctypes": 1228,
}
# Public names that several modules have: each declares the same, or it is one thing on two floors.
SHARED = {
    "CATEGORY", "DETECTORS", "EXPLAINER", "INITIALIZERS", "KNOWN", "KNOWN_ERRORS",
    "REPAIRS", "RULES", "TYPE_CHECKING", "VERBS", "configure", "execute", "write",
    "RTLD_GLOBAL", "boot", "create_context", "install", "is_refusal", "load", "standard_library",
}  # fmt: skip
LOADED = """
import sys

import cudaguard

def lines():
    names = ("cudaguard", "_cudaguard_boot")
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] in names]
    return sum(open(m.__file__, "rb").read().count(b"\\n") for m in modules if m.__file__)

cudaguard.install()
at_start = lines()
import ctypes
print(at_start, lines())
"""


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


def floor_of(name: str) -> int:
    part = part_of(name)
    part = "ground" if part in GROUND else FACE.get(part, part)
    return FLOORS.index(part) if part in FLOORS else -1


def feature_of(name: str) -> str:
    """Return the folder of a feature that a module lies in, or ""."""
    parts = name.split(".")
    return parts[1] if parts[0] == "features" and len(parts) > 2 else ""


def modules_outside_the_house(package: Package) -> list[str]:
    return [f"{name}: on no floor" for name in package.modules if floor_of(name) < 0]


def upward_arrows(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        for target, found in package.arrows(module)
        if target != "__init__" or floor_of(module.name) < FLOORS.index("tools")
        if floor_of(target) > floor_of(module.name)
    ]


def arrows_between_features(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        for target, found in package.arrows(module)
        if feature_of(module.name) and feature_of(target)
        if feature_of(module.name) != feature_of(target)
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
    return {*names, "nt", "_winapi", "_frozen_importlib", "_frozen_importlib_external", "cudaguard"}


def third_party_imports(package: Package) -> list[str]:
    standard = standard_library()
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in package.modules.values()
        for found in module.imports
        if not found.for_types
        and part_of(found.target) not in {*standard, HOSTS.get(module.name)}
        and (found.at_top or part_of(found.target) not in DEPENDENCIES)
    ]


def words_that_do(package: Package) -> list[str]:
    """What is said needs values, and nothing that looks or changes."""
    return [
        f"{module.name}:{found.line} imports {target}"
        for module in package.modules.values()
        if module.part == "features" and module.name.endswith(".findings")
        for target, found in package.arrows(module)
        if not found.for_types
        and (target.split(".")[-2:-1] == ["repair"] or target.split(".")[-1] == "repair")
    ]


def impure_policy(package: Package) -> list[str]:
    faults = []
    for module in package.modules.values():
        if "policy" in module.name.split("."):
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
        if len(m.text.splitlines()) > LONGEST and m.name != GENERATED
    ]


def calls_that_programs_replace(package: Package) -> list[str]:
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in package.modules.values()
        if module.part == "core" or "detector" in module.name.split(".")
        for found in module.imports
        if not found.for_types and part_of(found.target) in ("os", "io")
    ]


def names_with_two_meanings(package: Package) -> list[str]:
    homes: dict[str, set[str]] = {}
    for module in package.modules.values():
        if module.name != GENERATED:
            for node in module.tree.body:
                targets = getattr(node, "targets", [getattr(node, "target", node)])
                named = [part for target in targets for part in getattr(target, "elts", [target])]
                for name in (getattr(one, "id", getattr(one, "name", "_")) for one in named):
                    homes.setdefault(name, set()).add(module.name)
    return [
        f"{name} in {sorted(found)}"
        for name, found in homes.items()
        if len(found) > 1 and not name.startswith("_") and name not in SHARED
    ]


CHECKS = [
    modules_outside_the_house, upward_arrows, arrows_between_features, cycles, third_party_imports,
    words_that_do, impure_policy, too_long, calls_that_programs_replace, names_with_two_meanings,
]  # fmt: skip


@pytest.fixture(scope="module")
def package():
    return Package(PACKAGE)


def lines_below(folder: Path, end: str = ".py") -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob(f"*{end}"))


def test_size_only_falls(child):
    loaded = child.python(LOADED).stdout.split()
    measured = (
        lines_below(PACKAGE),
        len(list(PACKAGE.rglob("*.py"))),
        lines_below(PACKAGE, ".ini") + lines_below(PACKAGE, ".txt"),
        lines_below(Path(__file__).parent),
        *map(int, loaded),
    )
    grown = {
        f"{what}: {now}, at most {most}"
        for (what, most), now in zip(CEILINGS.items(), measured)
        if now > most
    }
    assert not grown, "remove as much as you add: CONTRIBUTING.md, 'Size is a cost'"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package_has_no_such_fault(package, check):
    assert check(package) == []


def test_walker_sees_the_whole_package(package):
    assert {"__init__", "api", "hooks.loader", "features._index", "tools.run.command"} <= set(
        package.modules
    )
    assert {"core.lifecycle", "core.settings", "features._index"} <= {
        t for t, _ in package.arrows(package.modules["api"])
    }
    facts = package.modules["system.facts"]
    assert "importlib.metadata" in {found.target for found in facts.imports}


OTHER_FILES = (
    "__init__.py", "api.py", "config.py", "core/__init__.py", "core/dispatch.py",
    "hooks/loader.py", "features/__init__.py", "features/one/__init__.py",
    "features/one/repair.py", "features/two/__init__.py", "features/two/rules.py", "model.py",
)  # fmt: skip


@pytest.mark.parametrize(
    ("check", "file", "text"),
    [
        (modules_outside_the_house, "extra/new.py", ""),
        (upward_arrows, "model.py", "from cudaguard.core.dispatch import Dispatch"),
        (upward_arrows, "elf/x.py", "def f():\n    from cudaguard.hooks import loader"),
        (upward_arrows, "system/x.py", "import cudaguard.hooks.loader"),
        (upward_arrows, "core/dispatch.py", "import cudaguard"),
        (upward_arrows, "core/x.py", "if TYPE_CHECKING:\n    import cudaguard.api"),
        (upward_arrows, "features/one/x.py", "from cudaguard.api import install"),
        (arrows_between_features, "features/one/x.py", "from cudaguard.features.two import rules"),
        (cycles, "core/x.py", "from cudaguard.core.y import z"),
        (third_party_imports, "core/dispatch.py", "import numpy"),
        (third_party_imports, "core/dispatch.py", "try:\n    import packaging\nfinally:\n    pass"),
        (third_party_imports, "core/dispatch.py", "class A:\n    from packaging import version"),
        (third_party_imports, "core/dispatch.py", "def f():\n    import torch"),
        (third_party_imports, "core/dispatch.py", "def f():\n    import pytest"),
        (third_party_imports, "core/dispatch.py", "if not TYPE_CHECKING:\n    import packaging"),
        (words_that_do, "features/one/findings.py", "from cudaguard.features.one import repair"),
        (impure_policy, "features/one/policy.py", "import os"),
        (impure_policy, "features/one/policy.py", "def f(sys):\n    return sys.modules"),
        (impure_policy, "features/one/policy/x.py", "def f():\n    return open('x')"),
        (calls_that_programs_replace, "core/x.py", "import os"),
        (calls_that_programs_replace, "core/x.py", "def f():\n    from os import stat"),
        (calls_that_programs_replace, "features/one/detector.py", "import io"),
        (too_long, "core/dispatch.py", "\n" * (LONGEST + 1)),
        (names_with_two_meanings, "core/x.py", "A, same = 1, 2"),
    ],
)  # fmt: skip
def test_each_check_finds_a_planted_fault(tmp_path, check, file, text):
    files = dict.fromkeys(OTHER_FILES, "")
    files["core/y.py"] = "import cudaguard.core.x\n\ndef same(): pass"
    for name, content in {**files, file: text}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert len(check(Package(tmp_path))) == 1
    (tmp_path / file).write_text("", encoding="utf-8")
    assert check(Package(tmp_path)) == [] or check is modules_outside_the_house
