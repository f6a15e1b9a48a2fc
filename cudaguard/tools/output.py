"""Where the document of a command goes, and in which format: ``--format`` and ``-o``."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress

from cudaguard.files import open_to_write, write_text
from cudaguard.tools.common import BROKEN, UsageError
from cudaguard.tools.layout import Document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator


HOST = "%h"  # in the name of a file


def named(path: str) -> str:
    """Return the name of a file with that of this machine in place of `HOST`."""
    if HOST not in path:
        return path
    import platform

    return path.replace(HOST, platform.node().partition(".")[0] or "localhost")


def execute(args: Namespace) -> int:
    """Execute a command; what it shows goes to the file of ``-o``, if it has that.

    The suffix of that file says the format, where ``--format`` does not.

    Raises:
        UsageError: The file cannot be written.
    """
    path = getattr(args, "output", None)
    if getattr(args, "is_format_by_suffix", False) and args.format is None:
        args.format = "json" if (path or "").lower().endswith(".json") else "text"
    if not isinstance(path, str):  # standard output, or files of the command's own
        status: int = args.execute(args)
        return status
    path = named(path)
    is_new = not os.path.lexists(path)
    with _told(path):
        os.close(open_to_write(path))  # now, not when minutes have been spent
    shown, sys.stdout = sys.stdout, Document()
    try:
        status = args.execute(args)
        text = sys.stdout.getvalue()
    except BaseException:
        if is_new:
            with suppress(OSError):
                os.unlink(path)
        raise
    finally:
        sys.stdout = shown
    with _told(path):
        write_text(path, text)
    return status


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written: {said}", status=BROKEN) from error
