"""What doctor finds in an environment of conda's where pip was used too (CG903, CG905, CG906).

The documents are what conda, mamba and pixi write. ``tests/incidents/test_conda.py`` has pixi's own
installer write them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import sysconfig
import venv

import pytest

from cudaguard.system.conda import PACKAGES, conda_packages, hashes_of, read_document, required_by

from ...conftest import ROOT
from ...tools.doctor import Planted
from ..extensions.conftest import Builder

SITE = PACKAGES.rstrip("/")


class CondaPlanted(Planted):
    """An environment of conda's: a Python of its own, with documents in ``conda-meta``."""

    def __init__(self, child, prefix):
        self.prefix = prefix
        venv.create(prefix, with_pip=False, symlinks=True)
        (prefix / SITE).rmdir()  # made again by the line below
        super().__init__(child, prefix / SITE)
        packages = dict.fromkeys([str(ROOT), *map(sysconfig.get_path, ("purelib", "platlib"))])
        self.write("tests.pth", "\n".join(packages))
        (prefix / "conda-meta").mkdir()
        self.conda("python", "3.11.9", {"bin/python3.1": ""}, is_there=False)

    def conda(self, name, version, files, *, depends=(), is_there=True, build="h0_0"):
        """Install a package as conda does.

        Args:
            name: Its name.
            version: Its version.
            files: Path, relative to the environment, or to ``site-packages`` if it begins with
                that -> text or bytes.
            depends: As conda writes them.
            is_there: False to list the files only.
            build: Its build.
        """
        listed, paths = [], []
        for path, data in files.items():
            data = data if isinstance(data, bytes) else data.encode()
            place = path.replace("site-packages/", PACKAGES, 1) if path[0] == "s" else path
            listed.append(place)
            paths.append({"_path": place, "path_type": "hardlink",
                          "sha256": hashlib.sha256(data).hexdigest(),
                          "size_in_bytes": len(data)})  # fmt: skip
            if is_there:
                (self.prefix / place).parent.mkdir(parents=True, exist_ok=True)
                (self.prefix / place).write_bytes(data)
        said = {"build": build, "channel": "conda-forge", "depends": list(depends), "files": listed,
                "name": name, "paths_data": {"paths": paths, "paths_version": 1},
                "version": version}  # fmt: skip
        (self.prefix / f"conda-meta/{name}-{version}-{build}.json").write_text(
            json.dumps(said, indent=2)
        )

    def module(self, name, version, data, *, by="conda", library=True, **options):
        """Install a module with metadata, as conda or pip do."""
        info = f"site-packages/{name}-{version}.dist-info"
        files = {f"site-packages/{name}/__init__.py": data, f"site-packages/{name}/core.py": data}
        if library:
            files[f"site-packages/{name}/_core.so"] = data
        if by != "conda":
            paths = [path.partition("/")[2] for path in files]
            for path in paths:
                self.write(path, data)
            return self.distribution(name, version, files=paths, INSTALLER=f"{by}\n")
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files[f"{info}/RECORD"] = f"{name}/__init__.py,sha256=old,3\n{name}/core.py,sha256=old,3\n"
        files[f"{info}/INSTALLER"] = "conda\n"
        return self.conda(name, version, files, **options)

    def found(self, id="CG905", env=None):
        """Run one check; returns its status, and what is found in this environment."""
        env = {"PATH": f"{self.prefix}/bin:/usr/bin:/bin", **(env or {})}
        _, checks = self.checks("--only", id, "--no-redact", env=env, python=self.python)
        (check,) = checks.values()
        return check["status"], check["findings"]

    @property
    def python(self):
        """Its interpreter."""
        return str(self.prefix / "bin" / "python")


@pytest.fixture
def conda(child, tmp_path):
    """An environment of conda's, healthy."""
    return CondaPlanted(child, tmp_path / "env")


def unlink_metadata(conda, name, version):
    """What pip does before it installs another release."""
    for file in (folder := conda.folder / f"{name}-{version}.dist-info").iterdir():
        file.unlink()
    folder.rmdir()


def test_environment_where_pip_installed_other_packages_is_quiet(conda):
    conda.module("numpy", "1.26.4", "conda's")
    conda.module("pip", "24.0", "conda's", library=False)
    conda.module("setuptools", "70.0", "conda's", library=False)
    conda.module("einops", "0.8", "pip's", by="pip")
    assert conda.found() == ("ok", [])


