"""Triton's ptxas on GPUs that it does not know: told, and another one named on request."""

from __future__ import annotations

import pytest

from cudaguard.features.gpu_architectures.architectures import PTXAS_VARIABLES

GB10 = "12.1"
OWN = "site/triton/backends/nvidia/bin"
OLD, NEW = (name[0] for name in PTXAS_VARIABLES.values())


@pytest.fixture
def triton(program):
    """Makes a Triton with ptxas of some releases; each ptxas is a file that says its own."""

    def triton(*, version="3.5.1", folder=OWN, **releases):
        home = program.folder / folder
        home.mkdir(parents=True, exist_ok=True)
        for name, release in releases.items():
            text = f"\0Cuda compilation tools, release {release}, V{release}.1\0"
            (home / name.replace("_", "-")).write_text(text)
        if folder == OWN:
            (program.site / "triton" / "__init__.py").touch()
            metadata = program.site / f"triton-{version}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Name: triton\nVersion: {version}\n")
        return home

    # Nothing of this machine's own.
    program.alone = {"PATH": "", "CUDA_HOME": "", "CUDA_PATH": "", "CONDA_PREFIX": ""}
    return triton


USE = "import ctypes; driver().cuInit(0)\nimport triton  # triton\n"
ENV = f"print(*(os.environ.get(name) for name in ({OLD!r}, {NEW!r})))\n"


def test_it_is_told_when_triton_comes_after_cuda(program, triton):
    triton(ptxas="12.8")
    ran = program.run("cudaguard.install()\n" + USE, env=program.alone, capability=GB10)
    assert ran.warned == ["CG895"]
    assert "Triton's ptxas 12.8 does not support sm_121." in ran.err
    assert "triton/backends/nvidia/bin/ptxas" in ran.err
    assert "pip install 'nvidia-cuda-nvcc-cu12==12.9.*'" in ran.err
    assert program.where("triton") in ran.err


def test_it_is_told_when_torch_initializes_cuda(program, triton):
    program.torch(nvrtc=(12, 9))
    triton(ptxas="12.8")
    code = "cudaguard.install()\nimport torch, triton\nprint(*ids())\ntorch.cuda.init()"
    ran = program.run(code, env=program.alone, capability=GB10)
    assert ran.out == [""]
    assert ran.warned == ["CG895"]


def test_triton_without_cuda_is_not_spoken_of(program, triton):
    triton(ptxas="12.8")
    code = "cudaguard.install()\nimport ctypes, triton\nprint(*ids())"
    assert program.output(code, env=program.alone, capability=GB10) == [""]


@pytest.mark.parametrize(
    ("releases", "capability", "lacking"),
    [
        ({"ptxas": "12.4", "ptxas_blackwell": "12.8"}, "12.0", False),
        ({"ptxas": "12.4", "ptxas_blackwell": "12.8"}, "12.1", True),
        ({"ptxas": "12.4", "ptxas_blackwell": "12.8"}, "9.0", False),
        ({"ptxas": "12.9", "ptxas_blackwell": "13.1"}, "7.0", False),  # by the older one
        ({"ptxas": "13.0"}, "7.0", True),
        ({"ptxas": "12.4"}, "12.0", True),
        ({"ptxas": "9.9"}, "12.0", False),  # nobody knows what that knows
        ({}, "12.0", False),
    ],
)
def test_which_one_is_asked(program, triton, releases, capability, lacking):
    triton(**releases)
    code = "cudaguard.install()\n" + USE + "print('CG895' in ids())"
    ran = program.run(code, env=program.alone, capability=capability)
    assert ran.out == [str(lacking)]


def test_one_that_is_named_already(program, triton):
    triton(ptxas="12.8")
    newer = triton(folder="newer", ptxas="12.9") / "ptxas"
    code = "cudaguard.install()\n" + USE + "print('CG895' in ids())"
    ran = program.run(code, env={**program.alone, OLD: str(newer)}, capability=GB10)
    assert ran.out == ["False"]
    ran = program.run(code, env={**program.alone, OLD: "/nowhere"}, capability=GB10)
    assert ran.out == ["True"]


