"""A made-up torch beside made-up copies of NVRTC, laid out and linked as in the wheels.

The libraries are real ones, for a real loader; what they compile for is a table. The devices are
those of the stub driver and the stub of NVML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudaguard.features.gpu_architectures.policy import TARGETS

from ...features.cuda_init.program import SCENE, Program, Ran

NVRTC = """
static const int known[] = {{ {known} }};
enum {{ NUMBER = sizeof known / sizeof *known }};
int nvrtcVersion(int *major, int *minor) {{ *major = {major}; *minor = {minor}; return 0; }}
int nvrtcGetNumSupportedArchs(int *number) {{ *number = NUMBER; return 0; }}
int nvrtcGetSupportedArchs(int *found)
{{
    for (int i = 0; i < NUMBER; i++)
        found[i] = known[i];
    return 0;
}}
"""

# As torch's part that is linked with NVRTC: 0, or the status of an architecture that is not known.
TORCH_PART = """
int nvrtcGetNumSupportedArchs(int *number);
int nvrtcGetSupportedArchs(int *found);
int compile_for(int architecture)
{
    int known[99], number;
    nvrtcGetNumSupportedArchs(&number);
    nvrtcGetSupportedArchs(known);
    for (int i = 0; i < number; i++)
        if (known[i] == architecture)
            return 0;
    return 5;
}
"""

TORCH = {
    "version.py": "__version__ = '{release}'\ncuda = {cuda!r}\n",
    "_C.py": "{flags}\n",
    "cuda.py": (Path(__file__).parent / "torch_cuda.txt").read_text(),
    "__init__.py": "from torch import _C, cuda, version\n__version__ = version.__version__\n",
}


class MadeUp(Program):
    """A program in whose folder packages are made up, in ``site`` and wherever else it is asked."""

    def __init__(self, child: Any, stubs: Any, compiler: Any) -> None:
        super().__init__(child, stubs)
        self.compile = compiler.put
        child.write(
            "scene.py",
            SCENE + "import cudaguard.system\n"
            "cudaguard.system.DRIVER_FILES = ('driver',)\n"
            # Nothing of this machine's own.
            "from cudaguard.features.gpu_architectures import repair\nrepair._TOOLKITS = ()\n",
        )
        child.write("driver", "")
        self.site = child.folder / "site"

    def nvrtc(self, release: tuple[int, int], folder: str = "site/nvidia/cuda_nvrtc/lib") -> Path:
        """Make a copy of NVRTC."""
        major, minor = release
        home = self.folder / folder
        known = ", ".join(map(str, sorted(TARGETS[release])))
        name = f"libnvrtc.so.{major}"
        code = NVRTC.format(known=known, major=major, minor=minor)
        path = self.compile(home / name, code, f"-Wl,-soname,{name}")
        builtins = f"libnvrtc-builtins.so.{major}.{minor}"
        self.compile(home / builtins, "int builtins;", f"-Wl,-soname,{builtins}")
        (home / f"libnvrtc-builtins.alt.so.{major}.{minor}").touch()  # as some wheels have it
        return path

    def torch(
        self,
        release: str = "2.8.0",
        flags: str = "sm_80 sm_90 sm_120",
        nvrtc: tuple[int, int] = (12, 8),
        cuda: str | None = "12.8",
    ) -> None:
        """Make a torch and its own NVRTC."""
        own = self.nvrtc(nvrtc)
        said = f"def _cuda_getArchFlags(): return {flags!r}" if cuda else ""
        for name, text in TORCH.items():
            path = self.site / "torch" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                text.format(release=release, cuda=cuda, flags=said)
                if "{" in text and name != "cuda.py"
                else text
            )
        folder = self.site / "torch" / "lib"
        rpath = "$ORIGIN/../../nvidia/cuda_nvrtc/lib"
        linker = ("-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}", "-Wl,--no-as-needed")
        self.compile(folder / "libcaffe2_nvrtc.so", TORCH_PART, *linker, own)
        code = f'const char *get(void) {{ return "{flags}"; }}\nconst char sm_[] = "sm_carveout";\n'
        self.compile(folder / "libtorch_python.so", code)

    def run(self, code: str, *arguments: object, path: tuple[str, ...] = (), **how: Any) -> Ran:
        """Run code with ``site`` behind further folders on PYTHONPATH."""
        folders = [str(self.folder / part) for part in (*path, "site")]
        env = {"PYTHONPATH": ":".join(folders), **how.pop("env", {})}
        return super().run(code, *arguments, env=env, **how)


@pytest.fixture
def program(child: Any, driver_stubs: Any, compiler: Any) -> MadeUp:
    """A program with the stub driver."""
    return MadeUp(child, driver_stubs, compiler)
