"""Names, numbers and words of statuses are those that NVIDIA's own bindings have."""

from __future__ import annotations

import json

import pytest

from cudaguard.system.statuses import statuses_in

pytestmark = pytest.mark.incidents

PINS = ("cuda-bindings==13.5.0", "nvmath-python==1.0.0", "nvidia-ml-py==13.615.71", "numpy")
LIST = """
import importlib, json, pynvml
from cuda.bindings import driver, nvjitlink, nvrtc, nvvm, runtime

kinds = {"": (driver.CUresult, runtime.cudaError_t, nvrtc.nvrtcResult)}
kinds.update(NVJITLINK_=[nvjitlink.Result], NVVM_=[nvvm.Result])
for name in "cublas cusolver cusparse curand cutensor cudss cufft".split():
    module = importlib.import_module(f"nvmath.bindings.{name}")
    kind = getattr(module, "Status", None) or module.Result
    kinds[f"{name.upper()}_STATUS_" if name != "cufft" else "CUFFT_"] = [kind]
names = {f"{begin}{one.name}": int(one) for begin in kinds for kind in kinds[begin] for one in kind}
names.update((name, one) for name, one in vars(pynvml).items() if name.startswith("NVML_ERROR_"))
words = {runtime.cudaGetErrorString(one)[1].decode(): int(one) for one in runtime.cudaError_t}
print(json.dumps([names, {f"CUDA error: {said}": number for said, number in words.items()}]))
"""
NO_ERRORS = {0, 10000}  # success, and where the numbers of old versions began


def test_every_status_has_the_number_that_the_bindings_give_it(cached_environment, child):
    names, words = json.loads(child.command(cached_environment(*PINS), "-c", LIST).stdout)
    lower = ((name.lower(), number) for name, number in names.items())
    said = ((text, {300: 200}.get(number, number)) for text, number in words.items())  # same words
    for text, number in (*names.items(), *lower, *said):
        found = {one.number for *_, one in statuses_in(text)}
        assert number in NO_ERRORS or found == {number}, text
