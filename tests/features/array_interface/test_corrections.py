"""What classes of producers that rules name export: corrected where it is known what is meant."""

from __future__ import annotations

import pytest

from .scene import run as run


def test_exports_are_corrected_for_all_who_read_them(run):
    code = """
install()
import lib
for changes in ({"shape": [4]}, {"typestr": "=f"}, {"data": [0x1000, 0]}, {"version": ...}):
    array = lib.Array(interface(**changes))
    print(array.__cuda_array_interface__, array.reads, array.interface == interface(**changes))
"""
    same = "{'shape': (4,), 'typestr': '<f4', 'data': (4096, False), 'version': 3} 1 True"
    assert run(code) == [*[same] * 3, same.replace("3}", "2}")]


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


def known_producer(child, module):
    child.write(f"{module.replace('.', '/')}.py", """
class Array:
    def __init__(self, interface):
        self.interface = interface
    @property
    def __cuda_array_interface__(self):
        return self.interface
""")  # fmt: skip


@pytest.mark.parametrize(
    ("module", "changes", "env", "expected"),
    [
        ("numba.cuda.arrays", "stream=0", {}, "1 3"),
        ("numba.cuda.arrays", "stream=0", {"NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM": "1"}, "0 3"),
        ("numba.cuda.arrays", "stream=None", {}, "None 3"),
        ("cupy.arrays", "stream=0", {}, "1 3"),
        ("elsewhere.arrays", "stream=0", {}, "0 3"),
    ],
)
def test_what_known_producers_mean_is_exported(run, module, changes, env, expected):
    known_producer(run.child, module)
    code = f"""
action = {{"fix_array_interface": "Array"}}
cudaguard.install(rules=[RULE.replace(watch=("{module}",), actions=(action,))])
from {module} import Array
found = Array(interface({changes})).__cuda_array_interface__
print(found.get("stream", "absent"), found["version"])
"""
    assert run(code, env=env) == [expected]
    assert run.err == ""
