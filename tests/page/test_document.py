"""The HTML file: names cannot become markup, and the policy allows exactly its own script and styles."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest

from xlamem.page.document import MAX_NAME, document

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</noscript></title></style></bdi><img src=x onerror=alert(1)>",
    "<!--<script>",
    "-->",
    "<![CDATA[",
    "\"'`onmouseover=alert(1)",
    "&lt;b&gt;&amp;",
    "NUL\0 and ESC\x1b[31m",
    "right\u202eto\u200fleft\u2066",
    "line\u2028paragraph\u2029",
    "lone \ud800 surrogate",
    "\\u003c/script>\\",
    "x" * 1_000_000,
]


@dataclass
class Element:
    """A start tag, and the text from it to the next tag."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""


class Parsed(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._text = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))
        self._text = True

    def handle_endtag(self, tag: str) -> None:
        self._text = False

    def handle_data(self, data: str) -> None:
        if self._text:
            self.elements[-1].text += data

    def texts(self, tag: str) -> list[str]:
        return [element.text for element in self.elements if element.tag == tag]

    def blocks(self) -> dict[str, str]:
        """Return the data blocks by id."""
        scripts = [element for element in self.elements if element.tag == "script"]
        return {str(e.attributes["id"]): e.text for e in scripts if "id" in e.attributes}


def program(name: str) -> dict[str, Any]:
    """Return as much of a program as the static text shows, with a name in each of its texts."""
    line = {"line": "packing", "label": name, "bytes": 2048, "in_use": False, "note": name, "parts": []}
    verdict = {"headline": name, "decided_by": [name], "first_step": name}
    return {"name": name, "verdict": verdict, "bill": [{"account": name, "lines": [line]}]}


def report(name: str, **changes: Any) -> dict[str, Any]:
    content = {"format": "xlamem.report", "version": 1, "tool": "0", "kind": "program", "title": name}
    return {**content, "programs": [program(name)], "difference": None, "directory": None, **changes}


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_never_become_markup(name: str) -> None:
    harmless, hostile = Parsed(document(report("name"))), Parsed(document(report(name)))
    assert [(e.tag, list(e.attributes)) for e in hostile.elements] == [
        (e.tag, list(e.attributes)) for e in harmless.elements
    ]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_the_data_is_that_of_the_report(name: str) -> None:
    wanted = report(name)
    blocks = Parsed(document(wanted)).blocks()
    assert json.loads(blocks["program-0"]) == wanted["programs"][0]
    assert json.loads(blocks["report"]) == {**wanted, "programs": []}


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_data_blocks_are_harmless_ascii(name: str) -> None:
    for text in Parsed(document(report(name))).blocks().values():
        assert text.isascii()
        assert text.isprintable()
        assert not set("<>&") & set(text)


def test_a_name_is_shown_with_its_control_characters_and_isolated() -> None:
    page = document(report("a\u202eb\0"))
    assert '<h1><bdi class="name">a\\u202eb\\x00</bdi></h1>' in page
    assert "\u202e" not in page
    assert "\0" not in page


def test_static_text_does_not_contain_a_megabyte() -> None:
    page = Parsed(document(report("x" * 1_000_000)))
    for tag in ("title", "h1", "bdi", "td"):
        assert all(len(text) <= MAX_NAME + 20 for text in page.texts(tag))


def test_the_policy_allows_exactly_the_inline_blocks() -> None:
    page = Parsed(document(report("name")))
    meta = next(e for e in page.elements if e.attributes.get("http-equiv") == "Content-Security-Policy")
    policy = dict(part.split(" ", 1) for part in str(meta.attributes["content"]).split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": quoted_hash(page.texts("script")[-1]),
        "style-src": quoted_hash(page.texts("style")[0]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def quoted_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_stands_before_everything_that_it_concerns() -> None:
    elements = Parsed(document(report("name"))).elements
    assert [e.tag for e in elements[:4]] == ["html", "head", "meta", "meta"]
    assert "charset" in elements[2].attributes
    assert "http-equiv" in elements[3].attributes


def test_no_markup_has_inline_styles_handlers_or_addresses() -> None:
    for element in Parsed(document(report("name"))).elements:
        assert not any(key.startswith("on") or key in {"style", "src"} for key in element.attributes)
        assert str(element.attributes.get("href", "data:")).startswith("data:")


def test_without_script_the_page_shows_the_bill() -> None:
    """That is the first account of the first two programs."""
    content = report("jit_step")
    content["programs"][0]["verdict"]["headline"] = "1.89 GiB must fit."
    content["programs"][0]["bill"].append({"account": "vmem", "lines": program("other")["bill"][0]["lines"]})
    content["programs"] += [program("b"), program("c")]
    page = document(content)
    static = page[page.index("<noscript>") : page.index("</noscript>")]
    for pattern in ("<tr><td>(.*?)<td", '<h2><bdi class="name">(.*?)</bdi>'):
        assert re.findall(pattern, static) == ["jit_step", "b"]
    assert "1.89 GiB must fit." in static
    assert '<td class="number">2.00 KiB<td class="muted">' in static


def test_each_program_is_a_block_of_its_own() -> None:
    names = ["a", "b", "c"]
    directory: dict[str, Any] = {"rows": [{} for _ in names], "failed": [], "folded": []}
    page = document(report("dumps", kind="directory", programs=[program(n) for n in names], directory=directory))
    blocks = Parsed(page).blocks()
    assert [json.loads(blocks[f"program-{i}"])["name"] for i in range(3)] == names
    assert "<p>3 programs.</p>" in page


@pytest.mark.parametrize(("n", "headline"), [(0, "0 programs."), (1, "1 program."), (2, "2 programs.")])
def test_a_directory_says_how_many_programs_it_has(n: int, headline: str) -> None:
    directory: dict[str, Any] = {"rows": [{}] * n, "failed": [], "folded": []}
    assert f"<p>{headline}</p>" in document(report("dumps", kind="directory", programs=[], directory=directory))


@pytest.mark.parametrize(("first_step", "text"), [("", "A. B. C."), ("D.", "A. B. C. D.")])
def test_sentences_of_a_program_without_a_bill(first_step: str, text: str) -> None:
    verdict = {"headline": "A.", "decided_by": ["B.", "", "C."], "first_step": first_step}
    page = document(report("name", programs=[{"name": "f", "verdict": verdict, "bill": []}]))
    assert f"<p>{text}</p>\n<table>\n</table>" in page


def test_a_comparison_says_what_changed() -> None:
    programs = [program("a"), program("b")]
    page = document(report("a and b", kind="comparison", programs=programs, difference={"verdict": "1 MiB <more>"}))
    assert "<p>1 MiB &lt;more&gt;</p>" in page


def test_the_page_declares_its_language_and_encoding() -> None:
    page = document(report("name"))
    assert page.startswith("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
