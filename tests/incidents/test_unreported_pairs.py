"""Pairs of packages that break one another by symbol scope, and that no rule knows of.

netgen puts its OpenCASCADE into the global symbol scope: cadquery's, of another release, calls its
functions. tensorflow does the same with its protobuf, and paddle crashes when it is imported; and
with BoringSSL, so that psycopg crashes when it begins to encrypt, and an SQLite without FTS5.
"""

from __future__ import annotations

import signal

import pytest

import cudaguard

from .marks import ON_LINUX

pytestmark = ON_LINUX
SHAPES = ("netgen-mesher==6.2.2608", "cadquery-ocp==8.0.1.1.0", "numpy")
LEARNING = (
    "tensorflow-cpu==2.21.0",
    "paddlepaddle==3.3.1",
    "psycopg[binary]==3.2.9",
    "pycurl==7.49.0",
)
FILLET = """
import netgen.occ
from OCP.BRepFilletAPI import BRepFilletAPI_MakeFillet
from OCP.BRepPrimAPI import BRepPrimAPI_MakeBox
from OCP.TopAbs import TopAbs_EDGE
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS
box = BRepPrimAPI_MakeBox(1.0, 2.0, 3.0).Shape()
fillet = BRepFilletAPI_MakeFillet(box)
fillet.Add(0.1, TopoDS.Edge(TopExp_Explorer(box, TopAbs_EDGE).Current()))
print(fillet.Shape().IsNull(), flush=True)
"""
ADD = "import tensorflow, paddle\nprint(float(paddle.ones([2]).sum()), flush=True)\n"
CONNECT = """
import socket, threading, tensorflow, psycopg
server = socket.create_server(("127.0.0.1", 0))
def answer():
    peer, _ = server.accept()
    peer.recv(8)
    peer.sendall(b"S")
    print(peer.recv(1) == bytes([22]), flush=True)  # a handshake begins
    peer.close()
(thread := threading.Thread(target=answer, daemon=True)).start()
try:
    psycopg.connect(host="127.0.0.1", port=server.getsockname()[1], user="me", sslmode="require")
except psycopg.OperationalError:
    thread.join(60)
"""
SEARCH = """
import tensorflow, sqlite3
sqlite3.connect(":memory:").execute("create virtual table notes using fts5(words)")
print("there")
"""
SAID = "print(*sorted(found.id for found in cudaguard.status().findings))\n"


@pytest.mark.parametrize(
    ("pins", "code", "printed"),
    [
        (SHAPES, FILLET, "False"),
        (LEARNING, ADD, "2.0"),
        (LEARNING, CONNECT, "True"),
        (LEARNING, SEARCH, "there"),
        (LEARNING, "import tensorflow, pycurl\nprint('there')\n", "there"),
    ],
)
def test_later_one_is_kept_to_its_own(run_in_mode, pins, code, printed):
    red = run_in_mode("off", pins, code)
    assert red.returncode in (1, -signal.SIGABRT, -signal.SIGSEGV)
    assert printed not in red.stdout.split()
    if red.returncode == 1:
        assert cudaguard.explain(red.stderr).id == "CG878"
    green = run_in_mode("fix", pins, code, SAID)
    assert green.stdout.splitlines()[-2:] == [printed, ""]
    assert "[CG" not in green.stderr


def test_it_is_told_where_nothing_is_to_be_changed(run_in_mode):
    told = run_in_mode("warn", SHAPES, "import netgen.occ\n", SAID, "import OCP.gp\n", SAID).stdout
    assert told.splitlines() == ["", "CG812"]
    told = run_in_mode("warn", LEARNING, ADD)
    assert "[CG812] paddle.base.libpaddle uses the C++ runtime and protobuf of lib" in told.stderr
