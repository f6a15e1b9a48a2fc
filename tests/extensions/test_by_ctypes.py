"""Libraries that are opened by ctypes, as ``torch.ops.load_library`` opens plug-ins for torch."""

from __future__ import annotations

import pytest

LOAD = """
import ctypes, sys, cudaguard
cudaguard.install({mode!r})
try:
    ctypes.CDLL({path!r})
    print("loaded")
except Exception as error:
    print(type(error).__name__, isinstance(error, OSError), type(error.__cause__).__name__)
    print(error)
for finding in cudaguard.status().findings:
    print("finding", finding.id)
"""


@pytest.fixture
def load(child):
    def load(path, mode="fix", check=True):
        done = child.python(LOAD.format(path=str(path), mode=mode), check=check)
        return done.stdout.splitlines(), done

    return load


@pytest.fixture
def plugin(build):
    """A library that links libc10.so and calls what nobody has."""
    torch = build.library("libc10.so", "int c10(void) { return 1; }")
    source = "int c10(void); int frob_cuda(void); int call(void) { return c10() + frob_cuda(); }"
    return build("plugin.so", source, torch, "-Wl,-rpath,$ORIGIN")


@pytest.mark.parametrize("mode", ["fix", "strict", "warn", "observe", "off"])
def test_library_for_torch_is_explained_and_the_error_passes(plugin, load, mode):
    lines, done = load(plugin, mode)
    assert lines[:2] == ["OSError True NoneType", f"{plugin}: undefined symbol: frob_cuda"]
    assert lines[2:] == ([] if mode == "off" else ["finding CG841"])
    told = "[CG841] The CUDA half of plugin.so was not linked: `frob_cuda`" in done.stderr
    assert told is (mode not in ("off", "observe"))


def test_library_that_is_not_for_torch_is_tried_in_peace(build, load):
    path = build("plain.so", "int absent_f(void); int call(void) { return absent_f(); }")
    lines, done = load(path)
    assert lines == ["OSError True NoneType", f"{path}: undefined symbol: absent_f"]
    assert done.stderr == ""
    assert load("/nowhere/libx.so")[0][0] == "OSError True NoneType"


@pytest.fixture
def short(build):
    source = "static char data[90000] = {1}; int f(int i) { return data[i]++; }"
    path = build("short.so", source)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    return path


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_truncated_library_is_refused_by_the_error_that_ctypes_has(short, load, mode):
    lines, done = load(short, mode)
    assert lines[0] == "OSError True ExtensionError"
    assert lines[1].startswith("short.so is shorter than its own headers say")
    assert lines[-1] == "finding CG840"
    assert ("[CG840]" in done.stderr) is (mode == "strict")


@pytest.mark.parametrize("mode", ["observe", "warn", "off"])
def test_truncated_library_kills_the_process_where_nothing_is_repaired(short, load, mode):
    _, done = load(short, mode, check=False)
    assert done.returncode == -7
    assert ("[CG840]" in done.stderr) is (mode == "warn")
