"""Print the path of one working CPython per minor version from 3.9 on; this one is among them.

A name on PATH proves nothing: version managers put shims there that only print an error. So
each candidate is asked, and answers with its own version or is left out.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys

ASK = "import sys; print(sys.implementation.name, *sys.version_info[:2], sys.executable)"
NEWEST_TO_LOOK_FOR = 20


def candidates() -> list[str]:
    """Return every path that might be an interpreter."""
    names = [f"python3.{minor}" for minor in range(9, NEWEST_TO_LOOK_FOR)]
    homes = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    managed = [path for home in homes for path in glob.glob(f"{home}/versions/*/bin/python3")]
    return [*filter(None, map(shutil.which, names)), *sorted(managed)]


def main() -> None:
    """Print the paths, oldest version first."""
    found = {sys.version_info[:2]: sys.executable}
    for path in candidates():
        try:
            answer = subprocess.run(
                [path, "-c", ASK], capture_output=True, text=True, timeout=30, check=True
            ).stdout.split(maxsplit=3)
        except (OSError, subprocess.SubprocessError):
            continue
        if len(answer) == 4 and answer[0] == "cpython":
            found.setdefault((int(answer[1]), int(answer[2])), answer[3].strip())
    for version in sorted(found):
        if version >= (3, 9):
            print(found[version])


if __name__ == "__main__":
    main()
