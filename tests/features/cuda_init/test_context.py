"""Contexts made in advance: which device, when it is refused, and that nothing else changes."""

from __future__ import annotations

import pytest

from .program import on_both_drivers

# In CUDA's default order the devices are numbered backwards: 0 is the last of the stubs.
A, B, C = (f"Stub GPU {letter}" for letter in "ABC")
CREATE = """
def name(device=None):
    print(cudaguard.create_context(device).device.name)
def refused(*device):
    try:
        print("created", cudaguard.create_context(*device).device)
    except cudaguard.ContextError as error:
        assert error.__cause__ is None and error.__suppress_context__ or not error.__context__
        print(error)
"""


@pytest.fixture
def output(program):
    """Runs code that can use `name` and `refused`; returns the lines printed."""
    return lambda code, *arguments, **how: program.output(CREATE + code, *arguments, **how)


# --- which device -------------------------------------------------------------------------------

RANKS = {
    # variables: the device
    (): C,
    ("LOCAL_RANK=1",): B,
    ("LOCAL_RANK=2",): A,
    ("LOCAL_RANK= 1 ",): B,
    ("LOCAL_RANK=",): C,
    ("LOCAL_RANK=", "SLURM_LOCALID=2"): A,
    ("RANK=1", "WORLD_SIZE=3"): C,
    ("OMPI_COMM_WORLD_LOCAL_RANK=1",): B,
    ("MPI_LOCALRANKID=2",): A,
    ("SLURM_LOCALID=1",): B,
    ("LOCAL_RANK=2", "SLURM_LOCALID=1"): A,
}


def test_device_of_the_local_rank(output):
    code = f"""
def with_variables(variables):
    os.environ.update(v.split("=") for v in variables)
    name()
for variables in {list(RANKS)}:
    in_child(lambda: with_variables(variables))
"""
    assert dict(zip(RANKS, output(code, devices=3))) == RANKS


WRONG_RANKS = {
    "LOCAL_RANK=3": "LOCAL_RANK=3, but only 3 devices are visible",
    "LOCAL_RANK=99": "LOCAL_RANK=99, but only 3 devices are visible",
    "LOCAL_RANK=one": "LOCAL_RANK='one': expected the number",
    "LOCAL_RANK=-1": "LOCAL_RANK='-1': expected the number",
    "LOCAL_RANK=1.0": "LOCAL_RANK='1.0': expected the number",
    "SLURM_LOCALID=x": "SLURM_LOCALID='x': expected the number",
}


def test_rank_that_has_no_device(output):
    code = f"""
def with_variable(variable):
    os.environ.update([variable.split("=")])
    refused()
    name(1)
for variable in {list(WRONG_RANKS)}:
    in_child(lambda: with_variable(variable))
"""
    lines = output(code, devices=3)
    assert lines[1::2] == [B] * len(WRONG_RANKS)  # a device that is named is had
    for line, expected in zip(lines[::2], WRONG_RANKS.values()):
        assert line.startswith(expected)


@pytest.mark.parametrize("rank", ["1", "one"])
def test_the_only_visible_device_is_taken_whatever_the_rank_says(output, rank):
    assert output("name()", devices=3, visible="1", env={"LOCAL_RANK": rank}) == [B]


@on_both_drivers
def test_device_is_described(program):
    gpu = program.gpu
    code = """
        first = cudaguard.create_context()
        print(cudaguard.create_context(0) is first)
        print(first.device.name, first.device.uuid, first.device.pci_bus_id, sep="|")
        """
    lines = program.output(code)
    assert lines == ["True", f"{gpu.name}|{gpu.uuid}|{gpu.bus_id.lower()}"]


def test_rank_that_is_too_high_names_the_visible_devices(output):
    (line,) = output("refused()", devices=3, visible="0,1", env={"LOCAL_RANK": "2"})
    assert line.startswith(
        "LOCAL_RANK=2, but only 2 devices are visible (CUDA_VISIBLE_DEVICES='0,1')"
    )


def test_device_by_number(output):
    code = """
for device in 0, 2, 1:
    in_child(lambda: name(device))
"""
    assert output(code, devices=3) == [C, A, B]


MIG = "MIG-12345678-9abc-def0-1234-56789abcdef0"


def test_mig_instance(output):
    code = "in_child(lambda: name())"
    lines = output(code, devices=3, visible=MIG, mig={MIG: 1}, env={"LOCAL_RANK": "2"})
    assert lines == ["Stub GPU B MIG 1g.5gb"]


def test_device_that_was_reset_gets_its_context_anew(output):
    code = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
