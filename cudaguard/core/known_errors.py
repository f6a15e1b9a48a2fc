"""Messages that do not say what is wrong, and what they mean: how one is found in a text.

What explains a text is chosen by evidence: what ended the program goes before what was said
earlier, what is certain before what is likely, and what fits a longer piece of a line before what
fits a part of it.

Each feature has the messages of its kind in ``known_errors.ini``, which is read when something is
explained. An entry ``[CG... sure] what it is about, as the heading of a page has it`` is certain,
or ``likely``, ``named``, ``vague`` or ``noise`` (harmless); with ``ours`` it counts in texts of
this field alone, and with ``any`` it says nothing of this field in others. It has::

    says      patterns, one a line, in linear time; ``(?P<name>...)`` can be named in the texts as
              ``{name}``, and ``{term}`` stands for each line of a term of the section ``[terms]``
    status    statuses of `cudaguard.system.statuses`: ``700``, ``cublas``; ``*`` is any other one
    what      what is wrong: the headline
    also      what else follows from it
    fix       what to do
    guarded   what the guard does about it, for a program that has none
    run       what can be run at once
    leads     ``yes`` if a native library prints it, and something else fails for it later
    symptom   what a reader sees: the heading of docs/troubleshooting.md that it stands under; that
              of the entry before it, if there is none
    links     evidence; ``links.name`` that of messages with this name alone, maybe none

and what stands for each name where there is no message; ``name.group`` where that group of a
pattern fits, or that fact of ``parts.ini``, ``sure.group`` for how sure it is then; ``name.*`` has
groups that stand for themselves. What it does not have is that of the kind of finding with its id.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache, partial
from itertools import islice

from cudaguard.core.findings import Finding, Kind
from cudaguard.files import os, packaged_text
from cudaguard.model import TYPE_CHECKING, NamedTuple, Record
from cudaguard.system.statuses import statuses_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any


FILE = "known_errors.ini"
# How sure an explanation is. What is vague tells that something died, and not of what; a tool has
# named what it refuses; a general one is put together from the parts of a message without an entry.
VAGUE, NAMED, LIKELY, CERTAIN = 2, 2.5, 3, 4
_GRADES = {"noise": 0, "general": 1, "vague": VAGUE, "named": NAMED, "likely": LIKELY, "": CERTAIN}
_NOT_IF = {"ours": "not_field", "any": "other_program"}
_SURE: dict[float, str] = {
    VAGUE: "The message alone does not show the cause.",
    LIKELY: "This is likely, not certain.",
}
_AROUND = 2000  # characters on each side of a hint in which a message lies
_MOST_WITHOUT = 16_000  # characters that are searched for what has no hint
_MOST_PLACES = 12  # places of one hint that are looked at, from the last one on
_MOST_MATCHES = 100  # of a pattern in one stretch of a text, the first ones
_MOST_OF_STATUSES = 200_000  # characters of a part in which statuses are looked for, its last ones
_SHORT = 2000  # characters of a text that may be typed by hand, or broken into lines
_POINTER = "Search for `cuda"  # torch says where a status is described
NUMBERS = re.compile(r"\d+")


class KnownError(Record):
    """What a message means; the fields are those of an entry, see above."""

    id: str
    title: str  # what it is about
    says: tuple[str, ...]  # regular expressions of the message
    status: tuple[tuple[str, str], ...]  # statuses, as library and number; each may be ``*``
    what: str  # what is wrong
    remedy: str  # what to do
    consequence: str  # what else follows from it
    command: str  # what can be run at once
    links: tuple[str, ...]
    certainty: float  # how sure that is: `CERTAIN`, `LIKELY`, `VAGUE` ..
    nouns: Mapping[str, str]  # what stands for each name where there is no message
    facts: Mapping[str, str]  # what the text tells of its place, see `facts_in`
    unguarded: str  # what the guard does about it, for a program that has none
    leads: bool  # True if a native library prints it, and something else fails for it later
    symptom: str  # heading of the page
    not_if: str  # the fact of a text of another field, in which it does not count
    # returns what a message means where the texts are not enough, from this object and the match;
    # None if it is another error after all
    tell: Callable[[KnownError, re.Match[str]], Finding | None] | None = None

    def at(self, facts: dict[str, str], found: dict[str, str]) -> KnownError:
        """Return it as it is sure of what was found: ``sure.group`` grades that as the entry is."""
        grades = [self.nouns[f"sure.{g}"] for g in (*found, *facts) if f"sure.{g}" in self.nouns]
        return self.replace(facts=facts, certainty=_GRADES[grades[0]] if grades else self.certainty)

    def explain(self, match: re.Match[str]) -> Finding | None:
        """Return what a message means that fits a pattern, None if it is another one."""
        if self.tell is not None:
            return self.tell(self, match)
        return self.with_words(**{name: word for name, word in match.groupdict().items() if word})

    def about(self) -> Finding:
        """Return what such messages are about."""
        return self.to_unguarded(self.with_words().replace(severity="info"))

    def to_unguarded(self, finding: Finding) -> Finding:
        """Return a finding with what the guard would do, for a program that has none."""
        return finding.replace(remedy="; ".join(filter(None, (finding.remedy, self.unguarded))))

    def with_words(self, **words: str) -> Finding:
        """Return what a message means, with what is to be named in the texts."""
        # A noun may have another text where a group of the pattern or a fact fits: `why.gone`.
        fit = {"", *self.facts, *words}
        keys = sorted((key.partition(".") for key in self.nouns), key=lambda key: key[1])
        chosen = {name: self.nouns[f"{name}{dot}{g}"] for name, dot, g in keys if g in fit}
        words = {**chosen, **self.facts, **words}
        for name, text in chosen.items():
            if words[name] is text and name[0] not in ">$":
                words[name] = text.format_map(words)
        return Finding(
            self.id,
            self.what.format_map(words),
            severity="error",
            consequence=self.consequence.format_map(words),
            remedy=self.remedy.format_map(words),
            command=self.command.format_map(words),
            links=(*words["links"].split(),) if "links" in words else self.links,
        )

    def hit_in(self, text: str, begin: int, end: int, finding: Finding) -> Hit:
        """Return a place of a text with what it means; its last line is the first evidence."""
        place = max(begin, end - 1)
        if _POINTER in line_at(text, place):  # the line before it is the error
            place = max(0, text.rfind("\n", 0, place))
        line = line_at(text, place).strip()
        line = line if len(line) <= 200 else f"{line[:197]}..."
        follows = f"{_SURE.get(self.certainty, '')} {finding.consequence}".strip()
        finding = finding.replace(evidence=(line, *finding.evidence), consequence=follows)
        return Hit(self, begin, end, finding)


# --- The files ------------------------------------------------------------------------------------

_TEXTS = {
    "title": "title", "what": "what", "also": "consequence", "fix": "remedy", "run": "command",
    "guarded": "unguarded", "symptom": "symptom",
}  # fmt: skip
_LISTS = ("says", "status", "links")
_TERM = re.compile(r"\{([a-z_]+)\}")


def known_in(
    file: str,  # a file beside its ``known_errors.ini``
    kinds: Mapping[str, Any] | None = None,  # variables, some of which are kinds of findings
    # by id, what `KnownError.tell` is
    **tell: Callable[[KnownError, re.Match[str]], Finding | None],
) -> tuple[KnownError, ...]:
    """Return the messages of a feature."""
    path = os.path.join(os.path.dirname(file), FILE)
    sections = sections_in(path)
    terms = sections.pop("terms", {})
    by_id = {one.id: one for one in (kinds or {}).values() if isinstance(one, Kind)}
    symptom: list[str] = []
    for entry in sections.values():
        symptom = entry.setdefault("symptom", symptom)
    return tuple(
        _known(id, entry, terms, by_id.get(id), tell.get(id)) for id, entry in sections.items()
    )


def sections_in(path: str) -> dict[str, dict[str, list[str]]]:
    """Return the lines of each value in a file, by section and key; ` || ` parts two of them."""
    sections: dict[str, dict[str, list[str]]] = {}
    lines: list[str] = []
    for line in packaged_text(path).splitlines():
        if not line or line[0] == "#":
            continue
        if line[0] == " ":
            lines += line.strip().split(" || ")
        elif line[0] == "[":
            name, _, title = line[1:].partition("]")
            id, _, sure = name.partition(" ")
            entry = sections[id] = {"title": [title.strip()], "sure": [sure]} if title else {}
        else:
            key, _, first = line.partition(" =")
            lines = entry[key] = first.strip().split(" || ") if first.strip() else []
    return sections


parts = cache(partial(sections_in, os.path.join(os.path.dirname(__file__), "parts.ini")))


def _known(
    id: str, entry: dict[str, list[str]], terms: dict[str, list[str]], kind: Any, tell: Any
) -> KnownError:
    lists = {key: entry.pop(key, []) for key in _LISTS}
    words = {key: " ".join(lines) for key, lines in entry.items()}
    texts: dict[str, str] = {
        field: words.pop(key) if key in words else getattr(kind, field, "")
        for key, field in _TEXTS.items()
    }
    sure, leads = words.pop("sure", "").split(), words.pop("leads", "")
    pairs = (word.rpartition(":") for line in lists["status"] for word in line.split())
    for key in [key for key in words if key.endswith("*")]:
        words.update((key[:-1] + group, group) for group in words.pop(key).split())
    return KnownError(
        id,
        **texts,
        says=tuple(one for line in lists["says"] for one in _expanded(line, terms)),
        status=tuple((library or "cuda", number) for library, _, number in pairs),
        links=(*" ".join(lists["links"]).split(),) or getattr(kind, "links", ()),
        certainty=next((grade for word, grade in _GRADES.items() if word in sure), CERTAIN),
        nouns=words,
        facts={},
        leads=bool(leads),
        not_if=next((fact for word, fact in _NOT_IF.items() if word in sure), ""),
        tell=tell,
    )


def _expanded(pattern: str, terms: dict[str, list[str]]) -> list[str]:
    """Return a pattern for each way to say its terms."""
    if (term := _TERM.search(pattern)) is None:
        return [pattern]
    said = (f"{pattern[: term.start()]}{line}{pattern[term.end() :]}" for line in terms[term[1]])
    return [one for each in said for one in _expanded(each, terms)]


def of_texts(name: str) -> re.Pattern[str]:
    """Return a pattern of what texts of this field say."""
    return _compiled(parts()["texts"][name][0], 0)


def facts_in(text: str, place: int) -> dict[str, str]:
    """Return what a text tells of where it comes from, and the line at a place of its cause."""
    line, words = line_at(text, place), ("errno", "errno_cure", "errno_check")
    causes = (texts for one, *texts in parts()["errno"].values() if re.search(one, line))
    return {**_told_in(text[-_MOST_OF_STATUSES:]), **dict(zip(words, next(causes, ())))}


@lru_cache(maxsize=8)
def _told_in(text: str) -> dict[str, str]:
    told = {}
    for name, patterns in parts()["facts"].items():
        if match := next(filter(None, (_compiled(one, 0).search(text) for one in patterns)), None):
            told[name] = match[match.lastindex or 0]
    if "seen_gcc" in told:
        told["older_gcc"] = str(int(told["seen_gcc"]) - 1)
    if not is_of_field(field := of_this_field(text)):
        told.update({"not_field": "yes"} if field == text else dict.fromkeys(_NOT_IF.values(), ""))
    return told


def is_of_field(text: str) -> bool:
    """Return True if a text names something of this field."""
    begins, has, *words = parts()["texts"]["field"]  # a pattern of all is several times as slow
    low = text.lower()
    return any(one in low for one in words) or bool(re.search(begins, low) or re.search(has, low))


def of_this_field(text: str) -> str:
    """Return a text without the lines that programs of other fields have printed."""
    others, ours = of_texts("others").search, of_texts("ours").search
    lines = text.split("\n") if others(text) else ()
    return "\n".join(line for line in lines if not others(line) or ours(line)) if lines else text


# There are more of them than `re` keeps.
_compiled: Callable[[str, int], re.Pattern[str]] = cache(re.compile)


@cache
def literal_in(pattern: str) -> str:
    """Return the longest text that each message has which a pattern fits."""
    found, run, depth, place = "", "", 0, 0
    while place < len(pattern):
        sign = pattern[place]
        place += 1
        if sign == "\\" and not pattern[place].isalnum():
            sign, place = pattern[place], place + 1
        elif sign in "\\[(.^$)|?*+{":
            if sign in "?*{":  # the one before it may be missing
                run = run[:-1]
            found, run = max(found, run, key=len), ""
            depth += (sign == "(") - (sign == ")")
            if sign == "\\":
                place += 1
            elif sign in "[{":
                first = place + (pattern[place] == "^") + 1 if sign == "[" else place
                while pattern[first] != "]}"[sign == "{"]:
                    first += 1 + (pattern[first] == "\\")
                place = first + 1
            continue
        run = f"{run}{sign}" if depth == 0 else ""
    return max(found, run, key=len)


class Explainer(NamedTuple):
    """What a feature can say of the texts of errors."""

    known: tuple[KnownError, ...]  # the messages that it knows
    # returns what is to be said where the error is raised, with what is true of this process; None
    # where that was said otherwise
    in_process: Callable[[Finding], Finding | None] = lambda finding: finding
    ids: Iterable[str] = ()  # of those for which it is asked
    # True if such an error is a finding, and not only a text that is explained
    is_found: bool = False
    # returns what an error that ends the program means, by what it is, where no text is known
    of_error: Callable[[BaseException], Finding | None] = lambda _: None


# --- The search -----------------------------------------------------------------------------------


class Hit(NamedTuple):
    """A message that was found in a text."""

    known: KnownError  # what is known of it
    begin: int  # where it begins
    end: int  # where it ends
    finding: Finding  # what it means; the line is its evidence


def best_in(
    text: str, known: Iterable[KnownError], streams: list[str], *, is_typed: bool = False
) -> Hit | None:
    """Return what explains the error that ended a program; None if nothing does.

    With `is_typed` it may be typed by hand, or broken into lines: if nothing fits a short text,
    neither lines nor capital letters count.
    """
    known = tuple(known)
    is_short = is_typed and len(text) <= _SHORT and not any(map(endings_of, streams))
    flags = re.IGNORECASE if is_short and text in (text.lower(), text.upper()) else 0
    found = _surest(_best_in(stream, known, flags) for stream in streams)
    if is_short and (found is None or found.known.certainty <= VAGUE):
        lines = [" ".join(stream.split()) for stream in streams]
        broken = [stream.replace("\n", "") for stream in streams]  # by a terminal, within words
        found = _surest((found, *(_best_in(line, known, 0) for line in lines)))
        found = found or _surest(_best_in(line, known, 0) for line in broken)
        return found or _surest(_best_in(line, known, re.IGNORECASE) for line in lines)
    return found


def without(noise: Iterable[KnownError], text: str) -> str:
    """Return a text without what lines say that are harmless."""
    said = [one for known in noise for one in known.says if literal_in(one) in text]
    for one in said:
        hint, is_harmless = literal_in(one), _compiled(one, 0).search
        lines = text.split("\n")
        text = "\n".join("-" if hint in line and is_harmless(line) else line for line in lines)
    return text


def _surest(hits: Iterable[Hit | None]) -> Hit | None:
    """Return what explains most of what several ranks say; of what explains as much the first."""
    return max(filter(None, hits), key=lambda hit: hit.known.certainty, default=None)


def _best_in(text: str, known: tuple[KnownError, ...], flags: int) -> Hit | None:
    if not (endings := endings_of(text)):  # no log
        return _best(text, _hits(text, known, range(len(text)), flags))
    vague: Hit | None = None
    is_another = is_aftermath = False
    for part in endings:
        found = _best(text, _hits(text, known, part, flags))
        if found is not None and found.known.certainty >= NAMED:
            return found
        is_dead = found is not None and found.known.certainty <= VAGUE
        vague = vague or found
        # It says what is wrong, as errors of Python's do, and no entry knows it.
        is_aftermath = is_passed_on(text, part)
        is_later = is_dead or is_aftermath or _is_refused(text, part.start, part.start)
        is_another = not is_later and "Traceback (" in text[part.start : part.stop]
        if is_another:
            break
    begin = endings[-1].start
    before = range(lines_back(text, begin, LINES_BEFORE), begin)
    earlier = (
        hit
        for hit in _hits(text, known, before, flags)
        if (hit.known.certainty > VAGUE or is_aftermath)
        and (is_aftermath or not is_quiet(text, hit.begin))
        and (hit.known.leads or not is_another)
    )
    return _best(text, earlier) or vague


def _best(text: str, hits: Iterable[Hit]) -> Hit | None:
    """Return the one that tells most, of those that tell as much the last one."""
    hits = list(hits)
    # One thing in several versions was tried (libx.so.2, libx.so.1): what else was found says more.
    tries = Counter(NUMBERS.sub("", said) for said in {hit.finding.what for hit in hits})

    def rank(hit: Hit) -> tuple[bool, float, int]:
        is_try = tries[NUMBERS.sub("", hit.finding.what)] > 1
        certainty = hit.known.certainty - (is_try and hit.known.certainty >= CERTAIN) / 2
        # Of what is not even likely, as that something died, the first is nearest to the cause.
        place = hit.begin if certainty >= LIKELY else -hit.begin
        return not is_quiet(text, hit.begin), certainty, place

    found = sorted(hits, key=rank, reverse=True)
    return next((hit for hit in found if not any(_has(other, hit) for other in found)), None)


def _has(other: Hit, hit: Hit) -> bool:
    """Return True if one fits a longer piece of the text, in which the other one is."""
    return (
        other.begin <= hit.begin
        and hit.end <= other.end
        and (other.begin, other.end) != (hit.begin, hit.end)
        and other.known.certainty >= hit.known.certainty
    )


def _hits(text: str, known: tuple[KnownError, ...], part: range, flags: int) -> Iterator[Hit]:
    for one in known:
        seen: set[int] = set()
        for pattern in one.says:
            for begin, end in _near(text, literal_in(pattern), part, flags):
                matches = _compiled(pattern, flags).finditer(text[begin:end])
                for match in islice(matches, _MOST_MATCHES):
                    place = begin + match.start()
                    if place in seen or begin + match.end() - 1 not in part:
                        continue
                    seen.add(place)
                    found = {name: word for name, word in match.groupdict().items() if word}
                    told = one.at(facts_in(text, begin + match.end() - 1), found)
                    finding = None if one.not_if in told.facts else told.explain(match)
                    if finding is not None:
                        yield told.hit_in(text, place, begin + match.end(), finding)
    first = max(part.start, part.stop - _MOST_OF_STATUSES)
    # A status of the general kind follows from what a compiler has refused.
    change = {"certainty": VAGUE} if _is_refused(text, first, part.stop) else {}
    by_status = {s: one.replace(**change) if "*" in s else one for one in known for s in one.status}
    for begin, end, of in statuses_in(text[first : part.stop]) if by_status else ():
        keys = ((of.library, str(of.number)), (of.library, "*"), ("*", "*"))
        for entry in [by_status[key] for key in keys if key in by_status][:1]:
            finding = entry.replace(facts=facts_in(text, begin + first)).with_words(
                library=of.title, answer=of.name, meaning=of.meaning, advice=of.fix
            )
            yield entry.hit_in(text, begin + first, end + first, finding)


def _near(text: str, hint: str, part: range, flags: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text around the places of a hint, those that overlap as one."""
    if flags & re.IGNORECASE or not hint:  # a short text, or a pattern that has none
        if not hint or hint.lower() in text.lower():
            yield max(part.start, part.stop - _MOST_WITHOUT), part.stop
        return
    places: list[int] = []
    place = text.rfind(hint, part.start, part.stop)
    while place >= 0 and len(places) < _MOST_PLACES:  # those near the end: there the program ended
        places.append(place)
        place = text.rfind(hint, part.start, place)
    begin = end = -1
    for place in (*reversed(places), part.stop + 2 * _AROUND):
        if place > end > 0:
            yield begin, min(end, part.stop)
        begin = begin if place <= end else max(0, place - _AROUND)  # maybe before this part
        end = place + _AROUND


