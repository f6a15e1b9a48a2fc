"""Which copy of the runtime is loaded, and what is told, with libraries that the test has made.

That it cures anything is shown in ``tests/windows``, on Windows' own Python.
"""

from __future__ import annotations

import sys

import pytest

from cudaguard.core.permit import permit_for
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.features.windows_runtime import facts, repair
from cudaguard.features.windows_runtime.facts import Copy, newest
from cudaguard.features.windows_runtime.rules import RULES
from cudaguard.model import Record
from cudaguard.system.pe import is_too_old

from ...pe_files import LOCKS, pe_file

OLD, NEW = (14, 26, 28720, 3), (14, 44, 35211, 0)


class Asked(Record):
    """A request of the rule."""

    name: str
    path: str | None
    mode: str = "fix"
    where: str = "train.py:7"
    rule = RULES[0]

    @property
    def permit(self):
        return permit_for(self.mode)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of site-packages with an old runtime of PyQt5's, and torch."""

    class Site:
        mapped = ""  # file of the runtime in the process
        loaded: list[str] = []
        windows = OLD

        def put(self, name, **what):
            path = tmp_path / "site-packages" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pe_file(**what))
            return str(path)

        def ask(self, name="torch", mode="fix"):
            """Return the outcome at the import of a package."""
            where = tmp_path / "site-packages" / name / "__init__.py"
            return next(repair.load_newest(Asked(name, str(where), mode)), None)

        def copies(self, name):
            own = self.put("../system32/msvcp140.dll", version=self.windows)
            yield Copy(self.windows, own, "Windows")
            for path, owner in facts.in_wheels(name, sys.path):
                yield Copy(facts.read_pe(path).version, path, owner)

    site = Site()
    site.qt = site.put("PyQt5/Qt5/bin/msvcp140.dll", version=OLD)
    site.put("torch/lib/c10.dll", imports=LOCKS)
    record = tmp_path / "site-packages" / "PyQt5_Qt5-5.15.2.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("PyQt5/Qt5/bin/MSVCP140.dll,sha256=x,1\nPyQt5/Qt5/bin/msvcp140_1.dll,,\n")
    (tmp_path / "site-packages/PyQt5/Qt5/bin/MSVCP140.dll").write_bytes(pe_file(version=OLD))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    monkeypatch.setattr(facts, "mapped", lambda _: site.mapped)
    monkeypatch.setattr(facts, "copies", site.copies)
    monkeypatch.setattr(facts, "load", lambda path, _: site.loaded.append(path))
    return site


def test_newest_copy_is_loaded_before_what_has_an_older_one(site, tmp_path):
    site.windows = NEW
    done = site.ask("PyQt5")
    assert isinstance(done, Done)
    assert done.subject == str(tmp_path / "site-packages/../system32/msvcp140.dll")
    assert site.loaded == [done.subject]
    assert site.ask("PyQt5", "warn") is None  # nothing is known to fail yet


def test_copy_that_is_there_already_is_told_of_only_where_it_is_too_old(site):
    site.mapped = site.qt
    outcome = site.ask()
    assert isinstance(outcome, Refused)
    assert (
        "torch needs a newer C++ runtime than msvcp140.dll 14.26, which PyQt5 has loaded."
        in str(outcome.finding)
    )
    assert isinstance(site.ask(mode="warn"), WouldDo)
    assert site.ask("PyQt5") is None
    site.put("torch/lib/c10.dll", imports=LOCKS, linker=(14, 38))  # torch 2.8
    assert site.ask() is None
    site.put("torch/lib/c10.dll", imports=LOCKS)
    site.mapped = site.put("shiboken6/msvcp140.dll", version=NEW)
    assert site.ask() is None


def test_told_where_no_copy_is_new_enough(site):
    outcome = site.ask()
    assert isinstance(outcome, Refused)
    assert outcome.finding.command == "winget install Microsoft.VCRedist.2015+.x64"
    assert site.ask("PyQt5") is None  # whatever comes, nothing is better
    site.windows = ()  # not known: perhaps that one is new enough
    assert site.ask() is None


def test_choice():
    windows, wheel = Copy(NEW, "C:", "Windows"), Copy(NEW, "D:", "msvc_runtime")
    assert newest([windows, wheel, Copy(OLD, "E:", "PyQt5_Qt5")]) is windows
    assert newest([]) is None
    assert [is_too_old(one) for one in (OLD, (14, 35), (14, 39, 1, 0), NEW, ())] == [
        *(True, True, False, False, False)
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="it is what others do without")
def test_elsewhere_nothing_of_it_is_watched():
    from cudaguard.core.registry import built_in
    from cudaguard.kernel import watched

    assert RULES[0].id not in {entry.id for entry, _ in built_in()}
    assert RULES[0].id in {entry.id for entry, _ in built_in("win32")}
    assert not {*watched.WATCHED} & {*watched.WINDOWS}
