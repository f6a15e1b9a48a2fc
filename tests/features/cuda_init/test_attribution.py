"""Who initialized CUDA and who made a context: told at once, once, with the user's line."""

from __future__ import annotations

import json

import pytest

from ..extensions.conftest import MODULE
from .program import INITIALIZE, LOAD, OWN, RETAIN, on_both_drivers

TOLD = "for f in found(): print(f.id, f.severity, f.what)"


@on_both_drivers
def test_modules_that_do_more_and_more_are_told_apart(program):
    program.module("apex")
    program.module("cupy", LOAD)
    program.module("kaolin", INITIALIZE)
    program.module("spconv", RETAIN.format(0))
    program.module("warp", OWN.format(0))
    ran = program.run(
        f"""
        import ctypes
        cudaguard.install()
        import apex
        import cupy
        print(asked(), ids())
        import kaolin  # flash
        print(asked(), ids())
        import spconv  # spconv
        print(ids())
        import warp  # warp
        {TOLD}
        """
    )
    where = program.where
    assert ran.err == ""
    made = f"spconv created a context on device 0 at {where('spconv')} while it was imported."
    assert ran.out == [
        "3 []",
        "0 ['CG814']",
        "['CG814', 'CG815']",
        f"CG814 info kaolin initialized CUDA at {where('flash')} while it was imported.",
        f"CG815 info {made}",
        f"CG816 info warp made its own CUDA context current on device 0 at {where('warp')}.",
    ]


@on_both_drivers
def test_innermost_of_nested_imports_is_named_with_the_line_that_imports_it(program):
    program.module("spconv", "import kaolin  # inner")
    program.module("kaolin", INITIALIZE)
    ran = program.run(f"import ctypes\ncudaguard.install()\nimport spconv\n{TOLD}")
    where = program.where("inner", "spconv.py")
    assert ran.out == [f"CG814 info kaolin initialized CUDA at {where} while it was imported."]


@on_both_drivers
def test_library_that_another_module_loads_meanwhile_does_not_take_the_blame(program):
    """As torch does with NVML's: it is asked once CUDA is initialized."""
    program.module("helper", "import ctypes\ndef load():\n    ctypes.CDLL('libanl.so.1')")
    program.module("kaolin", "import helper", INITIALIZE, "helper.load()")
    ran = program.run(f"import ctypes\ncudaguard.install()\nimport kaolin  # here\n{TOLD}")
    where = program.where("here")
    assert ran.out == [f"CG814 info kaolin initialized CUDA at {where} while it was imported."]


# --- outside of what is watched -----------------------------------------------------------------


@pytest.mark.parametrize("who", ["Code that cudaguard did not watch", "torch"])
def test_what_happened_outside_of_any_import_is_not_blamed_on_the_next_one(program, who):
    program.module("kaolin")
    program.module("spconv", RETAIN.format(1))
    ran = program.run(
        f"""
        import ctypes, types
        cudaguard.install()
        cu = driver()
        cu.cuInit(0)
        sys.modules["torch.cuda"] = types.SimpleNamespace(_initialized={who == "torch"})
        cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
        import kaolin
        import spconv  # spconv
        {TOLD}
        """
    )
    nobody = "Code that cudaguard did not watch"
    first, second, third = ran.out
    assert first.startswith(f"CG814 info {who} initialized CUDA since cudaguard last looked")
    assert second.startswith(f"CG815 info {nobody} created a context on device 0")
    where = program.where("spconv")
    assert third.startswith(f"CG815 info spconv created a context on device 1 at {where} while")


def test_torch_that_loads_a_library_as_it_initializes_cuda_is_named_with_the_user_s_line(program):
    lazy = "import ctypes\ndef _lazy_init(cu):\n    cu.cuInit(0)\n    ctypes.CDLL('libanl.so.1')"
    program.module("torch.cuda", lazy)
    ran = program.run(
        f"import torch.cuda\ncudaguard.install()\ntorch.cuda._lazy_init(driver())  # use\n{TOLD}"
    )
    said = f"torch initialized CUDA at {program.where('use')} since cudaguard last looked."
    assert ran.out == [f"CG814 info {said}"]