from cudaguard.system.driver import Driver
first = cudaguard.create_context()
print(cudaguard.create_context() is first, Driver().state().active)
print(cu.cuDevicePrimaryCtxReset_v2(0), Driver().state().active)
again = cudaguard.create_context()
print(again.device == first.device, again is first, Driver().state().active)
print(cudaguard.create_context() is again)
"""
    assert output(code) == ["True (0,)", "0 ()", "True False (0,)", "True"]


def test_context_that_somebody_else_made_and_releases_is_kept(output):
    code = """
import ctypes
from cudaguard.system.driver import Driver
cu, context = driver(), ctypes.c_void_p()
state = Driver().state
first = cudaguard.create_context()
print(cu.cuDevicePrimaryCtxRelease_v2(0), state().active)  # of more than was retained
print(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), state().active)
print(cudaguard.create_context() is first)
print(cu.cuDevicePrimaryCtxRelease_v2(0), state().active)
"""
    assert output(code) == ["0 ()", "0 (0,)", "True", "0 (0,)"]


WRONG_DEVICES = {
    "3": "device 3: 3 visible",
    "True": "device True: 3 visible",
    "1.9": "device 1.9: expected its number",
    "'GPU-c1'": "device 'GPU-c1': expected its number, of: 0:",
    "object": "device <class 'object'>: expected its number",
}


def test_wrong_devices(output):
    code = f"""
for device in {list(WRONG_DEVICES)}:
    refused(eval(device))
"""
    lines = output(code, devices=3)
    assert len(lines) == len(WRONG_DEVICES)
    wrong = {
        device: line
        for (device, expected), line in zip(WRONG_DEVICES.items(), lines)
        if not line.startswith(expected)
    }
    assert wrong == {}


# --- no device, no driver, and what the driver says ---------------------------------------------


@on_both_drivers
@pytest.mark.parametrize("visible", ["", "99"])
def test_no_visible_device(output, visible):
    (line,) = output("refused()", visible=visible)
    assert line.startswith("cuInit answers 100: no CUDA device is there, or CUDA_VISIBLE_DEVICES")


STATUSES = {
    "cuInit=803": ("cuInit answers 803", "different versions: reboot"),
    "cuInit=804": ("cuInit answers 804", "compat"),
    "cuInit=999": ("cuInit answers 999", "unknown error"),
    "cuInit=3": ("CUDA was initialized before this process was forked", "spawn"),
    "cuInit=12345": ("cuInit answers 12345", "CUresult"),
    "cuDeviceGetCount=999": ("cuDeviceGetCount answers 999", "unknown error"),
    "cuDevicePrimaryCtxRetain=46": ("cuDevicePrimaryCtxRetain for device 0", "answers 46"),
    "cuDevicePrimaryCtxRetain=2": ("cuDevicePrimaryCtxRetain for device 0", "out of memory"),
}


def test_statuses_of_the_driver_are_told_in_words(output):
    code = f"""
def with_status(status):
    os.environ["STUB_CUDA_RC"] = status
    refused()
    refused()                                   # no better the second time
    del os.environ["STUB_CUDA_RC"]
    name()                                      # and nothing was remembered
for status in {list(STATUSES)}:
    in_child(lambda: with_status(status))
"""
    lines = output(code)
    for number, (beginning, part) in enumerate(STATUSES.values()):
        first, second, created = lines[3 * number : 3 * number + 3]
        assert first == second
        assert first.startswith(beginning)
        assert part in first
        assert created == B


def test_no_driver(program):
    (line,) = program.output(CREATE + "refused()", stubs=False, env={"LD_LIBRARY_PATH": ""})
    assert line.startswith("there is no NVIDIA driver that can be loaded here: libcuda.so.1")
    assert "docker run --gpus all" in line


# --- forks --------------------------------------------------------------------------------------


@on_both_drivers
def test_child_of_a_process_that_has_initialized_cuda(program, output):
    code = """
for _ in range(2):
    driver().cuInit(0)
    cudaguard.status()
    in_child(refused)
    in_child(lambda: refused(1))
    cudaguard.install()
