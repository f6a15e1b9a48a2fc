"""The public names: the same for importers, for type checkers and for ``dir()``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cudaguard
from cudaguard import errors

PACKAGE = Path(cudaguard.__file__).parent


def names_for_type_checkers() -> dict[str, str]:
    """Return public name -> module, as a type checker sees them."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    return {
        name: node.module.partition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.name in (alias.asname, "*")  # "X as X" is what re-exports, and "*"
        for name in (vars(errors) if alias.name == "*" else [alias.name])
        if isinstance(vars(errors).get(name, Path), type) and not name.startswith("_")
    }


def test_public_names_are_the_same_for_everyone():
    assert sorted(cudaguard.__all__) == sorted((*cudaguard._HOMES, "install"))
    assert names_for_type_checkers() == cudaguard._HOMES
    assert set(cudaguard.__all__) <= set(dir(cudaguard))


@pytest.mark.parametrize("name", cudaguard.__all__)
def test_public_name_can_be_had_and_is_no_sub_module(name):
    assert getattr(cudaguard, name).__module__ in (
        "cudaguard",
        f"cudaguard.{cudaguard._HOMES.get(name)}",
    )
    assert not (PACKAGE / f"{name}.py").exists()
    assert not (PACKAGE / name).exists()


def test_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cudaguard' has no attribute 'nonsense'"):
        _ = cudaguard.nonsense


def test_ipython_finds_the_extension_by_its_names():
    for name in ("load_ipython_extension", "unload_ipython_extension"):
        assert callable(getattr(cudaguard, name))
        assert name not in cudaguard.__all__
