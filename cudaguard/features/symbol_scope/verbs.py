"""The actions of rules about symbol scope."""

from __future__ import annotations

from cudaguard.core.verbs import FILE_PATTERN, SCOPED_PATTERN, TEXTS, Parameter, Verb

VERBS = (
    Verb(
        "load_local",
        SCOPED_PATTERN,
        "libdecord.so*",
        "Load matching libraries with local symbol scope, even where RTLD_GLOBAL is asked for.",
    ),
    Verb(
        "hide_symbols",
        SCOPED_PATTERN,
        "libdecord.so*",
        "Hide symbols of a library that is in the global symbol scope already.",
        parameters=(
            Parameter("names", TEXTS, "*"),
            Parameter("keep", TEXTS, ("DECORD*",), required=False),
        ),
    ),
    Verb(
        "load_deepbind",
        FILE_PATTERN,
        "my_plugin*.so",
        "Load an extension module with RTLD_DEEPBIND: it finds its own symbols first.",
        grades=("opt-in",),
    ),
)
