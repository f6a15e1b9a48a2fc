"""Libraries that find CUDA in use, which they cannot have: who it was is told, and where.

The libraries are stand-ins with the functions of the real ones, which say what those say.
"""

from __future__ import annotations

import inspect
import textwrap

import pytest

from cudaguard.features.cuda_init.facts import EXPECTATIONS

from .program import INITIALIZE, RETAIN

LAUNCHER = '''
def notebook_launcher(function, args=(), num_processes=None, mixed_precision="no"):
    """Launches."""
    print("launching", num_processes)
'''
REFUSES = """
def _check_bad_cuda_fork():
    raise RuntimeError("Lightning can't create new processes if CUDA is already initialized.")
"""
WARNS = """
def _warn_existing_cuda_context(device_info, pid):
    print("A CUDA context for device", device_info, "already exists on process ID", pid)
def _warn_cuda_context_wrong_device(expected, actual, pid):
    print("Worker with process ID", pid)
"""
LAUNCH = "from accelerate.launchers import notebook_launcher\n"


@pytest.fixture
def run(program):
    """Runs code beside stand-ins for the libraries, and kaolin, which initializes CUDA."""
    program.module("kaolin", INITIALIZE)
    program.module("accelerate.launchers", LAUNCHER)
    program.module("lightning_fabric.strategies.launchers.multiprocessing", REFUSES)
    program.module("distributed.comm.ucx", WARNS)
    return lambda code, **how: program.run("cudaguard.install()\n" + textwrap.dedent(code), **how)


def test_launcher_is_told_who_was_first(run, program):
    ran = run(f"{LAUNCH}import kaolin  # init\nnotebook_launcher(print, (), 2)  # here\n")
    assert ran.out == ["launching 2"]
    assert "[CG822] accelerate forks workers that use CUDA at " in ran.err
    assert f"kaolin initialized CUDA at {program.where('init')} while it was imported" in ran.err
    assert program.where("here") in ran.err
    assert "more: https" in ran.err


def test_one_process_is_no_fork(run):
    call = "notebook_launcher(print, num_processes=1)"
    ran = run(f"{LAUNCH}import kaolin\n{call}\nprint(ids())")
    assert ran.out[1:] == ["['CG814']"]
    assert ran.err == ""


def test_launcher_of_an_untouched_process_is_let_be(run):
    ran = run(f"{LAUNCH}notebook_launcher(print, num_processes=2)\nprint(ids())")
    assert (ran.out, ran.err) == (["launching 2", "[]"], "")


def test_refusal_of_lightning_is_preceded_by_the_culprit(run, program):
    ran = run(
        """
        from lightning_fabric.strategies.launchers.multiprocessing import _check_bad_cuda_fork
        import kaolin  # init
        for _ in range(2):
            try:
                _check_bad_cuda_fork()
            except RuntimeError as error:
                print(error)
        """
    )
    assert len(ran.out) == 2
    assert ran.err.count("[CG822]") == 1
    assert f"kaolin initialized CUDA at {program.where('init')}" in ran.err


def test_context_that_a_dask_worker_finds_has_a_name(run, program):
    ran = run(
        """
        import distributed.comm.ucx as ucx
        import kaolin  # init
        cu = driver()
        import ctypes
        cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 1)
        ucx._warn_existing_cuda_context(1, 42)
        """
    )
    assert ran.out == ["A CUDA context for device 1 already exists on process ID 42"]
    assert "distributed found a CUDA context that it had not created" in ran.err
    assert program.where("init") in ran.err
    assert "created a context on device 1" in ran.err


ALLOCATOR = """
import torch.cuda.memory
def change_current_allocator(allocator):
    if torch.cuda._initialized:
        raise RuntimeError("Error: Cannot swap an already initialized allocator")
    print("swapped")
"""
SWAP = "from torch.cuda.memory import change_current_allocator as swap\n"


@pytest.fixture
def torch(program):
    """A stand-in for torch: what it has initialized, and the function that finds out."""
    program.module("torch.cuda.memory", ALLOCATOR)
    program.module("torch.version", "cuda = '13.0'")
    (program.folder / "torch/cuda/__init__.py").write_text("_initialized = False")
    (program.folder / "torch/__init__.py").write_text("from torch import version\n")
    program.module("fvdb", "import torch.cuda", INITIALIZE, "torch.cuda._initialized = True")


def test_allocator_that_comes_too_late_is_told_with_the_culprit(run, program, torch):
    ran = run(f"{SWAP}import fvdb  # init\ntry:\n    swap(None)  # here\nexcept RuntimeError: pass")
    assert ran.warned == ["CG822"]
    assert f"[CG822] torch is asked for another allocator at {program.where('here')}" in ran.err
    assert f"fvdb initialized CUDA at {program.where('init')} while it was imported" in ran.err
    assert "Cannot swap an already initialized allocator" in ran.err
    assert "call change_current_allocator() before that, right after `import torch`" in ran.err


