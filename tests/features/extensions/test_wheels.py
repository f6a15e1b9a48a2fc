"""`cudaguard check-extension X.whl`: as if it were installed; hostile ones; another torch."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import sysconfig
import time
import zipfile

import pytest

from ...conftest import clean_environment
from ...documents import valid
from ...kept import PIP, run_python
from .wheels import HERE, PLATFORM, wheel

CALL = {"body": "int absent_f(void);", "call": "absent_f();"}
COMMAND = (sys.executable, "-m", "cudaguard", "check-extension")


@pytest.fixture
def command(child):
    """Runs the command with a temporary folder of its own, in which nothing must stay."""
    scratch = child.folder / "scratch"
    scratch.mkdir()

    def command(*arguments, **options):
        env = {"TMPDIR": str(scratch), **options.pop("env", {})}
        done = child.command(*COMMAND, *arguments, check=False, env=env, **options)
        assert os.listdir(scratch) == []
        return done.returncode, done.stdout.splitlines(), done.stderr

    return command


@pytest.fixture
def bundled(build):
    """A wheel as auditwheel leaves it: a library in half_ext.libs, found by DT_RUNPATH."""
    library = build.library("libabsent-0a1b2c3d.so.1.1.1k")  # as one of OpenSSL's is called
    flag = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../half_ext.libs"
    module = build.module("half", library, flag, **CALL)

    def bundled(*, with_library=True, **more):
        files = {"half_ext/__init__.py": b"", f"half_ext/{module.name}": module}
        if with_library:
            files[f"half_ext.libs/{library.name}"] = library
        return wheel(build.folder / "dist", files, **more)

    return bundled


def test_wheel_with_its_libraries(bundled, command):
    status, lines, told = command(bundled())
    assert (status, lines, told) == (0, ["1 checked: 1 would load"], "")


def test_wheel_that_lacks_its_libraries(bundled, command):
    path = bundled(with_library=False)
    status, lines, _ = command(path)
    assert status == 1
    assert lines[0].startswith(f"{path}/half_ext/half.")
    assert lines[0].endswith(": would NOT load [library-missing]")


def test_it_agrees_with_the_loader_once_it_is_installed(bundled, command, tmp_path, loader):
    for with_library, ok in ((True, True), (False, False)):
        path, target = bundled(with_library=with_library), tmp_path / f"installed{ok}"
        run_python(sys.executable, *PIP, "install", "--no-deps", "--target", target, path)
        (module,) = target.glob("half_ext/*.so")
        assert (loader(module) == "") is ok
        assert (command(path)[0] == 0) is ok


def test_documents_tell_the_wheel_and_not_where_it_was_unpacked(bundled, command):
    path = bundled(with_library=False)
    status, lines, _ = command("--format", "json", path)
    (check,) = valid("check-extension", "\n".join(lines))["checks"]
    assert (status, check["ok"]) == (1, False)
    assert check["path"].startswith(f"{path}/half_ext/half.")
    assert "cudaguard-wheel" not in "\n".join(lines)


def test_what_a_wheel_puts_in_its_data_folder_is_installed_at_the_top(build, command):
    module = build.module("half", **CALL)
    path = wheel(build.folder, {
        f"half_ext-1.0.data/platlib/half_ext/{module.name}": module,
        f"half_ext-1.0.data/data/share/{module.name}": module,
    })  # fmt: skip
    status, lines, _ = command(path)
    assert (status, lines[-1]) == (1, "1 checked: 1 would not load")
    assert lines[0].startswith(f"{path}/half_ext/{module.name}: ")


def test_library_of_another_installed_package_is_found_beside_it(build, command, tmp_path):
    """As those of NVIDIA's wheels are: by a path that leads out of the package."""
    site = tmp_path / "venv" / "site-packages"
    library = build.library("libabsent.so.3")
    folder = "$ORIGIN/../neighbor/lib"
    module = build.module("half", library, f"-Wl,-rpath,{folder}", **CALL)
    path = wheel(build.folder, {f"half_ext/{module.name}": module, "neighbor/own.py": b""})
    assert command(path)[0] == 1
    (site / "neighbor" / "lib").mkdir(parents=True)
    library.rename(site / "neighbor" / "lib" / library.name)
    program = (
        "import sys, sysconfig\n"
        f"sysconfig.get_path = lambda name, *_: {str(site)!r}\n"
        "from cudaguard.tools.main import main\n"
        "sys.exit(main(['check-extension', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], env=clean_environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1 checked: 1 would load\n"), done.stderr


