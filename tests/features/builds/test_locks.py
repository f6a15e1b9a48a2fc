"""Locks of builds, by real processes that are killed, wait, and take over.

torch is not needed: `Baton` has the three methods of its lock, with torch's meaning.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from cudaguard.features.builds import locks

from ...dead_disk import dead_disk

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="processes are read of /proc")

BATON = """
import os, sys, time

class Baton:
    def __init__(self, path):
        self.lock_file_path, self.wait_seconds, self.fd = path, 0.02, None
    def try_acquire(self):
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False
    def wait(self):
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
    def release(self):
        os.close(self.fd)
        os.remove(self.lock_file_path)

from cudaguard.core.dispatch import Dispatch
from cudaguard.tools.known import RULES
from cudaguard.features.builds import repair
core = Dispatch()
core.reporter.mode = os.environ.get("MODE", "fix")
(rule,) = (rule for rule in RULES if rule.id == "CG032")
request = core.repairs.request(rule, ("break_stale_locks",), "torch.utils.cpp_extension")
permit = request.permit
repair.PATIENCE, repair._BETWEEN_LOOKS = 0.5, 0.2
__name__ = repair.MODULE  # others than torch's builds are not looked at

class Guarded(Baton):
    try_acquire = repair.try_acquire(request, Baton.try_acquire, permit)
"""
HOLD = BATON + "Baton(sys.argv[1]).try_acquire(); print('held', flush=True); time.sleep(600)"
# One builds, the others find it built, as in torch: a file counts the builds.
BUILD = (
    BATON
    + """
path = sys.argv[1]
baton = Guarded(path)
if baton.try_acquire():
    with open(path + ".builds", "a") as file:
        file.write("begin\\n")
    time.sleep(0.5)
    with open(path + ".builds", "a") as file:
        file.write("end\\n")
    baton.release()
else:
    baton.wait()
print(open(path + ".builds").read().count("end"))
"""
)


# The same for eight, none of which begins before all are there.
AT_ONCE = BUILD.replace(
    "baton = Guarded(path)",
    """baton = Guarded(path)
open(f"{path}.{os.getpid()}.here", "x").close()
while sum(name.endswith(".here") for name in os.listdir(os.path.dirname(path))) < 8:
    time.sleep(0.01)""",
)


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "build" / "lock"


@pytest.fixture
def start(lock, root):
    """Starts Python code with the path of the lock; ends what is left."""
    lock.parent.mkdir()
    started = []

    def start(code, *arguments, **variables):
        environment = {**os.environ, "PYTHONPATH": str(root), **variables}
        process = subprocess.Popen(
            [sys.executable, "-W", "always", "-c", code, str(lock), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def left(start, lock):
    """Leaves the lock of a killed builder, as old as is said."""

    def left(age=60.0):
        holder = start(HOLD)
        assert holder.stdout.readline() == "held\n"
        assert seen(lock) == "held"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        then = time.time() - age
        os.utime(lock, (then, then))

    return left


def seen(lock):
    return locks.look(str(lock)).state


def ended(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def test_holder_is_seen_until_it_dies(start, lock, left):
    holder = start(HOLD)
    assert holder.stdout.readline() == "held\n"
    assert locks.look(str(lock))[::2] == ("held", holder.pid)
    assert any("held" in word for word in locks.command_of(holder.pid))
    holder.send_signal(signal.SIGKILL)
    while seen(lock) == "held":  # a zombie, which nobody has waited for, holds nothing
        time.sleep(0.01)
    assert seen(lock) == "young"
    os.utime(lock, (1, 1))
    assert seen(lock) == "stale"


def test_orphan_that_works_in_the_folder_counts(left, lock):
    """ninja and its compilers do not have the lock open, and go on when the builder is killed."""
    left()
    orphan = subprocess.Popen(["sleep", "600"], cwd=lock.parent)
    try:
        assert locks.look(str(lock))[::2] == ("in-use", orphan.pid)
    finally:
        orphan.kill()
        orphan.wait()
    assert seen(lock) == "stale"


MOUNTS = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /home rw - nfs4 server:/home rw
41 27 0:41 / /data\\040two rw shared:1 - xfs /dev/sdb rw
42 41 0:42 / /data\\040two rw - lustre x rw
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/tmp/lock", ("/", "ext4")),
        ("/home/me/lock", ("/home", "nfs4")),
        ("/homely/lock", ("/", "ext4")),
        ("/data two/lock", ("/data two", "lustre")),  # mounted over the other
    ],
)
def test_file_system_of_a_lock(path, mount):
    assert locks.mount_of(path, MOUNTS) == mount
    assert locks.mount_of(path, "") is None


def test_lock_of_a_killed_builder_is_taken_over(left, start, lock):
    left()
    out, err = ended(start(BUILD))
    assert out == "1\n"
    said = f"[CG885] cudaguard removed the lock {lock}: the build that made it 60 seconds ago has"
    assert said in err
    assert sorted(os.listdir(lock.parent)) == ["lock.builds"]


def test_eight_processes_at_once_build_once(left, start, lock):
    left()
    processes = [start(AT_ONCE) for _ in range(8)]
    told = [ended(process) for process in processes]
    assert [out for out, _ in told] == ["1\n"] * 8
    assert (lock.parent / "lock.builds").read_text(encoding="utf-8") == "begin\nend\n"
    assert sum("CG885" in err for _, err in told) == 1


def test_builder_that_is_killed_while_others_wait(start, lock):
    holder = start(HOLD)
    assert holder.stdout.readline() == "held\n"
    waiters = [start(BUILD) for _ in range(3)]
    time.sleep(1)
    assert [waiter.poll() for waiter in waiters] == [None] * 3
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert [ended(waiter)[0] for waiter in waiters] == ["1\n"] * 3
    assert (lock.parent / "lock.builds").read_text(encoding="utf-8") == "begin\nend\n"


def test_living_builder_is_waited_for_and_named(start, lock):
    code = HOLD.replace("time.sleep(600)", "time.sleep(2); os.remove(sys.argv[1])")
    holder = start(code, "--api-key", "s3cr3t")
    assert holder.stdout.readline() == "held\n"
    os.utime(lock, (1, 1))
    (lock.parent / "lock.builds").write_text("end\n", encoding="utf-8")
    out, err = ended(start(BUILD))
    assert out == "1\n"  # it has not built
    assert f"[CG886] This process waits for process {holder.pid}, which holds the lock in" in err
    assert f"process {holder.pid}: {sys.executable} <" in err
    assert "s3cr3t" not in err
    assert "CG885" not in err
    assert "rm " not in err


def test_young_lock_is_left_alone_for_a_while(left, start, lock):
    left(age=0.5)
    began = time.monotonic()
    assert ended(start(BUILD))[0] == "1\n"
    assert time.monotonic() - began > 2.4


@pytest.mark.parametrize("mode", ["warn", "observe"])
def test_other_modes_remove_nothing(left, start, lock, mode):
    left()
    waiter = start(BUILD, MODE=mode)
    time.sleep(1.5)
    assert waiter.poll() is None
    assert lock.exists()
    (lock.parent / "lock.builds").write_text("end\n", encoding="utf-8")
    lock.unlink()
    out, err = ended(waiter)
    assert out == "1\n"
    assert err.count(f"run: rm {lock}") == (mode == "warn")


@pytest.mark.incidents
def test_lock_from_the_future_is_not_waited_for_without_a_word(left, start, lock):
    """The clock was set back, or the folder comes from a machine that is ahead."""
    left(age=-3600)
    waiter = start(BUILD)
    time.sleep(5)
    (lock.parent / "lock.builds").write_text("end\n", encoding="utf-8")
    lock.unlink()
    out, err = ended(waiter)
    assert out == "1\n"
    assert err.count("CG886") == 1
    assert "its time is too recent to tell" in err


def test_switched_off_while_it_waits_it_says_nothing(start, lock):
    holder = start(HOLD)
    assert holder.stdout.readline() == "held\n"
    code = "import threading; threading.Timer(0.2, permit.switch, (None,)).start()"
    waiter = start(f"{BATON}{code}\nprint(Guarded(sys.argv[1]).try_acquire())")
    assert ended(waiter) == ("False\n", "")
    assert lock.exists()


def test_container_sees_its_own_processes_only(lock, monkeypatch):
    """A root of its own is nobody else's; what is mounted into it may be."""
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (1, 1))
    monkeypatch.setattr(locks, "_ALL_PROCESSES", "pid:[1]")
    mounts = (("/", "overlay"), ("/cache", "ext4"), ("/", "nfs4"), None)
    for mount, state in zip(mounts, ("stale", "unknown", "unknown", "unknown")):
        monkeypatch.setattr(locks, "mount_of", lambda *_, mount=mount: mount)
        assert seen(lock) == state


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_lock_of_another_user_is_not_judged(lock):
    lock.parent.mkdir()
    lock.touch()
    os.chown(lock, 12345, -1)
    os.utime(lock, (1, 1))
    assert locks.look(str(lock)).why == "its file belongs to another user"


