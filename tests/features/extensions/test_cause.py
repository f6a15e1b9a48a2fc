"""From what is missing to one cause, and to the words for it."""

from __future__ import annotations

import pytest

from cudaguard.elf.forecast import Forecast, Lack, Surroundings
from cudaguard.system import extensions
from cudaguard.system.extensions import (
    built_for_python,
    cause_of,
    has_old_strings,
    library_of,
    words_for,
)

FILE = "/site/ext.so"
CPU = frozenset({"libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"})
GPU = CPU | {"libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so"}
NONE = Surroundings("3.11")
CPU_TORCH = Surroundings(
    "3.11", is_imported=True, torch="2.13.0+cpu", old_strings=False, torch_libraries=CPU
)
NOT_YET = CPU_TORCH._replace(is_imported=False)
GPU_TORCH = CPU_TORCH._replace(torch="2.11.0", cuda="13.0", torch_libraries=GPU)
OLD_TORCH = GPU_TORCH._replace(torch="2.5.1+cu124", cuda="12.4", old_strings=True)

ASSERT = "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RK"
OLD, NEW = "Ss", "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def libraries(*names: str, needed: tuple[str, ...] = ()) -> Forecast:
    return Forecast(FILE, needed=needed, libraries=tuple(Lack(n, FILE) for n in names))


def symbols(*names: str, needed: tuple[str, ...] = ()) -> Forecast:
    return Forecast(FILE, needed=needed, symbols=tuple(Lack(n, FILE) for n in names))


