"""What ``docs/generate.py`` writes, where it takes more than a table."""

from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
