"""The questions of `gpu_facts`: programs, each of which answers one of them by `tell`.

They are text, as each runs in a fresh interpreter, with all of `gpu_helpers`. Here are those that
the driver alone can answer.
"""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """One line of the report."""

    group: str
    what: str
    code: str
    needs_torch: bool = False
    env: tuple[tuple[str, str], ...] = ()


TORCH = Question(
    "machine",
    "torch",
    "import torch\nassert torch.version.cuda, f'torch {torch.__version__} is built without CUDA'\n"
    "tell(torch=torch.__version__, cuda=torch.version.cuda)",
    needs_torch=True,
)
MACHINE = (
    Question(
        "machine",
        "GPU and driver",
        """
import pynvml
handle = device()
text = lambda value: value.decode() if isinstance(value, bytes) else value
tell(gpu=text(pynvml.nvmlDeviceGetName(handle)), uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
     driver=text(pynvml.nvmlSystemGetDriverVersion()))
""",
    ),
    Question(
        "machine",
        "CUDA of the driver, visible devices, compute mode",
        """
version, mode = ctypes.c_int(), ctypes.c_int()
ok(cu().cuDriverGetVersion(ctypes.byref(version)))
initialize()
ok(cu().cuDeviceGetAttribute(ctypes.byref(mode), 20, 0))
tell(cuda=version.value, devices=count(), mode=mode.value,
     visible=os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
""",
    ),
    TORCH,
)

PROBE = tuple(
    Question(
        "probe",
        f"one look, in us: {what}",
        f"from cudaguard.system.driver import Driver\nlook = Driver()\n{code}\n"
        f"tell(us=us(look.{call}), state=state())",
    )
    for what, code, call in (
        ("no driver in the process", "", "state"),
        ("loaded, not initialized", "cu()", "state"),
        ("initialized", "initialize()", "state"),
        ("with a context", "initialize(); retain()", "state"),
        ("with a current context", "initialize(); cu().cuCtxSetCurrent(retain())", "state"),
        (
            "is the current context foreign: no",
            "initialize(); cu().cuCtxSetCurrent(retain())",
            "has_other_context",
        ),
        ("is it foreign: yes", "initialize(); retain(); own()", "has_other_context"),
    )
)

COSTS = (
    Question(
        "costs",
        "time in ms",
        """
load = ms(cu)
init, again = ms(initialize), ms(initialize)
tell(load=load, cuInit=init, cuInit_again=again, retain=ms(retain), retain_again=ms(retain))
""",
    ),
    Question(
        "costs",
        "time of create_context() in ms",
        """
import cudaguard
tell(first=ms(cudaguard.create_context))
""",
    ),
    Question(
        "costs",
        "memory of the device in MiB",
        """
before = mib()
cu(); loaded = mib()
initialize(); initialized = mib()
retain(); retained = mib()
own(); two = mib()
tell(load=more(before, loaded), cuInit=more(loaded, initialized),
     retain=more(initialized, retained), own_context=more(retained, two))
""",
    ),
    Question(
        "costs",
        "threads of the process",
        """
found = {"python": threads()}
cu(); found["loaded"] = threads()
initialize(); found["cuInit"] = threads()
retain(); found["retain"] = threads()
tell(found)
""",
    ),
    Question(
        "costs",
        "current context before and after retain",
        "initialize()\nbefore = current()\nretain()\ntell(before=before, after=current())",
    ),
    Question(
        "costs",
        "what the driver is asked before cuInit",
        """
number = ctypes.c_int()
before, version, state_of = asked(), cu().cuDriverGetVersion(ctypes.byref(number)), (
    cu().cuDevicePrimaryCtxGetState(
        0, ctypes.byref(ctypes.c_uint()), ctypes.byref(ctypes.c_int())))
tell(cuDeviceGetCount=before, cuDriverGetVersion=version, cuDevicePrimaryCtxGetState=state_of,
     after=asked())
""",
    ),
    Question(
        "costs", "nvmlInit", "cu()\nbefore = asked()\ndevice()\ntell(before=before, after=asked())"
    ),
)

# --- forks: what the parent does, and what its child can do then ------------------------------

DRIVER_IN_CHILD = """
tell(child=in_fork(lambda: f"cuDeviceGetCount {asked()}, cuInit {cu().cuInit(0)}"))
"""
FORKS_OF_THE_DRIVER = tuple(
    Question("forks", f"{what}; the driver in a child", f"{code}\n{DRIVER_IN_CHILD}")
    for what, code in (
        ("nothing", ""),
        ("libcuda loaded", "cu()"),
        ("cuDriverGetVersion", "ok(cu().cuDriverGetVersion(ctypes.byref(ctypes.c_int())))"),
        ("nvmlInit", "device()"),
        ("cuInit", "initialize()"),
        ("cuInit, retain", "initialize(); retain()"),
    )
)

# --- variables, set at one moment or another -----------------------------------------------------

MODULE_LOADING = """
setting = lambda: os.environ.__setitem__("CUDA_MODULE_LOADING", "EAGER")
mode, words = ctypes.c_int(), {1: "eager", 2: "lazy"}
def read():
    status = cu().cuModuleGetLoadingMode(ctypes.byref(mode))
    return f"error {status}" if status else words.get(mode.value, mode.value)
%s
initialize()
%s
first = read()
context = retain()
%s
ok(cu().cuCtxSetCurrent(context))
tell(after_cuInit=first, at_the_end=read())
"""
DRIVER_LATCHES = (
    *(
        Question(
            "variables",
            f"CUDA_MODULE_LOADING=EAGER, {moment}",
            MODULE_LOADING % tuple("setting()" if i == at else "" for i in range(3)),
        )
        for at, moment in enumerate(("before cuInit", "after cuInit", "after retain", "never"))
    ),
    Question(
        "variables",
        "CUDA_VISIBLE_DEVICES='' after cuInit: devices",
        "initialize()\nbefore = count()\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\ninitialize()\n"
        "tell(before=before, after=count())",
    ),
    Question(
        "variables",
        "CUDA_VISIBLE_DEVICES='' before cuInit: its status",
        "cu()\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\ntell(status=cu().cuInit(0))",
    ),
)

QUESTIONS = (
    *MACHINE,
    *PROBE,
    *COSTS,
    *FORKS_OF_THE_DRIVER,
    *DRIVER_LATCHES,
)
