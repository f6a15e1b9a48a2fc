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
CUDA_TORCH = "class version: cuda = '13.0'\n__version__ = '2.11.0'"


@pytest.fixture
def run(program):
    """Runs code in a process that has initialized CUDA, CUDA_VISIBLE_DEVICES being "0,1"."""
    program.module("kaolin", INITIALIZE)

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
print(found("CG819")[0])
"""
    )
    assert ran.out[0] == "'' ['CG814', 'CG819'] True"
    assert ran.warned == ["CG819"]
    late, init = program.where("late"), program.where("init")
    (warning,) = ran.warnings
    assert warning.startswith(f"{late}: LateEnvironmentWarning: [CG819] CUDA_VISIBLE_DEVICES ")
    assert f"'' at {late}, after " in warning
    text = "\n".join(ran.out)
    assert f"kaolin initialized CUDA at {init}" in text
    assert "'0,1'" in text  # what counts
    assert "in the shell that starts the program" in text


@pytest.mark.parametrize(
    "statement",
    [
        "os.environ[name] = value",
        "os.putenv(name, value)",
        "[os.environ.__setitem__(name, value) for _ in range(3)]",
        "os.environ |= {name: value}",
    ],
)
def test_all_ways_to_set_it(run, program, statement):
    code = f"name, value = 'CUDA_DEVICE_ORDER', 'PCI_BUS_ID'\n{statement}  # late\n"
    ran = run(code + "print(ids())")
    assert ran.warned == ["CG819"]
    assert f"CUDA_DEVICE_ORDER was set to 'PCI_BUS_ID' at {program.where('late')}" in ran.err
    assert ran.out == ["['CG814', 'CG819']"]


@pytest.mark.parametrize(
    "statement",
    [
        "del os.environ[name]",
        "os.unsetenv(name)",
    ],
)
def test_all_ways_to_unset_it(run, program, statement):
    ran = run(f"name = 'CUDA_VISIBLE_DEVICES'\n{statement}  # late\nprint(ids())")
    assert ran.warned == ["CG819"]
    assert f"CUDA_VISIBLE_DEVICES was unset at {program.where('late')}" in ran.err


def test_what_makes_no_difference_is_not_told(run):
    ran = run(
        """
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


def test_each_line_once_whatever_the_value(run):
    ran = run(
        """
for value in "11101":
    os.environ["CUDA_VISIBLE_DEVICES"] = value
print(ids().count("CG819"))
"""
    )
    assert ran.out == ["1"]
    assert ran.warned == ["CG819"]


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


# --- who sets it --------------------------------------------------------------------------------

SETTER = "import os\ndef set(value): os.environ['CUDA_VISIBLE_DEVICES'] = value\n"


def test_installed_package_is_an_event_only(run, program):
    """Launchers set such variables for the processes that they start."""
    path = program.child.write("lib/site-packages/launcher.py", SETTER)
    ran = run(
        """
sys.path.insert(0, sys.argv[1])
import launcher
launcher.set("1")
print(ids())
for event in events("environment"): print(event.name, event.where)
""",
        path.parent,
    )
    assert ran.err == ""
    assert ran.out[0] == "['CG814']"
    (event,) = ran.out[1:]
    assert event.startswith("CUDA_VISIBLE_DEVICES changed after CUDA is initialized")
    assert event.endswith(f"{path}:2")


def test_ray_sets_it_for_the_worker_that_it_runs_in(run, program):
    """Which has initialized CUDA before, and does not see the devices of the others."""
    path = program.child.write("lib/site-packages/ray/train/workers.py", SETTER)
    ran = run(
        """
sys.path.insert(0, sys.argv[1])
import workers
workers.set("0,1,2,3")
""",
        path.parent,
    )
    assert ran.warned == ["CG819"]
    assert f"CUDA_VISIBLE_DEVICES was set to '0,1,2,3' at {path}:2" in ran.err


NANNY = "import os\ndef _run(value): os.environ.update(CUDA_VISIBLE_DEVICES=value)\nstart = _run\n"
FOR_CHILDREN = NANNY.replace("_run", "start")


@pytest.mark.parametrize(("source", "is_told"), [(NANNY, True), (FOR_CHILDREN, False)])
def test_dask_sets_it_for_the_worker_that_it_runs_in(run, program, source, is_told):
    """Which has imported the program again, and with it what initializes CUDA."""
    path = program.child.write("lib/site-packages/distributed/nanny.py", source)
    ran = run("sys.path.insert(0, sys.argv[1])\nimport nanny\nnanny.start('1,0')", path.parent)
    assert (ran.warned == ["CG819"]) is is_told
    assert ("kaolin initialized CUDA" in ran.err) is is_told


def test_environment_of_a_child_only_is_nobodys_fault(run):
    ran = run(
        """
import subprocess
env = {**os.environ, "CUDA_VISIBLE_DEVICES": "1"}
subprocess.run([sys.executable, "-c", ""], env=env, check=True)
print(ids(), events("environment"))
"""
    )
    assert (ran.out, ran.err) == (["['CG814'] []"], "")


def test_threads_that_set_it_while_others_fork(run):
    ran = run(
        """
import threading
def work(name):
    for i in range(50):
        os.environ["CUDA_VISIBLE_DEVICES"] = name
        os.environ[f"OTHER_{name}"] = str(i)
threads = [threading.Thread(target=work, args=[n]) for n in "01"]
for thread in threads: thread.start()
for _ in range(10):
    process = os.fork()
    if not process: os._exit(0)
    os.waitpid(process, 0)
for thread in threads: thread.join()
print(ids().count("CG819"))
""",
        flags=("-W", "ignore::DeprecationWarning"),
    )
    assert ran.out == ["1"]
    assert ran.warned == ["CG819"]


