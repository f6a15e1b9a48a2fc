"""The checks of ``cudaguard doctor``: their ids, titles, and what they are about. Data only."""

from __future__ import annotations

from cudaguard.checks import Topic

CHECKS: dict[str, Topic] = {
    "CG901": Topic(
        "no known fault of the installed versions is left to luck",
        "Each rule of the catalogue names versions of packages with a known fault. Told are those "
        "that are installed here, what the guard does about them, and what it would do if asked.",
    ),
    "CG902": Topic(
        "extensions load with the libraries that are installed",
        "Extensions that link torch or CUDA are compared with the torch that is installed: the "
        "libraries they need, and each symbol, from the files, as the dynamic loader would.",
    ),
    "CG905": Topic(
        "distributions do not overwrite or contradict one another",
        "Two distributions that bring the same file (cupy and cupy-cuda12x, wheels of two CUDA "
        "families), requirements on torch that the installed one does not meet, metadata that "
        "cannot be read. Told from metadata alone.",
    ),
}
