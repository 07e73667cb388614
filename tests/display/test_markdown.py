"""Plain text, code and tables as Markdown, read back by the rules of CommonMark."""

from __future__ import annotations

import re
from itertools import product

import pytest

from xlamem.display import markdown

TEXTS = ["".join(letters) for n in range(6) for letters in product("a` |", repeat=n)]


def read_code(span: str) -> str:
    """The text of a code span."""
    match = re.fullmatch(r"(`+)(.*?[^`])\1", span)
    assert match is not None
    fence, content = match.groups()
    assert len(fence) not in map(len, re.findall("`+", content))
    is_padded = content[0] == content[-1] == " " and content.strip(" ")
    return content[1:-1] if is_padded else content


def test_code_is_read_back() -> None:
    for text in TEXTS[1:]:
        runs = [*map(len, re.findall("`+", text)), 0]
        plain, in_table = markdown.code(text, in_table=False), markdown.code(text)
        assert read_code(plain) == text
        assert in_table == plain.replace("|", r"\|")
        needs_spaces = text.strip("`") != text or (text.strip(" ") and text[0] == text[-1] == " ")
        assert len(plain) == len(text) + 2 * (max(runs) + 1) + (2 if needs_spaces else 0)
    assert markdown.code("") == markdown.code("", in_table=False) == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`a", "`` `a ``"), (" a ", "`  a  `"), (" a", "` a`"), ("a|\nb", r"`a\|\nb`")],
)
def test_code(text: str, code: str) -> None:
    assert markdown.code(text) == code


def test_plain_text_has_no_markup() -> None:
    special = "\\`*_[]<>#|~&@$"
    for code in range(32, 127):
        text = chr(code)
        assert markdown.escaped(f"a{text}b") == (rf"a\{text}b" if text in special else f"a{text}b")
    assert markdown.escaped("a\nb*") == r"a\\nb\*"
    assert markdown.escaped("") == ""


def test_a_table() -> None:
    assert markdown.table(["name", "bytes:"], [["a", "1"], ["b", "2"]]) == [
        "| name | bytes |", "|---|---:|", "| a | 1 |", "| b | 2 |",
    ]  # fmt: skip
    assert markdown.table(["n:"], []) == ["| n |", "|---:|"]
