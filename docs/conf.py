"""Sphinx configuration: ``python -m sphinx -W docs docs/_build``."""

project = "cudaguard"
author = "The cudaguard developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
smartquotes = False  # options and quotes are shown as they are typed
default_role = "py:obj"
autodoc_typehints = "description"
autodoc_member_order = "bysource"

# For `sphinx -n`: names of types that annotations show, and parameters that docstrings name.
nitpick_ignore = [
    *(
        ("py:class", name)
        for name in (
            "CheckStatus", "F", "Grade", "Layer", "ModuleType", "Mode", "Names", "Severity",
            "StoredTensors", "Strategy", "Strings", "Tables",
            "os.PathLike",
        )
    ),
    *(
        ("py:obj", name)
        for name in ("assume_imported", "context", "ok", "path", "why")
    ),
]  # fmt: skip
