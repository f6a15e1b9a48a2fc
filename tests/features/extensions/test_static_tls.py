"""Who comes last gets no static TLS: libraries whose thread-local variables have fixed places."""

from __future__ import annotations

import platform

import pytest

from cudaguard.elf.library_facts import static_tls_of

SOURCE = """
static __thread char room[{size}] __attribute__((tls_model("initial-exec")));
char *here_{name}(int at) {{ return room + at; }}
"""
LOAD = """
import ctypes, sys
def load(name):
    return ctypes.CDLL(f"./{name}.so")
"""
INSTALL = "import cudaguard; cudaguard.install({mode!r})"
CAUGHT = """
try:
    load("late")
except OSError as error:
    print("goes on")
"""
FOUND = "print([f.id for f in cudaguard.status().findings])"
MORE = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}


@pytest.fixture
def crowded(child, compiler):
    """Two libraries, either of which has room, but not both."""
    for name in ("early", "late"):
        compiler.put(child.folder / f"{name}.so", SOURCE.format(size=1100, name=name))
    return child


def run(child, *code, env=None, check=True):
    return child.python("\n".join((LOAD, *code)), env=env or {}, check=check)


def test_second_one_is_refused(crowded):
    """The red half: the error names the victim only."""
    done = run(crowded, "load('early'); load('late')", check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("OSError: ./late.so: cannot allocate memory in static TLS block")


def test_size_is_read_from_the_file(crowded, compiler):
    assert static_tls_of(str(crowded.folder / "late.so")) == 1100
    dynamic = compiler.library("other.so", "__thread int a; int *b(void) { return &a; }")
    assert static_tls_of(str(dynamic)) == 0
    assert static_tls_of("/nowhere.so") == static_tls_of(__file__) == 0


def test_size_is_known_without_the_flag(crowded, compiler):
    """Linkers for AArch64 have left it out for long, as in scikit-learn's libgomp."""
    path = crowded.folder / "late.so"
    data = bytearray(path.read_bytes())
    flag = bytes([30, *[0] * 7, 0x10, *[0] * 7])  # DT_FLAGS: DF_STATIC_TLS
    assert data.count(flag) == (0 if platform.machine() == "aarch64" else 1)
    nothing = bytes([0x15, *[0] * 15])  # DT_DEBUG
    path.write_bytes(data.replace(flag, nothing))
    assert static_tls_of(str(path)) == 1100


@pytest.mark.parametrize("mode", ["warn", "fix"])
def test_error_that_ends_the_program_is_explained(crowded, mode):
    code = (INSTALL.format(mode=mode), "load('early'); load('late')")
    done = run(crowded, *code, check=False)
    assert done.returncode == 1
    assert done.stderr.count("ExtensionWarning: [CG821] late.so was not loaded: early.so") == 1
    assert "late.so: needs 1100 bytes of static TLS" in done.stderr
    assert "early.so: 1100 bytes of static TLS" in done.stderr
    assert "run: GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 python" in done.stderr
    assert "cannot allocate memory in static TLS block" in done.stderr.partition("Extension")[0]


def test_advice_helps(crowded):
    """With more room, as the command says, both are loaded."""
    code = (INSTALL.format(mode="fix"), "load('early'); load('late'); print('loaded')", FOUND)
    assert run(crowded, *code, env=MORE).stdout.splitlines() == ["loaded", "[]"]


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_program_that_does_without_hears_nothing(crowded, mode):
    code = (INSTALL.format(mode=mode), "load('early')", CAUGHT, FOUND)
    done = run(crowded, *code)
    assert (done.stdout, done.stderr) == ("goes on\n[]\n", "")


LOOKS = {"ctypes.c_int.in_dll(room, 'room')": 1, "cudaguard.check_extension('./asks.so')": 0}


@pytest.mark.parametrize("first", LOOKS)
def test_looking_allocates_no_variable(child, compiler, first):
    """What was allocated for a thread by then has no fixed place any more (std::call_once)."""
    room = compiler.put(child.folder / "room.so", "__thread int room;", "-Wl,-soname,room.so")
    source = "extern __thread int room; int *at(void) { return &room; }"
    for name, model in (("asks.so", "global-dynamic"), ("late.so", "initial-exec")):
        compiler.put(child.folder / name, source, room, f"-ftls-model={model}")
    code = f"import cudaguard; room = load('room'); print({first}); load('late')"
    done = run(child, code, check=False)
    assert ("static TLS block" in done.stderr, done.returncode) == (LOOKS[first],) * 2
    assert LOOKS[first] or "asks.so: would load" in done.stdout