@pytest.mark.parametrize("place", ["beside/nvidia/cuda_nvcc/bin", "cuda/bin"])
def test_one_that_is_installed_is_named_on_request(program, triton, place):
    triton(ptxas="12.8")
    newer = triton(folder=place, ptxas="12.9") / "ptxas"
    more = {
        "path": ("beside",),
        "env": {**program.alone, "CUDA_HOME": str(program.folder / "cuda")},
        "capability": GB10,
    }
    told = program.run("cudaguard.install()\n" + USE + ENV, **more)
    assert told.out == ["None None"]
    assert f"export {OLD}={newer}" in told.err
    code = "import logging; logging.basicConfig(level='INFO')\n"
    ran = program.run(
        f"{code}cudaguard.install(enable=['CG038'])\nimport triton  # triton\n{ENV}"
        "print([line for line in cudaguard.status().changes if 'CG038' in line])",
        **more,
    )
    how = f"{OLD}={newer}: set to ptxas 12.9, because Triton's own 12.8 does not support sm_121,"
    changes = ["libnvidia-ml.so.1: loaded before triton, to ask it, by CG038 (stays)"]
    assert ran.out == [f"{newer} None", str([*changes, f"{how} by CG038 (stays)"])]
    assert f"CG038: {how} at {program.where('triton')}" in ran.err
    assert ran.warned == []


def test_the_second_one_has_a_variable_of_its_own(program, triton):
    triton(version="3.7.1", ptxas="12.8", ptxas_blackwell="13.1")
    triton(folder="a/nvidia/cuda_nvcc/bin", ptxas="12.9")  # of another major release
    newer = triton(folder="b/nvidia/cu13/bin", ptxas="13.4") / "ptxas"
    ran = program.run(
        "cudaguard.install(enable=['CG038'])\n" + USE + ENV + "print('CG895' in ids())",
        path=("a", "b"),
        env=program.alone,
        capability="10.7",
    )
    assert ran.out == [f"None {newer}", "False"]


@pytest.mark.parametrize("hindrance", ["set", "mode", "old triton", "driver", "known", "major"])
def test_it_is_left_alone(program, triton, hindrance):
    triton(ptxas="12.8", version="3.2.0" if hindrance == "old triton" else "3.5.1")
    release = "13.0" if hindrance == "major" else "12.9"
    triton(folder="a/nvidia/cuda_nvcc/bin", ptxas=release)
    if hindrance == "driver":
        (program.folder / "driver").unlink()
    env = {**program.alone, **({OLD: "mine"} if hindrance == "set" else {})}
    mode = "'warn', " if hindrance == "mode" else ""
    ran = program.run(
        f"cudaguard.install({mode}enable=['CG038'])\nimport triton\n{ENV}",
        path=("a",),
        env=env,
        capability="12.0" if hindrance == "known" else GB10,
    )
    assert ran.out == ["mine None" if hindrance == "set" else "None None"]
    assert "CG807" not in ran.err


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="errors take no notes")
def test_error_of_triton_is_explained_with_what_is_here(program, triton):
    triton(ptxas="12.8")
    ran = program.run(
        """
        cudaguard.install(disable=["CG895"])
        import ctypes; driver().cuInit(0)
        import triton
        try:
            with cudaguard.guard():
                raise RuntimeError(
                    "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'")
        except RuntimeError as error:
            print(*error.__notes__)
        """,
        env=program.alone,
        capability=GB10,
    )
    assert ran.out[0] == "cudaguard [CG863] Triton's ptxas 12.8 does not support sm_121."
    assert any("nvidia-cuda-nvcc-cu12==12.9.*" in line for line in ran.out)
