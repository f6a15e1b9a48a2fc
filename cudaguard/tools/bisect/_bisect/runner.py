"""Imports modules, then runs a program, in the children of ``cudaguard bisect``.

Usage: ``runner.py KIND FOLDER [PROGRAM [ARG ...]]``. KIND is ``imports`` (there is no program),
``script``, ``archive`` (a folder or zip file) or ``module``; FOLDER is what Python puts in front of
`sys.path` for it. The imports that the environment names are made first. Before a program those
that fail are passed over. Not imported as a part of the package, and imports nothing of it: the
child is to be as it would be without us.
"""

import os
import sys

HERE = __file__
STANDARD = os.path.dirname(os.__file__)
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class Journal:
    """Says what is about to happen in one write each, so that a crash loses nothing."""

    def __init__(self, path):
        self.pid = os.getpid()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        flags |= sum(getattr(os, f"O_{name}", 0) for name in ("CLOEXEC", "NOFOLLOW", "BINARY"))
        self.file = os.open(path, flags, 0o600) if path else None

    def note(self, what, name):
        if self.file is not None and os.getpid() == self.pid:
            try:
                os.write(self.file, f"{what} {name}\n".encode())
            except OSError:  # a program that closes all descriptors
                self.file = None


class Recorder:
    """Notes the imports that the program asks for, and not those that installed packages do.

    Those which a package does while it is imported come with it; those which it does later, in a
    call, may be what is looked for.
    """

    def __init__(self, journal):
        self.journal = journal

    def find_spec(self, name, path=None, target=None):
        if not self.is_nested(sys._getframe(1)):
            self.journal.note("import", name)

    @staticmethod
    def is_nested(frame):
        while frame is not None:
            code = frame.f_code
            if code.co_filename == HERE:
                return False
            if code.co_name == "<module>":
                file = code.co_filename
                if file.startswith(STANDARD) or any(part in file for part in INSTALLED):
                    return True
            frame = frame.f_back
        return False


def main():
    names = [name for name in os.environ.pop("CUDAGUARD_BISECT_IMPORTS", "").split(",") if name]
    journal = Journal(os.environ.pop("CUDAGUARD_BISECT_JOURNAL", ""))
    kind, folder, *program = sys.argv[1:]
    if not getattr(sys.flags, "safe_path", False):  # -P: there is no such entry
        sys.path[0] = folder
    sys.argv[:] = ["-c"] if kind == "imports" else program
    for name in names:
        journal.note("start", name)
        try:
            __import__(name)
        except Exception:
            # A program may import it later, when it can be imported.
            if kind == "imports":
                raise
    journal.note("started", kind)
    if kind == "imports":
        return
    if not names:
        sys.meta_path.insert(0, Recorder(journal))
    # A module of its own: the program's names and ours do not mix.
    ours = sys.modules["__main__"]
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    main.__file__ = program[0]
    main.__builtins__ = ours.__builtins__
    if kind == "script":
        import io

        with io.open_code(program[0]) as file:
            source = file.read()
        # In our own frame: a program sees no more callers than it must.
        exec(compile(source, program[0], "exec", dont_inherit=True), main.__dict__)
    else:
        import runpy

        if kind == "archive":
            runpy.run_path(program[0], run_name="__main__")
        else:
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)


main()
