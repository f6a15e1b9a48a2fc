"""Functions that must be called before a module is imported."""

from __future__ import annotations

from cudaguard.model import Rule

_ISAAC_SIM = (
    "pxr",
    "omni.usd",
    "omni.timeline",
    "omni.physx",
    "omni.replicator.core",
    "omni.isaac.core",
    "isaacsim.core",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG060",
        title="nvdiffrast's OpenGL context is created after pyrender was imported",
        watch=("nvdiffrast.torch",),
        when={"platform": "linux"},
        actions=({"check_call": "RasterizeGLContext", "before": ("pyrender",)},),
        grade="report",
        why=(
            "nvdiffrast's OpenGL context was reported to segfault after `import pyrender`, "
            "which uses OpenGL too. RasterizeCudaContext needs no OpenGL."
        ),
        links=("https://github.com/NVlabs/nvdiffrast/issues/169",),
    ),
    Rule(
        id="CG061",
        title="Isaac Sim is started after its modules were imported",
        watch=("isaacsim", "omni.isaac.kit"),
        actions=({"check_call": "SimulationApp", "before": _ISAAC_SIM},),
        grade="report",
        why=(
            "USD and Omniverse modules that are imported before SimulationApp starts may not "
            "work. Isaac Sim says they 'were loaded before SimulationApp was started and "
            "might not be loaded correctly'."
        ),
        links=("https://github.com/isaac-sim/IsaacLab/issues/2047",),
    ),
    Rule(
        id="CG062",
        title="OpenCV opens its first window with libraries of PyAV, and may hang",
        watch=("cv2",),
        # By the files alone, in whatever versions: many pairs of releases get along. Conditions on
        # versions would have metadata read in each process with OpenCV.
        when={"platform": "linux"},
        actions=tuple(
            {
                "check_call": function,
                "before": ("av",),
                "sharing": "opencv_*python.libs/libxcb*.so*",
            }
            for function in ("imshow", "namedWindow")
        ),
        grade="report",
        why=(
            "OpenCV's first window was reported to hang at 100 % CPU where it gets PyAV's "
            "libxcb. Open a window before `import av`, or install opencv-python-headless if "
            "you need no window."
        ),
        links=(
            "https://github.com/PyAV-Org/PyAV/issues/978",
            "https://github.com/PyAV-Org/PyAV/issues/1050",
            "https://github.com/dimensionalOS/dimos/pull/4155",
        ),
        verified="2026-11-23: the libraries that opencv-python 4.10.0.84 gets beside av 14.0.1",
    ),
)
