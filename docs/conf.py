"""Sphinx configuration: ``python -m sphinx -W docs docs/_build``."""

project = "cudaguard"
author = "The cudaguard developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
default_role = "py:obj"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
