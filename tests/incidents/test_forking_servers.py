"""Servers that load the program once and fork their workers: the real gunicorn and celery.

The main process initializes CUDA, so workers that use CUDA cannot work, guarded or not. There is no
repair; a worker that tries says once in the server's log who initialized CUDA, and where.
"""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from ..processes import started, where

pytestmark = pytest.mark.incidents

PATIENCE = 30  # seconds for whatever must come
USE = """
import ctypes
import os

def use(cuda):
    if not cuda:
        return f"{os.getpid()} idle"
    number = ctypes.c_int()
    rc = ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(number))
    return f"{os.getpid()} error {rc}" if rc else f"{os.getpid()} {number.value} devices"
"""
OWN = "import ctypes\n\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"
GUARD = "import cudaguard\n\ncudaguard.install()\n"
# Who initializes CUDA -> the variables with which it is watched; PyCUDA is without any.
INITIALIZERS = {"pycuda.autoinit": {}, "model": {"CUDAGUARD_WATCH": "all"}}

GUNICORN = """
import logging

logging.basicConfig(format="%(process)d %(levelname)s %(message)s")
logging.captureWarnings(True)
{guard}
from using import use
import {initializer}  # init


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [use(environ["PATH_INFO"] == "/cuda").encode()]
"""

BROKER = """
import os

from celery import Celery

folder = os.getcwd()
app = Celery("tasks", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{folder}/queue",
    "data_folder_out": f"{folder}/queue",
    "control_folder": f"{folder}/control",
    "polling_interval": 0.1,
}
"""
CELERY = """
{guard}
from broker import app
from using import use
import {initializer}  # init

work = app.task(use, name="work")
"""
CLIENT = """
import sys

from broker import app

for asked in sys.argv[1:]:
    print(app.send_task("work", (asked == "cuda",)).get(timeout=30))
"""


class Served(NamedTuple):
    """What a server answered and wrote."""

    answers: list[str]  # without the number of the worker's process
    workers: set[int]
    main: int
    log: str

    @property
    def ours(self) -> list[str]:
        return [line for line in self.log.splitlines() if "[CG" in line or "cudaguard:" in line]


def served(said, main, log):
    workers, answers = zip(*(line.split(" ", 1) for line in said))
    return Served(list(answers), set(map(int, workers)), main, log)


@pytest.fixture
def start(child, cuda_packages, root):
    """Starts a server: a context that gives the process, and leaves no other behind."""

    @contextmanager
    def start(*command, let_finish, **variables):
        stubs = cuda_packages.stubs.environment()
        env = {**stubs, "PYTHONPATH": str(root), "HOME": str(child.folder), **variables}
        with started([cuda_packages.python, *command], env, child.folder) as process:
            yield process, env
            if let_finish:
                process.terminate()
                assert process.wait(PATIENCE) == 0

    return start


@pytest.fixture
def write(child):
    """Writes the program that a server loads."""

    def write(name, program, initializer, guard=GUARD):
        child.write("using.py", USE)
        child.write("model.py", OWN)
        return child.write(name, program.format(guard=guard, initializer=initializer))

    return write


def ask(path, about):
    """Ask the server at a socket until it is there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            try:
                connection.connect(path)
            except OSError:
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.05)
                continue
            connection.sendall(f"GET /{about} HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.read().partition(b"\r\n\r\n")[2].decode()


@pytest.fixture
def gunicorn(child, start):
    """Runs gunicorn with one worker, and asks it."""

    def gunicorn(*asked, **variables):
        # Not in the folder of the test, as the path of a socket must be short.
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            options = ("--preload", "--workers=1", f"--bind=unix:{path}", "--no-control-socket")
            with start("-m", "gunicorn", *options, "app:app", let_finish=True, **variables) as (
                process,
                _,
            ):
                said = [ask(path, about) for about in asked]
        return served(said, process.pid, (child.folder / "log").read_text())

    return gunicorn


@pytest.fixture
def celery(child, start, cuda_packages):
    """Runs celery with one worker process, and gives it tasks; files are the broker."""

    def celery(*asked, **variables):
        for name in ("queue", "control", "results"):
            (child.folder / name).mkdir()
        child.write("broker.py", BROKER)
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
        command = ("-m", "celery", "-A", "tasks", "worker", "-P", "prefork", "-c", "1", *quiet)
        # It takes five seconds to finish; all that is looked at was written before.
        with start(*command, let_finish=False, **variables) as (process, env):
            path = child.write("client.py", CLIENT)
            said = child.command(cuda_packages.python, path, *asked, env=env).stdout.splitlines()
        return served(said, process.pid, (child.folder / "log").read_text())

    return celery


@pytest.fixture(params=["gunicorn", "celery"])
def server(request, write):
    """Writes the program and runs the server."""
    run = request.getfixturevalue(request.param)
    program = {"gunicorn": ("app.py", GUNICORN), "celery": ("tasks.py", CELERY)}[request.param]

    def server(initializer, *asked, guard=GUARD, **variables):
        path = write(*program, initializer, guard)
        return path, run(*asked, **variables)

    return server


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_worker_that_uses_cuda_says_once_who_initialized_it(server, initializer):
    watched = INITIALIZERS[initializer]
    path, ran = server(initializer, "idle", "cuda", "cuda", **watched)
    assert ran.answers == ["idle", "error 3", "error 3"]  # the guard changes nothing of that
    (line,) = ran.ours
    place = f"{path.with_name('using.py')}:9"
    assert f"{place}: ForkWarning: [CG818] ctypes loads libcuda at {place} in a process" in line
    (evidence,) = [each for each in ran.log.splitlines() if "because: " in each]
    said = f"{initializer} initialized CUDA at {where(path, 'init')}"
    assert evidence == f"  because: in parent process {ran.main}: {said}"
    (worker,) = ran.workers
    assert worker != ran.main
    speaker = {"app.py": f"{worker} WARNING ", "tasks.py": "WARNING/ForkPoolWorker-1]"}[path.name]
    assert speaker in line


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_worker_that_does_not_use_cuda_says_nothing(server, initializer):
    _, ran = server(initializer, "idle", "idle", **INITIALIZERS[initializer])
    assert (ran.answers, ran.ours) == (["idle", "idle"], [])


def test_unguarded_worker_only_fails(server):
    _, ran = server("model", "cuda", guard="")
    assert (ran.answers, ran.ours) == (["error 3"], [])
