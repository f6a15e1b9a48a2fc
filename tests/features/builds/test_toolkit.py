"""Toolkits, compilers and ninja, as folders and programs that answer."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from types import SimpleNamespace

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.elf.extension_check import ExtensionCheck
from cudaguard.features.builds.messages.builds import would_not_load
from cudaguard.features.builds.repair import tools as build_tools
from cudaguard.system import toolkit
from cudaguard.tools.catalog import RULES

NVCC = """#!/bin/sh
case "$1" in
--version) echo 'Cuda compilation tools, release 12.4, V12.4.131' ;;
--list-gpu-arch) printf 'compute_50\\ncompute_90\\n' ;;
--dryrun) echo "#\\$ _HERE_=$(dirname "$0")" >&2; echo "#\\$ TOP={top}/bin/.." >&2 ;;
*) exit 1 ;;
esac
"""
HEADER = "#error -- unsupported GNU version! gcc versions later than 13 are not supported! ..."


def request_in(mode):
    """Return what the rule for builds asks of a repair in a mode."""
    core = Dispatch()
    core.reporter.mode = mode
    (rule,) = (rule for rule in RULES if rule.id == "CG031")
    return core.repairs.request(rule, ("prepare_builds",), "torch.utils.cpp_extension")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a complete toolkit, on a machine without another."""
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cuda"
    for name, text in {
        "bin/nvcc": NVCC.replace("{top}", str(folder)),
        "include/cuda_runtime.h": "",
        "include/crt/host_config.h": HEADER,
        "lib64/libcudart.so": "",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "bin/nvcc").chmod(0o755)
    return folder


def test_versions_and_architectures(home):
    nvcc = str(home / "bin/nvcc")
    assert toolkit.cuda_version([nvcc]) == "12.4"
    assert toolkit.known_architectures([nvcc]) == ("compute_50", "compute_90")
    assert toolkit.newest_gcc(str(home)) == 13


def test_what_does_not_answer_is_not_known(tmp_path):
    (tmp_path / "nvcc").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (tmp_path / "nvcc").chmod(0o755)
    for nvcc in (str(tmp_path / "nvcc"), str(tmp_path / "absent")):
        assert toolkit.cuda_version([nvcc]) == ""
        assert toolkit.known_architectures([nvcc]) == ()
        assert toolkit.home_of(nvcc) == ""
    assert toolkit.newest_gcc(str(tmp_path)) is None


def test_script_and_link_lead_to_the_toolkit(home, tmp_path):
    bin = tmp_path / "local" / "bin"
    bin.mkdir(parents=True)
    (bin / "nvcc").write_text(f'#!/bin/sh\nexec {home}/bin/nvcc "$@"\n', encoding="utf-8")
    (bin / "nvcc").chmod(0o755)
    assert toolkit.lacks(str(tmp_path / "local")) == "headers"
    assert toolkit.home_of(str(bin / "nvcc")) == str(home)
    (bin / "nvcc").unlink()
    (bin / "nvcc").symlink_to(home / "bin/nvcc")
    assert toolkit.home_of(str(bin / "nvcc")) == str(home)
    (home / "include/cuda_runtime.h").unlink()
    assert toolkit.home_of(str(bin / "nvcc")) == ""


@pytest.mark.parametrize(
    ("file", "lack"), [("bin/nvcc", "nvcc"), ("include/cuda_runtime.h", "headers")]
)
def test_incomplete_toolkit(home, file, lack):
    (home / file).unlink()
    assert toolkit.lacks(str(home)) == lack


def test_libraries_may_lie_elsewhere(home, tmp_path, monkeypatch):
    (home / "lib64/libcudart.so").rename(tmp_path / "libcudart.so")
    without = toolkit.lacks(str(home))
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))
    assert toolkit.lacks(str(home)) == ""
    assert without in ("libraries", "")  # the machine may have one in /usr/lib
    monkeypatch.setattr(toolkit, "glob", lambda _: [])
    monkeypatch.delenv("LIBRARY_PATH")
    assert toolkit.lacks(str(home)) == "libraries"


def test_headers_of_conda_lie_below_targets(home):
    below = home / "targets/x86_64-linux/include"
    below.mkdir(parents=True)
    (home / "include/cuda_runtime.h").rename(below / "cuda_runtime.h")
    assert toolkit.lacks(str(home)) == ""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no GCC")
