"""``python -m cudaguard`` is the command ``cudaguard``."""

from __future__ import annotations

import sys

from cudaguard.tools.main import main

if __name__ == "__main__":
    sys.exit(main())
