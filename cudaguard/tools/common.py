"""Shared by the commands: exit statuses, formats, where documents go, progress, notes.

Standard output holds one document and nothing else; whatever is said besides goes to standard
error, through `note` and `Progress`.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper

from cudaguard.files import open_to_write, words_in, write_text
from cudaguard.files.layout import Document, Page, columns_of, is_terminal
from cudaguard.files.text import printable, printable_data
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TextIO, TypeVar

    T = TypeVar("T")


class Scratch:
    """A new, private, temporary `folder`; an OSError if none can be made."""

    def __init__(self, kind: str, parent: str) -> None:
        # As `tempfile` does, which would be most of what `run` imports.
        name = f"cudaguard-{kind}-{os.urandom(8).hex()}"
        self.folder = os.path.join(os.path.abspath(parent), name)
        os.mkdir(self.folder, 0o700)

    def close(self) -> None:
        """Delete it; links in it are not followed; what is busy or too deep stays."""
        from shutil import rmtree

        with suppress(RecursionError):  # a thousand folders, one in the other
            rmtree(self.folder, ignore_errors=True)


OK = 0
FOUND = 1  # a fault was found
USAGE = 2
BROKEN = 3  # a check itself failed, which is neither of the first two
TIMEOUT = 124
CANNOT_SAY = 125  # as in `git bisect run`
INTERRUPTED = 130  # by Ctrl-C, as shells tell it
UNREAD = 141  # nobody reads what is written: what a shell tells of those who die of SIGPIPE

FORMATS = ("text", "json")
HOST = "%h"  # in the name of a file
SCHEMA = 1  # of all JSON documents; the files lie in cudaguard/tools/schema


class UsageError(Exception):
    """A command line that cannot be carried out; `main` says why, in JSON too if that was asked.

    `wrong` is a word of the command line, `right` what was probably meant by it: the line is shown
    with that. `command` is what to run instead, by default that line, or the help.
    """

    def __init__(
        self, what: str, *, wrong: str = "", right: str = "", command: str = "", status: int = USAGE
    ) -> None:
        super().__init__(what)
        self.remedy = f"did you mean {right}?" if right else ""
        self.wrong, self.right, self.command, self.status = wrong, right, command, status


def add_format(parser: ArgumentParser, *verbose: str, config: bool = False) -> None:
    """Declare ``--verbose``, ``--quiet``, ``--format`` and ``-o FILE``; see `execute`."""
    add_verbose(parser, *verbose, config=config)
    parser.set_defaults(is_format_by_suffix=True)
    parser.add_argument(
        "--format", choices=FORMATS, help="default: text, or as the suffix of -o says"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="write there, not to standard output; %%h is the name of this host",
    )  # fmt: skip


def add_verbose(
    parser: ArgumentParser,
    what: str = "show long lists whole",
    quiet: str = "no progress and no summary on standard error",
    *,
    config: bool = False,
) -> None:
    """Declare ``--verbose``, ``--quiet`` and, if asked for, ``--config``; see `execute`."""
    parser.add_argument("-v", "--verbose", action="store_true", help=what)
    parser.add_argument("-q", "--quiet", action="store_true", help=quiet)
    if config:
        meaning = "a cudaguard.toml (default: $CUDAGUARD_CONFIG)"
        parser.add_argument("--config", dest="config_file", metavar="FILE", help=meaning)


def add_with_arguments(parser: ArgumentParser) -> None:
    """Declare ``--with-arguments``; see `shareable`."""
    parser.add_argument(
        "--with-arguments", action="store_true",
        help="files and JSON show the program's arguments too, lines of its source and its output",
    )  # fmt: skip


def name_with_host(path: str) -> str:
    """Return the name of a file with that of this machine in place of `HOST`."""
    if HOST not in path:
        return path
    import platform

    return path.replace(HOST, platform.node().partition(".")[0] or "localhost")


def execute(args: Namespace) -> int:
    """Execute a command; what it shows goes to the file of ``-o``, if it has that.

    The suffix of that file says the format, where ``--format`` does not.
    """
    config = getattr(args, "config_file", None)
    if config is not None:  # for this process and its children
        from cudaguard.core.settings import checked_file
        from cudaguard.errors import ConfigError, RuleError

        try:
            checked_file(config)
        except (ConfigError, RuleError, ImportError) as error:
            from shlex import quote

            command = f"cudaguard rules check {quote(config)}"
            raise UsageError(f"--config {error}", command=command) from None
        os.environ["CUDAGUARD_CONFIG"] = os.path.abspath(config)
    if getattr(args, "quiet", False):
        Progress.is_shown = False
    path = getattr(args, "output", None)
    if getattr(args, "is_format_by_suffix", False) and args.format is None:
        args.format = "json" if (path or "").lower().endswith(".json") else "text"
    if not isinstance(path, str):  # standard output, or files of the command's own
        status: int = args.execute(args)
        return status
    path = name_with_host(path)
    is_new = not os.path.lexists(path)
    with _reported_as_usage(path):
        os.close(open_to_write(path))  # now, not when minutes have been spent
    try:
        with redirect_stdout(Document()) as written:
            status = args.execute(args)
    except BaseException:
        if is_new:
            with suppress(OSError):
                os.unlink(path)
        raise
    with _reported_as_usage(path):
        write_text(path, written.getvalue())
    return status


@contextmanager
def _reported_as_usage(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written: {said}", status=BROKEN) from error


def save(tool: str, path: str, text: str, flags: int = os.O_CREAT | os.O_TRUNC) -> bool:
    """Write a file as `write_text` does, and say so if that fails; return whether it went well."""
    try:
        write_text(path, text, flags)
    except OSError as error:
        note(tool, f"{path} cannot be written: {error}")
        return False
    return True


def json_text(document: Mapping[str, Any]) -> str:
    """Return a JSON document: first the number of its schema, the command, and our version."""
    import json

    from cudaguard import __version__

    head = {"schema": SCHEMA, "tool": document["tool"], "version": __version__}
    text = json.dumps({**head, **document}, indent=2)
    return text.replace("##", "\\u0023#")  # Azure takes ##vso[ for a command in the middle of JSON


def laid_out(
    document: T, write: Callable[[T, Page], None], stream: TextIO | None = None, *, verbose: bool
) -> str:
    """Return a document in words, as a command writes them on a page."""
    page = Page(stream, verbose=verbose)
    write(printable_data(document), page)
    return str(page)


def show(text: str) -> None:
    """Write the document, or a part of it; to nowhere once its reader has gone, as `head` does."""
    try:
        print(text, flush=True)
    except OSError as error:
        give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise


def note(tool: str, text: str, run: str = "") -> None:
    """Say something besides the document, on standard error, with the command to run next."""
    page = Page(sys.stderr)
    page.add(printable(text), lead=f"cudaguard{' ' * bool(tool)}{tool}: ")
    page.labeled("run", printable(run), 2)
    say(f"{page}\n", sys.stderr)


def say(text: str, stream: TextIO | None) -> None:
    """Write text that may be lost: a full disk or a closed pipe is no error here."""
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        give_up(stream)


def give_up(stream: TextIO) -> None:
    """Send a stream to nowhere: at its end, Python would try once more to write what it holds."""
    with suppress(OSError, ValueError):  # it is none of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepare_streams() -> None:
    """Make the standard streams fit for whatever is told.

    File names may hold what their encoding has not. What was started without one of them gets
    one that goes nowhere, lest a file that is opened takes its place; a program that is run does
    not get it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "rww"[number], encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Progress:
    """Progress on standard error: one line that rewrites itself on a terminal.

    Elsewhere (a log) only what is finished is told, a line each. No control sequences: a carriage
    return and blanks do.
    """

    is_shown = True

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = (stream or sys.stderr) if self.is_shown else Document()
        self._rewrites = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        self._shown = 0  # columns of the line that will be rewritten

    def running(self, text: str) -> None:
        """Show what is going on now; in a log, nothing."""
        if self._rewrites:
            self._rewrite(text)

    def finished(self, text: str) -> None:
        """Show what has just ended; the next line takes its place on a terminal."""
        if self._rewrites:
            self._rewrite(text)
        else:
            say(f"{printable(text)}\n", self._stream)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            say(f"\r{' ' * self._shown}\r", self._stream)
            self._shown = 0

    def _rewrite(self, text: str) -> None:
        text = printable(text)[: (columns_of(self._stream) or 80) - 1]
        say(f"\r{text}{' ' * (self._shown - len(text))}", self._stream)
        self._shown = len(text)


