"""Files of this package that others read or run, also where the package lies in a zip file."""

from __future__ import annotations

import os


def on_disk(path: str) -> str:
    """Return where a file or folder of the package lies on the disk.

    In a zip application nothing does: it is unpacked then, for the time of this process.

    Args:
        path: As ``__file__`` has it.

    Raises:
        OSError: It is in no archive either, or it cannot be unpacked.
    """
    if os.path.exists(path):
        return path
    archive, name = _split(path)
    import atexit
    import tempfile
    import zipfile

    from cudaguard.tools.scratch import Scratch

    scratch = Scratch("unpacked", tempfile.gettempdir())
    atexit.register(scratch.close)
    with zipfile.ZipFile(archive) as file:
        inside = f"{name}/"
        members = [one for one in file.namelist() if one == name or one.startswith(inside)]
        if not members:
            raise FileNotFoundError(f"there is no {name} in {archive}")
        file.extractall(scratch.folder, members)
    return os.path.join(scratch.folder, *name.split("/"))


def _split(path: str) -> tuple[str, str]:
    """Return the archive that a path leads into, and the name in it."""
    archive, names = path, []
    while not os.path.isfile(archive):
        archive, name = os.path.split(archive)
        if not name:
            raise FileNotFoundError(f"there is no {path}")
        names.append(name)
    return archive, "/".join(reversed(names))