@pytest.mark.parametrize("use", ["swap(None)\nimport fvdb", "import kaolin\nswap(None)"])
def test_allocator_that_torch_takes_is_let_be(run, torch, use):
    """In the second program another library has initialized CUDA, and torch does not mind."""
    ran = run(f"{SWAP}{use}\nprint('CG822' in ids())")
    assert (ran.out, ran.err) == (["swapped", "False"], "")


def test_torch_without_cuda_is_not_listened_to(run, program, torch):
    program.module("torch.version", "cuda = None")
    ran = run(f"{SWAP}print(hasattr(swap, '__wrapped__'))\nprint(cudaguard.status().changes)")
    assert ran.out[0] == "False"
    assert "addaudithook" not in ran.out[1]


def test_functions_are_put_back_and_look_as_they_did(run):
    ran = run(
        """
        import inspect
        import accelerate.launchers as launchers
        ours = launchers.notebook_launcher
        print(inspect.signature(ours), ours.__doc__, ours.__name__)
        cudaguard.uninstall()
        print(launchers.notebook_launcher is ours, launchers.notebook_launcher.__module__)
        print(any("launcher" in change for change in cudaguard.status().changes))
        """
    )
    signature = "(function, args=(), num_processes=None, mixed_precision='no')"
    first = f"{signature} Launches. notebook_launcher"
    assert ran.out == [first, "False accelerate.launchers", "False"]


def test_every_expectation_has_a_report():
    for one in EXPECTATIONS:
        assert one.links
        assert list(inspect.signature(one.is_meant).parameters)


# --- a variable that cudf wants set before its import --------------------------------------------

CUDF = f"""
import os
if not ("RAPIDS_NO_INITIALIZE" in os.environ or "CUDF_NO_INITIALIZE" in os.environ):
    {RETAIN.format(0)}
"""
CLUSTER = """
import os
def LocalCUDACluster():
    os.environ["RAPIDS_NO_INITIALIZE"] = "True"
    import distributed.comm.ucx as ucx
    ucx._warn_existing_cuda_context(0, 42)
"""


@pytest.fixture
def cluster(run, program):
    """Runs code beside stand-ins for cudf of a version, dask-cudf and dask-cuda."""

    def cluster(code, version="24.12.0", **how):
        program.module("cudf", CUDF)
        program.module("dask_cudf", "import cudf")
        program.module("dask_cuda", CLUSTER)
        program.child.distribution("cudf-cu12", version)
        return run(code, **how)

    return cluster


def has_context(ran):
    return "cuDevicePrimaryCtxRetain" in ran.calls


@pytest.mark.parametrize(
    "imports",
    [
        "from dask_cuda import LocalCUDACluster\nimport cudf\n",
        "import cudf\nfrom dask_cuda import LocalCUDACluster\n",
        "import dask_cudf\nimport json\nfrom dask_cuda import LocalCUDACluster\n",
    ],
)
def test_cudf_beside_dask_cuda_creates_no_context(cluster, imports):
    ran = cluster(f"{imports}LocalCUDACluster()", env={"CUDAGUARD_RULES": "-CG069"})
    assert has_context(ran)
    assert "distributed found a CUDA context" in ran.err
    ran = cluster(f"{imports}print(cudaguard.status().changes)")
    assert not has_context(ran)
    assert "RAPIDS_NO_INITIALIZE=True: set before cudf by CG069 (stays)" in ran.out[-1]
    assert ran.err == ""


@pytest.mark.parametrize(
    ("code", "version"),
    [
        ("import cudf", "24.12.0"),  # no cluster
        ("import cudf\nfrom dask_cuda import LocalCUDACluster", "25.10.0"),
        ("import cudf\nif 0:\n    from dask_cuda import LocalCUDACluster", "24.12.0"),
    ],
)
def test_cudf_initializes_as_ever(cluster, code, version):
    ran = cluster(f"{code}\nprint(os.environ.get('RAPIDS_NO_INITIALIZE'))", version)
    assert has_context(ran)
    assert ran.out == ["None"]


def test_variable_for_cudf_that_the_program_has_set_stays(cluster):
    code = "os.environ['RAPIDS_NO_INITIALIZE'] = '1'\nimport cudf, dask_cuda\n"
    ran = cluster(f"{code}print(os.environ['RAPIDS_NO_INITIALIZE'], cudaguard.status().changes)")
    assert ran.out[0].startswith("1 (")
    assert "CG069" not in ran.out[0]
