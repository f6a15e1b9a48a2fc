"""Which GPUs a library has code for: by its headers, of made-up files and of nvcc's own."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaguard.elf.library_facts import GpuCode, gpu_code

from ..fat_binaries import binary, compiled, image, library, source

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="needs Linux and a C compiler",
)
KERNEL = """
__global__ void add(int *a) { a[threadIdx.x] += 1; }
extern "C" int run(int *a) { add<<<1, 32>>>(a); return (int)cudaGetLastError(); }
"""
CALLER = """
extern __device__ int other(int);
__global__ void add(int *a) { a[threadIdx.x] = other(a[0]); }
extern "C" int run(int *a) { add<<<1, 32>>>(a); return (int)cudaGetLastError(); }
"""
CALLEE = "__device__ int other(int x) { return x + 1; }"


def test_architectures_of_one_source_file(tmp_path):
    path = library(tmp_path / "one.so", "compute_90a", "sm_100f", "sm_90a", "sm_80", "compute_80")
    code = gpu_code(str(path))
    assert code.architectures == ("sm_80", "sm_90a", "sm_100f", "compute_80", "compute_90a")
    assert not code.has_more


def test_library_without_gpu_code(tmp_path):
    assert gpu_code(str(compiled(tmp_path / "plain.so", ""))) == GpuCode()


def test_source_files_for_different_gpus(tmp_path):
    """With room between them, as where sections are aligned."""
    first, second = binary("sm_80") + bytes(24), binary("sm_90a", "compute_90")
    path = compiled(tmp_path / "two.so", source(tmp_path, [first, second]))
    assert gpu_code(str(path)).architectures == ("sm_80", "sm_90a", "compute_90")


def test_stub_of_the_device_linker_is_no_part(tmp_path):
    """It has no kernels, and no PTX where the others have some."""
    binaries = [binary("sm_75", "sm_80"), binary("compute_80")]
    path = compiled(tmp_path / "stub.so", source(tmp_path, binaries, versions=(2, 1)))
    assert gpu_code(str(path)).architectures == ("compute_80",)


@pytest.mark.parametrize("versions", [(2,), (2, 1, 1)], ids=["fewer", "more"])
def test_records_that_do_not_fit_leave_all_in(tmp_path, versions):
    binaries = [binary("sm_75"), binary("compute_80")]
    path = compiled(tmp_path / "odd.so", source(tmp_path, binaries, versions=versions))
    assert gpu_code(str(path)).architectures == ("sm_75", "compute_80")


def test_what_the_driver_may_link_counts_where_all_of_it_can_be(tmp_path):
    """Built with -rdc=true: linked for sm_80, and PTX in each part that is linked."""
    to_link = [binary("sm_80", "compute_80"), binary("compute_80", "compute_90")]
    text = source(tmp_path, [binary("sm_80")], to_link, versions=(2, 1, 1))
    code = gpu_code(str(compiled(tmp_path / "rdc.so", text)))
    assert code.architectures == ("sm_80", "compute_80")


def test_image_of_an_unknown_kind_is_told_of(tmp_path):
    code = gpu_code(str(library(tmp_path / "odd.so", "sm_80", "odd_90")))
    assert (code.architectures, code.has_more) == (("sm_80",), True)


def test_header_may_be_longer(tmp_path):
    """As nvcc 13 writes them for later architectures."""
    data = bytearray(image("sm_100a"))
    struct.pack_into("<I", data, 4, 64 + 32)
    data[64:64] = bytes(32)
    whole = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(data)) + data
    code = gpu_code(str(compiled(tmp_path / "long.so", source(tmp_path, [whole]))))
    assert code.architectures == ("sm_100a",)


@pytest.mark.parametrize(
    "content",
    [b"nonsense" * 4, binary("sm_80")[:-8] + bytes(200), binary("sm_80") + b"x" * 32],
    ids=["no magic", "images without a length", "something behind"],
)
def test_section_with_something_else_is_not_guessed_at(tmp_path, content):
    path = compiled(tmp_path / "odd.so", source(tmp_path, [content], versions=()))
    if content.startswith(b"nonsense") or content.endswith(b"x"):
        with pytest.raises(OSError, match="something else"):
            gpu_code(str(path))
    else:
        assert gpu_code(str(path)).architectures == ("sm_80",)


@pytest.mark.parametrize(
    ("place", "size", "why"), [(8, 1 << 60, "longer than its section"), (20, 0, "make no sense")]
)
def test_size_that_leads_nowhere_is_refused(tmp_path, place, size, why):
    """An image of no length would be looked at for ever."""
    data = bytearray(binary("sm_80"))
    struct.pack_into("<Q", data, place, size)
    path = compiled(tmp_path / "odd.so", source(tmp_path, [bytes(data)]))
    with pytest.raises(OSError, match=why):
        gpu_code(str(path))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_files_end_in_an_answer_or_a_known_error(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole-fat.so"
    if not whole.exists():
        library(whole, "sm_80", "compute_80")
    content = bytearray(whole.read_bytes())
    fat = content.index(struct.pack("<I", 0xBA55ED50))
    for _ in range(data.draw(st.integers(1, 4))):
        near = st.integers(fat, fat + 150) | st.integers(len(content) - 2000, len(content) - 9)
        place = data.draw(st.integers(0, 64) | near)
        value = data.draw(st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]) | st.integers(0, 2**40))
        struct.pack_into("<Q", content, place, value)
    damaged = folder / "damaged-fat.so"
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        assert isinstance(gpu_code(str(damaged)), GpuCode)
    except OSError:
        pass


# --- nvcc ----------------------------------------------------------------------------------------


def built(folder: Path, *flags: str, **sources: str) -> Path:
    """Build a library by the nvcc that is here."""
    if (nvcc := shutil.which("nvcc")) is None:
        pytest.skip("there is no nvcc")
    known = subprocess.run([nvcc, "--help"], capture_output=True, text=True, check=True).stdout
    if "compute_100f" not in known:
        pytest.skip("this nvcc is older than 12.9, and knows no families of architectures")
    for name, text in sources.items():
        (folder / f"{name}.cu").write_text(text)
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-o", "built.so", *flags]
    subprocess.run([*command, *(f"{name}.cu" for name in sources)], cwd=folder, check=True)
    return folder / "built.so"


def generated(*pairs: str) -> list[str]:
    """Return the options of nvcc for pairs such as ``90a,[sm_90a,compute_90a]``."""
    codes = (pair.partition(",") for pair in pairs)
    return [f"-gencode=arch=compute_{arch},code={code}" for arch, _, code in codes]


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-no-compress",)], ids=["compressed", "plain"])
def test_what_nvcc_builds(tmp_path, more):
    flags = generated("75,sm_75", "90a,[sm_90a,compute_90a]", "100f,[sm_100f,compute_100f]")
    code = gpu_code(str(built(tmp_path, *flags, *more, kernel=KERNEL)))
    assert code.architectures == ("sm_75", "sm_90a", "sm_100f", "compute_90a", "compute_100f")


@pytest.mark.slow
def test_what_nvcc_links_for_devices(tmp_path):
    flags = ["-rdc=true", *generated("75,sm_75", "80,[sm_80,compute_80]")]
    code = gpu_code(str(built(tmp_path, *flags, caller=CALLER, callee=CALLEE)))
    assert code.architectures == ("sm_75", "sm_80", "compute_80")
