"""The founding case, on the real packages: decord must not break what is loaded after it.

Each door has its red half in ``test_unguarded_program_gets_none``: the same program, no guard.
"""

from __future__ import annotations

import sys

import pytest

from ..decord_fault import DECODE, needs_decord, needs_fault

pytestmark = needs_decord

# A program that has decord somewhere deep inside another package.
PACKAGE = {
    "studio/__init__.py": "",
    "studio/video/__init__.py": "from studio.video import reader",
    "studio/video/reader.py": "import decord",
}
IMPORTS = {"direct": "import decord", "deep": "import studio.video"}


@pytest.fixture(params=IMPORTS)
def program(request, child):
    """The program's source; the package of the deep import lies in the working folder."""
    for name, text in PACKAGE.items():
        child.write(name, text)
    return f"\n    {IMPORTS[request.param]}{DECODE}"


def said(done):
    return done.stdout.split()


@needs_fault
def test_unguarded_program_gets_none(child, program):
    done = child.python(program)
    assert said(done) == ["none"]
    assert "bad parameters to zlib" in done.stderr


def test_environment_variable(child, program):
    done = child.python(program, env={"CUDAGUARD": "fix"})
    assert said(done) == ["right"]
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_run(child, program, how):
    path = child.write("program.py", program)
    start = {"script": [path], "module": ["-m", "program"], "code": ["-c", path.read_text()]}[how]
    done = child.command(sys.executable, "-m", "cudaguard", "run", *start)
    assert said(done) == ["right"]
    repaired = "libdecord.so: kept in local symbol scope (CG001)"
    assert done.stderr == f"cudaguard run: repaired 1 fault: {repaired}\n"


@needs_fault
def test_every_door_from_the_installed_wheel(child, program, wheel_python):
    path = child.write("program.py", program)
    command = wheel_python.parent / "cudaguard"
    assert said(child.command(wheel_python, path)) == ["none"]
    for done in (
        child.command(wheel_python, path, env={"CUDAGUARD": "fix"}),
        child.command(command, "run", path),
        child.command(wheel_python, "-c", f"import cudaguard; cudaguard.install()\n{DEDENTED}"),
    ):
        assert said(done) == ["right"]


DEDENTED = "import decord\n" + "\n".join(line[4:] for line in DECODE.splitlines())


@needs_fault
@pytest.mark.parametrize("mode", ["off", "observe", "warn"])
def test_modes_that_repair_nothing_repair_nothing(child, program, mode):
    done = child.python(program, env={"CUDAGUARD": mode})
    assert said(done) == ["none"]
    assert ("SymbolScopeWarning: [CG001]" in done.stderr) is (mode == "warn")


@needs_fault
def test_a_disabled_rule_does_not_act(child, program):
    done = child.python(program, env={"CUDAGUARD": "fix", "CUDAGUARD_RULES": "-CG001,-CG812"})
    assert said(done) == ["none"]


def test_decord_reads_the_same_frames(child):
    """Local scope must not change decord itself: frames, seeking, errors, registry."""
    child.python(
        """
        import cv2, numpy
        writer = cv2.VideoWriter("clip.avi", cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
        assert writer.isOpened()
        noise = numpy.random.default_rng(7)
        for index in range(12):
            frame = numpy.full((48, 64, 3), index * 20, "u1")
            frame[8:24, 8:24] = noise.integers(0, 255, 3)
            writer.write(frame)
        writer.release()
        """
    )
    look = """
        import decord, hashlib
        reader = decord.VideoReader("clip.avi")
        print(len(reader), reader.get_avg_fps(), reader[0].shape)
        for index in (0, 5, 11, 3):
            print(hashlib.sha256(reader[index].asnumpy().tobytes()).hexdigest())
        print(hashlib.sha256(reader.get_batch([1, 2, 10]).asnumpy().tobytes()).hexdigest())
        print(len(decord._ffi.function.list_global_func_names()))
        try:
            decord.VideoReader("missing.avi")
        except Exception as error:
            print(type(error).__name__)
        """
    unguarded = child.python(look)
    assert child.python(look, env={"CUDAGUARD": "fix"}).stdout == unguarded.stdout
    assert len(unguarded.stdout.splitlines()) == 8


def test_repair_is_listed_and_logged(child):
    done = child.python(
        """
        import logging
        logging.basicConfig(level=logging.INFO)
        import cudaguard
        cudaguard.install()
        import decord
        status = cudaguard.status()
        assert [e.name for e in status.events if e.kind == "repair"] == ["libdecord.so"]
        assert any(t.startswith("libdecord.so: kept in local") for t in status.changes)
        assert status.findings == ()
        cudaguard.uninstall()
        assert [t for t in cudaguard.status().changes if not t.endswith("(stays)")] == []
        """
    )
    assert done.stderr.startswith("INFO:cudaguard:CG001: ")
    assert "CUDAGUARD_RULES=-CG001" in done.stderr


def test_guard_that_comes_late_is_silent_where_nobody_is_bound_yet(child):
    done = child.python(
        """
        import decord
        import cudaguard
        cudaguard.install()
        with cudaguard.guard():
            import decord
        assert cudaguard.status().findings == ()
        """
    )
    assert done.stderr == ""


LATE_PICTURE = """
    import decord
    import zlib  # bound to decord's zlib, as is the system's own that comes with it
    {guard}
    import cv2
    import numpy as np
    picture = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
    _, data = cv2.imencode(".png", picture)
    decoded = cv2.imdecode(data, 1)
    print("none" if decoded is None else "right" if (decoded == picture).all() else "wrong")
    """


def test_guard_that_comes_late_mixes_no_two_zlibs(child):
    """Where the system's zlib calls into decord's already, OpenCV gets decord's as well."""
    unguarded = child.python(LATE_PICTURE.format(guard=""), check=False)
    late = "import cudaguard; cudaguard.install()"
    done = child.python(LATE_PICTURE.format(guard=late), check=False)
    assert done.returncode == unguarded.returncode == 0
    assert done.stdout in (unguarded.stdout, "right\n")
    assert "[CG812]" in done.stderr
    if "which it needs, uses such symbols already" not in done.stderr:
        assert done.stdout == "right\n"  # it called into none yet
