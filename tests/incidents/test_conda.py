"""An environment that pixi's own installer of conda's packages makes, where pip is used too."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..documents import valid
from ..kept import PIP, make_environment, run_python
from .pins import OURS

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(sys.platform != "linux", reason="its packages are Linux'"),
]
RATTLER = "py-rattler==0.28.0"
PYTHON = ".".join(map(str, sys.version_info[:2]))
SITE = f"lib/python{PYTHON}/site-packages"
OLD, NEW = "markupsafe==2.1.5", "markupsafe==3.0.3"  # with a compiled module
INSTALL = """
import asyncio, os, sys
from rattler import Channel, Platform, install, solve
channel, prefix, cache, *specs = sys.argv[1:]
AGAIN = {"markupsafe"}
async def main():
    platforms = [Platform("linux-64"), Platform("noarch")]
    records = await solve([Channel(channel)], specs, platforms=platforms)
    await install(records, prefix, cache_dir=cache, reinstall_packages=AGAIN)
asyncio.run(main())
os._exit(0)  # its threads outlive the interpreter, and crash
"""


def pack(channel, name, version, files, depends=()):
    """Write a package in conda's form; returns its file name and what the channel says of it."""
    index = {"name": name, "version": version, "build": "h0_0", "build_number": 0,
             "depends": list(depends), "subdir": "linux-64"}  # fmt: skip
    paths = {"files": "\n".join(files).encode(), "index.json": json.dumps(index).encode()}
    file = f"{name}-{version}-h0_0.tar.bz2"
    with tarfile.open(channel / "linux-64" / file, "w:bz2") as archive:
        for path, data in {**{f"info/{n}": d for n, d in paths.items()}, **files}.items():
            about = tarfile.TarInfo(path)
            about.size, about.mode = len(data), 0o755
            archive.addfile(about, io.BytesIO(data))
    return file, index


@pytest.fixture(scope="module")
def channel(kept, tmp_path_factory):
    """A channel with a release of MarkupSafe, and a package that requires it."""
    folder = tmp_path_factory.mktemp("channel")
    (folder / "noarch").mkdir()
    (folder / "linux-64").mkdir()
    wheel = Path(kept.packages(OLD))
    info = "MarkupSafe-2.1.5.dist-info"
    files = {
        f"{SITE}/{path.relative_to(wheel)}": b"conda\n" if path.name == "INSTALLER" else data
        for path in sorted(wheel.rglob("*"))
        if path.is_file() and path.parts[-2] in ("markupsafe", info)
        for data in [path.read_bytes()]
    }  # fmt: skip
    packages = dict([
        pack(folder, "python", f"{PYTHON}.0", {"share/python": b""}),
        pack(folder, "markupsafe", "2.1.5", files, [f"python {PYTHON}.*"]),
        pack(folder, "jinja2", "3.1.0", {f"{SITE}/jinja2/__init__.py": b""}, ["markupsafe >=2,<3"]),
    ])  # fmt: skip
    for platform, listed in ("linux-64", packages), ("noarch", {}):
        said = {"info": {"subdir": platform}, "packages": listed, "packages.conda": {}}
        (folder / platform / "repodata.json").write_text(json.dumps(said))
    return folder.as_uri()


def test_pip_in_an_environment_of_conda(child, cached_environment, channel, tmp_path):
    prefix = tmp_path / "env"
    python = make_environment(prefix, *OURS)
    installer = cached_environment(RATTLER)

    def conda():
        specs = ("markupsafe 2.*", "jinja2")
        run_python(installer, "-c", INSTALL, channel, prefix, tmp_path / "cache", *specs)

    def found():
        env = {"PYTHONPATH": str(ROOT), "PATH": f"{prefix}/bin:/usr/bin:/bin"}
        command = (python, "-m", "cudaguard", "doctor", "--format", "json", "--only", "CG905")
        done = child.command(*command, env=env, check=False)
        (check,) = valid("doctor", done.stdout)["checks"]
        return [one["what"] for one in check["findings"]]

    conda()
    assert found() == []  # pip's own packages beside conda's
    run_python(python, *PIP, "install", NEW)
    (told,) = found()
    needs = "but conda's jinja2 3.1.0 requires markupsafe >=2,<3."
    assert told == f"pip replaced conda's markupsafe 2.1.5 with 3.0.3, {needs}"
    conda()
    assert found() == ["markupsafe is installed twice: 3.0.3 by pip, and 2.1.5 by conda."]
    run_python(python, *PIP, "uninstall", "-y", "markupsafe")
    conda()
    assert found() == []
