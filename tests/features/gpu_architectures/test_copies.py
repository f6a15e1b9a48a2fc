"""The NVRTC that torch uses, and what torch's files say of it."""

from __future__ import annotations

import pytest

from cudaguard.features.gpu_architectures import repair
from cudaguard.system import torch_build


def test_release_in_the_name_of_the_file(program):
    """As toolkits have it."""
    path = program.nvrtc((12, 4), "cuda/lib64")
    real = path.rename(path.with_name("libnvrtc.so.12.4.127"))
    path.symlink_to(real.name)
    (real.parent / "libnvrtc-builtins.so.12.9").touch()  # as in a folder of the system's
    assert repair._copy(str(path)) == (str(real), "libnvrtc.so.12", (12, 4))


@pytest.mark.parametrize("more", ["libnvrtc-builtins.so.12.4", None])
def test_release_that_is_not_certain(program, more):
    path = program.nvrtc((12, 9), "nvidia/cuda_nvrtc/lib")
    if more:
        (path.parent / more).touch()
    else:
        (path.parent / "libnvrtc-builtins.so.12.9").unlink()  # only the other variant's is left
    assert repair._copy(str(path)).release is None


def test_folder_for_builds_for_another_machine(program, monkeypatch):
    """A toolkit that builds for GH200 or Jetson on x86-64 has libraries that cannot be loaded."""
    program.nvrtc((12, 8), "conda/lib")
    path = program.nvrtc((12, 9), "cuda/targets/sbsa-linux/lib")
    monkeypatch.setenv("CUDA_HOME", str(program.folder / "cuda"))
    monkeypatch.setenv("CONDA_PREFIX", str(program.folder / "conda"))
    found = {copy.release for copy in repair.installed_copies("libnvrtc.so.12")}
    assert found == {(12, 8), (12, 9)}
    data = bytearray(path.read_bytes())
    data[18:20] = (243).to_bytes(2, "little")  # RISC-V: nobody's who runs this
    path.write_bytes(data)
    (copy,) = repair.installed_copies("libnvrtc.so.12")
    assert copy.release == (12, 8)


def test_the_one_of_torch(program):
    program.torch()
    copy = repair.copy_for(str(program.site / "torch"))
    assert copy.release == (12, 8)
    assert copy.path == str(program.site / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")


def test_torch_whose_nvrtc_has_a_hash_in_its_name(program):
    """As in PyTorch's own wheels for CUDA 11: all lie in torch's folder."""
    folder = program.site / "torch" / "lib"
    folder.mkdir(parents=True)
    name = "libnvrtc-672ee683.so.11.2"
    program.compile(folder / name, "int nvrtcVersion;", f"-Wl,-soname,{name}")
    (folder / "libnvrtc-builtins.so.11.3").touch()
    program.compile(
        folder / "libcaffe2_nvrtc.so", "int f;", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN",
        folder / name,
    )  # fmt: skip
    copy = repair.copy_for(str(program.site / "torch"))
    assert (copy.name, copy.release) == (name, (11, 3))
    # Another one that is found by the plain name is what torch takes.
    plain = program.compile(folder / "libnvrtc.so.11.2", "int f;", "-Wl,-soname,libnvrtc.so.11.2")
    assert repair.copy_for(str(program.site / "torch")).path == str(plain)


def test_copies_in_the_process_come_first(program):
    program.torch()
    newer = program.nvrtc((12, 9), "elsewhere")
    ran = program.run(
        f"""
        import ctypes
        ctypes.CDLL({str(newer)!r})
        ctypes.CDLL({str(program.site / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")!r})
        from cudaguard.features.gpu_architectures.repair import copy_for, mapped_copies
        print([copy.release for copy in mapped_copies()])
        print(copy_for({str(program.site / "torch")!r}).release)
        """
    )
    assert ran.out == ["[(12, 9), (12, 8)]", "(12, 9)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sm_50 sm_80 sm_90", ("sm_50", "sm_80", "sm_90")),
        ("sm_90a", ("sm_90a",)),
        ("sm_100 compute_120", ("sm_100", "compute_120")),
        ("", ()),
    ],
)
def test_architectures_of_a_torch_by_its_file(tmp_path, text, expected):
    folder = tmp_path / "lib"
    folder.mkdir()
    other = b"\0the sm_90 is fine\0sm_carveout\0sm_\0"
    (folder / "libtorch_python.so").write_bytes(other + text.encode() + b"\0" + other)
    assert torch_build.architectures(str(tmp_path)) == expected


def test_no_torch_no_architectures(tmp_path):
    assert torch_build.architectures(str(tmp_path)) == ()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_python.so").write_bytes(b"")
    assert torch_build.architectures(str(tmp_path)) == ()
