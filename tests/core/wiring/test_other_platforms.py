"""Platforms that are played: what needs glibc's loader refuses in words, all else works."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the platforms are played on Linux")

# macOS has RTLD_GLOBAL, other names of machines, and no /proc. Each function is whole in itself,
# as cudaguard calls copies of what Python had at first.
PLATFORMS = {
    "musl": "",
    "macos": """
import builtins, io
sys.platform = "darwin"
os.uname = lambda: type("uname", (), {"machine": "arm64", "release": "24.0", "sysname": "Darwin"})
def without_proc(real):
    def call(path, *args, real=real, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, *args, **options)
    return call
os.open, os.stat, os.readlink = map(without_proc, (os.open, os.stat, os.readlink))
vars(posix).update(open=os.open, stat=os.stat, readlink=os.readlink, uname=os.uname)
builtins.open = io.open = without_proc(builtins.open)
""",
}
START = """
import os, posix, sys
def confstr(name): raise ValueError("unrecognized configuration name")
os.confstr = posix.confstr = confstr
"""
SAID = """
import ctypes
print([name for name in sys.modules if name in ("target", "needed")])
print(*[f"{f.id}: {f.evidence[0]}" for f in cudaguard.status().findings])
"""


@pytest.fixture(params=PLATFORMS)
def run(child, request):
    """Runs code on a platform that is played."""
    for name in ("target", "needed"):
        child.write(f"{name}.py", "")
    # In code of Python's own, as far as one can see.
    text = START + PLATFORMS[request.param]
    play = f"exec(compile({text!r}, '<frozen importlib>', 'exec'), {{'__name__': 'posix'}})"
    return lambda *code: child.python("\n".join(("import os, sys", play, *code)))


def install(*actions: dict, needs: tuple[str, ...] = ()) -> str:
    """Code that installs the guard with a rule about the module `target`."""
    rule = f"cudaguard.Rule('MINE1', ('target',), 'why', needs={needs!r}, actions={actions!r})"
    return f"import cudaguard\ncudaguard.install(rules=[{rule}])"


def test_order_rules_work(run):
    done = run(install(needs=("needed",)), "import target", SAID, "cudaguard.uninstall()")
    assert done.stdout.splitlines() == ["['needed', 'target']", ""]
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["load_local", "preload"])
def test_what_finds_nothing_says_nothing(run, verb):
    done = run(install({verb: "nvidia/none/lib/libnone.so.1"}), "import target", SAID)
    assert (done.stdout.splitlines(), done.stderr) == (["['target']", ""], "")
