"""Libraries of which there should be one: their names, releases, and kinds of pairs."""

from __future__ import annotations

import os
import shutil

import pytest

from cudaguard.features.duplicate_libraries.judgement import is_older_release
from cudaguard.system.runtimes import (
    RUNTIMES,
    Copy,
    first_of_each,
    is_same_build,
    runtime_of,
    stem_of,
    version_of,
)

# However much they look alike.
OTHERS = (
    "libnvrtc-builtins.so.12.4", "libnvrtc.alt.so.12", "libomp-plugin-nvptx.so.1",
    "libomp-a34b323.so.1", "libomp-a34b323g.so.1", "libstdc++.so.6", "libcublas_static.a",
    "libcudart", "libomp_ext.so", "libavif-43e630fc.so.16.4.2", "linux-vdso.so.1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libcudart.so.12", "libcudart"),
        ("libcudart.so.11.8.89", "libcudart"),
        ("libcudart-d0da41ae.so.11.0", "libcudart"),
        ("libiomp5-a34b3233.so", "libiomp5"),
        ("libcudnn.so.9", "libcudnn"),
        ("libcudnn_ops.so.9", "libcudnn_ops"),
        ("libcudnn_engines_precompiled-0123abcd.so.9", "libcudnn_engines_precompiled"),
        *((name, "") for name in ("", *OTHERS)),
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
    ("one", "other", "alike"),
    [
        ("libomp.so", "libnvrtc.so.12", False),
        ("libomp.so", "libiomp5.so", True),
        ("libnvrtc.so.12", "libnvrtc.so.13", True),
        ("libcublas.so.12", "libcublasLt.so.12", False),
        ("libcudnn.so.9", "libcudnn_ops.so.9", False),
    ],
)
def test_libraries_that_are_one(one, other, alike):
    assert copy(one).is_like(copy(other)) is alike


@pytest.mark.parametrize(
    ("first", "second", "is_older"),
    [
        ((9, 10), (9, 9), False),
        ((9,), (10,), True),
        ((12, 8), (12, 8, 9), False),
        ((), (12, 8), False),
    ],
)
def test_releases_are_compared_as_numbers(first, second, is_older):
    assert is_older_release(first, second) is is_older


def test_first_of_a_name_is_used():
    one, two, other = copy("libcudnn.so.9"), copy("libcudnn.so.9", "", "/b"), copy("libcudnn.so.8")
    assert first_of_each([one, other, two]) == {"libcudnn.so.9": one, "libcudnn.so.8": other}


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
    assert version_of(path, "libnvrtc.so.12") == version


def test_metadata_elsewhere_do_not_count(installed):
    path = installed("other/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia_cuda_nvrtc_cu12-12.4.127")
    assert version_of(path, "libnvrtc.so.12") == ()


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
