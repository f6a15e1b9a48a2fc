"""Memory that is left, by the files of the kernel."""

from __future__ import annotations

import os

import pytest

from cudaguard.system.limits import address_space, available_memory, cores, oom_kills

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path):
    """Returns what is left on a machine with such files; 1000 MiB by itself."""

    def machine(group, files):
        texts = {"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 1024000 kB\n"}
        texts["proc/self/cgroup"] = group
        for name, text in {**texts, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text), encoding="utf-8")
        found = available_memory(str(tmp_path))
        return None if found is None else found / MIB

    return machine


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


def test_without_groups_it_is_what_the_machine_has(machine):
    assert machine("", {}) == 1000


def test_without_a_limit_the_group_does_not_matter(machine):
    files = {f"{V2}/job/memory.max": "max\n", f"{V2}/job/memory.current": 7 * MIB}
    assert machine("0::/job\n", files) == 1000


def test_limit_of_version_2_less_what_is_used(machine):
    files = {f"{V2}/job/memory.max": 500 * MIB, f"{V2}/job/memory.current": 200 * MIB}
    assert machine("0::/job\n", files) == 300


def test_idle_pages_of_files_are_not_counted_as_used(machine):
    files = {
        f"{V2}/job/memory.max": 500 * MIB,
        f"{V2}/job/memory.current": 200 * MIB,
        f"{V2}/job/memory.stat": f"anon 1\ninactive_file {150 * MIB}\n",
    }
    assert machine("0::/job\n", files) == 450


def test_group_around_it_may_have_less(machine):
    files = {
        f"{V2}/a/b/memory.max": 500 * MIB,
        f"{V2}/a/b/memory.current": 0,
        f"{V2}/a/memory.max": 300 * MIB,
        f"{V2}/a/memory.current": 290 * MIB,
    }
    assert machine("0::/a/b\n", files) == 10


def test_in_a_container_what_is_mounted_is_the_group(machine):
    files = {f"{V2}/memory.max": 400 * MIB, f"{V2}/memory.current": 100 * MIB}
    assert machine("0::/../../kubepods/pod1\n", files) == 300


def test_limit_of_version_1(machine):
    files = {
        f"{V1}/slurm/job_7/memory.limit_in_bytes": 800 * MIB,
        f"{V1}/slurm/job_7/memory.usage_in_bytes": 700 * MIB,
        f"{V1}/slurm/job_7/memory.stat": f"total_inactive_file {50 * MIB}\n",
        f"{V1}/memory.limit_in_bytes": 9223372036854771712,
        f"{V1}/memory.usage_in_bytes": 5 * MIB,
    }
    assert machine("5:cpu:/slurm\n4:memory:/slurm/job_7\n0::/\n", files) == 150


def test_more_used_than_allowed_is_nothing_left(machine):
    files = {f"{V2}/memory.max": 100 * MIB, f"{V2}/memory.current": 120 * MIB}
    assert machine("0::/\n", files) == 0


def test_nothing_is_known_of_a_machine_without_such_files(tmp_path):
    assert available_memory(str(tmp_path)) is None


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="there is no /proc")
def test_this_machine_has_some():
    assert available_memory() > 0
    assert 1 <= cores() <= (os.cpu_count() or 1)


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


def test_limit_of_the_address_space(child):
    limit = 1 << 34
    code = """
        import resource, sys
        from cudaguard.system.limits import address_space
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), most))
        print(address_space())
        """
    assert child.python(code, str(limit)).stdout.strip() == str(limit)
    assert address_space() >= 0
