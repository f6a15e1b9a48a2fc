"""Variables for the time of a build, and what is written down of it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cudaguard.features.builds.repair.actions import (
    STAMP,
    Variables,
    have_all_compiled,
    read_stamp,
    write_stamp,
)

NAME = "CUDAGUARD_TEST_OF_A_BUILD"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setenv(NAME, "before")


def test_variable_is_put_back():
    with Variables().during({NAME: "ours"}):
        assert os.environ[NAME] == "ours"
    assert os.environ[NAME] == "before"


def test_variable_that_was_not_there_goes(monkeypatch):
    monkeypatch.delenv(NAME)
    with Variables().during({NAME: "ours"}):
        assert os.environ[NAME] == "ours"
    assert NAME not in os.environ


def test_variable_is_put_back_after_an_error():
    with pytest.raises(KeyError), Variables().during({NAME: "ours"}):
        raise KeyError
    assert os.environ[NAME] == "before"


def test_the_last_build_puts_it_back():
    variables = Variables()
    with variables.during({NAME: "ours"}):
        with variables.during({NAME: "other"}):
            assert os.environ[NAME] == "ours"
        assert os.environ[NAME] == "ours"
    assert os.environ[NAME] == "before"


def test_threads_that_overlap():
    variables, inside, leave = Variables(), threading.Event(), threading.Event()

    def build():
        with variables.during({NAME: "ours"}):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=build)
    thread.start()
    assert inside.wait(30)
    with variables.during({NAME: "ours"}):
        leave.set()
        thread.join(30)
        assert os.environ[NAME] == "ours"  # the thread that set it has gone
    assert os.environ[NAME] == "before"


def test_what_another_build_has_set_is_not_the_programs():
    """It goes when that build ends: one that begins meanwhile has to ask for it as well."""
    variables = Variables()
    assert variables.theirs(NAME) == "before"
    with variables.during({NAME: "ours"}):
        assert variables.theirs(NAME) == "before"
        os.environ[NAME] = "the program's"
        assert variables.theirs(NAME) == "the program's"
    assert variables.theirs(NAME) == "the program's"


def test_what_the_program_sets_meanwhile_stays():
    variables = Variables()
    with variables.during({NAME: "ours"}):
        os.environ[NAME] = "the program's"
        with variables.during({NAME: "ours"}):
            assert os.environ[NAME] == "the program's"
    assert os.environ[NAME] == "the program's"
    with variables.during({NAME: "ours"}):
        assert os.environ[NAME] == "ours"
    assert os.environ[NAME] == "the program's"


@pytest.fixture
def in_child():
    """Forks, and returns what a function says in the child; fails if it hangs."""

    def in_child(say):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                signal.alarm(20)
                os.write(writing, str(say()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        return said

    return in_child


@pytest.fixture
def another_builds():
    """Variables that another thread has set; it gives them back at the end."""
    variables, inside, leave = Variables(), threading.Event(), threading.Event()

    def build():
        with variables.during({NAME: "ours"}):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=build)
    thread.start()
    assert inside.wait(30)
    yield variables
    leave.set()
    thread.join(30)
    assert os.environ[NAME] == "before"


def test_child_has_nothing_of_what_another_thread_builds_with(another_builds, in_child):
    assert os.environ[NAME] == "ours"
    assert in_child(lambda: os.environ[NAME]) == "before"
    assert in_child(lambda: another_builds.theirs(NAME)) == "before"
    assert os.environ[NAME] == "ours"


def test_child_keeps_what_the_thread_that_forks_builds_with(another_builds, in_child):
    def build_on():
        within = os.environ[NAME]
        during.__exit__(None, None, None)
        return within, os.environ[NAME]

    during = another_builds.during({NAME: "ours"})
    with during:
        assert in_child(build_on) == "('ours', 'before')"


def test_child_keeps_what_the_program_has_set_meanwhile(another_builds, in_child):
    os.environ[NAME] = "the program's"
    assert in_child(lambda: os.environ[NAME]) == "the program's"
    os.environ[NAME] = "ours"


def test_child_builds_though_another_thread_was_amid_setting(another_builds, in_child):
    def build():
        with another_builds.during({NAME: "the child's"}):
            return os.environ[NAME]

    with another_builds._lock:
        assert in_child(build) == "the child's"


def test_stamp_is_read_as_written(tmp_path):
    assert read_stamp(str(tmp_path)) == {}
    write_stamp(str(tmp_path), {"torch": "2.13.0", "CUDA": ""})
    assert read_stamp(str(tmp_path)) == {"torch": "2.13.0", "CUDA": ""}
    assert os.listdir(tmp_path) == [STAMP]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"torch": 2}', "\udcff"])
def test_stamp_that_makes_no_sense_is_none(tmp_path, text):
    (tmp_path / STAMP).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_stamp(str(tmp_path)) == {}


def test_ninja_is_made_to_forget(tmp_path):
    (tmp_path / ".ninja_log").write_text("# ninja log v6\n", encoding="utf-8")
    (tmp_path / "main.cpp").write_text("", encoding="utf-8")
    have_all_compiled(str(tmp_path))
    have_all_compiled(str(tmp_path))
    assert os.listdir(tmp_path) == ["main.cpp"]
