"""Takes out of a text what others should not read: who and where somebody is, and secrets."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

HOME, USER, HOST, SECRET = "~", "<user>", "<host>", "<secret>"
# Names that say nothing of anybody.
_ANYBODY = {"", "root", "user", "localhost", "nobody", "ubuntu", "ec2-user", "runner", "jovyan",
            "vscode", "mambauser", "app", "tmp", "home", "opt",
            "python", "torch", "cuda", "conda", "nvidia"}  # fmt: skip
_SHORTEST = 6  # of a value that is a secret wherever it stands
_IS_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|_KEY$|AUTH|"
    r"COOKIE|SSHPASS|_(?:PASS|PWD|PAT)$"
)
# Of an option or a setting; not --tokenizer, nor --max-tokens.
_NAME = (
    r"(?:[\w.-]*[._-])?(?:token|secret|passw(?:or)?d|passphrase|credentials?|"
    r"(?:api|access|secret|private)[_-]?key)"
)
_IS_SECRET_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
# As in HF_TOKEN=x in front of a command, and in trainer.api_key=x and +api_key=x of Hydra.
_IS_SECRET_SETTING = re.compile(rf"[+~]{{0,2}}{_NAME}", re.IGNORECASE)
# What is a secret by its own form, wherever it stands.
_FORMS = (
    # scheme://name:password@host, and scheme://token@host; a password may have an @ of its own
    (re.compile(r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE),
     rf"\1{SECRET}@"),
    (re.compile(r"([?&;](?:[\w-]*(?:token|key|secret|password|signature|sig|auth|credential)"
                r"[\w-]*)=)[^&\s'\"#]+", re.IGNORECASE), rf"\1{SECRET}"),
    (re.compile(r"(\b(?:bearer|basic|authorization:\s*token)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
     rf"\1{SECRET}"),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abeprs]-|pypi-|AKIA|ASIA|AIza|"
                r"nvapi-)[\w-]{8,}"), SECRET),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), SECRET),  # a JSON web token
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL),
     rf"\1{SECRET}"),
)  # fmt: skip
# What is one by the name in front of it. Quotes stay: the text may be JSON, itself quoted in JSON.
_NAMED = (
    (re.compile(r"((?<![\w-])(?=[\w-]*?(?:token|secret|passw(?:or)?d|"
                r"(?:api|access|account|private)[_-]?key))[\w-]+"
                r"(?:\\?['\"])?\s*[=:]\s*)"
                r"(?:(\\?['\"]).*?\2|(\\?['\"])?[^\s'\",;&]+)", re.IGNORECASE),
     rf"\1\2\3{SECRET}\2"),
    (re.compile(rf"((?<![\w-])--?{_NAME}\s+)(?!-)[^\s'\",;&]+", re.IGNORECASE),
     rf"\1{SECRET}"),
)  # fmt: skip


def redactor(environ: Mapping[str, str], homes: tuple[str, ...], host: str) -> Callable[[str], str]:
    """Return a function that takes out what others should not read.

    Args:
        environ: The environment: its secrets, and the user's name.
        homes: Home folders, as they are spelled.
        host: The name of this machine.
    """
    plain = {
        value: SECRET
        for name, value in environ.items()
        if _IS_SECRET.search(name.upper()) and len(value) >= _SHORTEST
    }
    folders = {home.rstrip("/") for home in homes if home.strip("/")}
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    users |= {os.path.basename(home) for home in folders}
    words = {
        **dict.fromkeys(users - _ANYBODY, USER),
        **dict.fromkeys({host, host.partition(".")[0]} - _ANYBODY, HOST),
    }
    parts = [
        *(re.escape(text) for text in sorted(plain, key=len, reverse=True)),
        *(rf"{re.escape(f)}(?![\w-])" for f in sorted(folders, key=len, reverse=True)),
        *(rf"(?<![^\W_]){re.escape(w)}(?![^\W_])" for w in sorted(words, key=len, reverse=True)),
    ]
    known = {**plain, **dict.fromkeys(folders, HOME), **words}
    pattern = re.compile("|".join(parts)) if parts else None

    def redact(text: str) -> str:
        if pattern is not None:
            text = pattern.sub(lambda match: known[match[0]], text)
        return _without(text, (*_FORMS, *_NAMED))

    return redact


def redacted_arguments(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without secrets: values of options, parts of URLs."""
    found: list[str] = []
    for word in words:
        name, equals, _ = word.partition("=")
        before = found[-1] if found else ""
        if equals and (_IS_SECRET_OPTION.fullmatch(name) or _IS_SECRET_SETTING.fullmatch(name)):
            found.append(f"{name}={SECRET}")
        elif _IS_SECRET_OPTION.fullmatch(before) and not word.startswith("-"):
            found.append(SECRET)
        else:
            found.append(_without(word, _FORMS))
    return found


def _without(text: str, secrets: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for secret, instead in secrets:
        text = secret.sub(instead, text)
    return text


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Return lists and tables of texts with every text redacted; the keys are words of ours."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {key: redacted(item, redact) for key, item in value.items()}
    return value
