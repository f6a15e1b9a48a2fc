"""Entry points of every kind, modules that are loaded anew, and what others hold when we leave."""

from __future__ import annotations

import pytest

from .scene import run as run

MORE = """
class Kinds:
    @classmethod
    def made(cls, buffer, more=0): return cls, buffer, more
    @staticmethod
    def loaded(buffer, more=0): return buffer, more
    def put(self, buffer, more=0): return self, buffer, more

nothing = None
number = 3
"""
START = """
import importlib
def with_rule(*actions, **more):
    rule = cudaguard.Rule(id="LOCAL2", watch=("more", "lib"), actions=actions, why="test", **more)
    cudaguard.install(rules=[rule])
def kind(value): return type(value).__name__
"""


@pytest.fixture
def more(run, child):
    """Runs code beside a further library."""
    child.write("more.py", MORE)
    return lambda code, **how: run(START + code, **how)


def test_methods_of_every_kind_by_class_and_by_instance(more):
    out = more(
        """
names = ("made", "loaded", "put")
with_rule(*({"normalize_argument": f"Kinds.{name}", "parameter": "buffer"} for name in names))
import more
array, one = make(stream=None), more.Kinds()
for call in (more.Kinds.made, one.made):
    cls, given, last = call(array, 5)
    print(cls is more.Kinds, kind(given), last, kind(call(buffer=array)[1]))
for call in (more.Kinds.loaded, one.loaded):
    print(kind(call(array, 5)[0]), kind(call(buffer=array)[0]))
print(one.put(array)[0] is one, kind(one.put(array)[1]))
cudaguard.uninstall()
kinds = [kind(vars(more.Kinds)[name]) for name in ("made", "loaded", "put")]
print(*kinds, more.Kinds.made(array)[1] is array)
"""
    )
    assert out == ["True View 5 View"] * 2 + ["View View"] * 2 + ["True View"] + [
        "classmethod staticmethod function True"
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("Kinds", "Kinds is a class: name its constructor, Kinds.__init__"),
        ("nothing", "nothing is no function, but None"),
        ("number", "number is no function, but 3"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_what_is_no_entry_point_is_left_alone(more, path, said):
    out = more(
        f"""
before = vars(importlib.import_module("more")).copy()
with_rule({{"normalize_argument": {path!r}, "parameter": "buffer"}})
(finding,) = [f for f in cudaguard.status().findings if "more" in f.what]
print(finding.id, finding.evidence[0])
cudaguard.uninstall()
print(vars(sys.modules["more"]) == before)
"""
    )
    assert out[0].startswith("CG836 ")
    assert said in out[0]
    assert out[1] == "True"


@pytest.mark.parametrize("anew", ["importlib.reload(lib)", "del sys.modules['lib']; import lib"])
def test_module_that_is_loaded_anew_is_taken_care_of_anew(more, anew):
    out = more(
        f"""
install()
import lib
{anew}
array = make(stream=None)
print(kind(lib.Image(array).buffer), kind(lib.upload(array).buffer))
print("stream" in lib.Array({{**interface(), "shape": [4]}}).__cuda_array_interface__, is_raw())
cudaguard.uninstall()
print(is_raw(), [item for item in cudaguard.status().changes if "lib" in item])
"""
    )
    assert out == ["View View", "False none", "Image upload Array []"]


def test_loop_over_arrays_says_the_same_once(run):
    out = run(
        """
class Number:
    def __init__(self, value): self.value = value
    def __index__(self): return self.value
install()
import lib
for step in range(200):
    lib.Image(make(data=(Number(0x1000 + step), False)))
    try: lib.Image(make(stream=0, shape=(step + 1,)))
    except ValueError: pass
print(found())
"""
    )
    assert out == ["CG834:info CG835:warning"]


def test_correction_is_told_once_and_leaves_other_uses_of_the_property(run):
    out = run(
        """
import lib
class Settable(lib.Array):
    pass
def put(self, value): self.interface = value
lib.Array.__cuda_array_interface__ = lib.Array.__cuda_array_interface__.setter(put)
install()
array = lib.Array(None)
print(array.__cuda_array_interface__)
array.__cuda_array_interface__ = interface(shape=[4])
print(array.__cuda_array_interface__["shape"], array.__cuda_array_interface__["shape"])
for finding in cudaguard.status().findings:
    print(finding.id, finding.what)
"""
    )
    said = "CG834 cudaguard corrected the array interface of lib.Array: shape [4] as (4,)."
    assert out == ["None", "(4,) (4,)", said]
    assert run.err == ""


def test_function_that_is_not_written_in_python_looks_and_is_pickled_as_before(run):
    out = run(
        """
import inspect, pickle, sys
sys.modules.pop("_bisect", None)
action = {"normalize_argument": "bisect_right", "parameter": "a"}
rule = cudaguard.Rule(id="LOCAL2", watch=("_bisect",), actions=(action,), why="test")
cudaguard.install(rules=[rule])
from _bisect import bisect_right
print("bisect_right" in str(cudaguard.status().changes), inspect.isbuiltin(bisect_right))
print(pickle.loads(pickle.dumps(bisect_right)) is bisect_right, bisect_right([1, 2], 1))
"""
    )
    assert out == ["True True", "True 1"]


# --- what classes export ------------------------------------------------------------------------


def test_exports_are_corrected_for_all_who_read_them(run):
    code = """
install()
import lib
for changes in ({"shape": [4]}, {"typestr": "=f"}, {"data": [0x1000, 0]}, {"version": ...}):
    array = lib.Array(interface(**changes))
    print(array.__cuda_array_interface__, array.reads, array.interface == interface(**changes))
class Known(lib.Array): __module__ = "cupy.arrays"  # where 0 is the legacy default stream
print(Known(interface(stream=0)).__cuda_array_interface__["stream"])
"""
    same = "{'shape': (4,), 'typestr': '<f4', 'data': (4096, False), 'version': 3} 1 True"
    assert run(code) == [*[same] * 3, same.replace("3}", "2}"), "1"]


def test_exports_that_conform_or_are_a_guess_stay(run):
    code = """
install("strict")
import lib
for changes in ({}, {"stream": None}, {"stream": 5}, {"strides": None}, {"descr": [("", "<f4")]},
                {"stream": 0}, {"version": "3"}, {"typestr": "nonsense"}, {"data": (0, False)}):
    array = lib.Array(interface(**changes))
    print(array.__cuda_array_interface__ is array.interface, array.reads)
print(found())
"""
    assert run(code) == [*["True 1"] * 9, "nothing"]
    assert run.err == ""


def test_export_that_raises(run):
    code = """
import lib
def export(self):
    raise self.interface
lib.Array.__cuda_array_interface__ = property(export)
install()
for error in (RuntimeError("requires grad"), AttributeError("on the CPU"), KeyboardInterrupt()):
    try:
        lib.Array(error).__cuda_array_interface__
    except BaseException as caught:
        print(caught is error, caught.__cause__)
print(hasattr(lib.Array(AttributeError()), "__cuda_array_interface__"), found())
"""
    assert run(code) == [*["True None"] * 3, "False nothing"]
