"""What redaction takes out of texts, and above all what it leaves in them."""

from __future__ import annotations

import shlex

import pytest

from cudaguard.system.redact import redacted_arguments, redactor

from ..credentials import SHAPES

REDACT = redactor({"USER": "ann"}, ("/home/ann",), "box.example.net")
# The first is a word of a pipeline that nothing marks, the second one of a list.
KNOWN_GAPS = {"Kerberos keytab password", "OpenVPN"}


def leaks(secret, text):
    """Is a piece of the credential left that is of use to anybody?"""
    return any(secret[at : at + 8] in text for at in range(max(1, len(secret) - 7)))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_credential_is_taken_out(shape):
    text, secret = shape.made()
    assert secret in text
    told = REDACT(text)
    assert leaks(secret, told) == (shape.name in KNOWN_GAPS), told
    assert REDACT(told) == told


COMMANDS = [
    shape for shape in SHAPES
    if shape.name in ("AWS ECR password", "GitLab runner", "Azure client secret", "Tailscale",
                      "Weights & Biases variable", "Terraform variable", "DigitalOcean",
                      "bearer authorization in curl", "short variable", "option -p", "auth option",
                      "user and password as an option", "token as the user of a URL",
                      "password with spaces in one quoted word")
]  # fmt: skip


@pytest.mark.parametrize("shape", COMMANDS, ids=lambda shape: shape.name)
def test_credential_is_taken_out_of_the_words_of_a_command(shape):
    text, secret = shape.made()
    words = shlex.split(text)
    told = redacted_arguments(words)
    assert len(told) == len(words)
    assert not leaks(secret, " ".join(told)), told