@on_both_drivers
def test_initialized_before_the_guard(program):
    program.module("kaolin")
    ran = program.run(
        f"driver().cuInit(0)\ncudaguard.install()\nimport ctypes, kaolin\n"
        f"driver()\n{TOLD}\nprint([e.name for e in events('cuda')])"
    )
    assert ran.err == ""
    (finding, event) = ran.out
    assert finding.startswith("CG814 info Code that cudaguard did not watch initialized CUDA")
    assert event == "['code that cudaguard did not watch initialized CUDA']"


INITIALIZES = """
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*initialize)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!initialize || initialize(0)) {
        PyErr_SetString(PyExc_ImportError, "the test's driver is not there");
        return NULL;
    }
"""


@on_both_drivers
def test_extension_that_initializes_is_named_though_it_is_not_watched(program, compiler):
    source = MODULE.format(name="unheard_of", body="#include <dlfcn.h>", call=INITIALIZES)
    compiler.put(program.folder / "unheard_of.so", source, "-ldl")
    ran = program.run(f"import ctypes\ncudaguard.install()\nimport unheard_of  # here\n{TOLD}")
    assert ran.err == ""
    (line,) = ran.out
    assert line.startswith(f"CG814 info unheard_of initialized CUDA at {program.where('here')}")


# --- the order of things ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        "import ctypes; cudaguard.install()",
        "cudaguard.install(); import ctypes",
        "cudaguard.install()",  # ctypes comes with the module that is watched
        "cudaguard.install(); cudaguard.uninstall(); import ctypes; cudaguard.install()",
    ],
)
def test_ctypes_may_come_before_or_after_the_guard(program, start):
    program.module("kaolin", INITIALIZE)
    ran = program.run(f"{start}\nimport kaolin  # here\n{TOLD}")
    assert ran.err == ""
    (line,) = ran.out
    assert line.startswith("CG814 info kaolin initialized CUDA")
    assert program.where("here") in line


def test_ctypes_may_come_with_an_inner_module_and_the_outer_one_initializes(program):
    program.module("kaolin", "import torch", "import apex", INITIALIZE, "import cupy")
    program.module("torch", "import ctypes")
    program.module("apex")
    program.module("cupy")
    assert program.run(f"cudaguard.install()\nimport kaolin  # here\n{TOLD}").out == [
        f"CG814 info kaolin initialized CUDA at {program.where('here')} while it was imported."
    ]


