"""The picture of a trace: a waterfall of imports and loads over time, as SVG or in a page.

It needs nothing from elsewhere, follows the reader's light or dark colors, and says in words
(``title``, ``desc``, one ``title`` per row) what it shows.
"""

from __future__ import annotations

import re

from cudaguard.tools.trace import document as words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Row = Mapping[str, Any]

WIDTH = 1200
_LEFT, _RIGHT = 350, 800  # where the chart begins and ends
_NOTES = _RIGHT + 14
_EDGE = 16
_ROW = 20
_INDENT = 12
_LETTER, _BOLD = 7.0, 7.9  # width of a letter, on average of wide ones
_MARK = 14  # room for what stands behind the last bar
_GAP = 40  # width of a time in which nothing happened
_SHORTEST = 0.001  # seconds that the chart shows
_SHORTEST_GAP = 0.25  # seconds
_MOST_GAPS = 4
_WORDS = 48  # width that the words above the chart take
_LEAST = 3  # width of a bar
_OUTLINE = ' class="o"'
# Told apart by people who see no red or green as well (Okabe and Ito); NVIDIA has its own.
_PALETTE = ("#0072b2", "#d55e00", "#cc79a7", "#009e73", "#e69f00", "#56b4e9", "#8c6bb1", "#a6761d")
_FIXED = {"nvidia": "#76b900", "Python": "#8aa0b8", "system": "#9a9a9a", "other files": "#6b6b6b"}
_MARKS = {"cuda": "●", "finding": "▲", "repair": "✓", "error": "✕"}
# What XML does not allow, whatever a file is called.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_STYLE = """
:root{--back:#fff;--text:#1f2328;--dim:#59636e;--line:#e6e9ec;--bar:#d3dae2;--bad:#c21f30;
--good:#1a7f37;--warn:#8a5a00}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--dim:#9198a1;--line:#232a33;
--bar:#3a4450;--bad:#ff7b72;--good:#4fc36a;--warn:#e3b341}}
svg{background:var(--back);font:12px system-ui,"DejaVu Sans",sans-serif}
text{fill:var(--text)}.h{font-size:18px;font-weight:600}.b{font-weight:600}.d{fill:var(--dim)}
.g{stroke:var(--line)}.i{fill:var(--bar)}.error,.x{fill:var(--bad)}.cuda{fill:var(--good)}
.finding{fill:var(--warn)}.repair{fill:var(--good)}.o{stroke:var(--bad);stroke-width:1.5}
.c{stroke:var(--good);stroke-width:1.5;stroke-dasharray:4 3}
"""


def escape(text: str) -> str:
    """Return text as it stands in SVG and HTML."""
    for sign, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(sign, f"&{name};")
    return _FORBIDDEN.sub("�", text)


class Scale:
    """Where a time lies in the chart; a long time in which nothing happened is cut short.

    Args:
        rows: Of all processes.
        end: When the program ended.
    """

    def __init__(self, rows: Iterable[Row], end: float) -> None:
        busy = sorted((at, at + (took or 0)) for row in rows for at, took in row["spans"])
        spans: list[tuple[float, float]] = []
        for start, stop in busy:
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
        last = max((stop for _, stop in spans), default=0.0)
        total = sum(stop - start for start, stop in spans) or end or 1.0
        edges = [0.0, *(edge for span in spans for edge in span), max(end, last)]
        waits = sorted(zip(edges[::2], edges[1::2]), key=lambda wait: wait[0] - wait[1])
        shortest = max(total / 6, _SHORTEST_GAP)
        long = sorted(wait for wait in waits[:_MOST_GAPS] if wait[1] - wait[0] > shortest)
        shown = max(edges[-1] - sum(stop - start for start, stop in long), _SHORTEST)
        self.gaps = long
        self.end = edges[-1]
        self._unit = (_RIGHT - _LEFT - _MARK - _GAP * len(long)) / shown

    def place(self, at: float) -> float:
        """Return the x of a time."""
        x, before = float(_LEFT), 0.0
        for start, stop in self.gaps:
            if at <= start:
                break
            x += (start - before) * self._unit + _GAP * min(1.0, (at - start) / (stop - start))
            before = min(stop, at)
        return round(x + max(0.0, at - before) * self._unit, 1)

    def ticks(self) -> list[float]:
        """Return round times to write at the top, those in a gap left out."""
        shown = (_RIGHT - _LEFT) / self._unit
        step = next(
            factor * 10.0**power
            for power in range(-4, 9)
            for factor in (1, 2, 5)
            if factor * 10.0**power * 7 >= shown
        )
        found: list[float] = []
        for number in range(int(self.end / step) + 1 if self.end / step < 10_000 else 0):
            x = self.place(number * step)
            taken = [self.place((start + stop) / 2) for start, stop in self.gaps]
            taken += [self.place(at) for at in found[-1:]]
            if all(abs(x - place) > _WORDS for place in taken):
                found.append(number * step)
        return found


def colors(document: Mapping[str, Any]) -> dict[str, str]:
    """Return a color per owner of libraries, those with the most first."""
    counts: dict[str, int] = {}
    for process in document["processes"]:
        for row in process["rows"]:
            if row["owner"]:
                counts[row["owner"]] = counts.get(row["owner"], 0) + len(row["mapped"])
    owners = sorted(counts, key=lambda owner: -counts[owner])
    free = iter(_PALETTE)
    return {owner: _FIXED.get(owner) or next(free, _FIXED["other files"]) for owner in owners}


def as_svg(document: Mapping[str, Any]) -> str:
    """Return the picture.

    Args:
        document: The trace, its processes with ``rows`` (see `document.rows_of`).
    """
    rows = [row for process in document["processes"] for row in process["rows"]]
    scale = Scale(rows, document["seconds"])
    paint = colors(document)
    title = words.title(document)
    drawn, height = _head(document, title, paint)
    top = height
    ticks, height = _ticks(scale, height)
    for process in document["processes"]:
        if len(document["processes"]) > 1:
            height += 8
            drawn.append(_text(_EDGE, height + 14, words.process_title(process), "b"))
            height += _ROW
        # What never ended went on to the end of its process.
        end = process["ended"] or (document["seconds"] if process["is_program"] else None)
        for row in process["rows"]:
            drawn.append(_row(row, height, scale, paint, end))
            height += _ROW
    back = [_grid(at, scale, top + 16, height) for at in scale.ticks()]
    back += [_gap(start, stop, scale, top + 16, height) for start, stop in scale.gaps]
    used = (row for row in rows if row["kind"] == "cuda")
    initializers = (row for row in used if row["what"] == "initialized")
    back += [_initialized(row, scale, top + 16, height) for row in initializers]
    height += 12
    body = "\n".join([*back, *ticks, *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="cg-title cg-desc">\n'
        f'<title id="cg-title">{escape(title)}</title>\n'
        f'<desc id="cg-desc">{escape(description(document))}</desc>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" style="fill:var(--back)"/>\n{body}\n</svg>'
    )


def description(document: Mapping[str, Any]) -> str:
    """Return what the picture shows, for those who do not see it."""
    parts = [words.headline(document), words.end(document)]
    heavy = sorted(
        (row for process in document["processes"] for row in process["rows"] if row["mapped"]),
        key=lambda row: -len(row["mapped"]),
    )[:3]
    parts += [f"{words.label(row)} mapped {len(row['mapped'])}" for row in heavy]
    return "; ".join(filter(None, parts)) + "."


def _head(
    document: Mapping[str, Any], title: str, paint: Mapping[str, str]
) -> tuple[list[str], int]:
    drawn = [
        _text(_EDGE, 28, _cut(title, 100), "h"),
        _text(_EDGE, 50, words.headline(document), "b"),
    ]
    y = 72
    if words.end(document):
        drawn.append(_text(_EDGE, y, f"✕ {words.end(document)}", "b x"))
        y += 22
    x = _EDGE
    for owner, color in paint.items():
        wide = 22 + len(owner) * _LETTER + 10
        if x + wide > WIDTH - 200:
            break
        drawn.append(f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" fill="{color}"/>')
        drawn.append(_text(x + 17, y, owner, "d"))
        x += int(wide)
    drawn.append(f'<rect x="{x:.0f}" y="{y - 7}" width="20" height="6" class="i"/>')
    drawn.append(_text(x + 25, y, "import", "d"))
    drawn.append(_text(_NOTES, y + 22, "what came along; else where it was asked for", "d"))
    return drawn, y + 10


def _ticks(scale: Scale, y: int) -> tuple[list[str], int]:
    found = [
        _text(scale.place(at), y + 12, f"{at:g} s", "d", anchor="middle") for at in scale.ticks()
    ]
    found += [
        _text(scale.place((a + b) / 2), y + 12, f"⋯{b - a:.3g} s", "d", anchor="middle")
        for a, b in scale.gaps
    ]
    return found, y + 20


def _grid(at: float, scale: Scale, top: int, bottom: int) -> str:
    x = scale.place(at)
    return f'<path d="M{x} {top}V{bottom}" class="g"/>'


def _gap(start: float, stop: float, scale: Scale, top: int, bottom: int) -> str:
    left, right = scale.place(start), scale.place(stop)
    told = f"{stop - start:.1f} s in which nothing was imported or loaded"
    return (
        f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" '
        f'style="fill:var(--line)"><title>{told}</title></rect>'
    )


def _initialized(row: Row, scale: Scale, top: int, bottom: int) -> str:
    x = scale.place(row["at"])
    return f'<path d="M{x} {top}V{bottom}" class="c"/>'


def _row(row: Row, y: int, scale: Scale, paint: Mapping[str, str], end: float | None) -> str:
    parts = [f"<title>{escape(_tip(row))}</title>"]
    base, x = y + 14, scale.place(row["at"])
    if row["kind"] in _MARKS:
        style, wide = row["kind"], WIDTH - _EDGE - x
        name = f"{row['id']} {row['name']}" if row["kind"] == "finding" else row["name"]
        name += f" ({words.place(row['where'])})" if row["where"] else ""
        if x > (_LEFT + _RIGHT) / 2:
            wide = x - _EDGE - 16
            parts.append(_text(x - 9, base, _cut(name, wide / _BOLD), f"{style} b", anchor="end"))
        else:
            parts.append(_text(x + 9, base, _cut(name, wide / _BOLD - 2), f"{style} b"))
        parts.append(_text(x, base, _MARKS[row["kind"]], style, anchor="middle"))
        return f"<g>{''.join(parts)}</g>"
    left = _EDGE + _INDENT * min(row["depth"], 12)
    is_import, is_bad = row["kind"] == "import", bool(words.state(row))
    style = "b" if is_import and not is_bad else "b x" if is_bad else ""
    letters = (_LEFT - left - 8) / (_BOLD if style else _LETTER)
    parts.append(_text(left, base, _cut(words.label(row), letters), style))
    until = row["until"]
    if until is None:
        until = end if is_bad and end is not None else row["at"]
    wide = max(scale.place(until) - x, _LEAST)
    if is_import:
        parts.append(f'<rect x="{x}" y="{y + 8}" width="{wide:.1f}" height="5" class="i"/>')
    else:
        color = paint.get(row["owner"], _FIXED["system"])
        if len(row["spans"]) > 1:
            parts.append(f'<path d="{_bars(row, y, scale)}" fill="{color}"/>')
        else:
            shape = f'x="{x}" y="{y + 4}" width="{wide:.1f}" height="12" rx="2"'
            parts.append(f'<rect {shape} fill="{color}"{_OUTLINE if is_bad else ""}/>')
    if row["state"] == "unfinished":
        parts.append(_text(x + wide + 4, base, "✕", "x b"))
    parts.append(_text(_NOTES, base, _cut(_note(row), (WIDTH - _NOTES - 8) / _LETTER), "d"))
    return f"<g>{''.join(parts)}</g>"


def _bars(row: Row, y: int, scale: Scale) -> str:
    """Return the path of a bar for each of several loads."""
    found, last = [], 0.0
    for at, seconds in row["spans"]:
        x = scale.place(at)
        wide = max(scale.place(at + (seconds or 0)) - x, _LEAST)
        if x + wide > last + 0.5:  # else it is not to be told from the one before
            found.append(f"M{x} {y + 4}h{wide:.1f}v12h-{wide:.1f}z")
            last = x + wide
    return "".join(found)


def _note(row: Row) -> str:
    """Return what stands to the right of a bar."""
    state = words.state(row)
    if state:
        return f"{state} ({words.place(row['where'])})" if row["where"] else state
    if row["is_guards"]:
        return "for cudaguard itself"
    if row["is_known"]:
        return "was there already"
    if row["brought"] or (row["kind"] == "library" and len(row["names"]) > 1):
        weight = words.size(sum(lib["bytes"] or 0 for lib in row["mapped"]))
        found = sorted(row["mapped"], key=lambda lib: -(lib["bytes"] or 0))
        if row["kind"] == "library" and len(row["names"]) > 1:
            return f"{weight}: {', '.join(lib['name'] for lib in found)}"
        names = [lib["name"] for lib in found if lib["name"] in row["brought"]]
        return f"+{len(names)}, {weight}: {', '.join(names)}"
    return words.place(row["where"])


def _tip(row: Row) -> str:
    """Return what is shown when the mouse rests on a row."""
    if row["kind"] in _MARKS:
        return "\n".join(filter(None, [row["name"], row["where"], row.get("consequence", "")]))
    took = "" if row["seconds"] is None else f", took {row['seconds']:.3f} s"
    lines = [f"{words.label(row)} at {row['at']:.3f} s{took}", row["where"]]
    lines += [", ".join(row["names"])] if len(row["names"]) > 1 else []
    lines += [", ".join(lib["name"] for lib in row["mapped"])] if row["brought"] else []
    return "\n".join(filter(None, lines))


def _cut(text: str, letters: float) -> str:
    most = max(4, int(letters))
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "") -> str:
    more = f' class="{style}"' if style else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'
