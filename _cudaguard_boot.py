"""Activation at interpreter start, before any user code; named by cudaguard.pth.

A top-level module of its own, so that a start without ``CUDAGUARD`` loads nothing else. Called
twice in a virtual environment; does nothing under ``-E`` and ``-I``, which say that environment
variables do not count. PYTEST_DONT_REWRITE: it may well be loaded before pytest is.
"""

import os
import sys

_has_told = False


def start():
    """Put the guard up if the environment asks for it. Never raises."""
    if sys.flags.ignore_environment:
        return
    word = os.environ.get("CUDAGUARD", "").strip().lower()
    if word in ("", "off", "0", "false", "no"):
        return
    global _has_told  # noqa: PLW0603  # the line is executed twice in a virtual environment
    import _signal  # type: ignore[import-not-found]  # light: `signal` is not

    # Ctrl-C ends what has not begun; an error in here would be Python's "Fatal Python error".
    is_default = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    try:
        if is_default:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    except ValueError:  # in a sub-interpreter, on Python 3.9
        is_default = False
    try:
        from cudaguard.kernel import boot

        boot()
    except Exception as error:
        if _has_told:
            return
        _has_told = True
        try:
            sys.stderr.write(f"cudaguard: start-up failed: {type(error).__name__}: {error}\n")
        except Exception:  # stderr is closed: there is nobody to tell
            return
    finally:
        if is_default:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