def test_uninstall_stops_it_and_installing_again_begins_anew(program):
    program.module("kaolin", INITIALIZE)
    program.module("spconv", RETAIN.format(0))
    program.module("warp", RETAIN.format(1))
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        cudaguard.uninstall()
        import kaolin
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2"
        print(ids(), events())
        cudaguard.install()
        import spconv
        cudaguard.uninstall()
        import warp
        print(*[f.what.split()[0] for f in found()])
        """
    )
    assert (ran.out[0], ran.err) == ("[] []", "")
    assert ran.out[1].split() == ["Code", "spconv"]


# --- once, and where it is told -----------------------------------------------------------------


def test_events_and_journal(program):
    program.module("kaolin", RETAIN.format(1))
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        import kaolin  # here
        for event in events("cuda"):
            print(event.name, event.where, event.thread == __import__("threading").get_ident())
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    )
    where = program.where("here")
    said = ["kaolin initialized CUDA", "kaolin created a context on device 1"]
    assert ran.out == [f"{what} {where} True" for what in said]
    lines = [json.loads(line) for line in (program.folder / "journal").read_text().splitlines()]
    assert [(e["name"], e["where"]) for e in lines if e["kind"] == "cuda"] == [
        (what, where) for what in said
    ]
    findings = [e["name"].split()[0] for e in lines if e["kind"] == "finding"]
    assert findings == ["CG814", "CG815"]


def test_log_says_nothing_of_what_is_normal(program):
    program.module("kaolin", RETAIN.format(0))
    ran = program.run(
        "import ctypes, logging\nlogging.basicConfig(level=0)\ncudaguard.install()\n"
        "import kaolin\nprint(ids())",
        env={"LOCAL_RANK": "0"},
    )
    assert (ran.out, ran.err) == (["['CG814', 'CG815']"], "")


# --- another rank's device ----------------------------------------------------------------------

RANKS = {
    # LOCAL_RANK, device, visible devices: is that wrong?
    "1 0 2": True,
    "0 1 2": True,
    " 0 2": False,
}


@on_both_drivers
@pytest.mark.parametrize("case", RANKS)
def test_context_on_the_device_of_another_rank(program, case):
    rank, device, devices = case.split(" ")
    program.module("spconv", RETAIN.format(device))
    ran = program.run(
        "import ctypes\ncudaguard.install()\nimport spconv  # here\n"
        "for f in found('CG815'): print(f.severity); print(f)",
        devices=int(devices),
        env={"LOCAL_RANK": rank},
    )
    assert ran.out[0] == ("warning" if RANKS[case] else "info")
    # Of several ranks only the first speaks; the others have it in status() and in the log.
    assert ran.warned == (["CG815"] if RANKS[case] and rank == "0" else [])
    if RANKS[case]:
        text = "\n".join(ran.out)
        assert (
            f"spconv created a context on device {device}, but this process is local rank {rank}."
        ) in text
        assert f"on device {device} at {program.where('here')} while it was imported" in text
        assert f"torch.cuda.set_device({rank})" in text


# --- contexts that are not the primary one ------------------------------------------------------


@on_both_drivers
def test_own_context_beside_torch_is_warned_of_with_the_remedy(program):
    program.module("torch")
    program.module("pycuda.autoinit", OWN.format(0))
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        import torch
        import pycuda.autoinit  # here
        print(found("CG816")[0])
        """
    )
    assert ran.warned == ["CG816"]
    (warning,) = ran.warnings
    where = program.where("here")
    assert warning == (
        f"{where}: ContextWarning: [CG816] pycuda.autoinit made its own CUDA context current on "
        f"device 0 at {where}, beside torch."
    )
    assert "pycuda.autoprimaryctx" in ran.err
    assert "invalid resource handle" in ran.err


@on_both_drivers
@pytest.mark.parametrize(
    ("name", "code"), [("pycuda.autoprimaryctx", "primary"), ("pycuda.autoinit", "popped")]
)
def test_no_word_where_the_primary_context_or_none_is_left_current(program, name, code):
    program.module("torch")
    code = {
        "primary": f"{INITIALIZE}\nc = ctypes.c_void_p()\n"
        "cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\ncu.cuCtxPushCurrent_v2(c)",
        "popped": OWN.format(0) + "\ncu.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))",
    }.get(code, code)
    program.module(name, code)
    ran = program.run(
        f"import ctypes\ncudaguard.install()\nimport torch\nimport {name}\nprint(ids())"
    )
    assert ran.err == ""
    assert "CG816" not in ran.out[0]
    assert "CG814" in ran.out[0]


@on_both_drivers
def test_context_that_was_current_before_torch_is_told_of_and_blamed_on_no_import(program):
    program.module("torch")
    program.module("kaolin")
    code = """
        import ctypes
        cudaguard.install()
        cu = driver()
        cu.cuInit(0)
        own_context()
        import torch  # torch
        import kaolin
        print(ids())
        """
    ran = program.run(code)
    assert ran.out == ["['CG814', 'CG816']"]
    (warning,) = ran.warnings
    said = "A CUDA context other than the primary one is current on device 0 at "
    assert f"[CG816] {said}{program.where('torch')}, beside torch." in warning


