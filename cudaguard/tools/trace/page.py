"""The page of a trace: the picture, the findings, and all libraries in a table, in one file."""

from __future__ import annotations

from cudaguard.tools.trace import messages as words
from cudaguard.tools.trace.picture import as_svg, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_STYLE = """
body{margin:1rem auto;padding:0 1rem;max-width:1240px;background:var(--back);color:var(--text);
font:14px/1.5 system-ui,"DejaVu Sans",sans-serif}
figure{margin:0;overflow-x:auto}h2{font-size:1.1rem}dt{font-weight:600;margin-top:.5rem}
table{border-collapse:collapse;font-size:12px}td,th{padding:2px 10px 2px 0;text-align:left;
vertical-align:top;border-bottom:1px solid var(--line)}.n{text-align:right}
code{overflow-wrap:anywhere}footer,.q{color:var(--dim)}summary{cursor:pointer}
"""


def as_html(document: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        document: The trace, as for `cudaguard.tools.trace.picture.as_svg`.
    """
    title = escape(words.title(document))
    made = f"cudaguard {document['version']}, Python {document['python']}, {document['platform']}"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body>",
            f"<figure>{as_svg(document)}</figure>",
            *_findings(document),
            *_libraries(document),
            f"<footer><p>{escape(made)}; mode {escape(document['mode'] or 'off')}.</p></footer>",
            "</body></html>",
        ]
    )


def _findings(document: Mapping[str, Any]) -> Iterator[str]:
    found = [
        row
        for process in document["processes"]
        for row in process["rows"]
        if row["kind"] == "finding"
    ]
    if not found:
        return
    yield "<h2>Findings</h2><dl>"
    for row in found:
        where = f' <span class="q">{escape(words.place(row["where"]))}</span>'
        yield f"<dt>{escape(row['id'])} {escape(row['name'])}{where}</dt>"
        yield "".join(f"<dd>{escape(row[key])}</dd>" for key in ("consequence", "remedy"))
    yield "</dl>"


def _libraries(document: Mapping[str, Any]) -> Iterator[str]:
    for process in document["processes"]:
        lines = [line for row in process["rows"] for line in _lines(row)]
        if not lines:
            continue
        of = f" of {words.process_title(process)}" if len(document["processes"]) > 1 else ""
        yield f"<details><summary>All {len(lines)} libraries{escape(of)}</summary>"
        yield "<table><tr><th>at/s<th>library<th>package<th>size<th>came with<th>folder"
        yield from lines
        yield "</table></details>"


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    for library in row["mapped"]:
        folder = library["file"].rpartition("/")[0]
        version = f" {library['version']}" if library["version"] else ""
        weight = "gone" if library["bytes"] is None else words.size(library["bytes"])
        yield (
            f'<tr><td class="n">{row["at"]:.3f}<td>{escape(library["name"] + version)}'
            f'<td>{escape(library["package"])}<td class="n">{weight}'
            f"<td>{escape(words.label(row))}<td><code>{escape(folder)}</code>"
        )