def test_process_that_cannot_be_inspected_may_hold_it(lock, monkeypatch):
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (1, 1))

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(locks, "_has_open", refuse)
    for size, state in ((1 << 30, "unknown"), (1 << 20, "stale")):
        monkeypatch.setattr(locks, "_processes", lambda size=size: iter([(7, size)]))
        assert seen(lock) == state


def test_only_what_was_judged_is_taken(left, lock):
    left()
    judged = locks.identity(str(lock))
    lock.unlink()
    lock.touch()  # another builder has come
    assert locks.take_over(str(lock), judged) is None
    assert os.listdir(lock.parent) == ["lock"]
    ours = locks.take_over(str(lock), locks.identity(str(lock)))
    assert locks.look(str(lock)).pid == os.getpid()
    os.close(ours)
    assert os.listdir(lock.parent) == ["lock"]


def test_failure_of_ours_leaves_torchs_way(left, start, lock):
    left()
    code = BATON + "repair.look = None\nprint(Guarded(sys.argv[1]).try_acquire())"
    out, err = ended(start(code))
    assert out == "False\n"
    assert "CG807" in err


def test_files_on_a_dead_disk_are_not_looked_at(child, tmp_path):
    """As root, those of all processes are seen: one of them must not make this one wait."""
    lock = tmp_path / "lock"
    lock.touch()
    disk = tmp_path / "disk"
    disk.mkdir()
    with dead_disk(disk):
        held = os.open(disk, os.O_PATH)
        with subprocess.Popen(["sleep", "600"], pass_fds=(held,)) as other:
            code = "from cudaguard.features.builds.locks import look; "
            code += f"print(look({str(lock)!r}).pid)"
            try:
                stat = ["stat", "-L", f"/proc/{other.pid}/fd/{held}"]
                with pytest.raises(subprocess.TimeoutExpired):
                    subprocess.run(stat, timeout=2, check=False)
                done = subprocess.run(
                    [sys.executable, "-c", code], timeout=30, capture_output=True, check=True
                )
            finally:
                other.kill()
                os.close(held)
    assert done.stdout == b"0\n"