@pytest.mark.parametrize(
    ("found", "around", "cause", "about"),
    [
        # Libraries.
        (libraries("libc10.so", "libz.so"), NOT_YET, "torch-not-imported", ["libc10.so"]),
        (libraries("libtorch_cpu.so"), NONE, "torch-not-imported", ["libtorch_cpu.so"]),
        (libraries("libc10_cuda.so"), CPU_TORCH, "torch-flavor", ["libc10_cuda.so"]),
        # To import this torch would not help.
        (libraries("libc10.so", "libtorch_cuda.so"), NOT_YET, "torch-flavor",
         ["libtorch_cuda.so"]),
        (libraries("libc10_hip.so"), GPU_TORCH, "torch-flavor", ["libc10_hip.so"]),
        (libraries("libtorch_cuda_linalg.so"), GPU_TORCH, "library-missing", None),
        (libraries("libtorch_cuda_cu.so", needed=("libc10.so",)), OLD_TORCH, "other-torch", None),
        (libraries("libtorch_cuda_cu.so"), OLD_TORCH, "library-missing", None),
        (libraries("libtorch_mine.so", needed=("libc10.so",)), NONE, "library-missing", None),
        (libraries("libcudart.so.12", needed=("libc10.so",)), CPU_TORCH, "torch-flavor", None),
        (libraries("libcudart.so.12"), CPU_TORCH, "library-missing", None),
        (libraries("libcudart.so.11.0"), OLD_TORCH, "cuda-major", None),
        (libraries("libcublasLt.so.12"), GPU_TORCH, "cuda-major", None),
        (libraries("libcudart.so.13"), GPU_TORCH, "library-missing", None),
        (libraries("libcufft.so.11"), OLD_TORCH, "library-missing", None),  # that is CUDA 12's
        (libraries("libpython3.10.so.1.0"), NONE, "python-abi", None),
        (libraries("libpython3.11.so.1.0"), NONE, "library-missing", None),
        (libraries("libGL.so.1"), NONE, "library-missing", None),
        # Symbols.
        (symbols("_PyType_GetModuleByDef", "own"), NONE, "python-abi", ["_PyType_GetModuleByDef"]),
        (symbols("PyInit_other"), NONE, "own-source-missing", None),
        (symbols("cudaLaunchKernel"), GPU_TORCH, "cuda-not-linked", None),
        (symbols("__cudaRegisterFatBinary"), GPU_TORCH, "cuda-not-linked", None),
        (symbols("cuLaunchKernel"), GPU_TORCH, "cuda-not-linked", None),
        (symbols("cublasCreate_v2"), GPU_TORCH, "cuda-not-linked", None),
        (symbols("cudaSetupArgument", needed=("libcudart.so.12",)), GPU_TORCH, "cuda-major", None),
        (Forecast(FILE, symbols=(Lack("ncclCommRegister", FILE, "libnccl.so.2"),)), GPU_TORCH,
         "older-library", None),
        (symbols("cuda_helper", "custom"), GPU_TORCH, "own-source-missing", None),
        (symbols(ASSERT + OLD), CPU_TORCH, "cxx11-abi", None),
        (symbols(ASSERT + NEW), OLD_TORCH, "cxx11-abi", None),
        (symbols(ASSERT + OLD), OLD_TORCH, "other-torch", None),
        (symbols(ASSERT + NEW), NONE, "other-torch", None),
        (symbols("_ZNK3c1010TensorImpl15incref_pyobjectEv"), OLD_TORCH, "other-torch", None),
        (symbols("_ZTVN5torch3jit6ModuleE", "own"), CPU_TORCH, "other-torch",
         ["_ZTVN5torch3jit6ModuleE"]),
        (symbols("_ZN2at4reluERKNS_6TensorEii"), CPU_TORCH, "other-torch", None),
        (symbols("THPVariableClass"), CPU_TORCH, "other-torch", None),
        (symbols("torch_from_blob"), CPU_TORCH, "other-torch", None),  # of the stable interface
        (symbols("sqlite3_deserialize"), CPU_TORCH, "unknown", None),
        (symbols("_Z16THPVariable_WrapN2at6TensorE"), CPU_TORCH, "other-torch", None),
        (symbols("_Z27ms_deform_attn_cuda_forwardRKN2at6TensorES2_S2_S2_S2_i"), CPU_TORCH,
         "own-source-missing", None),
        (symbols("_ZN3c104mineEv", "_ZN4mine2atEv"), NONE, "other-torch", ["_ZN3c104mineEv"]),
        (symbols("_ZN4mine2atEv"), CPU_TORCH, "own-source-missing", None),
        (symbols("GOMP_parallel"), CPU_TORCH, "unknown", None),
        (symbols("_ZNSt6thread4joinEv", "GOMP_parallel"), CPU_TORCH, "unknown", None),
        (symbols("_ZNSt6thread4joinEv", "own"), CPU_TORCH, "own-source-missing", ["own"]),
        # A missing library has missing symbols follow, and so has a missing version.
        (libraries("libz.so")._replace(symbols=(Lack("own", FILE),)), NONE, "library-missing",
         None),
        (symbols("own")._replace(versions=(Lack("GLIBCXX_3.4.90", FILE, "/lib/libstdc++.so.6"),)),
         NONE, "symbol-version", ["GLIBCXX_3.4.90"]),
        (Forecast(FILE, "truncated", "it is empty"), NONE, "truncated", []),
    ],
)  # fmt: skip
def test_cause(found, around, cause, about):
    told, lacks = cause_of(found, around)
    assert told == cause
    if about is not None:
        assert [lack.name for lack in lacks] == about
    message, remedy = words_for(told, lacks, found, around, {})
    assert (
        message.startswith("ext.so ")
        or "needs GLIBCXX_3.4.90, which /lib/libstdc++.so.6 does not have" in message
    )
    assert remedy
    for text in (message, remedy):
        assert not text.endswith(".")
        assert "\n" not in text
        assert "  " not in text


def said(found, around):
    cause, lacks = cause_of(found, around)
    return words_for(cause, lacks, found, around, {})


def test_words_for_a_torch_of_another_flavor():
    message, remedy = said(libraries("libc10_cuda.so"), CPU_TORCH)
    assert "but torch 2.13.0+cpu is CPU-only" in message
    assert "install a CUDA build of torch" in remedy
    assert "is a build for CUDA 13.0" in said(libraries("libc10_hip.so"), GPU_TORCH)[0]


def test_words_for_both_directions_of_the_string_abi():
    assert "built with _GLIBCXX_USE_CXX11_ABI=0, but torch 2.13.0+cpu with 1" in said(
        symbols(ASSERT + OLD), CPU_TORCH)[0]  # fmt: skip
    assert "built with _GLIBCXX_USE_CXX11_ABI=1, but torch 2.5.1+cu124 with 0" in said(
        symbols(ASSERT + NEW), OLD_TORCH)[0]  # fmt: skip


