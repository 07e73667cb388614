"""The pictures of the documentation show what xlamem prints today, and load nothing."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, script

from xlamem import cli

pictures = script("pictures")
OUT = ROOT / "docs" / "pictures"
MAX_BYTES = 600_000
"""All pictures together."""


def test_screens_are_those_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If this fails: make pictures."""
    pictures.unpack("does-not-fit", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(pictures.COLUMNS))
    for file, command in pictures.SCREENS.items():
        cli.main(command.split()[1:])
        svg = (OUT / file).read_text("utf-8")
        (description,) = re.findall("<desc>(.*?)</desc>", svg, re.S)
        assert unescape(description).rstrip() == capsys.readouterr().out.rstrip()
        (title,) = re.findall("<title>(.*?)</title>", svg)
        assert unescape(title) == command


def test_colors_of_a_terminal_become_a_picture() -> None:
    svg = pictures.screen("xlamem <PATH>", "\x1b[1mbold\x1b[0m \x1b[31mred & <plain>\x1b[0m\n")
    assert "<title>xlamem &lt;PATH&gt;</title>" in svg
    assert "<desc>bold red &amp; &lt;plain&gt;\n</desc>" in svg
    assert "red&#160;&amp;&#160;&lt;plain&gt;" in svg


def test_pictures_are_small_and_used_and_load_nothing() -> None:
    files = sorted(OUT.iterdir())
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    text = "".join(page.read_text("utf-8") for page in PAGES)
    for path in files:
        assert f"pictures/{path.name}" in text, path.name
        if path.suffix == ".svg":
            assert not re.search(r"https?://(?!www\.w3\.org/)|@import|<script|url\((?!#)", path.read_text("utf-8"))