# --- the allocator of torch ---------------------------------------------------------------------

ALLOCATOR = """
for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
    os.environ[name] = "expandable_segments:True"
print(ids())
"""


def test_allocator_is_configured_when_torch_is_imported(run, program):
    start = "cudaguard.install()\nimport torch\n"
    program.module("torch", CUDA_TORCH)
    ran = run(ALLOCATOR, start=start)
    assert ran.out[0].count("CG819") == 2
    assert ran.warned == ["CG819"] * 2
    assert "torch was imported" in ran.err
    assert "PYTORCH_ALLOC_CONF was set to 'expandable_segments:True'" in ran.err


def test_torch_without_cuda_has_no_such_allocator(run, program):
    program.module("torch", "class version: cuda = None")
    start = "cudaguard.install()\nimport torch\ndriver().cuInit(0)\n"
    ran = run(ALLOCATOR, start=start)
    assert (ran.out, ran.err) == (["[]"], "")


# --- modes and filters --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "observe", "strict"])
def test_modes(run, mode):
    start = START.replace("install()", f"install({mode!r})")
    code = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"\nprint(os.environ["CUDA_VISIBLE_DEVICES"])'
    ran = run(code + "\nprint(ids())\nimport json, decimal", start=start)
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
def test_filters_of_the_user_never_break_an_assignment(run, filter):
    ran = run(
        f"""
import warnings
{FILTERS[filter]}
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
del os.environ["CUDA_VISIBLE_DEVICES"]
os.putenv("CUDA_VISIBLE_DEVICES", "0")
print(os.environ.get("CUDA_VISIBLE_DEVICES"), ids().count("CG819"))
""",
    )
    assert ran.out == ["None 3"]
    assert "Traceback" not in ran.err


def test_show_of_the_users_that_sets_variables_itself_does_not_go_round_in_circles(run):
    ran = run(
        """
import warnings
def show(*_, **__):
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    print("shown")
warnings.showwarning = show
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
print(ids())
"""
    )
    assert ran.out == ["shown", "['CG814', 'CG819']"]


def test_standard_library_is_an_event_only(run):
    ran = run(
        """
from unittest import mock
with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "1"}):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
print(ids(), len(events("environment")) > 0)
"""
    )
    assert (ran.out, ran.err) == (["['CG814'] True"], "")


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
        value = {value!r}
        if value is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = value
        cudaguard.install()  # install
        print(ids())
        """,
        devices=devices,
    )
    assert ran.out == [str(["CG814"] + ["CG819"] * said)]
    assert ran.warned == ["CG819"] * said
    if said:
        assert ran.err.startswith(f"{program.where('install')}: LateEnvironmentWarning: ")
        assert f"CUDA_VISIBLE_DEVICES was set to {value!r} after" in ran.err


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
    "torch/__init__": "class version: cuda = '12.4'\n__version__ = '2.6.0'\nfrom torch import cuda",
    "torch/cuda": "_initialized = False\ndef init():\n    global _initialized\n"
    "    _initialized = True",
    "torch/_inductor/__init__": "",
    "torch/_inductor/config": "",
}
MOMENTS = {
    # variable: what is imported, what makes the library read it, and the words
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("jax", "jax.devices()", "after JAX's backend was created"),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ("jax", "jax.devices()", "after JAX's backend was created"),
    "JAX_PLATFORMS": ("jax", "", "after jax was imported"),
    "TF_FORCE_GPU_ALLOW_GROWTH": ("tensorflow", "tensorflow.ones()", "after TensorFlow was"),
    "CUPY_CUDA_ARRAY_INTERFACE_SYNC": ("cupy", "", "after cupy was imported"),
    "PYTORCH_CUDA_ALLOC_CONF": ("torch", "torch.cuda.init()", "after torch's CUDA was initialized"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("torch", "torch.cuda.init()", "after torch's CUDA was"),
    "TORCHINDUCTOR_CUDAGRAPHS": ("torch", "import torch._inductor.config", "config was imported"),
}


@pytest.fixture
def libraries(child):
    for name, code in LIBRARIES.items():
        child.write(f"{name}.py", code + "\n")
    return child


@pytest.mark.parametrize("variable", MOMENTS)
def test_library_that_has_read_its_variable(libraries, variable):
    module, reads, words = MOMENTS[variable]
    program = f"""
import os
import cudaguard; cudaguard.install()
import {module}
os.environ[{variable!r}] = "0"
before = [f.id for f in cudaguard.status().findings]
{reads}
os.environ[{variable!r}] = "0"
os.environ.update({variable}="1")  # late
print(before, [f.what for f in cudaguard.status().findings if f.id == "CG819"])
"""
    path = libraries.write("main.py", program)
    done = libraries.command(sys.executable, path, env={variable: "2"})
    assert done.stderr.count("[CG819]") == (1 if reads else 3)  # one for each line
    assert words in done.stdout
    if reads:
        assert done.stdout.startswith("[]")
        assert f"{path}:9, after " in done.stdout


def test_backend_of_the_allocator_is_chosen_when_torch_is_imported(libraries):
    """In torch 2.0 to 2.10, which reads all else when CUDA is first used."""
    program = """
import os
import cudaguard; cudaguard.install()
import torch
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
before = [f.id for f in cudaguard.status().findings]
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
print(before, [f.what for f in cudaguard.status().findings])
"""
    path = libraries.write("main.py", program)
    done = libraries.command(sys.executable, path)
    assert "after torch was imported" in done.stdout
    assert done.stdout.startswith("[]")
    assert done.stderr.count("[CG819]") == 1
    same = libraries.command(
        sys.executable, path, env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    )
    assert (same.stdout, same.stderr) == ("[] []\n", "")


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
