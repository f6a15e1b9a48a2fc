"""A rule of your own: one module must be imported before another.

Here `wave` stands for a library that only works if `colorsys` was imported before it.
"""

import sys

import cudaguard

cudaguard.install(
    rules=[
        cudaguard.Rule(
            id="LOCAL001",
            watch=("wave",),
            needs=("colorsys",),
            why="colorsys registers something that wave reads when it is imported",
        )
    ]
)

import wave  # noqa: F401

names = list(sys.modules)
print("colorsys came first:", names.index("colorsys") < names.index("wave"))
print([event.name for event in cudaguard.status().events if event.kind == "prerequisite"])
