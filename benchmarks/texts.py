"""What long lines cost that are explained: ``python texts.py measuring SIZE``.

The lines are those on which the patterns of the package took longest when they were generated
(see tests/attacks.py); prints ``name value`` lines, in CPU seconds.
"""

from __future__ import annotations

import re
import sys
from time import process_time

# What is repeated; before it stands what a message begins with.
OF_MESSAGES = (
    "CommandLine Err C",
    "nvJitLink 'sm_a",
    "detected CUDA version ",
    "cuda invalid ",
    "C",
)
A_LOG = "12:00:01 INFO train.py:123 step 12345 loss 0.512 lr 1e-4 cuda:0 12.3 GiB, 1234 tokens/s\n"


def line_of(part, size):
    return part * (size // len(part))


def time_of(function, text):
    began = process_time()
    function(text)
    return process_time() - began


def measuring(characters):
    """Explaining, beside one plain pass over a text of the same length."""
    from cudaguard.tools.explain import explain

    words = re.compile(r"\w+")
    size = int(characters)
    log = line_of(A_LOG, size)
    explain("")  # what it imports is paid for here
    print("pass", time_of(lambda text: words.sub("", text), log))
    print("explain a log", time_of(explain, log))
    print("explain", max(time_of(explain, line_of(part, size)) for part in OF_MESSAGES))


if __name__ == "__main__":
    {"measuring": measuring}[sys.argv[1]](*sys.argv[2:])