@pytest.mark.parametrize(
    ("tags", "cause", "said"),
    [
        (f"cp36-cp36m-{PLATFORM}", "python-abi", "is for another Python than this"),
        (HERE.replace(PLATFORM, "win_amd64"), "wrong-machine", "its name says win_amd64"),
        (HERE.replace(PLATFORM, "linux_s390x"), "wrong-machine", "its name says linux_s390x"),
        (
            HERE.replace(PLATFORM, f"manylinux_2_99_{os.uname().machine}"),
            "symbol-version",
            "is for systems with glibc 2.99 or later",
        ),
    ],
)
def test_wheel_for_others(bundled, command, tags, cause, said):
    path = bundled(tags=tags)
    status, lines, _ = command(path)
    assert status == 1
    assert lines[0] == f"{path}: would NOT load [{cause}]"
    assert said in lines[1]
    assert lines[-1] == "1 checked: 1 would not load"
    _, lines, _ = command("--format", "json", path)
    valid("check-extension", "\n".join(lines))


@pytest.mark.parametrize("tags", ["py3-none-any", f"cp36-abi3-{PLATFORM}"])
def test_wheel_for_many_pythons_fits(bundled, command, tags):
    assert command(bundled(tags=tags))[0] == 0


def test_renamed_wheel_is_judged_by_its_files(bundled, command):
    path = bundled()
    assert command(path.rename(path.with_name("latest.whl")))[0] == 0


# --- hostile ones --------------------------------------------------------------------------------


