"""Takes out of a text who and where others are: accounts, hosts, addresses, devices.

The same value gets the same placeholder, so that a report stays readable: ``<host-2>`` is one
machine wherever it stands. Every step takes linear time.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Names that say nothing of anybody, and the words of placeholders.
ANYBODY = {
    "", "root", "user", "localhost", "nobody", "ubuntu", "ec2-user", "runner", "jovyan", "vscode",
    "mambauser", "app", "tmp", "home", "opt", "git", "shared", "public", "docker", "builder",
    "linuxbrew", "circleci", "vsts", "python", "torch", "cuda", "conda", "nvidia", "host",
    "secret", "email", "ip", "mac", "gpu",
}  # fmt: skip
# Hosts of links and package indexes, and those of examples.
_PUBLIC = (
    "github.com", "githubusercontent.com", "github.io", "gitlab.com", "pypi.org", "python.org",
    "pythonhosted.org", "pytorch.org", "nvidia.com", "nvcr.io", "anaconda.org", "anaconda.com",
    "conda.io", "huggingface.co", "readthedocs.io", "readthedocs.org", "tensorflow.org",
    "rapids.ai", "docker.io", "docker.com", "quay.io", "ghcr.io", "google.com", "googleapis.com",
    "stackoverflow.com", "sourceware.org", "gnu.org", "kernel.org", "debian.org", "ubuntu.com",
    "microsoft.com", "example.org", "example.com", "cupy.dev", "numpy.org", "scipy.org",
    "llvm.org", "wikipedia.org", "w3.org", "apache.org", "json-schema.org", "localhost",
)  # fmt: skip

_USER = r"(?P<user>[A-Za-z_][\w.-]{0,63})"
_LABEL = r"[A-Za-z0-9_](?:[\w-]{0,61}[A-Za-z0-9_])?"
_HOST = rf"(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})"
_EMAIL = re.compile(
    r"(?<![\w.+-])(?P<email>[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}(?!so\b)[A-Za-z]{2,24})(?![\w-])"
)
_ACCOUNT = re.compile(rf"(?<![\w.+@/<-]){_USER}@{_HOST}(?P<path>:[~/\w])?")
_LOGS_IN = re.compile(r"\b(?:ssh|scp|rsync|sftp|mosh)\s")
_URL = re.compile(
    rf"(?P<begin>(?<![\w+.-])[A-Za-z][\w+.-]{{0,30}}://(?:<secret>@)?){_HOST}(?![\w.])"
)
_NAMED_HOST = re.compile(
    r"(?P<begin>(?<!\w)(?:\w{0,40}_)?(?:"
    r"(?:HOST|HOSTNAME|NODENAME|NODELIST|ADDR)\s{0,3}[=:]\s{0,3}|"
    r"(?:host|hostname|nodename|nodelist|addr)(?:=|[\"']\s{0,3}:\s{0,3}|: ?(?=\S{1,99}$)))[\"']?)"
    rf"(?=[A-Za-z]){_HOST}(?![\w.(/])",
    re.MULTILINE,
)
_PRIVATE_HOST = re.compile(
    rf"(?<![\w.@/-])(?P<host>(?:{_LABEL}\.){{1,8}}(?:local|localdomain|internal|intern|lan|corp|intranet|"
    r"cluster|hpc))(?![\w-]|\.\w)"
)
_HOME_OF = re.compile(
    rf"(?P<begin>(?:/home|/Users|/users|/homes|\\Users|/scratch|~)[/\\]{{0,4}}){_USER}(?=[/\\])"
)
_MAC = re.compile(
    r"(?<![\w:-])(?P<mac>[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5}))(?![\w:-])"
)
_GPU = re.compile(r"\b(?P<gpu>(?:GPU|MIG)-(?:GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
# With the beginning of a global, a local or a link address: not ``at::native``.
_V6 = re.compile(
    r"(?<![\w:.])(?P<ip>(?:[23][0-9a-f]{3}|f[cdef][0-9a-f]{2})(?::[0-9a-f]{0,4}){2,7})(?![\w:])",
    re.IGNORECASE,
)
_V4 = re.compile(
    r"(?<![\w.+-])(?P<ip>\d{1,3}(?:\.\d{1,3}){3})(?P<more>:\d{1,5}\b|/\d{1,2}\b)?(?![\w+]|\.\w|-\w)"
)
# What tells addresses and versions of four parts apart, where the numbers do not.
_ADDRESS_WORDS = {
    "addr", "address", "host", "hostname", "server", "peer", "inet", "src", "dst", "from", "to",
    "via", "gateway", "node", "connect", "connecting", "bind", "listen", "listening", "ping",
    "nameserver", "remote", "client", "endpoint", "ip",
}  # fmt: skip
_VERSION_WORDS = (
    "version", "release", "rev", "nvidia", "lib", "cu", "nccl", "npp", "tensorrt", "driver",
    "nvjitlink", "opencv",
)  # fmt: skip
_NOT_OF_A_WORD = re.compile(r"[^\w.+-]")
_PRIVATE_V4 = re.compile(
    r"10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\."
)
_NOBODYS_V4 = ("0.", "127.", "255.")
_LARGEST_MAJOR = 30  # of a version of four parts; more is an address


def _is_address(match: re.Match[str]) -> bool:
    """Return True if four numbers are an address, and not a version such as 12.4.5.8."""
    ip = match["ip"]
    numbers = [int(part) for part in ip.split(".")]
    if max(numbers) > 255 or ip.startswith(_NOBODYS_V4):
        return False
    before = match.string[max(0, match.start() - 80) : match.start()].rpartition("\n")[2]
    word = before.rstrip(" \t|=:,(['\"/<>~!")
    between = before[len(word) :]
    word = _NOT_OF_A_WORD.split(word)[-1].lower()
    if match["more"] or between.endswith("//") or word.rpartition("_")[2] in _ADDRESS_WORDS:
        return True
    if "==" in between or ">=" in between or word == "v" or word.startswith(_VERSION_WORDS):
        return False
    return numbers[0] > _LARGEST_MAJOR or _PRIVATE_V4.match(ip) is not None


def _is_account(match: re.Match[str]) -> bool:
    """Return True if ``name@host`` is an account, and not the version of a symbol."""
    before = match.string[max(0, match.start() - 100) : match.start()].rpartition("\n")[2]
    return match["path"] is not None or _LOGS_IN.search(before) is not None


def _is_public(host: str) -> bool:
    lower = host.lower()
    return lower in _PUBLIC or lower.endswith(tuple(f".{known}" for known in _PUBLIC))


def _is_machine(host: str) -> bool:
    """Return True if a name is one of somebody's machine, and not a platform or a public host."""
    return not (
        _is_public(host)
        or host.isdigit()
        or "linux" in host
        or host.lower() in ("true", "false", "none", "null", "any", "host", "self")
    )


