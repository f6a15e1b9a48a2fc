"""What documents for others show of variables, command lines, URLs and paths."""

from __future__ import annotations

import os
import pwd

import pytest

from cudaguard.tools.common import VARIABLES, program_alone, shareable, variables

# As people choose them and providers make them; that they look like anything does not count.
SECRETS = (
    "hunter2", "correct-horse", "Tr0ub4dor&3", "letmein!", "p@ss:w0rd", "geheim", "1234567890",
    "hf_AbCdEfGhIjKlMnOpQrStUvWx", "sk-proj-Zx81kQ", "ghp_0123456789abcdef", "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI+bPxRfiCYEXAMPLEKEY", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "nvapi-x-1",
    "xoxb-17653285-ABCdef", "AccountKey=abc==", "glpat-20chars_1", "SG.x.y", "dapi0aa1", "a'b\"c",
)  # fmt: skip
NAMES = (
    "HF_TOKEN", "WANDB_API_KEY", "NVIDIA_API_KEY", "NGC_CLI_API_KEY", "CUDA_TOKEN", "CUDA_PASSWORD",
    "TORCH_SECRET", "PYTORCH_KEY", "NCCL_AUTH", "XLA_PASS", "TF_CREDENTIALS", "LD_SECRET",
    "OMP_KEY", "PYTHON_INDEX_PASSWORD", "CUDAGUARD_TOKEN", "CONDA_TOKEN", "JAX_SESSION",
    "CC", "CXX", "NVCC_APPEND_FLAGS", "PIP_INDEX_URL", "HTTPS_PROXY", "AWS_SECRET_ACCESS_KEY",
    "USERNAME", "PATH_TO_KEY",
)  # fmt: skip
ARGUMENTS = (
    ("--token", "{}"), ("--token={}",), ("-p{}",), ("{}",), ("+trainer.key={}",), ("KEY={}",),
    ("--", "{}"), ("--config", '{{"password": "{}"}}'), ("postgres://u:{}@host/d",),
)  # fmt: skip
URLS = (
    "https://user:{}@example.org/simple", "https://{}@example.org:8080/x", "redis://:{}@10.0.0.1",
    "https://example.org/x?token={}", "https://example.org/x#{}", "https://example.org?a=1&b={}&c=2",
    "git+https://oauth2:{}@example.org/a/b@0a1b", "-ihttps://u:{}@example.org", "//x/y://u:{}@host/z",
    "https://proxy/https://u:{}@example.org/x", "https://example.org/?next=https://x/&token={}",
    "https://a@b:{}@example.org/x", "https://u:a/{}@example.org/x?y", "s3://{}@[::1]:80/x",
    "https://conda.example.org/t/{}/channel/linux-64", "https://example.org/api;token={}/x.whl",
)  # fmt: skip


def test_variables_are_those_of_the_list():
    """A beginning would do for none of them: all but one name here begin as one of the list."""
    planted = {name: f"secret-{number}" for number, name in enumerate(NAMES)}
    shown = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDAGUARD": "fix", "LD_LIBRARY_PATH": "/opt/lib"}
    assert variables({**planted, **shown, "cuda_home": "x"}) == shown
    assert VARIABLES.isdisjoint(planted)
    assert all(name.isupper() for name in VARIABLES)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_argument_of_a_command_line_is_shown(secret):
    for shape in ARGUMENTS:
        words = [word.format(secret) for word in shape]
        for program in (["train.py"], ["-m", "pkg.train"], ["torchrun"], ["-"]):
            count = f"<{len(words)} argument{'s' * (len(words) > 1)}>"
            assert program_alone([*program, *words]) == [*program, count]
        assert program_alone(["-c", *words])[0] == "-c"
        assert secret not in str(program_alone(["-c", *words]))


def test_command_lines_without_arguments():
    assert program_alone(["train.py"]) == ["train.py"]
    assert program_alone(("-m", "pkg")) == ["-m", "pkg"]
    assert program_alone(["-m"]) == ["-m"]
    assert program_alone([]) == []


@pytest.mark.parametrize("secret", SECRETS)
def test_urls_keep_host_and_path(secret):
    for url in URLS:
        told = shareable({"source": [f"from {url.format(secret)} to here"]})["source"][0]
        assert secret not in told, told
        assert told.endswith(" to here")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://u:p@github.com/a/b.git@0a1b?x#y", "https://github.com/a/b.git@0a1b"),
        ("see https://pytorch.org/get-started/locally/.", "see https://pytorch.org/get-started/locally/."),
        ("(https://pypi.org), 'https://pypi.org:443'", "(https://pypi.org), 'https://pypi.org:443'"),
        ("tcp://[fe80::1]:29500", "tcp://[fe80::1]:29500"),
        ("https://u:a/b@host/x", "https://..."),
        ("https://a/b; then", "https://a/b; then"),
        ("c10::Error at std::vector: a://", "c10::Error at std::vector: a://"),
    ],
)  # fmt: skip
def test_urls(text, told):
    assert shareable(text) == told


@pytest.fixture
def _ann(monkeypatch, tmp_path):
    """An account called ann: HOME is another folder than the one of the account."""
    monkeypatch.setenv("HOME", "/scratch/jobs/17")
    monkeypatch.setenv("USER", "ann")
    account = pwd.struct_passwd(("ann", "x", 1, 1, "", "/home/ann", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: account)
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.delenv("SUDO_USER", raising=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/ann/x and /home/ann.", "~/x and ~."),
        ("/home/ann:/scratch/jobs/17/lib:/opt", "~:~/lib:/opt"),
        ("file:///home/ann/src", "file://~/src"),
        ("/home/anna/x, /home/ann.lee", "/home/USER/x, /home/USER"),
        ("-I/home/ann/include", "-I/home/USER/include"),
        ("/mnt/home/bob/x '/Users/bob'", "/mnt/home/USER/x '/Users/USER'"),
        ("/users//bob/y:/homes/eve", "/users//USER/y:/homes/USER"),
        ("/data/ann/x:/tmp/ann_cache/y", "/data/USER/x:/tmp/USER_cache/y"),
        ("/opt/channel/annotations of ann", "/opt/channel/annotations of ann"),
        ("/usr/lib/python3.11/site-packages/torch/lib/libc10.so", None),
        ("undefined symbol: _ZN3c106detailE", None),
        ("nvidia-cublas-cu12 12.4.5.8 in /opt/conda", None),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_ann")
def test_paths_name_no_user(text, told):
    assert shareable([{"path": text}]) == [{"path": text if told is None else told}]


def test_account_without_a_name(monkeypatch):
    """As in containers that run under any number."""
    for name in ("USER", "LOGNAME", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/")
    text = f"/usr/lib of /home/bob, ~ and {os.getcwd()}"
    assert shareable(text) == text.replace("bob", "USER")
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("HOME", "/root/")
    assert shareable("/root/x, /data/root/y") == "~/x, /data/root/y"


def test_what_is_no_text_stays():
    data = {"a": [1, None, True, 2.5, {"b": "c"}]}
    assert shareable(data) == data
    assert os.path.expanduser("~") not in str(shareable([f"{os.path.expanduser('~')}/x"]))