def member(name, mode=0o644):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (member("../outside.so"), "points outside of it"),
        (member("half_ext/../../outside.so"), "points outside of it"),
        (member("/tmp/outside.so"), "points outside of it"),
        (member("half_ext/link.so", stat.S_IFLNK | 0o777), "is a link"),
    ],
    ids=["above", "within", "absolute", "link"],
)
def test_member_that_leads_elsewhere(bundled, command, info, said):
    path = bundled()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, b"/etc/passwd")
    status, lines, told = command(path)
    assert (status, lines) == (2, [])
    assert said in told
    assert not list(path.parent.parent.rglob("outside.so"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_that_is_there_twice(bundled, command):
    path = bundled()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("half_ext/twice.so", b"one")
        archive.writestr("half_ext/twice.so", b"two")
    status, _, told = command(path)
    assert (status, "is there twice" in told) == (2, True)


def test_bomb_is_not_unpacked(bundled, command):
    """It says itself how large it is."""
    path = bundled()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("half_ext/bomb.so", bytes(1 << 20))
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02", 0, data.rindex(b"half_ext/bomb.so"))
    data[place + 24 : place + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(2):
            archive.writestr(f"half_ext/bomb{number}.so", b"")
    data = bytearray(path.read_bytes())
    for number in range(2):
        place = data.rindex(b"PK\x01\x02", 0, data.rindex(b"half_ext/bomb%d.so" % number))
        data[place + 24 : place + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    status, lines, told = command(path)
    assert (status, lines) == (2, [])
    assert "GB unpacked, and at most" in told


def test_member_that_is_longer_than_it_says(bundled, command):
    path = bundled()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("half_ext/bomb.so", bytes(1 << 20))
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02", 0, data.rindex(b"half_ext/bomb.so"))
    data[place + 24 : place + 28] = (100).to_bytes(4, "little")
    path.write_bytes(data)
    status, _, told = command(path)
    assert (status, "it is no wheel, or a damaged one" in told) == (2, True)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"no zip file" * 100], ids=["empty", "start", "odd"]
)
def test_what_is_no_wheel(command, tmp_path, content):
    path = tmp_path / f"half_ext-1.0-{HERE}.whl"
    path.write_bytes(content)
    status, lines, told = command(path)
    assert (status, lines) == (2, [])
    assert f"{path.name}: it is no wheel, or a damaged one" in told


def test_pipe_is_not_waited_for(command, tmp_path):
    path = tmp_path / f"half_ext-1.0-{HERE}.whl"
    os.mkfifo(path)
    assert command(path, timeout=60)[0] == 3


def test_wheel_cut_at_any_length_is_told_of(bundled, child, tmp_path):
    whole = bundled().read_bytes()
    path = tmp_path / "short.whl"
    child.python(
        """
        import os, shutil, sys
        from cudaguard.tools.check_extension.wheels import WheelError, unpack
        whole = open(sys.argv[1], "rb").read()
        for length in range(0, len(whole), 97):
            open("short.whl", "wb").write(whole[:length])
            os.mkdir("there")
            try:
                unpack("short.whl", "there")
            except WheelError:
                pass
            else:
                raise SystemExit(f"unpacked at {length}")
            shutil.rmtree("there")
        """,
        wheel_of(whole, path),
    )


def wheel_of(content, path):
    path.write_bytes(content)
    return path.rename(path.with_name("whole.whl"))


def test_nothing_stays_of_one_that_is_ended(bundled, child):
    """It is ended while it unpacks."""
    path = bundled()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"half_ext/large{number}.so", os.urandom(1 << 20))
    scratch = child.folder / "ended"
    scratch.mkdir()
    running = subprocess.Popen(
        [*COMMAND, path], env=clean_environment(TMPDIR=str(scratch)), stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not list(scratch.rglob("large*.so")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) in (143, 1)  # ended, or at its end already: those are no libraries
    assert os.listdir(scratch) == []


# --- another torch -------------------------------------------------------------------------------

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def torches(build):
    """Returns the folder of a torch whose libc10.so has a function, and one that needs it."""

    def torches(name, function):
        site = f"{name}/lib/python3.{sys.version_info[1]}/site-packages"
        library = build(
            f"{site}/torch/lib/libc10.so", f"int {function}(void) {{ return 1; }}",
            "-Wl,-soname,libc10.so",
        )  # fmt: skip
        folder = build.folder / site / "torch"
        (folder / "version.py").write_text(f"__version__ = '{name}'\ncuda = None\n")
        (folder / "__init__.py").touch()
        # By a name on the link line, as the linker would note the path of a file.
        build(
            f"{site}/torch/_C{SUFFIX}", "int unused;", "-Wl,--no-as-needed",
            f"-L{library.parent}", "-lc10", "-Wl,-rpath,$ORIGIN/lib",
        )  # fmt: skip
        (build.folder / name / "bin").mkdir()
        (build.folder / name / "bin" / "python").symlink_to(sys.executable)
        return folder

    return torches


@pytest.fixture
def needing(build, torches):
    """An extension for the torch 2.9, which lacks a function in the torch 2.1."""
    torches("2.9", "absent_f")
    torches("2.1", "other_f")
    folder = build.folder / "2.9" / f"lib/python3.{sys.version_info[1]}/site-packages/torch/lib"
    return build.module("needing", f"-L{folder}", "-lc10", **CALL)


PLACES = ("", "bin/python", "lib/{python}/site-packages", "lib/{python}/site-packages/torch")


@pytest.mark.parametrize("place", PLACES, ids=["environment", "interpreter", "site", "folder"])
def test_judged_with_another_torch(needing, command, build, place):
    place = place.format(python=f"python3.{sys.version_info[1]}")
    status, lines, told = command("--torch", build.folder / "2.9" / place, needing)
    assert (status, told) == (0, "")
    assert lines[0] == f"{needing}: would load (once torch is imported)"
    status, lines, _ = command("--torch", build.folder / "2.1" / place, needing)
    assert status == 1
    assert "absent_f" in lines[1]


def test_judged_with_a_wheel_of_torch(needing, command, build):
    site = build.folder / "2.9" / f"lib/python3.{sys.version_info[1]}/site-packages"
    files = {
        str(path.relative_to(site)): path for path in site.rglob("torch/**/*") if path.is_file()
    }
    path = wheel(build.folder / "dist", files, name="torch")
    assert command("--torch", path, needing)[0] == 0


def test_torch_that_is_no_torch(needing, command, build):
    status, lines, told = command("--torch", build.folder, needing)
    assert (status, lines) == (2, [])
    assert "--torch: there is no torch at" in told


def test_torch_of_another_python(needing, command, build):
    folder = build.folder / "2.9" / f"lib/python3.{sys.version_info[1]}/site-packages/torch"
    (extension,) = folder.glob("_C*")
    extension.rename(folder / "_C.cpython-36m-x86_64-linux-gnu.so")
    status, _, told = command("--torch", folder, needing)
    assert status == 2
    assert "is for Python 3.6, this is Python" in told


def test_environment_with_two_torches(needing, command, build):
    site = build.folder / "2.9" / "lib" / "python3.6" / "site-packages"
    site.mkdir(parents=True)
    (site / "torch").symlink_to(
        build.folder / "2.1" / f"lib/python3.{sys.version_info[1]}/site-packages/torch"
    )
    status, _, told = command("--torch", build.folder / "2.9", needing)
    assert (status, "has more than one torch" in told) == (2, True)
