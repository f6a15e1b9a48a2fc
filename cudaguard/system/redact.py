"""Takes out of a text what others should not read: who and where somebody is, and secrets."""

from __future__ import annotations

import os
import re

from cudaguard.system.credentials import (
    SECRET,
    is_assigned,
    is_option_of_secret,
    is_secret_name,
    without_credentials,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

HOME, USER, HOST = "~", "<user>", "<host>"
_FOLDERS = ("PWD", "OLDPWD")  # the shell's: its working directory, and no password
_SHORTEST = 6  # of a value that is a secret wherever it stands


def redactor(environ: Mapping[str, str], homes: tuple[str, ...], host: str) -> Callable[[str], str]:
    """Return a function that takes out what others should not read.

    Args:
        environ: The environment: its secrets, and the user's name.
        homes: Home folders, as they are spelled.
        host: The name of this machine.
    """
    from cudaguard.system.identities import ANYBODY, identity_remover

    plain = {
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST and name not in _FOLDERS and is_secret_name(name)
    }
    folders = {home.rstrip("/") for home in homes if home.strip("/")}
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    users |= {os.path.basename(home) for home in folders}
    words = {
        **dict.fromkeys(users - ANYBODY, USER),
        **dict.fromkeys({host, host.partition(".")[0]} - ANYBODY, HOST),
    }
    secrets = _any_of(re.escape(text) for text in _longest_first(plain))
    places = _any_of(
        (
            *(rf"{re.escape(folder)}(?![\w-])" for folder in _longest_first(folders)),
            *(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in _longest_first(words)),
        )
    )
    known = {**dict.fromkeys(folders, HOME), **words}
    without_others = identity_remover()

    def redact(text: str) -> str:
        text = without_credentials(secrets.sub(SECRET, text))
        return without_others(places.sub(lambda match: known[match[0]], text))

    return redact


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=len, reverse=True)


def _any_of(parts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(parts) or "(?!)")


def redacted_arguments(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without credentials."""
    found: list[str] = []
    for word in words:
        before = found[-1] if found else ""
        is_value = before.startswith("-") and "=" not in before and not word.startswith("-")
        if is_value and is_option_of_secret(before.lstrip("-"), word, " ".join(found[-9:-1]) + " "):
            found.append(SECRET)
        elif is_assigned(word):
            found.append(f"{word.partition('=')[0]}={SECRET}")
        else:
            found.append(without_credentials(word))
    return found


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Return lists and tables of texts with every text redacted; the keys are words of ours."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {key: redacted(item, redact) for key, item in value.items()}
    return value
