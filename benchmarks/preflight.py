"""Would an extension load? The ways to tell, each in a fresh interpreter, as in ``child.py``.

The extension asks a library of as many names as libtorch_cpu has for 200 of them; the library is in
the process, as torch's are once torch is imported. Prints CPU seconds, those of children included.
"""

from __future__ import annotations

import os
import resource
import sys
from time import process_time

NAMES, ASKED = 75_000, 200
LIBRARY, EXTENSION = "libbenchmark_names.so", "benchmark_asks.so"


def name_of(number):
    """A name as long as those of C++ usually are."""
    return f"_ZN9benchmark6native20a_function_of_torchE{number:05d}"


def cpu():
    """CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def print_cpu(start, number=1):
    print("cpu", (cpu() - start) / number)


def load(folder):
    import ctypes

    ctypes.CDLL(f"{folder}/{LIBRARY}")


def checking(folder):
    """By `cudaguard.check_extension`, once its modules are there."""
    from cudaguard import check_extension

    load(folder)
    assert check_extension(f"{folder}/{EXTENSION}").ok, "it would load"
    start = cpu()
    for _ in range(20):
        check_extension(f"{folder}/{EXTENSION}")
    print_cpu(start, 20)


def by_elftools(folder):
    """By the names that both files say they have and want."""
    from elftools.elf.elffile import ELFFile

    start = cpu()
    names = []
    for file in (LIBRARY, EXTENSION):
        with open(f"{folder}/{file}", "rb") as stream:
            symbols = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
            names.append({(s.name, s["st_shndx"] == "SHN_UNDEF") for s in symbols})
    judge(names)
    print_cpu(start)


def by_lief(folder):
    """The same, by another reader."""
    import lief

    start = cpu()
    names = []
    for file in (LIBRARY, EXTENSION):
        symbols = lief.parse(f"{folder}/{file}").dynamic_symbols
        names.append({(s.name, s.shndx == 0) for s in symbols})
    judge(names)
    print_cpu(start)


def by_nm(folder):
    """The same, by the tool of binutils."""
    import subprocess

    start = cpu()
    names = []
    for file in (LIBRARY, EXTENSION):
        said = subprocess.run(["nm", "-D", f"{folder}/{file}"], check=True, capture_output=True)
        words = (line.split() for line in said.stdout.decode().splitlines())
        names.append({(name, kind in "Uw") for *_, kind, name in words})
    judge(names)
    print_cpu(start)


def judge(names):
    library, extension = names
    defined = {name for name, is_wanted in library if not is_wanted}
    wanted = {name for name, is_wanted in extension if is_wanted and name.startswith("_ZN9bench")}
    assert len(wanted) == ASKED, "the names were not read"
    assert wanted <= defined


def by_fork(folder):
    """By loading it in a forked child, which runs its initializers; unsafe with threads."""
    load(folder)
    start = cpu()
    for _ in range(10):
        child = os.fork()
        if not child:
            import _ctypes

            _ctypes.dlopen(f"{folder}/{EXTENSION}", os.RTLD_NOW)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    print_cpu(start, 10)


def by_interpreter(folder):
    """By loading it in a fresh interpreter, which would have to import torch first."""
    import subprocess

    start = cpu()
    code = f"import ctypes as c; [c.CDLL({folder!r} + '/' + n) for n in {[LIBRARY, EXTENSION]}]"
    subprocess.run([sys.executable, "-c", code], check=True)
    print_cpu(start)


TASKS = (checking, by_elftools, by_lief, by_nm, by_fork, by_interpreter)

if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    {task.__name__: task for task in TASKS}[sys.argv[1]](*sys.argv[2:])