# --- Documents without user names, passwords and arguments, to be passed on -----------------------
# Nothing here guesses what a secret looks like. Of variables those of one list are shown, of a
# command line the program alone; URLs lose what may carry a password, paths the names of users.
# Nothing else is looked at: the error that ended a program is shown in its own words.

VARIABLES = frozenset(words_in(os.path.dirname(__file__), "variables.txt"))
USER, LEFT_OUT = "USER", "..."
_LONGEST = 1 << 16  # characters of one text: a file of somebody's may have a line of millions
_URL = re.compile(r"://(\S*)")
_HOST = re.compile(r"(?:[\w.-]*|\[[\da-fA-F:.]*\])(?::\d{1,5})?")
_SIGNS = ")}>'\",;:."  # of the sentence around it
_TOKEN_OF_CONDA = re.compile(r"/t/[^/]+")
_HOME_OF_OTHERS = re.compile(r"(/(?:homes?|[Uu]sers)/+)(?!\.)[^/\s:;,'\"]+")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a report may show, sorted."""
    return {name: environ[name] for name in sorted(VARIABLES.intersection(environ))}


def program_alone(words: Sequence[str]) -> list[str]:
    """Return the program of a command line, and in one word how many arguments it has.

    It may be a script or command, ``-m MODULE``, or ``-c CODE``.
    """
    program = list(words[: 2 if words[:1] in (["-m"], ("-m",)) else 1])
    count = len(words) - len(program)
    return [*program, f"<{count} argument{'s' * (count > 1)}>"] if count else program


def shareable(document: Any) -> Any:
    """Return a document without names of users, passwords in URLs and home folders."""
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")} - {"", "root"}
    # HOME may be set to another folder than that of the account, as in jobs and containers.
    given = {os.path.expanduser(f"~{user}") for user in ("", *users)}
    folders = {folder.rstrip("/") for home in given for folder in (home, os.path.realpath(home))}
    homes = _any_of(filter(os.path.isabs, folders), r"(?<![\w.~-])", r"(?![\w-]|\.\w)")
    names = _any_of(users, r"(?<![^\W_])", r"(?![^\W_])")

    def of_path(word: re.Match[str]) -> str:
        return names.sub(USER, word[0]) if "/" in word[0] else word[0]

    def shared(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) > _LONGEST:
                value = value[:_LONGEST] + LEFT_OUT
            text = homes.sub("~", _URL.sub(_without_user, value))
            return re.sub(r"\S+", of_path, _HOME_OF_OTHERS.sub(rf"\1{USER}", text))
        if isinstance(value, (list, tuple)):
            return [shared(item) for item in value]
        if isinstance(value, dict):
            return {key: shared(item) for key, item in value.items()}
        return value

    return shared(document)


def _without_user(url: re.Match[str]) -> str:
    """Return what follows a scheme without user, query and fragment; there may be a URL in it."""
    parts = re.split("[?#]|;(?=.)", url[1], maxsplit=1)[0].split("://")
    return "://" + "://".join(map(_host_and_path, parts))


def _host_and_path(text: str) -> str:
    authority, slash, path = text.partition("/")
    host = authority.rpartition("@")[2]
    if not _HOST.fullmatch(host.rstrip(_SIGNS)):  # a password with a slash, perhaps
        return LEFT_OUT
    return host + _TOKEN_OF_CONDA.sub(f"/t/{LEFT_OUT}", slash + path)


def _any_of(texts: Iterable[str], before: str, behind: str) -> re.Pattern[str]:
    """Return a pattern of any of these texts, the longest first; of none, one that never fits."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'}){behind}")