@pytest.mark.parametrize("installer", ["pip", "conda"])
def test_packages_of_conda_themselves_are_quiet(conda, installer):
    """Old ones say that pip installed them, which built them; their lists are older than they."""
    conda.module("numpy", "1.26.4", "conda's")
    (conda.folder / "numpy-1.26.4.dist-info" / "INSTALLER").write_text(f"{installer}\n")
    assert conda.found() == ("ok", [])


def test_release_that_pip_put_in_place_of_condas_is_a_note(conda):
    conda.module("numpy", "1.26.4", "conda's")
    unlink_metadata(conda, "numpy", "1.26.4")
    conda.module("numpy", "2.2.0", "pip's", by="pip")
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("ok", "info")
    assert found["what"] == "pip replaced conda's numpy 1.26.4."
    assert found["evidence"] == ["numpy 1.26.4: now numpy 2.2.0"]
    assert found["command"] == "conda list"


def test_the_same_release_by_pip_is_told_apart(conda):
    conda.module("numpy", "1.26.4", "conda's")
    unlink_metadata(conda, "numpy", "1.26.4")
    conda.module("numpy", "1.26.4", "pip's", by="uv")
    _, (found,) = conda.found()
    assert found["what"] == "uv replaced conda's numpy 1.26.4."


def test_package_of_conda_that_was_compiled_for_the_release_before(conda):
    conda.module("numpy", "1.26.4", "conda's")
    conda.module("cudf", "24.6", "conda's", depends=("numpy >=1.23,<2.0a0", "python >=3.9"))
    conda.module("cuml", "24.6", "conda's", depends=("numpy >=1.23", "numpy 1.26.*"))
    assert conda.found() == ("ok", [])
    unlink_metadata(conda, "numpy", "1.26.4")
    conda.module("numpy", "2.2.0", "pip's", by="pip")
    status, findings = conda.found(env={"CONDA_EXE": "", "MAMBA_EXE": "/opt/bin/micromamba"})
    assert status == "warning"
    assert [one["severity"] for one in findings] == ["warning", "info"]
    assert findings[0]["what"] == (
        "conda's cudf 24.6 requires numpy >=1.23,<2.0a0, but pip replaced it with numpy 2.2.0."
    )
    command = "pip uninstall -y numpy && micromamba install --force-reinstall numpy=1.26.4"
    assert findings[0]["command"].endswith(command)


def test_files_of_two_releases_in_one_folder_are_an_error(conda):
    """Conda wrote its release over that of pip, which has one more module."""
    conda.module("numpy", "2.2.0", "pip's", by="pip")
    conda.module("numpy", "1.26.4", "conda's")
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("fail", "error")
    assert found["what"] == (
        "numpy is installed twice: 2.2.0 by pip, and 1.26.4 by conda in the same folder."
    )
    assert "as conda installed it: numpy/core.py" in found["evidence"]
    assert found["command"].endswith(
        "pip uninstall -y numpy && conda install --force-reinstall numpy=1.26.4"
    )


def test_metadata_of_both_with_files_of_one(conda):
    conda.module("numpy", "1.26.4", "conda's")
    conda.module("numpy", "2.2.0", "pip's", by="pip")  # as with --ignore-installed
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("warning", "warning")
    assert "metadata of conda's: numpy-1.26.4.dist-info" in found["evidence"]


def test_overlap_of_python_alone_is_a_note(conda):
    conda.module("rich", "13.0", "pip's", by="pip", library=False)
    conda.module("rich", "12.0", "conda's", library=False)
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("ok", "info")


def test_library_of_conda_that_is_gone(conda):
    lib = {f"lib/{name}": name for name in ("libcudart.so.12", "libcudart.so.12.4.127")}
    conda.conda("cuda-cudart", "12.4.127", {**lib, "lib/libother.so.1": ""}, build="h1_0")
    assert conda.found() == ("ok", [])
    (conda.prefix / "lib/libother.so.1").unlink()
    assert conda.found() == ("ok", [])
    (conda.prefix / "lib/libcudart.so.12").unlink()
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("fail", "error")
    assert found["what"] == (
        "conda's cuda-cudart 12.4.127 lacks lib/libcudart.so.12 that it installed."
    )
    assert found["command"] == "conda install --force-reinstall cuda-cudart=12.4.127"
    (conda.prefix / "conda-meta" / "pixi").write_text("{}")
    assert conda.found()[1][0]["command"] == "pixi reinstall cuda-cudart"


