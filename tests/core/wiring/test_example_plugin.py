"""examples/fastvision: a package with rules about itself, built and installed as users have it."""

from __future__ import annotations

import sys
import zipfile

import pytest

from ...kept import PIP, run_python

SAY = """
import cudaguard
cudaguard.install()
import fastvision
print(sorted(rule.id for rule in cudaguard.active_rules() if rule.id.startswith("FAST")))
"""


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    """A folder with the installed package."""
    folder = tmp_path_factory.mktemp("fastvision")
    run_python(
        sys.executable, *PIP, "wheel", "--no-deps", "-w", folder, root / "examples/fastvision"
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def run(child, site):
    def run(torch):
        child.distribution("torch", torch)
        return child.python(SAY, env={"PYTHONPATH": str(site)})

    return run


def test_its_user_is_told_in_its_own_words(run):
    done = run("2.9.1")
    assert done.stdout.strip() == "['FASTVISION1', 'FASTVISION2']"
    assert "[FASTVISION1]" in done.stderr
    assert "Install the release of fastvision for your torch." in done.stderr


def test_a_pair_that_fits_is_silent(run):
    done = run("2.8.0+cu126")
    assert (done.stdout.strip(), done.stderr) == ("['FASTVISION1', 'FASTVISION2']", "")


def test_the_package_works_without_cudaguard(child, site):
    code = "import sys; sys.modules['cudaguard'] = None; import fastvision; print('imported')"
    assert child.python(code, env={"PYTHONPATH": str(site)}).stdout == "imported\n"
