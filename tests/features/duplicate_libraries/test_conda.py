"""What doctor finds in an environment of conda's where pip was used too (CG905, CG906).

The documents are what conda, mamba and pixi write. ``tests/incidents/test_conda.py`` has pixi's own
installer write them.
"""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
import venv

import pytest

from ...conftest import ROOT
from ...tools.doctor import Planted

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


class CondaPlanted(Planted):
    """An environment of conda's: a Python of its own, with documents in ``conda-meta``."""

    def __init__(self, child, prefix):
        venv.create(prefix, with_pip=False, symlinks=True)
        (prefix / SITE).rmdir()  # made again by the line below
        super().__init__(child, prefix / SITE)
        packages = dict.fromkeys([str(ROOT), *map(sysconfig.get_path, ("purelib", "platlib"))])
        self.write("tests.pth", "\n".join(packages))
        self.prefix = prefix
        (prefix / "conda-meta").mkdir()

    def conda(self, name, version, depends=(), dist="", **options):
        """Install a package as conda does, with the metadata of a Python distribution."""
        info = self.distribution(dist or name, version, INSTALLER="conda\n", **options)
        said = {"name": name, "version": version, "depends": list(depends),
                "files": [f"{SITE}/{info.name}/METADATA"]}  # fmt: skip
        document = self.prefix / f"conda-meta/{name}-{version}-h0_0.json"
        document.write_text(json.dumps(said, indent=2))
        return info

    def found(self, id="CG905"):
        """Run one check; returns its status, and what is found in this environment."""
        python = str(self.prefix / "bin" / "python")
        env = {"PATH": f"{self.prefix}/bin:/usr/bin:/bin"}
        return self.one(id, env=env, python=python)


@pytest.fixture
def conda(child, tmp_path):
    """An environment of conda's, healthy, with a package that pip brought."""
    conda = CondaPlanted(child, tmp_path / "env")
    conda.distribution("einops", "0.8", INSTALLER="pip\n")
    return conda


def replaced(conda, *names):
    """Have pip put other releases of packages in the place of conda's."""
    for name in names:
        shutil.rmtree(conda.conda(name, "1.26.4"))
        conda.distribution(name, "2.2.0", INSTALLER="pip\n")


@pytest.mark.parametrize("installer", ["pip", "conda"])
def test_packages_of_conda_themselves_are_quiet(conda, installer):
    """Old ones say that pip installed them, which built them."""
    (conda.conda("numpy", "1.26.4") / "INSTALLER").write_text(f"{installer}\n")
    conda.conda("cudf", "24.6", ("numpy >=1.23,<2.0a0",))
    assert conda.found() == ("ok", [])


def test_releases_that_pip_put_in_place_of_condas_are_a_note(conda):
    replaced(conda, "numpy", "scipy")
    conda.conda("cuml", "24.6", ("numpy >=1.23", "numpy 1.26.*", "scipy"))
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("ok", "info")
    assert found["what"] == "pip replaced conda's numpy 1.26.4 and 1 more package."
    assert found["evidence"] == ["numpy 1.26.4: now numpy 2.2.0", "scipy 1.26.4: now scipy 2.2.0"]


def test_package_of_conda_that_was_compiled_for_the_release_before(conda):
    replaced(conda, "numpy")
    conda.conda("cudf", "24.6", ("numpy >=1.23,<2.0a0 py311", "python >=3.9"))
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("warning", "warning")
    assert found["what"] == (
        "pip replaced conda's numpy 1.26.4 with 2.2.0, but conda's cudf 24.6 requires numpy "
        ">=1.23,<2.0a0."
    )
    assert found["command"].endswith("conda install --force-reinstall numpy=1.26.4")


def test_metadata_of_both(conda):
    """Conda wrote its release over that of pip, or pip was told to ignore what is installed."""
    conda.distribution("numpy", "2.2.0", INSTALLER="pip\n")
    conda.conda("numpy", "1.26.4")
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("warning", "warning")
    assert found["what"] == "numpy is installed twice: 2.2.0 by pip, and 1.26.4 by conda."


def test_pins_of_a_package_that_has_its_libraries_from_conda(conda):
    """Built for wheels and for conda alike, its metadata name the wheels."""
    conda.distribution("nvidia-cudnn-cu12", "9.1.0.70", INSTALLER="pip\n")
    wanted = ("nvidia-cudnn-cu12==9.8.0.87",)
    conda.conda("pytorch", "2.6.0", dist="torch", requires=wanted)
    assert conda.found("CG906") == ("skipped", [])
    conda.distribution("jaxlib", "0.6.0", requires=wanted)
    assert conda.found("CG906")[0] == "warning"


def test_documents_that_cannot_be_used_are_passed_over(conda):
    replaced(conda, "numpy")
    for n, text in enumerate(
        (b"", b'"numpy ', b'"numpy \xff"', b'"site-packages/\xff.dist-info/x')
    ):
        (conda.prefix / f"conda-meta/odd{n}-1.0-0.json").write_bytes(text)
    (conda.prefix / "conda-meta/folder-1.0-0.json").mkdir()
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("ok", "info")
