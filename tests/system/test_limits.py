"""What limits a process, by the files of the kernel."""

from __future__ import annotations

import sys

import pytest

from cudaguard.system.processes import oom_kills

V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("group", "file", "text", "kills"),
    [
        ("0::/job\n", f"{V2}/job/memory.events", "oom 7\noom_kill 3\noom_group_kill 9\n", 3),
        ("0::/of/the/host\n", f"{V2}/memory.events", "oom_kill 2\n", 2),
        ("9:cpu,memory:/job\n", f"{V1}/job/memory.oom_control", "under_oom 0\noom_kill 1\n", 1),
        ("0::/job\n", f"{V2}/job/memory.events", "oom_kill many\n", -1),
        ("0::/job\n", f"{V1}/job/memory.oom_control", "oom_kill 1\n", -1),
        ("what is this\n", f"{V2}/memory.events", "oom_kill 1\n", 1),
        ("", f"{V2}/memory.events", "oom_kill 1\n", -1),
    ],
)
def test_kills_for_want_of_memory(tmp_path, group, file, text, kills):
    for name, content in (("proc/self/cgroup", group), (file, text)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(content, encoding="utf-8")
    assert oom_kills(str(tmp_path)) == kills


@pytest.mark.skipif(sys.platform != "linux", reason="needs memfd_create")
def test_file_in_memory_that_cannot_be_filled_is_closed(child):
    code = """
    import os, resource, sys
    from cudaguard.elf.reader import ElfFile
    from cudaguard.system.memory_copies import open_together
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    file, before = ElfFile(os.path.realpath(sys.executable)), os.listdir("/proc/self/fd")
    try: open_together(file, ["libm.so.6"])
    except OSError: print(len(os.listdir("/proc/self/fd")) - len(before))
    """
    assert child.python(code).stdout == "0\n"
