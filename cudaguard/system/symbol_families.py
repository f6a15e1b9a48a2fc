"""Families of symbols that many libraries bring copies of, and who is global on purpose.

Each family has patterns for its names, and what happens to those who get the wrong copy.
"""

from __future__ import annotations

from cudaguard.model import Record


class Family(Record):
    """One family of symbols."""

    title: str  # what it is called in a message
    # Patterns of all names of the family; ``*`` and ``?`` are the only signs
    names: tuple[str, ...]
    danger: str  # what a library risks that is bound to another copy than it was built for


# The worst first: a message tells what the first two of those concerned do.
FAMILIES: dict[str, Family] = {
    "std": Family("the C++ runtime",
      (*("_Z*St*", "_ZTI*", "_ZTS*", "_ZN9__gnu_cxx*", "_ZNK9__gnu_cxx*"),
      *("_Znw*", "_Zna*", "_Zdl*", "_Zda*", "__cxa_*", "__gxx_*", "_Unwind_*")),
      "C++ extensions, such as torch's JIT builds, can crash, hang or compute wrong numbers"),
    "llvm": Family("LLVM", ("*llvm*", "*mlir*", "LLVM*"),
      "packages with their own LLVM (triton, numba, JAX) can abort: 'registered more than once'"),
    "protobuf": Family("protobuf", ("*google8protobuf*",),
      "packages with their own protobuf (onnx, tensorflow) can register messages twice and abort"),
    "zlib": Family("zlib",
      (*("deflate*", "inflate*", "crc32*", "adler32*", "compress*", "uncompress*", "gz*"),
      *("zlib*", "zError", "zcalloc", "zcfree", "get_crc_table"),
      *("_tr_*", "_length_code", "_dist_code")),
      "decoding PNG, gzip or HDF5 can fail or return None (OpenCV, libpng, Python's zlib)"),
    "bzip2": Family("bzip2", ("BZ2_*",),
      "users of libbz2 (Python's bz2, FFmpeg) can mix two versions"),
    "ffmpeg": Family("FFmpeg", ("av*", "sws*", "swr*", "ff_*"),
      "packages with their own FFmpeg (OpenCV, PyAV, torchaudio) can call this one"),
    "images": Family("libpng or libjpeg", ("png_*", "jpeg_*", "jinit_*"),
      "image readers can get structures of another version"),
    "xcb": Family("XCB", ("xcb_*",), "windows of graphical toolkits can use this copy, and hang"),
    "openssl": Family("OpenSSL", ("SSL_*", "CRYPTO_*", "EVP_*", "BIO_*", "X509_*", "OPENSSL_*",
      "ERR_*"), "TLS connections (Python's ssl) can use this copy"),
    "sqlite": Family("SQLite", ("sqlite3*",),
      "users of SQLite (Python's sqlite3) can call this copy"),
    "curl": Family("libcurl", ("curl_*",), "users of libcurl can call this copy"),
    "openmp": Family("OpenMP", ("omp_*", "GOMP_*", "GOACC_*", "__kmp*"),
      "parallel regions can run in the threads of this copy"),
    "cuda": Family("the CUDA libraries", ("cu*", "__cuda*"),
      "CUDA calls can go to this copy of the runtime, which has its own state and errors"),
}  # fmt: skip

# Libraries that are made global on purpose, or by everyone: their names are theirs to give, and
# no rule takes that from them. torch has one whose sole purpose it is; the plug-ins of MPI and MKL
# resolve against their cores.
GLOBAL_ON_PURPOSE: tuple[str, ...] = (
    "libtorch_global_deps.so",
    "libmpi*",
    "libmkl_*",
    "libpython3*",
    "ld-linux*",
    *(f"{name}{end}" for name in ("libc", "libm", "libdl", "libpthread", "librt", "libutil")
      for end in (".so*", "-2.*.so")),
    *("libstdc++.so*", "libc++.so*", "libc++abi.so*", "libgcc_s.so*", "libunwind.so*"),
    *("libgomp*", "libiomp5*", "libomp*"),
    *("libcudart*", "libcuda.so*", "libcublas*", "libcudadevrt*"),
)  # fmt: skip
