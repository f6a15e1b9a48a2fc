"""Libraries of which there should be one: their names, releases, and kinds of pairs."""

from __future__ import annotations

import os
import shutil

import pytest

from cudaguard.elf.library_facts import is_same_build, version_of
from cudaguard.features.duplicate_libraries.policy import (
    APART,
    NEWER,
    OLDER,
    RIVALS,
    SAME,
    UNKNOWN,
    Copy,
    are_alike,
    compared,
    is_fault,
    kind_of,
    parts_beside,
    winners,
)
from cudaguard.system.runtimes import RUNTIMES, runtime_of, stem_of


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libcudart.so.12", "libcudart"),
        ("libcudart.so.11.8.89", "libcudart"),
        ("libcudart-d0da41ae.so.11.0", "libcudart"),
        ("libgomp-a34b3233.so.1.0.0", "libgomp"),
        ("libgomp.so", "libgomp"),
        ("libcudnn.so.9", "libcudnn"),
        ("libcudnn_ops.so.9", "libcudnn_ops"),
        ("libcudnn_engines_precompiled-0123abcd.so.9", "libcudnn_engines_precompiled"),
        ("libLLVM-14.so.1", "libLLVM"),
        ("libLLVM.so.19.1", "libLLVM"),
        ("libLLVM-17-0123abcd.so", "libLLVM"),
        ("libstdc++.so.6", "libstdc++"),
        ("libprotobuf-lite.so.32", "libprotobuf-lite"),
        # Others, however much they look alike.
        ("libnvrtc-builtins.so.12.4", ""),
        ("libnvrtc.alt.so.12", ""),
        ("libgomp-plugin-nvptx.so.1", ""),
        ("libgomp-a34b323.so.1", ""),
        ("libgomp-a34b323g.so.1", ""),
        ("libcublas_static.a", ""),
        ("libcudart", ""),
        ("libomp_ext.so", ""),
        ("libavif-43e630fc.so.16.4.2", ""),
        ("linux-vdso.so.1", ""),
        ("", ""),
    ],
)
def test_name_of_a_library(name, stem):
    assert stem_of(name) == stem
    assert not stem or runtime_of(stem).title


def test_each_entry_is_found_by_its_own_name_and_says_what_is_in_danger():
    for stem, runtime in RUNTIMES.items():
        assert stem_of(f"{stem}.so.1") == stem
        assert runtime.danger
        assert runtime.title


def copy(name: str, soname: str = "", folder: str = "/a") -> Copy:
    return Copy(f"{folder}/{name}", stem_of(name), soname or name, f"{folder}{name}", "", "")


@pytest.mark.parametrize(
    ("first", "second", "versions", "is_same", "kind", "fault"),
    [
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.12"), ((12, 4), (12, 8)), False, OLDER, True),
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.12"), ((12, 8), (12, 4)), False, NEWER, False),
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.12"), ((12, 8), (12, 8, 9)), False, SAME, False),
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.12"), ((), (12, 8)), False, UNKNOWN, False),
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.12"), ((12, 4), (12, 8)), True, SAME, False),
        (copy("libnvrtc.so.12"), copy("libnvrtc.so.13"), ((12, 4), (13, 0)), False, APART, False),
        (copy("libgomp.so.1"), copy("libgomp.so.1"), ((1, 0), (1, 1)), False, OLDER, False),
        (copy("libgomp.so.1"), copy("libiomp5.so"), ((), ()), False, APART, False),
        (copy("libomp.so"), copy("libiomp5.so"), ((), ()), False, RIVALS, True),
        (copy("libiomp5.so"), copy("libiomp5.so"), ((), ()), True, RIVALS, True),
    ],
)
def test_kinds_of_pairs(first, second, versions, is_same, kind, fault):
    assert are_alike(first.stem, second.stem)
    assert kind_of(first, second, versions, is_same) == kind
    assert is_fault(kind, first.stem) is fault


def test_libraries_that_are_no_pair():
    assert not are_alike("libcublas", "libcublasLt")
    assert not are_alike("libcudnn", "libcudnn_ops")
    assert not are_alike("libavutil", "libavcodec")


