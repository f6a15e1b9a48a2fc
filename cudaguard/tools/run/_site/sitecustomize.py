"""Puts the guard up in the Python processes of ``cudaguard run``, before any code of the program.

``site`` imports this module because its folder stands on PYTHONPATH. It takes the folder from
``sys.path``, so that the program does not see it, and then runs the sitecustomize that the
program would have had. Any Python may be started below ``cudaguard run``: one that the guard was
not asked for, or that is too old for us, gets its own sitecustomize and nothing else.
"""

import os
import sys


def _activate(here):
    word = os.environ.get("CUDAGUARD", "").strip().lower()
    if word in ("", "off", "0", "false", "no") or sys.version_info < (3, 9):
        return
    if os.environ.get("CUDAGUARD_RUN_PREFIX") not in ("", sys.prefix):  # None: not ours to say
        return
    import _signal  # light: `signal` is not

    # As in _cudaguard_boot.
    is_default = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    try:
        if is_default:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    except ValueError:  # in a sub-interpreter, on Python 3.9
        is_default = False
    try:
        try:
            from cudaguard.hooks.own_imports import load
        except ImportError:
            # This environment lacks the package, or its folder was on the path of the parent only.
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here))))
            sys.path.insert(0, root)
            try:
                from cudaguard.hooks.own_imports import load, use_dependencies_in
            finally:
                sys.path.remove(root)
            use_dependencies_in(os.environ.get("CUDAGUARD_RUN_PACKAGES", ""))
        load("cudaguard.api").launch()
    except Exception as error:
        try:
            sys.stderr.write("cudaguard: start-up failed: %s: %s\n" % (type(error).__name__, error))
        except Exception:  # stderr is closed: there is nobody to tell
            return
    finally:
        if is_default:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _chain():
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", None) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _here]
_activate(_here)
_chain()
