"""Variables that are set when nobody reads them any more."""

from __future__ import annotations

import sys

import pytest

from .program import INITIALIZE, on_both_drivers

START = """
import ctypes
cudaguard.install()
import kaolin  # init
"""


@pytest.fixture
def run(program):
    """Runs code in a process that has initialized CUDA, CUDA_VISIBLE_DEVICES being "0,1"."""
    program.module("kaolin", INITIALIZE)
    program.module("apex")  # watched too: what has changed is noticed at its import

    def run(code, *arguments, start=START, visible="0,1", **how):
        return program.run(start + code, *arguments, visible=visible, **how)

    return run


@on_both_drivers
def test_late_variable_is_warned_of_with_who_had_it_read(run, program):
    ran = run(
        """
def devices():
    number = ctypes.c_int()
    assert driver().cuDeviceGetCount(ctypes.byref(number)) == 0
    return number.value
before = devices()
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # late
print(repr(os.environ["CUDA_VISIBLE_DEVICES"]), ids(), devices() == before > 0)
import apex  # noticed
print(ids())
"""
    )
    assert ran.out == ["'' ['CG814'] True", "['CG814', 'CG819']"]
    late, init, noticed = (program.where(line) for line in ("late", "init", "noticed"))
    (warning,) = ran.warnings
    assert warning.startswith(f"{noticed}: LateEnvironmentWarning: [CG819] CUDA_VISIBLE_DEVICES ")
    assert "set to '' after CUDA was initialized" in warning
    assert f"probably changed at {late}" in ran.err
    assert f"kaolin initialized CUDA at {init}" in ran.err
    assert "this process uses '0,1'" in ran.err
    assert "in the shell that starts the program" in ran.err


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'", "set to 'PCI_BUS_ID'"),
        ("os.environ |= {'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}", "set to 'PCI_BUS_ID'"),
        ("os.environ.update(CUDA_DEVICE_ORDER='PCI_BUS_ID')", "set to 'PCI_BUS_ID'"),
        ("del os.environ['CUDA_DEVICE_ORDER']", "unset"),
        ("os.environ.pop('CUDA_DEVICE_ORDER')", "unset"),
    ],
)
def test_all_ways_to_change_it_are_noticed_at_the_end(run, program, statement, words):
    ran = run(f"{statement}  # late\nprint(ids())", order="FASTEST_FIRST")
    assert (ran.out, ran.warned) == (["['CG814']"], ["CG819"])
    assert f"CUDA_DEVICE_ORDER was {words} after" in ran.err
    assert f"probably changed at {program.where('late')}" in ran.err


def test_what_makes_no_difference_is_not_told(run):
    ran = run(
        """
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
os.environ["cuda_visible_devices"] = "1"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
os.environ.get("CUDA_VISIBLE_DEVICES")
attempt(os.environ.pop, "CUDA_NOT_THERE", None)
print(ids(), events("environment"))
""",
        order="PCI_BUS_ID",
    )
    assert (ran.out, ran.err) == (["ok None", "['CG814'] []"], "")


@on_both_drivers
def test_before_initialization_nothing_is_said(run):
    start = """
import ctypes
cudaguard.install()
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
driver()
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import kaolin
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
"""
    ran = run("print(ids(), events('environment'))", start=start)
    assert (ran.out, ran.err) == (["['CG814'] []"], "")


# --- for whom it is set -------------------------------------------------------------------------

CHILDREN = {
    "subprocess": "subprocess.run(['true'], check=True)",
    "still running": "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)",
    "fork": "in_child(lambda: None)",
    "spawn": "multiprocessing.get_context('spawn').Process(target=print).start()",
}


@pytest.mark.parametrize("start", CHILDREN)
def test_parent_that_sets_it_for_its_children_hears_nothing(run, start):
    """One process per GPU, as launchers start them."""
    ran = run(
        f"""
import multiprocessing, subprocess
if __name__ == "__main__":
    for device in "01":
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        {CHILDREN[start]}
    import apex
    print(ids())
""",
        flags=("-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"),
    )
    assert ("CG819" in ran.err, "['CG814']" in ran.out) == (False, True)


# --- the allocator of torch ---------------------------------------------------------------------

ALLOCATOR = """
for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
    os.environ[name] = "expandable_segments:True"
import apex
print(ids())
"""


def test_torch_without_cuda_has_no_such_allocator(run, program):
    program.module("torch", "class version: cuda = None")
    start = "cudaguard.install()\nimport torch\ndriver().cuInit(0)\n"
    ran = run(ALLOCATOR, start=start)
    assert (ran.out, ran.err) == (["['CG814']"], "")


# --- modes and filters --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "observe", "strict"])
def test_modes(run, mode):
    start = START.replace("install()", f"install({mode!r})")
    code = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"\nimport apex, json, decimal\n'
    ran = run(code + "print(os.environ['CUDA_VISIBLE_DEVICES'])\nprint(ids())", start=start)
    assert ran.out == ["1", "[]" if mode == "off" else "['CG814', 'CG819']"]
    assert ran.warned == (["CG819"] if mode in ("warn", "fix", "strict") else [])


def test_uninstall_stops_it(run):
    code = 'cudaguard.uninstall()\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\nprint(ids())'
    ran = run(code)
    assert (ran.out, ran.err) == (["['CG814']"], "")


FILTERS = {
    "our category": "warnings.simplefilter('error', cudaguard.LateEnvironmentWarning)",
    "all of ours": "warnings.simplefilter('error', cudaguard.CudaGuardWarning)",
    "all": "warnings.simplefilter('error')",
    "ignored": "warnings.simplefilter('ignore')",
}


