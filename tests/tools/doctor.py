"""Environments for `cudaguard doctor`: real processes, with packages planted on their path."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from ..documents import valid
from ..features.extensions.conftest import Builder

if TYPE_CHECKING:
    from pathlib import Path

PURE = "Wheel-Version: 1.0\nTag: py3-none-any\n"  # of a wheel without compiled code
DOCTOR = (sys.executable, "-m", "cudaguard", "doctor")


def in_bundle(text):
    """Return the report in a bundle, held against the schema, and its inventory."""
    document = json.loads(text.rpartition("```json\n")[2].rpartition("\n```")[0])
    inventory = document.pop("inventory")
    return valid("doctor", json.dumps(document)), inventory


class Planted:
    """A folder on the path of the doctor, with distributions as pip leaves them."""

    def __init__(self, child, folder: Path) -> None:
        self.child = child
        self.folder = folder
        folder.mkdir()

    def distribution(self, name, version="1.0", *, files=(), requires=(), **more):
        """Write the metadata of a distribution, and list the files, which are there already."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        (info / "RECORD").write_text("".join(self.line(file) for file in files))
        for file, text in more.items():
            (info / file).write_text(text)
        return info

    def line(self, file):
        data = (self.folder / file).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{file},sha256={digest},{len(data)}\n"

    def write(self, file, text=""):
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *arguments, env=None, python=None, **options):
        """Run the doctor; returns its status, standard output, and standard error."""
        command = DOCTOR if python is None else (python, *DOCTOR[1:])
        paths = [str(self.folder), *(p for p in [(env or {}).get("PYTHONPATH")] if p)]
        env = {**(env or {}), "PYTHONPATH": os.pathsep.join(paths)}
        done = self.child.command(*command, *arguments, env=env, check=False, **options)
        return done.returncode, done.stdout, done.stderr

    def checks(self, *arguments, **options):
        """Run the doctor; returns its status and the checks by id, held against the schema."""
        status, out, _ = self.run("--format", "json", *arguments, **options)
        document = valid("doctor", out)
        assert sum(document["summary"].values()) == len(document["checks"])
        return status, {check["id"]: check for check in document["checks"]}

    def one(self, id, *arguments, **options):
        """Run a single check; returns its status as a word and its findings."""
        _, checks = self.checks("--only", id, *arguments, **options)
        (check,) = checks.values()
        return check["status"], check["findings"]


@pytest.fixture
def planted(child, tmp_path):
    """A folder for distributions on the path of the doctor."""
    return Planted(child, tmp_path / "planted")


@pytest.fixture
def build(planted):
    """Compiles into the folder of planted distributions."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    return Builder(planted.folder)


def torch(planted, version="2.6.0", cuda="None", **more):
    """A torch, as far as files tell."""
    planted.write("torch/version.py", f"__version__ = {version!r}\ncuda: Optional[str] = {cuda}\n")
    planted.write("torch/__init__.py", "raise SystemExit('imported')\n")
    planted.distribution("torch", version, **more)


def links(planted, build, package, *sonames, version="1.0"):
    """A package with an extension that needs libraries, which are nowhere."""
    libraries = [build(f"tmp/{s}", "int x;", f"-Wl,-soname,{s}") for s in sonames]
    build(f"{package}/_native.so", "int call;", "-Wl,--no-as-needed", *libraries)
    planted.distribution(package, version, files=(f"{package}/_native.so",))
    shutil.rmtree(planted.folder / "tmp")
