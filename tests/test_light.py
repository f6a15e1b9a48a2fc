"""Light and without a touch: what the guard imports and maps, in interpreters with nothing else.

``-I -S`` leaves an interpreter with only what Python itself has loaded, so whatever is new
afterwards is our doing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BARE = ("-I", "-S")
PROBE = """
import sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
{code}
print(sorted(set(sys.modules) - before), file=sys.__stdout__)
"""
# What the standard library itself cannot do without once `os` is asked for.
ALLOWED = {
    "__future__",  # a statement of the language, and a module all the same
    "_abc",  # Python 3.14 begins without it, io and errno
    "_collections", "_collections_abc", "_operator", "_stat", "abc", "errno", "genericpath", "io",
    "os", "os.path", "posixpath", "stat",
}  # fmt: skip
HEAVY = {"collections", "contextlib", "ctypes", "dataclasses", "enum", "functools",
         "importlib",  # who forgets to import its parts would find them there under the guard only
         "importlib.abc", "importlib.metadata", "importlib.util", "importlib_metadata", "inspect",
         "json", "logging", "packaging", "pathlib", "pynvml", "re", "subprocess", "threading",
         "tomli", "tomllib", "torch", "traceback", "typing", "wrapt"}  # fmt: skip


def added(child, code: str, **how) -> set[str]:
    """Return the modules that `code` adds to an interpreter without ``site``."""
    done = child.python(PROBE.format(root=str(ROOT), code=code), flags=BARE, **how)
    assert done.stderr == ""
    names: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return set(names)


def foreign(names: set[str]) -> set[str]:
    """Return the modules that are not ours."""
    return {name for name in names if name.partition(".")[0] != "cudaguard"}


def test_importing_the_package_and_looking_at_its_names_loads_one_module(child):
    code = "import cudaguard; dir(cudaguard); cudaguard.__all__; cudaguard.__version__"
    assert added(child, code) == {"cudaguard"}


@pytest.mark.parametrize("name", ["Rule", "Finding", "CudaGuardWarning", "ConfigError"])
def test_vocabulary_loads_nothing_foreign(child, name):
    assert foreign(added(child, f"from cudaguard import {name}")) <= {"__future__", "_operator"}


@pytest.mark.parametrize(
    "code",
    [
        "import cudaguard; cudaguard.install()",
        "import cudaguard; cudaguard.install('strict')",
        "import cudaguard; cudaguard.install(); cudaguard.uninstall()",
        "import cudaguard\nwith cudaguard.guard(): pass",
        "import cudaguard; cudaguard.install(); cudaguard.status(); cudaguard.active_rules()",
        "import cudaguard; cudaguard.install(disable=['CG001'], children=True)",
        "from cudaguard.api import boot; boot()",
    ],
)
def test_putting_the_guard_up_loads_only_what_is_allowed(child, code):
    names = foreign(added(child, code))
    assert names <= ALLOWED
    assert not names & HEAVY


def test_order_rule_that_fires_loads_nothing_heavy(child):
    child.write("target.py", "")
    child.write("needed.py", "")
    names = added(
        child,
        f"""
sys.path.insert(0, {str(child.folder)!r})
import cudaguard
rule = cudaguard.Rule("R", ("target",), "w", needs=("needed",))
cudaguard.install(rules=[rule])
import target
assert list(sys.modules).index("needed") < list(sys.modules).index("target")
""",
    )
    # Policy sorts with `graphlib`, which brings `types` along.
    assert not names & (HEAVY - {"collections", "functools"})


def test_probe_sees_a_heavy_import(child):
    assert added(child, "import logging, json, ctypes") & HEAVY >= {"logging", "json", "ctypes"}


# --- status and repairs ------------------------------------------------------------------------


def test_repaired_decord_import_loads_neither_wrapt_nor_torch_nor_pynvml(child):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    done = child.python(
        """
        import sys
        import cudaguard
        cudaguard.install()
        import decord
        assert any("kept in local symbol scope by CG001" in t for t in cudaguard.status().changes)
        print(sorted(m for m in ("wrapt", "torch", "pynvml", "_wrapt") if m in sys.modules))
        print([line for line in open("/proc/self/maps") if "wrapt" in line])
        """
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


# --- look without touching ------------------------------------------------------------------------

MAPS = """
import sys
sys.path.insert(0, {root!r})

def mapped():
    with open("/proc/self/maps") as file:
        return {{line.split()[-1] for line in file if ".so" in line}}

before = mapped()
{code}
print(sorted(mapped() - before), file=sys.__stdout__)
"""


def newly_mapped(child, code: str, **how) -> str:
    done = child.python(MAPS.format(root=str(ROOT), code=code), **how)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("flags", [BARE, ()], ids=["bare", "usual"])
@pytest.mark.parametrize(
    "code",
    [
        "import cudaguard; cudaguard.install()",
        "import cudaguard; cudaguard.install('strict'); cudaguard.status(); cudaguard.uninstall()",
        "import cudaguard\nwith cudaguard.guard('observe'): import colorsys",
        "from cudaguard.api import boot; boot()",
    ],
)
def test_nothing_is_mapped_by_the_guard(child, code, flags):
    assert newly_mapped(child, code, flags=flags) == "[]"


def test_watched_import_with_a_version_condition_maps_no_cuda_and_no_openssl(child):
    child.write("target.py", "")
    text = newly_mapped(
        child,
        """
import cudaguard
cudaguard.install("observe", rules=[
    cudaguard.Rule("R", ("target",), "w", dist=("importlib-metadata",), grade="report"),
])
import target
assert cudaguard.status().findings
""",
    )
    for library in ("libcuda", "libcudart", "libnvidia-ml", "libssl", "libcrypto", "wrapt"):
        assert library not in text


def test_probe_of_maps_sees_a_library(child):
    text = newly_mapped(child, "import ctypes, _ssl")
    assert "_ctypes" in text
    assert "libssl" in text or "_ssl" in text


def test_no_thread_is_started_and_no_descriptor_stays_open(child):
    done = child.python(
        """
        import os, sys
        def state():
            return len(os.listdir("/proc/self/task")), sorted(
                os.readlink(f"/proc/self/fd/{fd}")
                for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
            )
        before = state()
        import cudaguard
        cudaguard.install()
        import json
        cudaguard.status()
        print(state() == before)
        """
    )
    assert done.stdout == "True\n"