# The groups of the patterns that may say who or where, and whether a value does.
_SAYS: dict[str, Callable[[str, re.Match[str]], bool]] = {
    "email": lambda value, _: not (value.startswith("git@") and _is_public(value[4:])),
    "user": lambda value, _: value.lower() not in ANYBODY,
    "host": lambda value, _: _is_machine(value),
    "ip": lambda value, match: ":" in value or _is_address(match),
    "mac": lambda *_: True,
    "gpu": lambda *_: True,
}


def identity_remover() -> Callable[[str], str]:
    """Return a function that replaces who and where others are, the same by the same."""
    told: dict[str, dict[str, str]] = {}

    def placeholder(kind: str, value: str) -> str:
        known = told.setdefault(kind, {})
        return known.setdefault(value.lower(), f"<{kind}-{len(known) + 1}>")

    def replaced(match: re.Match[str]) -> str:
        if match.re is _ACCOUNT and not _is_account(match):
            return match[0]
        parts: list[str] = []
        done = match.start()
        for kind, value in match.groupdict().items():  # in the order of the pattern
            if kind in _SAYS and value and _SAYS[kind](value, match):
                parts += match.string[done : match.start(kind)], placeholder(kind, value)
                done = match.end(kind)
        return "".join((*parts, match.string[done : match.end()]))

    def remove(text: str) -> str:
        for pattern in (_V4, _V6, _MAC, _GPU, _ACCOUNT, _EMAIL, _URL, _NAMED_HOST,
                        _PRIVATE_HOST, _HOME_OF):  # fmt: skip
            text = pattern.sub(replaced, text)
        return text

    return remove
