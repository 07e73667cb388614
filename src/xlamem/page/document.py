"""One HTML file that contains a report, its styles and its script, and needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from ..formatting import one_line, shorten, size

MAX_NAME = 300
"""Names in the static text are shortened to this many characters. The data contains them whole."""

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%230b5cad' "
    "d='M1 12h14v3H1zM3 7h9v4H3zM6 2h4v4H6z'/%3E%3C/svg%3E"
)


def document(report: Mapping[str, Any]) -> str:
    """Return a report, as `as_json()` gives it, as one HTML file.

    Each program is a block of its own, so that the browser parses only those that are opened. The names of a report
    come from strangers. As text they are escaped, and the policy allows only this file's own script and styles, and no
    network.
    """
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    programs: list[Mapping[str, Any]] = report["programs"]
    return "".join(
        (
            "<!doctype html>\n",
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
            f'<title>{_text(report["title"])} - xlamem</title>\n<link rel="icon" href="{ICON}">\n',
            f"<style>{style}</style>\n</head>\n<body>\n",
            f'<div id="page">\n<header class="page-header">\n<div><h1>{_name(report["title"])}</h1>\n',
            f"<p>{_text(_headline(report))}</p></div>\n</header>\n",
            "<noscript>\n<p>JavaScript is switched off, so this page shows only the bill.</p>\n",
            *(_bill(program) for program in programs[:2]),
            "</noscript>\n</div>\n",
            _data("report", {**report, "programs": []}),
            *(_data(f"program-{i}", program) for i, program in enumerate(programs)),
            f"<script>{script}</script>\n</body>\n</html>\n",
        )
    )


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy for these inline blocks."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data(name: str, value: Mapping[str, Any]) -> str:
    """Return JSON in ASCII that cannot end its block: outside of texts it has none of these characters."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


# -- static text -----------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Return text as HTML, with control characters visible."""
    return html.escape(one_line(shorten(text, MAX_NAME)))


def _name(text: str) -> str:
    """Return a name as HTML whose direction does not change the text around it."""
    return f'<bdi class="name">{_text(text)}</bdi>'


def _headline(report: Mapping[str, Any]) -> str:
    """Return the sentence below the title."""
    if report["difference"]:
        return str(report["difference"]["verdict"])
    if report["directory"]:
        rows = report["directory"]["rows"]
        return f"{len(rows):,} program{'' if len(rows) == 1 else 's'}."
    return str(report["programs"][0]["verdict"]["headline"])


def _bill(program: Mapping[str, Any]) -> str:
    """Return the verdict and the first account of the bill as plain HTML."""
    verdict = program["verdict"]
    sentences = [verdict["headline"], *verdict["decided_by"], verdict["first_step"]]
    account = program["bill"][0] if program["bill"] else {"lines": []}
    rows = ((line["label"], line["bytes"], line["note"]) for line in account["lines"])
    return (
        f"<h2>{_name(program['name'])}</h2>\n"
        f"<p>{' '.join(_text(sentence) for sentence in sentences if sentence)}</p>\n<table>\n{_rows(rows)}</table>\n"
    )


def _rows(rows: Iterable[tuple[str, int, str]]) -> str:
    return "".join(
        f'<tr><td>{_text(label)}<td class="number">{size(n)}<td class="muted">{_text(note)}</tr>\n'
        for label, n, note in rows
    )
