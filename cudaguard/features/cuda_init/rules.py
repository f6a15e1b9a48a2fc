"""CUDA contexts and device memory."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import Parameter, Verb, github
from cudaguard.features.cuda_init.facts import EXPECTING

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG013",
        title="pycuda.autoinit pushes a context of its own",
        watch=("pycuda.autoinit",),
        dist=("pycuda",),
        actions=({"replace_module": "pycuda.autoprimaryctx"},),
        # Opt-in: code that relies on a private context, or detaches it, would notice.
        grade="opt-in",
        why="pycuda.autoinit creates a context of its own and makes it current. torch and CuPy "
        "use the primary context, where its streams, events and memory are invalid. "
        "pycuda.autoprimaryctx has the same names and uses the primary context.",
        links=github(
            "NVIDIA/TensorRT/issues/4335 inducer/pycuda/issues/285 "
            "ultralytics/ultralytics/issues/9092"
        ),
        verified="2026-11-20: PyCUDA 2026.1 on a stand-in for the driver, no GPU",
    ),
    Rule(
        id="CG069",
        title="cudf initializes CUDA at import, before dask-cuda starts its workers",
        watch=("cudf",),
        dist=("cudf<25.10", "cudf-cu11<25.10", "cudf-cu12<25.10"),
        # dask-cuda sets it as well, with this value, when the cluster is made: then it is too late.
        actions=({"set_env": "RAPIDS_NO_INITIALIZE", "value": "True", "beside": "dask_cuda"},),
        why="cudf before 25.10 asks the GPU for its properties at import, which may create a "
        "context. dask-cuda then reports 'A CUDA context for device 0 already exists', and its "
        "workers may share one GPU.",
        links=github(
            "rapidsai/dask-cuda/issues/867 rapidsai/dask-cuda/pull/379 NVIDIA/cudf/issues/4827 "
            "NVIDIA/cudf/pull/12545"
        ),
        fixed_in="cudf 25.10.0",
        verified="2026-11-23: cudf 25.8.0, dask-cuda 25.8.0 (cuInit is called, no GPU)",
    ),
)

VERBS = (
    Verb("set_env", "variable", "XLA_PYTHON_CLIENT_PREALLOCATE",
      "Set an environment variable before the import, unless it is set; `beside`: only with that "
      "module.", {"before": "repair:set_env"},
      (Parameter("value", "text", "false"), Parameter("beside", "module", "dask_cuda", False))),
)  # fmt: skip
REPAIRS = {"replace_module": {"before": "repair:replace_module"}}
CATEGORY = "ImportOrderWarning"
DETECTORS = {"detector:CudaDetector": EXPECTING}
PREREQUISITES = {"context": "repair:create_if_allowed"}
INITIALIZERS = "facts:INITIALIZERS"
# File beside the package's, and the text in it by which that build does nothing with CUDA.
BUILT_WITHOUT = {"torch": ("version.py", "\ncuda: Optional[str] = None\n")}
KNOWN_ERRORS = "known_errors:EXPLAINER"