@pytest.mark.parametrize("mode", ["off", "observe", "warn", "fix", "strict"])
def test_modes(program, mode):
    """An own context and another rank's device cannot be repaired; `strict` lets the import be."""
    program.module("torch")
    program.module("spconv", RETAIN.format(1))
    program.module("warp", OWN.format(0))
    ran = program.run(
        f"""
        import ctypes
        cudaguard.install({mode!r})
        import torch, spconv, warp
        print(*ids())
        """,
        env={"LOCAL_RANK": "0"},
    )
    if mode == "off":
        assert (ran.out, ran.err) == ([""], "")
        assert not any(call in ran.calls for call in ("cuDeviceGetCount", "cuCtxGetDevice"))
    else:
        assert ran.out == ["CG814 CG815 CG816"]
        assert ran.warned == ([] if mode == "observe" else ["CG815", "CG816"])


def test_guard_changes_nothing_of_what_the_program_asks_of_the_driver(program):
    """Without its own looks, the calls are those of the unguarded program."""
    program.module("torch")
    program.module("spconv", RETAIN.format(0))
    program.module("warp", OWN.format(0))
    code = "import ctypes\n{}\nimport torch, spconv, warp\n"
    bare = program.run(code.format("")).calls
    guarded = program.run(code.format("cudaguard.install()")).calls
    looks = {"cuDeviceGetCount", "cuDevicePrimaryCtxGetState", "cuCtxGetDevice", "cuCtxGetCurrent"}
    # A foreign context is compared with the primary one, which is retained and released for it.
    compared = ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"]
    assert bare == ["cuInit", "cuDevicePrimaryCtxRetain", "cuInit", "cuCtxCreate_v2"]
    assert [call for call in guarded if call not in looks] == [*bare, *compared]


# --- further modules to watch --------------------------------------------------------------------


@pytest.mark.parametrize(("words", "told"), [("", False), ("all", True), ("other, innocent", True)])
def test_modules_that_are_not_known_are_named_if_they_are_watched(program, words, told):
    program.module("innocent", INITIALIZE)
    program.module("kaolin")
    ran = program.run(
        f"cudaguard.install()\nimport innocent  # here\nimport kaolin\n{TOLD}",
        env={"CUDAGUARD_WATCH": words},
    )
    who = f"innocent initialized CUDA at {program.where('here')}" if told else "Code that"
    assert [line.startswith(f"CG814 info {who}") for line in ran.out] == [True]


def test_watching_all_leaves_python_and_parts_of_packages_alone(program):
    program.child.write("pkg/__init__.py", "from . import part")
    program.child.write("pkg/part.py", "")
    ran = program.run(
        """
        cudaguard.install()
        import csv, sqlite3, json.tool
        import pkg
        print([e.name for e in cudaguard.status().events if e.kind == "import"])
        """,
        env={"CUDAGUARD_WATCH": "all"},
    )
    assert ran.out == ["['pkg']"]


@on_both_drivers
def test_own_context_is_warned_of_once_torch_comes(program):
    program.module("warp", OWN.format(0))
    program.module("torch")
    ran = program.run(
        "import ctypes\ncudaguard.install()\nimport warp  # warp\nprint(ids())\nimport torch"
    )
    assert ran.out == ["['CG814', 'CG816']"]
    assert ran.warned == ["CG816"]
    assert f"on device 0 at {program.where('warp')}, beside torch." in ran.err


def test_initializer_of_which_harm_was_reported_is_warned_of_by_name_and_line(program):
    program.module("flash_attn", INITIALIZE)
    ran = program.run(
        """
        cudaguard.install()
        import flash_attn  # flash
        print(ids())
        """
    )
    (warning,) = ran.warnings
    said = f"flash_attn initialized CUDA at {program.where('flash')} while it was imported."
    assert f"ContextWarning: [CG814] {said}" in warning
    assert "https://github.com/pytorch/pytorch/issues/159641" in ran.err
    assert ran.out == ["['CG814']"]