def test_package_of_conda_that_pip_uninstalled(conda):
    conda.module("numpy", "1.26.4", "conda's")
    unlink_metadata(conda, "numpy", "1.26.4")
    for file in (conda.folder / "numpy").iterdir():
        file.unlink()
    (conda.folder / "numpy").rmdir()
    status, (found,) = conda.found()
    assert (status, found["severity"]) == ("ok", "info")
    assert found["what"] == "conda-meta lists numpy 1.26.4, but its modules are gone."


WANTED = ("nvidia-cudnn-cu12>=9.8; extra == 'cuda12'",)


@pytest.mark.parametrize("installer", ["conda", "pip"])
def test_pins_of_a_package_that_has_its_libraries_from_conda(conda, installer):
    """Built for wheels and for conda alike, its metadata name the wheels."""
    info = conda.distribution("jaxlib", "0.6.0", requires=WANTED, INSTALLER="conda\n")
    if installer == "conda":
        metadata = (info / "METADATA").read_text()
        conda.conda("jaxlib", "0.6.0", {f"site-packages/{info.name}/METADATA": metadata})
    conda.distribution("nvidia-cudnn-cu12", "9.1.0.70", INSTALLER="pip\n")
    conda.distribution("torch", "2.6.0", requires=("nvidia-cudnn-cu12==9.1.0.70",))
    status, findings = conda.found("CG906")
    assert status == ("ok" if installer == "conda" else "warning")
    assert len(findings) == (installer != "conda")


def test_wheels_that_a_torch_of_conda_does_without(conda):
    info = conda.distribution("torch", "2.6.0", requires=("nvidia-nccl-cu12==2.21.5",))
    assert conda.found("CG906")[0] == "warning"
    metadata = (info / "METADATA").read_text()
    conda.conda("pytorch", "2.6.0", {f"site-packages/{info.name}/METADATA": metadata})
    assert conda.found("CG906") == ("skipped", [])


# --- CG903: one library from both --------------------------------------------------------

RUNTIME = "libcudart.so.12"
needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="needs Linux and a C compiler",
)


def runtime_of_conda(conda, version="12.4.127"):
    """Conda's CUDA runtime, and a library that needs it."""
    build = Builder(conda.prefix / "lib")
    cudart = build(f"libcudart.so.{version}", f"int v = {version.replace('.', '')};",
                   f"-Wl,-soname,{RUNTIME}")  # fmt: skip
    (cudart.parent / RUNTIME).symlink_to(cudart.name)
    files = (f"lib/{RUNTIME}", f"lib/{cudart.name}")
    conda.conda("cuda-cudart", version, dict.fromkeys(files, ""), is_there=False)
    build("libcudf.so", "extern int v; int *w = &v;", cudart, "-Wl,-soname,libcudf.so",
          "-Wl,-rpath,$ORIGIN")  # fmt: skip
    depends = ("cuda-version >=12,<13.0a0", "cuda-cudart")
    conda.conda("libcudf", "25.8", {"lib/libcudf.so": ""}, depends=depends, is_there=False)


def cudf_of_conda(conda):
    """A module of conda's that comes to CUDA's runtime by a library without a module."""
    library = conda.prefix / "lib/libcudf.so"
    module = Builder(conda.folder)("cudf/_lib.so", "extern int *w; int **x = &w;", library,
                                   "-Wl,-rpath,$ORIGIN/../../..")  # fmt: skip
    assert module.exists()
    info = conda.distribution("cudf", "25.8", files=("cudf/_lib.so",), INSTALLER="conda\n")
    files = ("cudf/_lib.so", *(f"{info.name}/{file.name}" for file in info.iterdir()))
    data = {f"site-packages/{file}": (conda.folder / file).read_bytes() for file in files}
    conda.conda("cudf", "25.8", data, depends=("libcudf ==25.8",), is_there=False)


