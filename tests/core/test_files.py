"""Reading files of others within bounds, and writing files that nobody else reads or plants."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import sys
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import pytest

import cudaguard
from cudaguard.elf import library_facts
from cudaguard.elf.reader import read_elf
from cudaguard.elf.search_path import cache_entries
from cudaguard.files import (
    LARGEST,
    matches,
    open_to_read,
    open_to_write,
    read_bytes,
    read_end,
    read_start,
    write_text,
)
from cudaguard.kernel.loads import judged
from cudaguard.system import extensions as judgement
from cudaguard.system import runtimes, source
from cudaguard.system.torch_build import architectures, build_of
from cudaguard.tools.run.record import read_events, read_faults

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and links as POSIX has them")


@pytest.fixture(autouse=True)
def limited():
    """A read that waits, or never ends, is a failure and no wait."""

    def late(*_):
        raise AssertionError("it waits for a file")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    os.mkfifo(path)


def zeros(path):
    path.symlink_to("/dev/zero")


def huge(path):
    path.touch()
    os.truncate(path, 1 << 40)  # it takes no room


def no_text(path):
    path.write_bytes(b"# coding: hex\nimport torch\n")


@pytest.mark.parametrize("make", [pipe, zeros, os.mkdir], ids=lambda make: make.__name__)
@pytest.mark.parametrize("reader", [read_bytes, read_start, read_end])
def test_only_regular_files_are_read(tmp_path, make, reader):
    make(tmp_path / "odd")
    with pytest.raises(OSError, match="not a regular file"):
        reader(tmp_path / "odd", 10)


def test_looking_at_a_pipe_does_not_wake_its_writer(tmp_path):
    pipe(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, b"kept")
    with pytest.raises(OSError, match="not a regular file"):
        open_to_read(tmp_path / "pipe")
    assert os.read(reader, 10) == b"kept"
    os.close(reader)
    os.close(writer)


def test_bounds(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert (read_bytes(path, 10), read_start(path, 4), read_end(path, 4)) == (
        b"0123456789",
        b"0123",
        b"6789",
    )
    assert read_start(path, 99) == read_end(path, 99) == b"0123456789"
    with pytest.raises(OSError, match="larger than 9 bytes"):
        read_bytes(path, 9)
    many = os.urandom(300_000)
    path.write_bytes(many)
    assert read_bytes(path, LARGEST) == many


def test_links_to_files_and_files_without_a_size_are_read(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bytes(tmp_path / "link", 10) == b"text"
    assert read_bytes("/proc/self/stat", 10_000).startswith(b"%d " % os.getpid())


@pytest.mark.parametrize("make", [pipe, zeros])
@pytest.mark.parametrize(
    ("name", "look", "nothing"),
    [
        ("lib.so", judgement.torch_folder, ""),
        ("lib.so", library_facts.read_library, library_facts.LibraryFile("", None, "")),
        ("lib.so", lambda path: read_elf(path).needed, ()),
        ("lib.so", judged, ("", ())),
        ("lib.so", lambda path: runtimes.is_same_build(path, path + "2"), False),
        ("train.py", source.imports_of_file, []),
        ("cache", cache_entries, {}),
        ("journal", read_events, []),
        ("faults", read_faults, []),
        ("version.py", lambda path: build_of(os.path.dirname(path)), {}),
        ("lib/libtorch_python.so", lambda path: architectures(path[:-23]), ()),
    ],
)
def test_odd_files_tell_nothing(tmp_path, make, name, look, nothing):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    assert look(str(path)) == nothing


@pytest.mark.parametrize("make", [pipe, zeros, huge, no_text])
def test_odd_source_is_a_problem_of_that_source(tmp_path, make):
    make(tmp_path / "train.py")
    assert source.read(str(tmp_path / "train.py")).problem in (
        "cannot be read: not a regular file",
        f"cannot be read: larger than {LARGEST} bytes",
        "'hex' is not a text encoding; use codecs.decode() to handle arbitrary codecs",
    )


def test_pipe_on_the_path_is_not_opened(child):
    pipe(child.folder / "pipe")
    code = """
    from cudaguard.system.facts import Facts
    from cudaguard.system.packages import installed, packages_distributions
    print(Facts().version("wrapt"), len(installed().found) > 1)
    print(*packages_distributions(["wrapt"]))
    """
    done = child.python(code, env={"PYTHONPATH": str(child.folder / "pipe")}, timeout=20)
    assert done.stdout == f"{version('wrapt')} True\nwrapt\n"


def test_header_that_claims_a_table_of_gigabytes(tmp_path, monkeypatch):
    """65,535 entries of 65,535 bytes each: four gigabytes, which a sparse file has."""
    path = tmp_path / "lib.so"
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[32:40] = (64).to_bytes(8, "little")
    header[54:58] = b"\xff" * 4
    path.write_bytes(header)
    os.truncate(path, 1 << 40)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *asked: read.append(asked[1]) or pread(*asked))
    assert library_facts.read_library(str(path)).build == ""
    assert sum(read) < 1 << 20


# --- what is written ---------------------------------------------------------------------


def test_text_is_written_whole(tmp_path):
    write_text(tmp_path / "report", "text €\udc80\n")
    assert (tmp_path / "report").read_bytes() == "text €\\udc80\n".encode()
    write_text(tmp_path / "report", "new")
    assert (tmp_path / "report").read_text() == "new"
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "report", "third", os.O_CREAT | os.O_EXCL)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root may do this")
def test_disk_that_gives_our_files_to_another_user(tmp_path, child):
    """As a network disk does with those of root: here, by making the first as another user."""
    child.python("""
        import os
        from cudaguard.files import write_text
        os.chmod(".", 0o777)
        os.seteuid(12345)
        write_text("journal", "one")
        os.seteuid(0)
        write_text("journal", ", two", os.O_CREAT | os.O_APPEND)
    """)
    assert (tmp_path / "journal").read_text() == "one, two"


def test_pipes_are_not_written_to(tmp_path):
    pipe(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        open_to_write(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="not a regular file"):
        open_to_write(tmp_path / "pipe")
    os.close(reader)


def test_streams_of_this_process_may_be_named(child):
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        code = f"from cudaguard.files import write_text; write_text({name!r}, 'x' * 200_000)"
        assert child.python(code).stdout == "x" * 200_000
    child.python("from cudaguard.files import write_text; write_text('/dev/null', 'x')")


def test_the_package_opens_files_by_these_functions_only():
    """Else somebody forgets the bounds. The kernel's are read as they are; no memory is written."""
    package = Path(cudaguard.__file__).parent
    own = {
        "files/__init__.py": "here",
        "tools/run/supervise.py": "a folder, to be told of its files",
        "tools/bisect/_bisect/runner.py": "imports nothing of ours",
    }
    found = []
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        text = path.read_text(encoding="utf-8")
        found += [word for word in ("memmove", "memset", "mprotect", "writev") if word in text]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and name not in own:
                function = ast.unparse(node.func)
                what = ast.unparse(node.args[0]).lstrip("f'") if node.args else ""
                is_kernels = what.startswith(("/proc/", "/dev/", "os.devnull"))
                if function in ("open", "os.open", "io.open") and not is_kernels:
                    found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
                if function.startswith(("linecache.", "tokenize.open")):
                    found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_the_end_of_a_journal_counts_and_lines_of_another_shape_do_not(tmp_path):
    good = {"pid": 1, "kind": "import", "name": "m", "thread": 1, "where": "", "time": 0.5}
    wrong = [{**good, key: value} for key in good for value in (None, [], {})]
    wrong += [{**good, "details": 1}, {key: good[key] for key in good if key != "time"}, [1], 7]
    lines = [json.dumps(one) for one in (*wrong, good, {**good, "name": "last"})]
    (tmp_path / "journal").write_text("\n".join(("[" * 100_000, "{", *lines, '{"pid"')))
    path = str(tmp_path / "journal")
    assert [one.module for one in read_events(path)] == ["m", "last"]
    assert [one.module for one in read_events(path, len(lines[-1]) + 20)] == ["last"]


def test_pattern_fits_what_it_fits_in_a_shell():
    names = ("", "a", "b", "ab", "ba", "abc", "aabc", "acb", "cab", "abab")
    for pattern in ("a", "a*", "*b", "a*b", "a*b*c", "**", "a?*", "[ab]*c", "ab*b", "ab*ab*"):
        assert [matches(n, [pattern]) for n in names] == [fnmatchcase(n, pattern) for n in names]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="its zipimporter knows load_module alone")
def test_own_files_are_read_out_of_a_zip_file(child, root):
    shutil.make_archive(str(child.folder / "box"), "zip", root, "cudaguard")
    told = "print(cudaguard.__file__, cudaguard.explain('file too short').id)"
    said = child.python(f"import sys; sys.path[:0] = ['box.zip']\nimport cudaguard\n{told}").stdout
    assert said.startswith("box.zip/cudaguard/")
    assert said.endswith(" CG752\n")