def test_versions_are_compared_as_numbers():
    assert compared(((9, 10), (9, 9))) == NEWER
    assert compared(((9,), (10,))) == OLDER


def test_first_of_a_name_serves_it():
    one, two, other = copy("libcudnn.so.9"), copy("libcudnn.so.9", "", "/b"), copy("libcudnn.so.8")
    assert winners([one, other, two]) == {"libcudnn.so.9": one, "libcudnn.so.8": other}


def test_parts_that_work_together():
    main, ops = copy("libcudnn.so.9"), copy("libcudnn_ops.so.9", "", "/b")
    older, marked = copy("libcudnn_ops_infer.so.8"), copy("libcudnn_cnn-0123abcd.so.9")
    serving = [main, ops, older, marked, copy("libcublas.so.9"), copy("libgomp.so.9")]
    assert parts_beside(main, serving) == [ops]
    assert parts_beside(ops, serving) == [main]
    assert parts_beside(marked, serving) == []
    assert parts_beside(copy("libgomp.so.9"), serving) == []


# --- releases -----------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path):
    """Puts a file and the metadata of packages into a folder."""

    def installed(path: str, *metadata: str) -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"library")
        for name in metadata:
            (tmp_path / f"{name}.dist-info").mkdir()
        return str(file)

    return installed


@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        (("nvidia_cuda_nvrtc_cu12-12.4.127",), (12, 4, 127)),
        (("nvidia_cuda_nvrtc-13.0.88",), (13, 0, 88)),
        (("nvidia_cuda_nvrtc_cu12-12.4.127", "nvidia_cuda_runtime_cu12-12.8.90"), (12, 4, 127)),
        (("nvidia_cuda_nvrtc_cu12-12.4.127", "nvidia_cuda_nvrtc_cu11-11.8.89"), ()),
        (("nvidia_cuda_nvrtcx-1.2",), ()),
        (("nvidia_cuda_nvrtc_cu12-12.4rc1",), ()),
        ((), ()),
    ],
)
def test_release_by_the_metadata_beside_it(installed, metadata, version):
    path = installed("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", *metadata)
    assert version_of(path, "libnvrtc.so.12", "cuda_nvrtc") == version


def test_metadata_elsewhere_do_not_count(installed):
    path = installed("other/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia_cuda_nvrtc_cu12-12.4.127")
    assert version_of(path, "libnvrtc.so.12", "cuda_nvrtc") == ()


def test_release_by_the_file_behind_a_link(installed, tmp_path):
    installed("libx.so.1.2.3")
    link = tmp_path / "libx.so.1"
    link.symlink_to("libx.so.1.2.3")
    assert version_of(str(link), "libx.so.1") == (1, 2, 3)


@pytest.mark.parametrize("name", ["libnvrtc.so.11.2", "libx.so", "libx.so.1.beta"])
def test_name_of_a_library_tells_no_release(installed, name):
    """That of nvrtc 11.8 is libnvrtc.so.11.2."""
    assert version_of(installed(name), name) == ()
    assert version_of("/nowhere/libx.so.1", "libx.so.1") == ()


def test_builds(installed, tmp_path):
    one = installed("a/libx.so.1")
    other = shutil.copy(one, tmp_path)
    assert is_same_build(one, other)
    with open(other, "ab") as file:
        file.write(b"more")
    assert not is_same_build(one, other)
    os.truncate(other, len(b"library"))
    assert is_same_build(one, other)
    with open(other, "r+b") as file:
        file.write(b"L")
    assert not is_same_build(one, other)
    assert not is_same_build(one, str(tmp_path / "absent"))


@pytest.mark.parametrize("stem", ["libprotobuf", "libprotobuf-lite", "libLLVM", "libgomp"])
def test_older_copies_that_serve_as_well_are_no_fault(stem):
    """An older libprotobuf.so.32 is another patch of 3.21: other releases have other names."""
    assert not is_fault(OLDER, stem)
    assert is_fault(OLDER, "libnccl")
    assert is_fault(OLDER, "libnvJitLink")