def torch_of_pip(conda, version, *, by_name=False):
    """A module that needs, or opens by name, the CUDA runtime of a wheel."""
    build = Builder(conda.folder)
    wheel = build(f"nvidia/cuda_runtime/lib/{RUNTIME}", f"int v = {version.replace('.', '')};",
                  f"-Wl,-soname,{RUNTIME}")  # fmt: skip
    files = (f"nvidia/cuda_runtime/lib/{RUNTIME}",)
    conda.distribution("nvidia-cuda-runtime-cu12", version, files=files, INSTALLER="pip\n")
    flags = () if by_name else (wheel, "-Wl,-rpath,$ORIGIN/../nvidia/cuda_runtime/lib")
    source = "int w;" if by_name else "extern int v; int *w = &v;"
    build("torch/_C.so", source, *flags)
    conda.distribution("torch", "2.8.0", files=("torch/_C.so",), INSTALLER="pip\n")


@needs_compiler
def test_library_from_conda_and_from_a_wheel(conda):
    runtime_of_conda(conda)
    cudf_of_conda(conda)
    torch_of_pip(conda, "12.8.90")
    status, (found,) = conda.found("CG903")
    assert status == "warning"
    assert found["what"] == (
        "cudf and torch would load different files of libcudart.so.12 (the CUDA runtime); the "
        "first import decides for both."
    )
    assert "12.4.127 of conda's cuda-cudart 12.4.127, for cudf" in found["evidence"][0]
    assert found["remedy"].endswith("or install both with conda or both with pip")
    assert conda.found("CG905") == ("ok", [])


@needs_compiler
@pytest.mark.parametrize(("version", "status"), [("12.8.90", "told"), ("12.4.127", "quiet")])
def test_library_of_conda_beside_a_wheel_that_is_opened_by_name(conda, version, status):
    runtime_of_conda(conda)
    cudf_of_conda(conda)
    torch_of_pip(conda, version, by_name=True)
    found, findings = conda.found("CG903")
    assert found == "ok"
    assert [one["severity"] for one in findings] == ["info"] * (status == "told")
    if findings:
        assert findings[0]["what"].startswith(f"conda and pip each installed {RUNTIME} (the CUDA")


@needs_compiler
def test_toolkit_of_conda_that_no_module_comes_to_is_quiet(conda):
    """For nvcc, say: torch has all from wheels."""
    runtime_of_conda(conda)
    torch_of_pip(conda, "12.8.90")
    assert conda.found("CG903") == ("ok", [])


@needs_compiler
def test_modules_of_conda_alone_are_quiet(conda):
    runtime_of_conda(conda)
    cudf_of_conda(conda)
    assert conda.found("CG903") == ("ok", [])


def test_documents_that_cannot_be_used_are_passed_over(conda):
    meta = conda.prefix / "conda-meta"
    odd = {"files": ["site-packages/numpy/core.py"], "depends": [1, {}],
           "paths_data": {"paths": [1, {"_path": 2}, {"_path": "a/b"}]}}  # fmt: skip
    texts = "", "{", "[]", "null", '{"files": 3, "paths_data": {"paths": 5}}', "[" * 100_000
    for n, text in enumerate((*texts, json.dumps(odd))):
        (meta / f"odd{n}-1.0-0.json").write_text(text)
    (meta / "bytes-1.0-0.json").write_bytes(b'"site-packages/\xff/\xfe" "lib/lib\xff.so"')
    (meta / "folder-1.0-0.json").mkdir()
    conda.module("numpy", "2.2.0", "pip's", by="pip")
    assert conda.found() == ("ok", [])


def test_packages_for_any_python_may_be_listed_as_they_are_packed(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    said = {"files": ["site-packages/attr/a.py"], "depends": ["python >=3.8", "numpy"],
            "paths_data": {"paths": [{"_path": "site-packages/attr/a.py", "sha256": "1",
                                      "sha256_in_prefix": "2"}]}}  # fmt: skip
    (tmp_path / "conda-meta/attrs-24.2.0-pyh71513ae_0.json").write_text(json.dumps(said))
    (package,) = conda_packages(str(tmp_path))
    assert (package.name, package.version, package.modules) == ("attrs", "24.2.0", {"attr"})
    assert hashes_of(read_document(package)) == {"attr/a.py": {"1", "2"}}
    assert required_by(read_document(package)) == [("python", ">=3.8")]
    assert conda_packages(str(tmp_path / "absent")) == []