name()
in_child(refused)
in_child(lambda: in_child(refused))
"""
    lines = output(code)
    assert lines[4] == program.gpu.name
    for line in lines[:4] + lines[5:]:
        assert "forked" in line


@on_both_drivers
def test_child_of_a_process_that_has_not_may_create(program, output):
    assert output("in_child(name)\nname()\nin_child(refused)")[:2] == [program.gpu.name] * 2


# --- what is handed back, and what does not change ----------------------------------------------


@on_both_drivers
def test_context_is_kept_and_made_current_nowhere(program):
    code = """
        import ctypes
        from cudaguard.system.driver import Driver
        cudaguard.install()
        cudaguard.create_context(0)
        cudaguard.uninstall()
        seen, cu, current = Driver(), driver(), ctypes.c_void_p(1)
        print(seen.state().active, seen.state().current, seen.has_other_context())
        print(cu.cuCtxGetCurrent(ctypes.byref(current)), current.value)
        own_context(0)
        print(seen.state().active, seen.state().current, seen.has_other_context())
        print(cu.cuDevicePrimaryCtxRelease_v2(0), seen.state().active)
        """
    assert program.output(code) == [
        "(0,) -1 False",
        "0 None",
        "(0,) 0 True",
        "0 ()",  # it was the only reference
    ]


@on_both_drivers
def test_guard_attributes_its_own_context_to_the_request(program):
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        cudaguard.create_context(0)  # here
        for f in found(): print(f.id, f.severity, f.what)
        print(cudaguard.status().changes[-1])
        """
    )
    first, second, touched = ran.out
    assert ran.err == ""
    assert first.startswith("CG814 info cudaguard initialized CUDA")
    assert second.startswith("CG815 info cudaguard created a context on device 0")
    assert all(line.endswith("as requested.") for line in ran.out[:2])
    assert all(program.where("here") in line for line in ran.out[:2])
    assert program.where("here") in second
    assert touched == f"CUDA context on device 0 ({program.gpu.name}): created (stays)"


def test_torch_is_told_so_that_it_knows_of_forks(program):
    """torch registers its own fork check when it counts devices itself."""
    program.module("torch._C", "def _cuda_getDeviceCount(): print('counted')")
    program.module("torch")  # a package by now
    (program.folder / "torch" / "__init__.py").write_text("from torch import _C\n")
    (program.folder / "torch.py").unlink()
    code = "import torch\ncudaguard.create_context()\ncudaguard.create_context()\nprint('end')"
    assert program.output(code) == ["counted", "end"]


# --- by setting ---------------------------------------------------------------------------------

ACTIVE = """
def active():
    import ctypes
    from cudaguard.system.driver import Driver
    print(*Driver().state().active, sep=",")
"""


@pytest.mark.parametrize("how", ["argument", "variable", "file", "pyproject"])
def test_setting_creates_a_context_at_once(program, how):
    argument, env = "", {}
    if how == "argument":
        argument = "context=1"
    elif how == "variable":
        env = {"CUDAGUARD_CONTEXT": "1"}
    elif how == "file":
        argument = repr(str(program.child.write("c.toml", "context = 1\n"))).join(("config=", ""))
    else:
        path = program.child.write("pyproject.toml", "[tool.cudaguard]\ncontext = '1'\n")
        env = {"CUDAGUARD_CONFIG": str(path)}
    code = (
        ACTIVE + f"cudaguard.install({argument})\nactive()\nprint(cudaguard.status().changes[-1])"
    )
    created = "CUDA context on device 1 (Stub GPU A): created (stays)"
    assert program.output(code, env=env) == ["1", created]


PRECEDENCE = {
    # argument, variable, file: device
    ("0", "1", "2"): "0",
    (None, "1", "2"): "1",
    (None, "", "2"): "2",
    ("none", "1", "2"): "",
    (None, "none", "2"): "",
    ("auto", "1", "2"): "",
    (2, "1", None): "2",
}


def test_argument_before_variable_before_file(program):
    program.child.write("c.toml", "context = '2'\n")
    program.child.write("none.toml", "")
    code = f"""
def install(argument, variable, file):
    os.environ["CUDAGUARD_CONTEXT"] = variable
    cudaguard.install(context=argument, config="c.toml" if file else "none.toml")
    active()
for case in {list(PRECEDENCE)}:
    in_child(lambda: install(*case))
"""
    assert dict(zip(PRECEDENCE, program.output(ACTIVE + code, devices=3))) == PRECEDENCE


BAD_WORDS = ("yes", "", "   ", "gpu0", "-1", "1.5", "cuda:0:1:2", "all")
BAD_VALUES = ("-1", "True", "1.0", "[]", "b'0'", "0.0", "object()")


def test_bad_words_in_an_argument(program):
    code = f"""
for value in {BAD_WORDS!r} + ({", ".join(BAD_VALUES)}):
    try:
        cudaguard.install(context=value)
    except cudaguard.ConfigError as error:
        print(str(error).startswith("install(): context: got " + repr(value)), end=" ")
        print("expected none, auto, or a device" in str(error), cudaguard.status().mode)
"""
    expected = ["True True off"] * (len(BAD_WORDS) + len(BAD_VALUES))
    assert program.output(code) == expected


def test_bad_word_in_the_variable_is_reported_and_nothing_is_created(program):
    word = "gpu0"
    ran = program.run(
        ACTIVE + "cudaguard.install()\nactive()\nprint(ids(), cudaguard.status().mode)",
        env={"CUDAGUARD_CONTEXT": word},
    )
    assert ran.out == ["", "['CG806'] fix"]
    assert ran.warned == ["CG806"]
    assert "CUDAGUARD_CONTEXT" in ran.warnings[0] + ran.err
    assert repr(word) in ran.err
    assert not ran.calls