IDENTITIES = {
    "home of another": ("File /home/bob/run/train.py", "bob"),
    "home of another on macOS": ("/Users/bob.smith/x/train.py", "bob.smith"),
    "home of another on Windows": (r"C:\Users\bsmith\torch\lib", "bsmith"),
    "home by its tilde": ("~bob/.cache/torch", "bob"),
    "e-mail address": ("Maintainer: Bob <bob.smith@corp-of-bob.com>", "bob.smith"),
    "host of an e-mail address": ("send it to bob@corp-of-bob.com.", "corp-of-bob"),
    "address": ("MASTER_ADDR=10.1.2.3", "10.1.2.3"),
    "address with a port": ("connect to 52.20.30.40:29500 timed out", "52.20.30.40"),
    "address in a URL": ("tcp://172.16.5.9:2345", "172.16.5.9"),
    "network": ("route 10.12.0.0/16 dev ib0", "10.12.0.0"),
    "local address": ("inet 192.168.7.21 netmask 255.255.255.0", "192.168.7.21"),
    "IPv6 address": ("inet6 fe80::1c2d:3eff:fe4f:5a6b scope link", "fe80"),
    "global IPv6 address": ("[2001:db8:85a3::8a2e:370:7334]:29500", "2001:db8"),
    "MAC address": ("link/ether 0c:42:a1:7f:3b:9e brd ff:ff:ff:ff:ff:ff", "0c:42:a1"),
    "host in a variable": ("SLURMD_NODENAME=dgx-a100-07", "dgx-a100"),
    "hosts of a job": ("SLURM_JOB_NODELIST=gpunode[01-04]", "gpunode"),
    "host by its domain": ("resolved node17.cluster.internal", "node17"),
    "host of a URL": ("https://pypi.corp-of-bob.com/simple", "corp-of-bob"),
    "host without a domain": ("http://proxybox:3128", "proxybox"),
    "account on a host": ("scp bob@node7:/data/x .", "bob"),
    "host that somebody logs in to": ("ssh -p 22 bob@node7 nvidia-smi", "node7"),
    "own account and host": ("ann@box:/data", "ann@box"),
    "GPU": ("GPU 0: NVIDIA H100 (UUID: GPU-5f2c1a3b-1111-2222-3333-444455556666)", "5f2c1a3b"),
    "MIG device": ("MIG-0f0e0d0c-1111-2222-3333-444455556666", "0f0e0d0c"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_is_taken_out(name):
    text, who = IDENTITIES[name]
    told = REDACT(text)
    assert who not in told
    assert REDACT(told) == told


def test_same_value_gets_the_same_placeholder():
    redact = redactor({}, (), "")
    told = redact(
        "tcp://10.0.0.5:1 and 10.0.0.6, then 10.0.0.5\n/home/bob/x of bob@corp.com, /home/eve/y\n"
        "/home/bob/z"
    )
    assert told == (
        "tcp://<ip-1>:1 and <ip-2>, then <ip-1>\n/home/<user-1>/x of <email-1>, /home/<user-2>/y\n"
        "/home/<user-1>/z"
    )
    assert redact("10.0.0.6") == "<ip-2>"


QUIET = """\
cudaguard 0.1.0, python 3.11.9, platform linux x86_64, torch 2.6.0+cu124
ok       CG902  extensions fit the torch that is installed
warning  CG906  nvidia-cublas-cu12 12.4.5.8 is installed; torch 2.6.0 pins 12.6.4.1
nvidia-cublas-cu12 12.4.5.8
nvidia-cudnn-cu12==9.1.0.70
nvidia-curand-cu12       10.3.5.147
nvidia-cufft-cu12        11.2.1.3
"nvidia-curand-cu11": "10.2.10.91"
nvidia_curand_cu12-10.3.5.147-py3-none-manylinux2014_x86_64.whl
opencv-python 4.10.0.84
opencv-python-headless   4.10.0.84
libnvrtc.so.12.4.127 cuDNN version: 9.1.0.70
/opt/venv/lib/python3.11/site-packages/nvidia/curand/lib/libcurand.so.10.3.5.147
/opt/venv/lib/python3.11/site-packages/decord.libs/libz-eb09ad1d.so.1.2.3 (13.0.0.1)
| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4  |
|   0  NVIDIA H100 80GB HBM3   On  | 00000000:65:00.0 Off |                    0 |
| N/A   34C    P0    71W / 700W   |      4MiB / 81559MiB |      0%      Default |
undefined symbol: _ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs
undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12
memcpy@GLIBC_2.14 deflate@@ZLIB_1.2.0 cudaMalloc@libcudart.so.12
sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_bias_f16_execute
void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>
build id 6c23ecb33bd9f7ba3a0a4f5a9d7c8f2e1b0d4c5a
git commit 9153f61d0a2b4c6e8f0a1b2c3d4e5f6a7b8c9d0e
sha256=qKKFI--XERwwN4llVC7H9BLlEtJAcAmUhV_ZnMixZDc,221
--hash=sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
/tmp/torchinductor_root/4x/c4xu2k3ofzq6kz5v6tq7lqk2i3n4o5p6q7r8s9t0u1v2w3x4y5z6.py
/root/.triton/cache/3HJQ5LZ7AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQQ/cuda_utils.so
TORCH_CUDA_ARCH_LIST=8.0;8.6;9.0+PTX
CUDA_VISIBLE_DEVICES=0,1
NCCL_SOCKET_IFNAME=eth0
TOKENIZERS_PARALLELISM=false
LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64:/opt/conda/lib
CONDA_TOOLCHAIN_HOST=x86_64-conda-linux-gnu
SSH_AUTH_SOCK=/tmp/ssh-XXXXabcd/agent.17
pad_token_id=0, max_new_tokens=512, tokenizer=gpt2, author=someone
python -m pytest -p no:cacheprovider -p xdist tests
docker run -p 8080:80 -u 1000:1000 --gpus all nvcr.io/nvidia/pytorch:24.05-py3
git clone git@github.com:pytorch/pytorch.git
https://github.com/pytorch/pytorch/issues/111469
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
pip install -U 'nvidia-cuda-nvrtc-cu12==12.9.*' 'numba-cuda[cu12]'
12:57:29 [rank0]: loss 0.512, 127.0.0.1 and 0.0.0.0, ::1
the key is missing; password: it must not be empty; a token: what is it
KeyError: 'module.layer1.weight'
"""


@pytest.mark.parametrize("line", QUIET.splitlines())
def test_what_says_nothing_of_anybody_is_left_alone(line):
    assert REDACT(line) == line
    assert redacted_arguments([line]) == [line]


def test_own_reports_are_left_alone(root):
    """All pages, with the outputs in them: nothing but homes, as examples show them."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.glob("docs/*.md")))
    before, after = text.split(), REDACT(text).split()
    changed = [(old, new) for old, new in zip(before, after) if old != new]
    assert len(before) == len(after)
    assert all("/home/" in old or "~" in new for old, new in changed), changed
