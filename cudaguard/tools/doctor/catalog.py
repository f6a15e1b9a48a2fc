"""The checks of ``cudaguard doctor``: their ids, titles, and what they are about. Data only."""

from __future__ import annotations

from cudaguard.core.checks import Topic

CHECKS: dict[str, Topic] = {
    "CG901": Topic(
        "no known fault of the installed versions is left to luck",
        "Each rule of the catalogue names versions of packages with a known fault. Told are those "
        "that are installed here, what the guard does about them, and what it would do if asked.",
    ),
    "CG902": Topic(
        "extensions load with the libraries that are installed",
        "Extensions that link torch or CUDA are compared with the torch that is installed: the "
        "libraries they need, and each symbol, from the files, as the dynamic loader would.",
    ),
    "CG903": Topic(
        "each library is one file, whoever asks for it first",
        "A process has one file per library name: the first package to ask for libcudnn.so.9 "
        "decides for all. Told is where packages would get different files, and where a folder of "
        "LD_LIBRARY_PATH or the system comes before the one a package was built with. What nobody "
        "would load does not count, however many copies lie about.",
    ),
    "CG904": Topic(
        "driver, CUDA and NVRTC fit the torch that is installed",
        "What the driver's kernel module says (/proc/driver/nvidia), its library, the device "
        "files, the CUDA that torch is built for, and the NVRTC that would serve it. No driver is "
        "loaded; --deep asks NVML in a child.",
    ),
    "CG905": Topic(
        "distributions do not overwrite or contradict one another",
        "Two distributions that contain the same file with different contents (cupy and "
        "cupy-cuda12x, wheels of two CUDA families), files of NVIDIA's wheels that are gone, "
        "requirements on torch that the installed one does not meet, metadata that cannot be "
        "read. Told from metadata alone.",
    ),
    "CG906": Topic(
        "NVIDIA's wheels are those that torch was built with",
        "The metadata of torch pins each wheel of NVIDIA's to one release. pip moves them when "
        "another package asks for it, and says so in one line at most.",
    ),
    "CG907": Topic(
        "the tools for building extensions are there and fit torch",
        "ninja, the C++ compiler, nvcc and its toolkit where torch.utils.cpp_extension would look "
        "for them; `nvcc --version` and `gcc --version` are run, each with a time limit.",
    ),
    "CG908": Topic(
        "the cache of JIT extensions has no stale locks and no stale builds",
        "torch waits for ever for the lock of a build that was killed, and does not notice that "
        "what lies in its cache was built for another torch (TORCH_EXTENSIONS_DIR, or "
        "~/.cache/torch_extensions).",
    ),
    "CG909": Topic(
        "the guard is set up as its settings say",
        "The CUDAGUARD variables and the configuration file they name, the start-up file that "
        "reads them, rule plug-ins that are there, and who stands before the guard.",
    ),
    "CG910": Topic(
        "rules that act here are up to date",
        "Rules whose fault was last reproduced long ago, and rules for a fault that the installed "
        "release has mended.",
    ),
    "CG911": Topic(
        "imports work in every order",
        "Each module alone, then each ordered pair (all orders of up to three), in children with a "
        "time limit: as they are, and under the guard where that fails.",
        "--orders",
    ),
    "CG912": Topic(
        "each watched package can be imported",
        "torch, and every installed package that a rule watches, imported alone in a child with a "
        "time limit: whether it crashes, hangs, or initialises CUDA.",
        "--deep",
    ),
    "CG913": Topic(
        "the GPUs of this machine can be used with what is installed",
        "NVML is asked in a child: driver, devices, compute modes, and whether torch has code for "
        "them.",
        "--deep",
    ),
    "CG914": Topic(
        "rule plug-ins can be loaded",
        "The entry points of the group cudaguard.rules are loaded in a child with a time limit.",
        "--deep",
    ),
}
