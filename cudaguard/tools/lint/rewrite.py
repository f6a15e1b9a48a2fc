"""A file changed in one step, and the change as a diff."""

from __future__ import annotations

import os
from contextlib import suppress

from cudaguard.files import LARGEST, read_bytes, write_bytes
from cudaguard.files.text import printable
from cudaguard.system.source_file import decoded
from cudaguard.tools.lint import messages as say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.tools.lint.found import Fixed

_MARK = "\ufeff"  # of UTF-8, at the beginning of a file
_NO_NEWLINE = "\\ No newline at end of file"


def rewrite(path: str, change: Fixed) -> None:
    """Put the new text in the place of the old one: all of it, or nothing.

    A link is kept, and the file that it leads to is changed; so are mode and owner.

    Raises:
        OSError: The file cannot be written, or is no longer what was read.
    """
    target = os.path.realpath(path)
    info = os.stat(target)
    if not info.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise OSError(say.READ_ONLY)
    if info.st_nlink > 1:
        raise OSError(say.LINKED)
    folder, name = os.path.split(target)
    new = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        write_bytes(new, change.after, os.O_CREAT | os.O_EXCL)
        os.chmod(new, info.st_mode & 0o7777)
        made = os.stat(new)
        if (made.st_uid, made.st_gid) != (info.st_uid, info.st_gid):
            os.chown(new, info.st_uid, info.st_gid)
        if read_bytes(target, LARGEST) != change.before:
            raise OSError(say.CHANGED)
        os.replace(new, target)
    except FileExistsError:  # somebody else's
        raise
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new)
        raise


def diff(path: str, change: Fixed) -> str:
    """Return the change as a unified diff that `patch` and `git apply` can read."""
    from difflib import unified_diff

    told = []
    for line in unified_diff(_lines(change.before), _lines(change.after), path, path):
        text = line.rstrip("\r\n")
        end = line[len(text) :]
        told.append(printable(text, keep=f"\t\f{_MARK}") + end.rstrip("\n"))
        if not end:
            told.append(_NO_NEWLINE)
    return "\n".join(told)


def _lines(data: bytes) -> list[str]:
    lines, encoding = decoded(data)
    return [f"{_MARK}{lines[0]}", *lines[1:]] if encoding == "utf-8-sig" else lines
