"""What is installed: versions, builds, and where it came from; conda's packages included.

Source: PEP 376 (INSTALLER), PEP 427 (WHEEL), PEP 610 (direct_url.json); conda's ``conda-meta``.
"""

from __future__ import annotations

import json
import os
import re
import sys

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.conda import documents
from cudaguard.tools.doctor.inventory.field import is_of_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.system.distributions import Distribution

    Package = dict[str, str]

_TAG = re.compile(r"^Tag:\s*(\S+)\s*$", re.MULTILINE)


def packages(dists: Iterable[Distribution]) -> tuple[list[Package], dict[str, str]]:
    """Return the packages of the field with all that is known, and the versions of the others."""
    found, others = [], {}
    for dist in sorted(dists, key=lambda dist: dist.key):
        if is_of_field(dist.key):
            found.append({"name": dist.name, "version": dist.version, **_origin(dist)})
        else:
            others[dist.name] = dist.version
    return found, others


def _origin(dist: Distribution) -> dict[str, str]:
    tag = _TAG.search(_text(dist.metadata, "WHEEL"))
    direct = _text(dist.metadata, "direct_url.json")
    installer = _text(dist.metadata, "INSTALLER").strip().partition("\n")[0]
    return {"build": tag[1] if tag else "", "source": _direct(direct) or installer}


def _direct(text: str) -> str:
    """Return where a package came from that no index had, in a few words; else nothing."""
    try:
        said = json.loads(text)
        url = str(said["url"])
        version = said.get("vcs_info")
        if isinstance(version, dict):
            return f"{version.get('vcs')}+{url}@{version.get('commit_id')}"
        folder = said.get("dir_info")
        is_editable = isinstance(folder, dict) and folder.get("editable") is True
        return f"editable {url}" if is_editable else url
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # no such file, or nothing of use in it


def conda_packages(prefix: str = sys.prefix) -> tuple[list[Package], dict[str, str]]:
    """Return the same of conda's packages, Python's and others; nothing outside of conda.

    Args:
        prefix: The folder of the environment.
    """
    found, others = [], {}
    for name, version, build, document in documents(prefix):
        if is_of_field(name):
            channel = _channel(document)
            found.append({"name": name, "version": version, "build": build, "source": channel})
        else:
            others[name] = version
    return found, others


def _channel(path: str) -> str:
    """Return the channel of a package, without the folder of its platform."""
    try:
        said = json.loads(read_bytes(path, LARGEST))
        channel = str(said.get("channel") or said.get("schannel") or "conda")
    except (OSError, ValueError, AttributeError, RecursionError):
        return "conda"
    return re.sub(r"/(?:noarch|linux-\w+|osx-\w+|win-\w+)/?$", "", channel)


def _text(folder: str, name: str) -> str:
    try:
        return read_bytes(os.path.join(folder, name), LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