# Past what a class makes of its attributes.
_LED = [vars(BaseException)[f"__{name}__"] for name in ("cause", "context", "suppress_context")]


def shown_with(error: BaseException, *, with_context: bool = True) -> Iterator[BaseException]:
    """Yield an error and those that led to it; without `with_context` only those named as such."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        cause, context, is_hidden = (part.__get__(current) for part in _LED)
        current = cause or (None if is_hidden or not with_context else context)


# --- Texts of errors and logs, as they are read ---------------------------------------------------
# A log has much that is harmless: warnings, errors that were handled. What ended the program is the
# last traceback, with the errors that led to it, or what the C library, the C++ runtime or the
# loader says as the very last.

WINDOW = 1 << 20  # characters of a log that are read: its end, or what is around its last traceback
_TRACEBACK = "Traceback (most recent call last)"
_IGNORED = re.compile(r"Exception ignored in[^\n]{0,180}\n[^\n]{0,20}$")  # it ends no program
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")
_LONGEST_LINE = 1000  # characters of a line on each side of a place
_HALF = 8000  # characters of a line: of one longer than twice that its two ends are read
_MOST_TRACEBACKS = 100  # tracebacks of a log that are looked at
_DEEPEST = 200  # characters that one may be indented by
LINES_BEFORE = 60  # lines before an ending in which its cause may be told

_COLOR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u00b4", "''\"\"'")
_MOST_PREFIXES = 4


def streams_of(text: str) -> list[str]:
    """Return a text as its writers wrote it: without colors and prefixes, each rank's for itself.

    What has no prefix of a rank is the first one.
    """
    text = _window_of(text)
    if "\x1b" in text:
        text = _COLOR.sub("", text)
    text = text.translate(_QUOTES).replace("\r\n", "\n").replace("\r", "\n")
    streams: dict[str, list[str]] = {"": []}
    prefixes, asserted = of_texts("prefix"), of_texts("asserted").sub
    for line in text.split("\n"):
        who, place = "", 0
        for _ in range(_MOST_PREFIXES):
            if (prefix := prefixes.match(line, place)) is None:
                break
            who, place = who + (prefix["who"] or ""), prefix.end()
        said = line[place:]
        if len(said) > 2 * _HALF:
            said = f"{said[:_HALF]} {said[-_HALF:]}"
        streams.setdefault(who, []).append(said)
    texts = ("\n".join(lines) for lines in streams.values() if lines)
    # No template: where the program has not imported `re`, it is not in sys.modules.
    say = "{0[0]}: {0[1]}".format
    return [asserted(say, one) if "\nAssertionError" in one else one for one in texts]


def _window_of(text: str) -> str:
    """Return the part of a text that is read: all of one that is not long.

    Of a long one it is the end; if something else was written for long after the last traceback,
    or after the last error where there is none, then what is around that.
    """
    at = text.rfind(_TRACEBACK)
    at = at if at >= 0 else text.rfind("rror: ")
    if 0 <= at < len(text) - WINDOW:
        return text[max(0, at - WINDOW // 2) : at + WINDOW // 2]
    return text[-WINDOW:]


def endings_of(text: str) -> list[range]:
    """Return what tells of the error that ended the program, the last part first; [] for no log."""
    chains = list(_chains(text))
    found: list[range] = []
    for chain in reversed(chains):
        found.append(chain)
        if not is_passed_on(text, chain):
            break
    fatal = _last_fatal(text, chains[-1].stop if chains else 0)
    return found if fatal is None else [fatal, *found]


def is_passed_on(text: str, part: range) -> bool:
    """Return True if a part only says that something else has failed, which was told before.

    So does a traceback that was cut off before it names its error.
    """
    said = text[part.start : part.stop]
    last = said.rfind(_TRACEBACK)
    is_cut = last >= 0 and _message_of(said, last) >= len(said.rstrip())
    return is_cut or any(sign in said for sign in parts()["log"]["passed_on"])


def _is_refused(text: str, place: int, end: int) -> bool:
    """Return True if a compiler names an error in the lines before a place, up to an end."""
    return bool(of_texts("refused").search(text, lines_back(text, place, LINES_BEFORE), end))


def is_quiet(text: str, place: int) -> bool:
    """Return True if the line at a place is a warning or less."""
    begin = text.rfind("\n", 0, place) + 1
    return of_texts("quiet").search(text[begin : min(place, begin + 200)]) is not None


def line_at(text: str, place: int) -> str:
    """Return the line that a place is in; of a very long one what is around the place."""
    first, last = max(0, place - _LONGEST_LINE), min(len(text), place + _LONGEST_LINE)
    begin, end = text.rfind("\n", first, place), text.find("\n", place, last)
    return text[first if begin < 0 else begin + 1 : last if end < 0 else end]


def lines_back(text: str, place: int, lines: int) -> int:
    """Return where the line begins that is so many lines before a place."""
    for _ in range(lines):
        if place <= 0:
            return 0
        place = text.rfind("\n", 0, place - 1) + 1
    return place


def _chains(text: str) -> Iterator[range]:
    """Yield the last tracebacks, those of errors that led to one another as one."""
    places = [found.start() for found in re.finditer(re.escape(_TRACEBACK), text)]
    places = [at for at in places if not _IGNORED.search(text, max(0, at - _DEEPEST), at)]
    begin = last = -1
    for at in places[-_MOST_TRACEBACKS:]:
        if begin >= 0 and not any(link in text[last:at] for link in _LINKS):
            yield range(begin, _end_of(text, last))
            begin = -1
        if begin < 0:  # an error of C code that led to it has no traceback
            is_led = any(link in text[max(0, at - _DEEPEST) : at] for link in _LINKS)
            begin = lines_back(text, at, 5) if is_led else at
        last = at
    if begin >= 0:
        yield range(begin, _end_of(text, last))


def _message_of(text: str, traceback: int) -> int:
    """Return where the error's own words begin: what is further in than the heading are frames."""
    indent = min(traceback - (text.rfind("\n", 0, traceback) + 1), _DEEPEST)
    outer = _compiled(rf"^[^\S\n]{{0,{indent}}}\S", re.MULTILINE)
    found = outer.search(text, _next_line(text, traceback))
    return found.start() if found else len(text)


def _end_of(text: str, traceback: int) -> int:
    """Return where the error ends that a traceback tells of: its message may have many lines.

    It goes on to the end of the text, or to a line of somebody who writes in the form of a log.
    """
    place = _message_of(text, traceback)
    for lines in range(LINES_BEFORE + 1):
        if place >= len(text) or (lines and of_texts("quiet").match(line_at(text, place))):
            break
        place = _next_line(text, place)
    return place


def _next_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _last_fatal(text: str, after: int) -> range | None:
    """Return the last words of a process that died without a traceback, or behind it."""
    signs = parts()["log"]["fatal"]
    places = [place for place in map(text.rfind, signs) if place >= after]
    if not places:
        return None
    begin = text.rfind("\n", 0, min(places)) + 1
    # Of several such lines the first is the cause, and what was said right before it may be.
    return range(lines_back(text, begin, 3) if not after else max(after, begin), len(text))