@pytest.mark.parametrize("filter", FILTERS)
def test_filters_of_the_user_never_break_the_end(run, filter):
    ran = run(
        f"""
import warnings
{FILTERS[filter]}
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
""",
    )
    assert (ran.status, "Traceback" in ran.err) == (0, False)
    assert ("CG819" in ran.err) == (filter != "ignored")


# --- too late already when the guard comes --------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "devices", "said"),
    [
        ("", 1, True),
        ("0,1", 2, False),
        ("0,1,2,3", 2, False),  # as it was, as far as anybody can tell
        (None, 2, False),
    ],
)
def test_variable_that_hides_devices_which_the_driver_has(program, value, devices, said):
    ran = program.run(
        f"""
        driver().cuInit(0)
        if (value := {value!r}) is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = value  # late
        cudaguard.install()  # install
        print(ids())
        """,
        devices=devices,
    )
    assert ran.out == [str(["CG814"] + ["CG819"] * said)]
    assert ran.warned == ["CG819"] * said
    if said:
        assert ran.err.startswith(f"{program.where('install')}: LateEnvironmentWarning: ")
        late = program.where("late")
        assert f"was set to {value!r} after CUDA was" in ran.err
        assert f"probably changed at {late}" in ran.err


# --- what libraries read at moments of their own ------------------------------------------------

# Stand-ins: what each module has once its variables are read.
LIBRARIES = {
    "jax/__init__": "from jax._src import xla_bridge\ndef devices(): "
    "xla_bridge._backends['cuda'] = 2",
    "jax/_src/__init__": "",
    "jax/_src/xla_bridge": "_backends = {}",
    "tensorflow/__init__": "from tensorflow.python.eager import context\n"
    "def ones(): context._context._initialized = True",
    "tensorflow/python/__init__": "",
    "tensorflow/python/eager/__init__": "",
    "tensorflow/python/eager/context": "class Context: _initialized = False\n_context = Context()",
    "cupy/__init__": "",
    "mujoco/__init__": "import cupy",
    "torch/__init__": "class version: cuda = '12.4'\n__version__ = '2.6.0'\nfrom torch import cuda",
    "torch/cuda": "_initialized = False\ndef init():\n    global _initialized\n"
    "    _initialized = True",
    "torch/_inductor/__init__": "",
    "torch/_inductor/config": "",
    "apex": "",
}
MOMENTS = {
    # variable: what is imported, what makes the library read it, and the words
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("jax", "jax.devices()", "after JAX's backend was created"),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ("jax", "jax.devices()", "after JAX's backend was created"),
    "JAX_PLATFORMS": ("jax", "", "after jax was imported"),
    "TF_FORCE_GPU_ALLOW_GROWTH": ("tensorflow", "tensorflow.ones()", "after TensorFlow was"),
    "CUPY_CUDA_ARRAY_INTERFACE_SYNC": ("cupy", "", "after cupy was imported"),
    "JAX_ENABLE_X64": ("jax", "", "after jax was imported"),
    "MUJOCO_GL": ("mujoco", "", "after mujoco was imported"),
    "PYTORCH_CUDA_ALLOC_CONF": ("torch", "torch.cuda.init()", "after torch's CUDA was initialized"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("torch", "torch.cuda.init()", "after torch's CUDA was"),
    "TORCHINDUCTOR_CUDAGRAPHS": ("torch", "import torch._inductor.config", "after torch._inductor"),
}


@pytest.fixture
def libraries(child):
    for name, code in LIBRARIES.items():
        child.write(f"{name}.py", code + "\n")
    return child


@pytest.mark.parametrize("variable", MOMENTS)
def test_library_that_has_read_its_variable(libraries, variable):
    """A change between two looks may have come before the library read it: nothing is said."""
    module, reads, words = MOMENTS[variable]
    program = f"""
import os
import cudaguard; cudaguard.install()
import {module}
{reads and f"os.environ[{variable!r}] = '0'"}
{reads}
import apex
os.environ.update({variable}="1")  # late
print(cudaguard.status().findings)
"""
    path = libraries.write("main.py", program)
    done = libraries.command(sys.executable, path, env={variable: "2"})
    assert done.stdout == "()\n"
    assert done.stderr.count("[CG819]") == 1
    assert f"{variable} was set to '1' {words}" in done.stderr
    assert f"probably changed at {path}:8" in done.stderr
    assert f"this process uses '{0 if reads else 2}'" in done.stderr


def test_backend_of_the_allocator_is_chosen_when_torch_is_imported(libraries):
    """All else is read when CUDA is first used."""
    program = """
import os
import cudaguard; cudaguard.install()
import torch
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import apex
before = [f.id for f in cudaguard.status().findings]
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
print(before)
"""
    path = libraries.write("main.py", program)
    done = libraries.command(sys.executable, path)
    assert done.stdout == "[]\n"
    assert done.stderr.count("[CG819]") == 1
    assert "after torch was imported" in done.stderr
    same = libraries.command(
        sys.executable, path, env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    )
    assert (same.stdout, same.stderr) == ("[]\n", "")


def test_variables_of_libraries_that_have_not_read_them_are_not_spoken_of(libraries):
    lines = "".join(f"os.environ[{name!r}] = 'x'\n" for name in MOMENTS)
    program = f"""
import os
import cudaguard; cudaguard.install()
import torch
{lines}
import jax, tensorflow, cupy
jax.devices(), tensorflow.ones(), torch.cuda.init()
print(cudaguard.status().findings)
"""
    path = libraries.write("main.py", program)
    done = libraries.command(sys.executable, path)
    assert (done.stdout, done.stderr) == ("()\n", "")