def test_words_for_another_torch(monkeypatch):
    found = symbols("_ZN2at4reluERKNS_6TensorEii")
    folder = "/tmp/pip-build-env-x/overlay/torch"
    monkeypatch.setattr(extensions, "torch_folder", lambda _: folder)
    assert said(found, CPU_TORCH)[0].endswith(
        "torch 2.13.0+cpu has no `_ZN2at4reluERKNS_6TensorEii`. It was built against "
        "pip's isolated build environment, /tmp/pip-build-env-x/overlay/torch"
    )
    monkeypatch.setattr(extensions, "requires_of", lambda _: ["numpy", "torch==2.5.1; extra == ''"])
    assert said(found, CPU_TORCH)[1].startswith("install torch==2.5.1, which it requires, or the ")


def test_no_torch_is_not_called_another_torch():
    message, remedy = said(symbols("_ZN3c104cuda9SetDeviceEi"), NONE)
    assert "built for torch, which is not installed here: it needs `_ZN3c10" in message
    assert remedy.startswith("install the torch")


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("libcudart.so.12", "install nvidia-cuda-runtime-cu12 with pip, or the CUDA toolkit 12"),
        ("libcudart.so.11.0", "install nvidia-cuda-runtime-cu11"),
        ("libnvJitLink.so.13", "install nvidia-nvjitlink with pip, or the CUDA toolkit 13"),
        ("libGL.so.1", "apt-get install libgl1"),
        ("libsox.so", "apt-get install libsox-dev"),
        ("libavutil.so.56", "install FFmpeg with libavutil.so.56: apt-get install ffmpeg"),
        ("libcuda.so.1", "install the NVIDIA driver"),
        ("libother.so", "that contains it, or start Python with its folder in LD_LIBRARY_PATH"),
    ],
)
def test_where_a_library_could_be_had(monkeypatch, library, words):
    monkeypatch.setattr(extensions, "home_of", lambda _: "")
    assert words in said(libraries(library), NONE)[1]
    monkeypatch.setattr(extensions, "home_of", "/there/{}".format)
    remedy = said(libraries(library), NONE)[1]
    assert remedy.startswith(f"load /there/{library} first, ")
    assert remedy.endswith("LD_LIBRARY_PATH=/there")


def test_package_to_rebuild_is_named(tmp_path):
    record = tmp_path / "site-packages/flash_ext-1.0.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    lacks = symbols("cudaGetDeviceProperties_v9", needed=("libcudart.so.12",))
    found = lacks._replace(path=str(tmp_path / "site-packages/ext.so"))
    for text, name in (("", "PACKAGE (for a JIT build: "), ("ext.so,,\n", "flash-ext")):
        record.write_text(text)
        assert f" --no-deps --no-binary :all: {name}" in extensions.check_of_forecast(found).remedy


def test_many_are_counted_and_not_all_shown():
    message, _ = said(symbols("a", "b", "c", "d", "e", "a"), NONE)
    assert "`a`, `b`, `c` and 2 more" in message


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("x.cpython-310-x86_64-linux-gnu.so", "3.10"), ("x.cpython-37m-x86_64-linux-gnu.so", "3.7"),
        ("x.cpython-313t-x86_64-linux-gnu.so", "3.13"), ("x.abi3.so", ""), ("x.so", ""),
        ("/a.cpython-39-x.so/x.so", ""),
    ],
)  # fmt: skip
def test_python_of_a_file_name(name, python):
    assert built_for_python(name) == python


@pytest.mark.parametrize(
    ("symbol", "old"),
    [
        (ASSERT + OLD, True), (ASSERT + NEW, False), ("not_mangled_Ss", True), ("", None),
        ("_ZN3c106detail7ClassSsE", None),  # an identifier
        ("_ZN2at3addERKNS_6TensorES2_S2_", None), ("_ZN5torch3jit5parseERKSsS3_", True),
        ("_ZN2at6TensorE", None),
    ],
)  # fmt: skip
def test_strings_in_a_mangled_name(symbol, old):
    assert has_old_strings(symbol) is old


@pytest.mark.parametrize(
    ("symbol", "library"),
    [
        ("__nvJitLinkComplete_12_4", "libnvJitLink"), ("nvJitLinkVersion", "libnvJitLink"),
        ("ncclCommRegister", "libnccl"), ("cublasLtMatmul", "libcublasLt"),
        ("cublasSgemm_v2", "libcublas"), ("cublas_gemm_of_mine", ""), ("nccl_helper", ""),
        ("ncclcount", ""), ("", ""),
    ],
)  # fmt: skip
def test_whose_function_it_is(symbol, library):
    assert library_of(symbol) == library