def test_gcc_is_told_from_others(tmp_path):
    version = toolkit.gcc_version("gcc")
    assert int(version.partition(".")[0]) >= 4
    clang = tmp_path / "cc"
    clang.write_text("#!/bin/sh\necho 'clang version 17.0.6'\n", encoding="utf-8")
    clang.chmod(0o755)
    assert toolkit.gcc_version(str(clang)) == ""


def test_ninja_is_found_beside_this_python(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setattr(toolkit.sysconfig, "get_path", lambda _: str(tmp_path / "Scripts"))
    assert toolkit.ninja_folder() == ""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ninja").write_text("#!/bin/sh\n", encoding="utf-8")
    assert toolkit.ninja_folder() == ""  # nobody may run it
    (tmp_path / "bin/ninja").chmod(0o755)
    assert toolkit.ninja_folder() == str(tmp_path / "bin")


def test_without_a_path_the_default_one_stays(tmp_path, monkeypatch):
    """With PATH not set programs are looked for in the default one, which must not be lost."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    ninja = scripts / "ninja"
    ninja.write_text("#!/bin/sh\n", encoding="utf-8")
    ninja.chmod(0o755)
    monkeypatch.delenv("PATH")
    monkeypatch.setattr(os, "defpath", str(tmp_path / "default"))
    monkeypatch.setattr(toolkit, "ninja_folder", lambda: str(scripts))
    found = build_tools.path_with_ninja(request_in("fix"))
    assert found == {"PATH": os.pathsep.join((os.defpath, str(scripts)))}


@pytest.fixture
def found(home, monkeypatch):
    """Looks at a toolkit as a build does, and returns what is told."""
    torch = SimpleNamespace(version=SimpleNamespace(hip=None, cuda="12.4"), __version__="2.6.0")
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("CC", "NVCC_CCBIN", "PYTORCH_NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    request = request_in("warn")

    def found():
        module = SimpleNamespace(CUDA_HOME=str(home))
        kit = build_tools.Toolkit(request, module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            permit = request.permit
            build_tools.variables_for(request, permit, kit, [], [], with_cuda=True, is_jit=True)
        return [finding.id for finding in request.reporter.channel.findings]

    return found


def compiler(path, version):
    path.parent.mkdir(exist_ok=True)
    said = f'*fullversion) echo {version} ;; *) echo "Free Software Foundation" ;;'
    path.write_text(f'#!/bin/sh\ncase "$1" in {said} esac\n', encoding="utf-8")
    path.chmod(0o755)


def test_compiler_that_the_profile_of_nvcc_names(home, found, tmp_path, monkeypatch):
    """The system's is too new; Debian and Ubuntu have their nvcc call an older one."""
    compiler(tmp_path / "system" / "gcc", "14.2.0")
    compiler(tmp_path / "older" / "gcc", "12.3.0")
    monkeypatch.setenv("PATH", str(tmp_path / "system"), prepend=os.pathsep)
    script = home / "bin" / "nvcc"
    text = script.read_text(encoding="utf-8")
    line = f'--dryrun) echo "#\\$ compiler-bindir={tmp_path / "older"}" >&2;'
    script.write_text(text.replace("--dryrun)", line), encoding="utf-8")
    assert found() == []
    script.write_text(text, encoding="utf-8")
    assert found() == ["CG890"]


def test_nvcc_that_was_chosen_need_not_be_in_the_toolkit(home, found, tmp_path, monkeypatch):
    compiler(tmp_path / "system" / "gcc", "12.3.0")
    monkeypatch.setenv("PATH", str(tmp_path / "system"), prepend=os.pathsep)
    chosen = tmp_path / "nvcc"
    (home / "bin" / "nvcc").rename(chosen)
    monkeypatch.setenv("PYTORCH_NVCC", str(chosen))
    assert found() == []
    monkeypatch.delenv("PYTORCH_NVCC")
    assert found() == ["CG888"]


def test_function_of_another_library_may_come_yet():
    """The package may load that library for all, before it imports the extension."""
    lacks = ExtensionCheck(ok=False, path="/x.so", cause="own-source-missing", message="lacks f()")
    assert would_not_load(lacks).severity == "warning"
    assert "unless" in would_not_load(lacks).consequence
    other = ExtensionCheck(ok=False, path="/x.so", cause="other-torch", message="lacks f()")
    assert would_not_load(other).severity == "error"
    assert would_not_load(other).consequence == "the import will fail."
