"""Which copy is loaded and what is told; see also `tests.incidents.test_python_for_windows`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cudaguard.core.registry import built_in
from cudaguard.core.repairs import Done, Refused, WouldDo
from cudaguard.core.rule import permit_for
from cudaguard.features.windows_runtime import repair
from cudaguard.features.windows_runtime.checks import WINDOWS_DLLS
from cudaguard.features.windows_runtime.findings import RuntimeCopy
from cudaguard.features.windows_runtime.rules import RULES
from cudaguard.kernel import watched
from cudaguard.system.packages import Site

from ...pe_files import LOCKS, pe_file

OLD, NEW = (14, 26, 28720, 3), (14, 44, 35211, 0)


class Packages:
    """PyQt5 with an old runtime, torch, and a process with Windows' own copy to be had."""

    def __init__(self, folder):
        self.folder, self.mapped, self.windows = folder, "", OLD
        self.loaded = []
        self.qt = self.put("PyQt5/Qt5/bin/msvcp140.dll", version=OLD)
        self.put("torch/lib/c10.dll", imports=LOCKS)
        for name, file in (
            ("PyQt5_Qt5", "PyQt5/Qt5/bin/msvcp140.dll"),
            ("torch", "torch/lib/c10.dll"),
        ):
            info = folder / f"{name}-2.9.1.dist-info"
            info.mkdir()
            (info / "RECORD").write_text(f"{file},sha256=x,1\n{file[:-4]}_1.dll,,\n")
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.9.1\n")

    def put(self, name, **what):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pe_file(**what))
        return str(path)

    def copies(self):
        yield RuntimeCopy(self.windows, "C:/System32/msvcp140.dll", "Windows")
        for path, owner in repair.in_wheels("msvcp140.dll", sys.path):
            yield RuntimeCopy(repair.read_pe(path).version, path, owner)

    def ask(self, name="torch", mode="fix"):
        """Return the outcome at the import of a package."""
        asked = {"path": str(self.folder / name / "__init__.py"), "permit": permit_for(mode)}
        request = SimpleNamespace(name=name, rule=RULES[0], where="train.py:7", **asked)
        return next(iter(repair.load_newest(request)), None)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    packages = Packages(tmp_path / "site-packages")
    monkeypatch.setattr(sys, "path", [str(packages.folder)])
    monkeypatch.setattr(repair, "mapped", lambda _: packages.mapped)
    monkeypatch.setattr(repair, "copies_of_runtime", packages.copies)
    monkeypatch.setattr(repair, "load_family", packages.loaded.append)
    return packages


def test_newest_copy_is_loaded_before_what_has_an_older_one(packages):
    packages.windows = NEW
    packages.put("PyQt5/Qt5/bin/msvcp140.dll", version=NEW)  # as new: Windows' own is taken
    assert isinstance(packages.ask("PyQt5"), Done)
    assert packages.loaded == ["C:/System32/msvcp140.dll"]
    assert packages.ask("PyQt5", "warn") is None  # nothing is known to fail yet


def test_old_copy_that_is_there_is_told_if_the_package_needs_a_newer_one(packages):
    packages.mapped = packages.qt
    outcome = packages.ask()
    assert isinstance(outcome, Refused)
    said = "torch needs a newer C++ runtime than msvcp140.dll 14.26, which PyQt5 has loaded."
    assert outcome.finding.what == said
    assert isinstance(packages.ask(mode="warn"), WouldDo)
    assert packages.ask("PyQt5") is None
    packages.put("torch/lib/c10.dll", imports=LOCKS, linker=(14, 38))  # torch 2.8
    assert packages.ask() is None


def test_told_where_no_copy_is_new_enough(packages):
    outcome = packages.ask()
    assert isinstance(outcome, Refused)
    assert outcome.finding.command == "winget install Microsoft.VCRedist.2015+.x64"
    packages.windows = ()  # not known: perhaps that one is new enough
    assert packages.ask() is None


def test_doctor_compares_the_runtimes_of_wheels(packages):
    findings, seen = WINDOWS_DLLS.run(Site())
    assert ([one.id for one in findings], seen) == (["CG920"], "libraries for Windows: 4")
    packages.put("PyQt5/Qt5/bin/msvcp140.dll", version=NEW)
    assert WINDOWS_DLLS.run(Site())[0] == []


def test_doctor_compares_the_functions_of_copies(packages):
    """One finding for two packages, and none where no copy has what is asked for."""
    core, more = "PyQt5/Qt5/bin/msvcp140.dll", "torch/lib/c10.dll"  # which are listed
    packages.put(more, imports={"msvcp140_1.dll": ("new", "odd")})
    packages.put(core, version=NEW)
    packages.put("PyQt5/Qt5/bin/msvcp140_1.dll", exports=("old",))
    packages.put("torch/lib/c10_1.dll")
    assert WINDOWS_DLLS.run(Site())[0] == []
    record = packages.folder / "torch-2.9.1.dist-info/RECORD"
    record.write_text(f"{more},,\ntorch/lib/msvcp140_1.dll,,\n")
    packages.put("torch/lib/msvcp140_1.dll", exports=("new",))
    assert WINDOWS_DLLS.run(Site())[0] == []
    packages.put("torch/lib/msvcp140_1.dll", exports=("new", "odd"))
    said = [one.what for one in WINDOWS_DLLS.run(Site())[0]]
    assert said == [
        "PyQt5_Qt5 2.9.1 has a msvcp140_1.dll without functions that torch 2.9.1 needs."
    ]


def test_elsewhere_nothing_of_it_is_watched():
    assert RULES[0].id not in {entry.id for entry, _ in built_in("linux")}
    assert not {*watched.WATCHED} & {*watched.WINDOWS}