def test_setting_that_cannot_be_met_warns_and_the_program_goes_on(program):
    ran = program.run("cudaguard.install(context='77')\nprint(found('CG817')[0])")
    assert ran.warned == ["CG817"]
    assert "ContextWarning" in ran.err
    assert "'77'" in "\n".join(ran.out)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("mode", ["observe", "warn", "off"])
def test_modes_that_change_nothing_create_nothing(program, mode):
    program.module("needy")
    ran = program.run(
        f"""
        needs = cudaguard.Rule(id="MINE1", watch=("needy",), needs=("context",), why="It joins it.")
        cudaguard.install({mode!r}, context=1, rules=[needs])
        cudaguard.install({mode!r}, context="auto")
        import needy
        """
    )
    assert "cuInit" not in ran.calls
    assert "CG817" not in ran.err


def test_strict_defers_the_error_to_a_watched_import(program):
    program.module("needy")
    ran = program.run(
        """
        mine = cudaguard.Rule(id="MINE1", watch=("needy",), why="To be watched.")
        cudaguard.install("strict", context="7", rules=[mine])
        print(ids())
        try:
            import needy
        except ImportError as error:
            print(type(error).__name__, error)
        import needy
        """
    )
    assert "CG817" in ran.out[0]
    assert ran.out[1].startswith("ImportOrderError cudaguard could not create the CUDA context")
    assert "device '7'" in ran.out[1]
    assert ran.warned == ["CG817"]


# --- auto: where a rule needs one ---------------------------------------------------------------

NEEDY = """
needs = cudaguard.Rule(
    id="MINE1", watch=("needy",), needs={needs}, why="It joins it.", grade={grade!r}
)
def active():
    import ctypes
    from cudaguard.system.driver import Driver
    return Driver().state().active
"""


def auto(program, code, needs=("context",), grade="automatic", **how):
    return program.run(NEEDY.format(needs=needs, grade=grade) + code, **how)


@pytest.fixture
def needy(program):
    """A module that tells which contexts there were when it was imported."""
    program.module("needy", "from __main__ import active; import sys")
    with open(program.folder / "needy.py", "a") as file:
        file.write("print('needy', active(), 'other' in sys.modules)\n")
    program.module("other", "from __main__ import active\nprint('other', active())")
    return program


@pytest.mark.parametrize(
    ("needs", "lines"),
    [
        (("context",), ["needy (0,) False"]),
        (("other", "context"), ["other ()", "needy (0,) True"]),
        (("context", "other"), ["other (0,)", "needy (0,) True"]),
    ],
)
def test_auto_creates_it_before_the_module_in_the_order_of_the_rule(needy, needs, lines):
    ran = auto(
        needy,
        "cudaguard.install(context='auto', rules=[needs])\nprint(active())\nimport needy",
        needs,
    )
    assert (ran.out, ran.err) == (["()", *lines], "")


def test_auto_takes_the_device_of_the_rank_and_a_named_one_is_not_made_twice(needy):
    code = "cudaguard.install(context={}, rules=[needs])\nimport needy"
    ran = auto(needy, code.format("'auto'"), env={"LOCAL_RANK": "1"})
    assert ran.out[0] == "needy (1,) False"
    assert auto(needy, code.format("'1'"), env={"LOCAL_RANK": "0"}).out[0] == "needy (1,) False"


@pytest.mark.parametrize(
    ("setting", "grade"), [(None, "automatic"), ("none", "automatic"), ("auto", "opt-in")]
)
def test_no_context_where_it_is_not_asked_for(needy, setting, grade):
    code = f"cudaguard.install(context={setting!r}, rules=[needs])\nimport needy"
    ran = auto(needy, code, grade=grade)
    assert ran.out == ["needy () False"]
    assert ran.calls == []


def test_auto_creates_nothing_in_a_forked_worker(needy):
    """It may never use CUDA, and each context costs memory."""
    code = """
cudaguard.install(context="auto", rules=[needs])
def work():
    import needy
    print(ids())
in_child(work)
work()
"""
    ran = auto(needy, code)
    assert ran.out[:3] == ["needy () False", "[]", "needy (0,) False"]
    assert ran.err == ""


def test_auto_that_fails_warns_once_and_lets_the_import_be(needy):
    code = "cudaguard.install(context='auto', rules=[needs])\nimport needy\nprint(ids())"
    ran = auto(needy, code, rc={"cuInit": 803})
    assert ran.out == ["needy () False", "['CG817']"]
    assert ran.warned == ["CG817"]
    assert "MINE1" in ran.err
    assert "803" in ran.err
