"""CG916: whether EGL has the device on which MuJoCo is told to render."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.core.checks import Check
from cudaguard.features.cuda_init import messages as wording
from cudaguard.system.site import Skipped
from cudaguard.system.trial import try_imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudaguard.system.site import Result, Site

_NUMBER, _VISIBLE = "MUJOCO_EGL_DEVICE_ID", "CUDA_VISIBLE_DEVICES"

# Lists devices as mujoco.egl does. Nothing is initialized.
_ASK_EGL = """
import ctypes
try:
    egl = ctypes.CDLL("libEGL.so.1")
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    found = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
except (OSError, AttributeError):
    found = None
if found:
    ask = ctypes.CFUNCTYPE(
        ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    )(found)
    count = ctypes.c_int(0)
    if ask(0, None, ctypes.byref(count)):
        _note(f"answer {count.value}")
"""


class RenderDevice(NamedTuple):
    """The EGL device that a renderer takes, the variable that says so, and who reads it."""

    number: int
    variable: str
    by: str


def asked_for(environ: Mapping[str, str], *, mujoco: bool, robosuite: bool) -> RenderDevice | None:
    """Return the EGL device for which the environment asks; None if it names none.

    Sources: ``mujoco/egl/__init__.py``; ``robosuite/renderers/context/egl_context.py`` (1.5), which
    uses EGL unless MUJOCO_GL says otherwise, and takes CUDA's number where EGL's is not given.
    """
    renderer = environ.get("MUJOCO_GL", "").lower()
    names: tuple[str, ...]
    if robosuite and renderer not in ("osmesa", "glx"):
        who, names = "robosuite", (_NUMBER, _VISIBLE)
    elif mujoco and renderer == "egl":
        who, names = "MuJoCo", (_NUMBER,)
    else:
        return None
    variable = next((name for name in names if name in environ), "")
    number = environ.get(variable, "").partition(",")[0].strip()
    return RenderDevice(int(number), variable, who) if number.isdecimal() else None


def check_egl(site: Site) -> Result:
    """Have a child count EGL's devices, where a package that renders with them is told which."""
    there = {name: site.version(name) is not None for name in ("mujoco", "robosuite")}
    if not any(there.values()):
        raise Skipped("neither MuJoCo nor robosuite is installed")
    asked = asked_for(site.environ, **there)
    if asked is None:
        raise Skipped(f"{_NUMBER} is not set, or MuJoCo does not render with EGL")
    count = try_imports((), site.environ, site.limit, code=_ASK_EGL).answer
    if count is None:
        raise Skipped("EGL cannot be asked for its devices")
    findings = [] if asked.number < count else [wording.no_such_egl_device(*asked, count)]
    return findings, f"EGL devices: {count}"


EGL = Check(
    wording.EGL,
    "the EGL device that MuJoCo is to render on",
    "EGL numbers its devices from 0, in an order of its own. A child counts them. The number in "
    "MUJOCO_EGL_DEVICE_ID, or for robosuite in CUDA_VISIBLE_DEVICES, must be below that.",
    check_egl,
)
