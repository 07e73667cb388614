"""The formats for CI services against the grammar of each: workflow commands, Markdown and JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from conftest import DUMPS
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pairs import stored
from test_sources import CALLED, GENERATOR
from variants import CUT, TEXTS, inner, written

import xlamem
from xlamem import CheckResult, schema
from xlamem.compute.columns import table_of_columns
from xlamem.formatting import one_line
from xlamem.gate.curves import N_COLUMNS
from xlamem.gate.formats import FORMATS
from xlamem.gate.formats.as_github import MAX_ANNOTATIONS, command
from xlamem.gate.formats.as_markdown import MARKER, MAX_DETAILED, MAX_ROWS, sparkline

HOSTILE = [
    "a\nb\r\n\rc", "::error::x", "\n::stop-commands::x\n", "a::b, c=d: e", "%0A%25%3A", "##[error]x",
    "a|b\\|c\\", "`a``b```", "```\n~~~", "<script>alert(1)</script>", "</summary></details><!-- x -->", "]]>",
    "--> <!--", "\x00\x1b[31m\x7f\x85\u2028\u202e\ufffe\ue000", "![x](http://x) [y]: z",
    "@someone #1 $x$ &amp; *b* _i_ ~s~", "\U0001f600 é", "  ", "-", "=", "x|" * 5000,
]  # fmt: skip
"""Names that mean something in one of the formats."""
TABLES = {"findings": "findings", "programs": "checked_programs", "contributors": "contributors"}
COMMENT_LIMIT = 65_536
"""Maximum number of characters of a comment on GitHub."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="module")
def red(folder: Path) -> CheckResult:
    """A program that lost its donations, against the old dump."""
    a, b = next(p for p in stored() if p.name == "cpu-donation-removed-decode").unpack(folder)
    return xlamem.check(b, config={}, baseline=a)


@pytest.fixture(scope="module")
def mixed(folder: Path) -> CheckResult:
    """Programs with every status."""
    programs, base = folder / "programs", folder / "base.json"
    programs.mkdir()
    written(programs, [("jit_f", TEXTS), ("jit_g", inner(3)), ("jit_h", CUT)])
    xlamem.check(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", config={}, baseline=base, bless=True)
    return xlamem.check(programs, config={"budget": [{"program": "jit_f", "device_total": "1KiB"}]}, baseline=base)


def changed(result: CheckResult, **values: Any) -> CheckResult:
    """Return a result in which columns have another value, in all tables and rows where they have one."""
    tables = {key: (getattr(result, key).to_pylist(), schema.CHECKED[name].columns) for key, name in TABLES.items()}
    for rows, _ in tables.values():
        for row in rows:
            row.update({key: value for key, value in values.items() if row.get(key) is not None})
    return replace(result, **{key: built(rows, columns) for key, (rows, columns) in tables.items()})


def built(rows: Sequence[dict[str, Any]], columns: Sequence[schema.Column]) -> pa.Table:
    plain = {"name": pa.string()}
    return table_of_columns(
        columns, {c.name: pa.array([r[c.name] for r in rows], plain.get(c.kind, c.arrow.type)) for c in columns}
    )


def hostile(result: CheckResult, text: str) -> CheckResult:
    """Return a result in which every name that comes from a dump is this text, and the baseline file is not UTF-8."""
    names = ("module_name", "uri", "message", "why", "source_file", "name", "shape", "name_baseline", "doubt")
    return replace(changed(result, **dict.fromkeys(names, text)), written="\udcff")


def many(result: CheckResult, n: int) -> CheckResult:
    """Return a result in which the first program is there n times, each with more bytes than the one before."""
    tables: dict[str, pa.Table] = {}
    for key, name in TABLES.items():
        rows = [row for row in getattr(result, key).to_pylist() if row["program"] == 0]
        copies = [{**row, "program": i} for i in range(n) for row in rows]
        for row in copies:
            if "value" in row:
                row["value"] += row["program"]
            if "module_name" in row:
                row["module_name"] = f"jit_{row['program']}"
        tables[key] = built(copies, schema.CHECKED[name].columns)
    return replace(result, **tables, curves=dict.fromkeys(range(n), result.curves[0]))


def test_programs_of_the_same_name_can_be_told_apart(tmp_path: Path) -> None:
    """By their folders, and by their numbers where these are the same. JUnit names must not change with a number."""
    for folder, names, first in (("train", ("jit_f", "jit_f", "jit_g"), 0), ("eval", ("jit_f", "jit_h"), 3)):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, [(name, inner(i)) for i, name in enumerate(names, first)], first)
    result = xlamem.check(tmp_path, config={"budget": [{"device_total": "1KiB"}]})
    wanted = {"eval/jit_f", "train/0000.jit_f", "train/0001.jit_f", "jit_g", "jit_h"}
    for text in (FORMATS["text"](result), FORMATS["markdown"](result), FORMATS["github"](result), repr(result)):
        assert set(re.findall(r"[\w./]*\bjit_[fgh]\b", text)) == wanted
    assert set(re.findall('classname="(.*?)"', FORMATS["junit"](result))) == {"jit_f", "jit_g", "jit_h"}
    assert set(result.programs["module_name"].to_pylist()) == {"jit_f", "jit_g", "jit_h"}


# -- workflow commands ---------------------------------------------------------------------------


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    text: str


def parsed(line: str) -> Command:
    """Return a workflow command as the runner of GitHub Actions reads it."""
    assert line.startswith("::")
    end = line.index("::", 2)
    name, _, pairs = line[2:end].partition(" ")
    properties = dict(pair.split("=", 1) for pair in pairs.split(",") if pair)
    return Command(name, {k: unescaped(v, ":,") for k, v in properties.items()}, unescaped(line[end + 2 :], ""))


def unescaped(text: str, more: str) -> str:
    for c in f"\r\n{more}":
        text = text.replace(f"%{ord(c):02X}", c)
    return text.replace("%25", "%")


def commands(result: CheckResult) -> list[Command]:
    """Return the commands of a result, and check that nothing else begins like one."""
    *lines, last = FORMATS["github"](result).split("\n")
    assert last == result.summary
    return [parsed(line) for line in lines]


def test_annotations(red: CheckResult, mixed: CheckResult) -> None:
    (found,) = commands(red)
    rows = red.rows("failed")
    assert found.name == "error"
    assert found.properties == {"title": "jit_decode_step: failed, growth"}
    assert found.text.split("\n") == [
        *(row["message"] for row in rows), f"why: {rows[0]['why']}", f"at: {rows[0]['source_file']}:192",
    ]  # fmt: skip
    assert [c.properties["title"] for c in commands(mixed)] == [
        "jit_f: failed, device_total", "jit_h: not known, unreadable",
    ]  # fmt: skip
    warned = changed(red, status="warning")
    assert [c.name for c in commands(warned)] == ["warning"]
    assert FORMATS["github"](changed(red, status="passed")) == "passed: 1 program checked, 1 passed"


def test_an_annotation_is_at_the_line_of_the_model(
    red: CheckResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "models" / "train" / "program.py"
    model.parent.mkdir(parents=True)
    model.write_text("\n" * 300)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    for root in (tmp_path / "models", tmp_path / "models" / "train"):
        configured = replace(red, config=replace(red.config, source_root=str(root)))
        (found,) = commands(configured)
        assert found.properties == {
            "file": "models/train/program.py", "line": "192", "title": "jit_decode_step: failed, growth",
        }  # fmt: skip
        assert "at: " not in found.text
        cases = ElementTree.fromstring(FORMATS["junit"](configured)).iter("testcase")
        assert {case.get("file") for case in cases} == {"models/train/program.py"}


def test_the_worst_are_annotated(red: CheckResult) -> None:
    *worst, more = commands(many(red, 25))
    assert [c.properties["title"].split(":")[0] for c in worst] == [f"jit_{24 - i}" for i in range(MAX_ANNOTATIONS)]
    assert more == Command("notice", {"title": "xlamem"}, "and 30 other findings")
    assert len(commands(many(red, MAX_ANNOTATIONS))) == MAX_ANNOTATIONS


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_in_annotations(red: CheckResult, text: str) -> None:
    result = hostile(red, text)
    assert "\r" not in FORMATS["github"](result)
    (found,) = commands(result)
    assert found.name == "error"
    assert found.properties.keys() == {"title"}
    if len(text) < 100:
        assert found.properties["title"] == f"{one_line(text)}: failed, growth"
        assert found.text.split("\n") == [
            *[one_line(text)] * 2, f"why: {one_line(text)}", f"at: {one_line(text)}:192",
        ]  # fmt: skip


@pytest.mark.parametrize("text", ["%", "a%0Ab", "%250A", ":,", "100 % of a: b, c=d"])
def test_commands_are_escaped(text: str) -> None:
    written = command("error", [text, "b"], title=text, line=7)
    assert parsed(written) == Command("error", {"title": text, "line": "7"}, f"{text}\nb")


def test_a_line_of_a_library_is_shown_where_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the innermost caller in the repository; without one, at the line itself."""
    result = xlamem.check(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", config={"budget": [{"device_total": 1}]})
    (row,) = result.rows("failed")
    assert result.stacks[0][row["source_file"], row["source_line"]][1:] == CALLED[1:]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    own = f"{row['source_file']}:{row['source_line']}"
    for n_lines, shown, found in ((0, own, None), (76, f"{GENERATOR}:76", "76"), (150, f"{GENERATOR}:76", "76")):
        Path("gen.py").write_text("\n" * n_lines)
        (annotation,) = commands(result)
        assert annotation.properties.get("line") == found
        assert annotation.properties.get("file") == (found and "gen.py")
        for name in ("text", "markdown", "junit"):
            assert f"at: {shown}" in FORMATS[name](result).replace("`", "")


# -- Markdown ------------------------------------------------------------------------------------

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ALLOWED = {
    "html_block", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "inline", "fence", "bullet_list",
    "list_item", "text", "code_inline", "strong", "softbreak",
}  # fmt: skip
"""What a comment consists of: no links, images, headings or HTML from names."""


class Tags(HTMLParser):
    """Collects the tags and the text of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not attrs

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data


def tokens(text: str) -> list[Token]:
    """Return all tokens of a comment, those of its lines too, and check what it consists of."""
    assert text.startswith(f"{MARKER}\n")
    assert len(text) < COMMENT_LIMIT
    found = [t for token in MARKDOWN.parse(text) for t in (token, *(token.children or ()))]
    assert {re.sub("_(open|close)$", "", t.type) for t in found} <= ALLOWED
    blocks = [t.content for t in found if t.type == "html_block"]
    assert blocks[0].startswith(MARKER)
    tags = [tag for block in blocks for tag in Tags(block).tags]
    assert tags == ["details", "summary", "code", "/code", "/summary", "/details"] * (len(tags) // 6)
    return found


def tables(found: list[Token]) -> list[list[list[str]]]:
    """Return the cells of the tables as text."""
    result: list[list[list[str]]] = []
    for i, token in enumerate(found):
        if token.type == "table_open":
            result.append([])
        elif token.type == "tr_open":
            result[-1].append([])
        elif token.type in ("td_open", "th_open"):
            result[-1][-1].append("".join(child.content for child in found[i + 1].children or ()))
    return result


def test_a_comment(red: CheckResult) -> None:
    found = tokens(FORMATS["markdown"](red))
    programs, contributors = tables(found)
    assert programs == [
        ["program", "must fit", "change", "peak", "change", "status"],
        ["jit_decode_step", "160.34 MiB", "+64.00 MiB", "160.34 MiB", "+64.00 MiB", "❌ failed"],
    ]
    assert contributors[1] == [
        "+64.00 MiB", "sharing changed", "8", "layer_*/attention/dynamic_update_slice", "f32[8,1024,4,64]",
        "program.py:192",
    ]  # fmt: skip
    (fence,) = (t.content.splitlines() for t in found if t.type == "fence")
    assert [re.fullmatch(r"(\w+) +[▁-█]{40} +(\S+ MiB)", line).groups() for line in fence] == [  # type: ignore[union-attr]
        ("baseline", "96.34 MiB"), ("now", "160.34 MiB"),
    ]  # fmt: skip
    text = "\n".join("".join(c.content for c in t.children or ()) for t in found if t.type == "inline")
    for row in red.rows("failed"):
        assert f"growth: {row['message']}" in text
    assert f"why: {red.rows('failed')[0]['why']}" in text
    assert "at: /home/u/train/program.py:192" in text


def test_a_comment_on_every_status(mixed: CheckResult) -> None:
    found = tokens(FORMATS["markdown"](mixed))
    assert [row[-1] for row in tables(found)[0][1:]] == ["❌ failed", "❔ not known", "✅ passed"]
    text = "\n".join(t.content for t in found)
    assert "gone: 1 program" in text
    assert sum("<details>" in t.content for t in found if t.type == "html_block") == 2


def test_notes_in_a_comment(red: CheckResult) -> None:
    found = tokens(FORMATS["markdown"](changed(red, status="note", rule="improved")))
    assert not [t for t in found if "<details>" in t.content and t.type == "html_block"]
    notes = ["".join(c.content for c in t.children) for t in found if t.type == "inline" and t.children]
    assert [text for text in notes if text.startswith("jit_decode_step: improved: ")] == [
        f"jit_decode_step: improved: {row['message']}" for row in red.rows()
    ]
    tokens(FORMATS["markdown"](changed(many(red, 30), status="note", rule="improved", message="x*" * 1000)))
    assert "- and 50 other notes" in FORMATS["markdown"](changed(many(red, 30), status="note", rule="improved"))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_in_a_comment(red: CheckResult, text: str) -> None:
    found = tokens(FORMATS["markdown"](hostile(red, text)))
    programs, contributors = tables(found)
    assert {len(row) for row in programs} == {len(row) for row in contributors} == {6}
    shown = "".join(t.content for t in found if t.type in ("text", "code_inline"))
    assert "wrote \\udcff" in shown
    if len(text) < 50:
        assert programs[1][0] == one_line(text)
        assert contributors[1][3] == one_line(text)
        assert one_line(text).strip() in shown
        (summary,) = (t.content for t in found if "<summary>" in t.content and t.type == "html_block")
        assert Tags(summary).text.strip() == f"failed: {one_line(text)}".strip()


@pytest.mark.parametrize("text", [None, *HOSTILE])
def test_a_comment_is_limited(red: CheckResult, text: str | None) -> None:
    result = many(red, 200) if text is None else hostile(many(red, 50), text)
    found = tokens(FORMATS["markdown"](result))
    assert len(tables(found)[0]) == 1 + MAX_ROWS
    assert sum("<details>" in t.content for t in found if t.type == "html_block") <= MAX_DETAILED
    if text is None:
        shown = [t.content for t in found if t.type == "text"]
        assert f"and {200 - MAX_ROWS} other programs" in shown
        assert f"and {200 - MAX_DETAILED} other programs that did not pass" in shown


@pytest.mark.parametrize(("more", "text"), [(0, []), (1, ["and 1 other program"]), (2, ["and 2 other programs"])])
def test_programs_that_the_table_leaves_out(red: CheckResult, more: int, text: list[str]) -> None:
    shown = [t.content for t in tokens(FORMATS["markdown"](many(red, MAX_ROWS + more))) if t.type == "text"]
    assert [t for t in shown if t.startswith("and") and not t.endswith("pass")] == text


def test_sparklines() -> None:
    assert sparkline(range(8), 0, 7) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 1, 100], 0, 100) == "▁▂█"
    assert sparkline([5, 5], 5, 5) == "▁▁"


@pytest.mark.parametrize(
    "name",
    ["cpu-jaxlib-0.10.2-cond_switch", "tpu-libtpu-0.0.50.1-v5e-host_offload", "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"],
)
def test_curves(name: str) -> None:
    """The highest point is the peak; each is the most in use in a part of the schedule, in the device's memory."""
    result = xlamem.check(DUMPS / name, config={"budget": [{"peak": 1}]})
    platform = result.programs["platform"][0].as_py()
    curve = result.curves[0].now
    assert max(curve) == result.programs["peak"][0].as_py()
    usage: dict[int, int] = {}
    for row in xlamem.occupancy(DUMPS / name).to_pylist():
        if schema.in_device_memory(platform, row["color"]):
            usage[row["time"]] = usage.get(row["time"], 0) + row["occupied"]
    n = len(usage)
    starts = [i * n // N_COLUMNS for i in range(N_COLUMNS + 1)]
    parts = [range(a, max(a + 1, b)) for a, b in pairwise(starts)]
    assert curve == tuple(max(usage[t] for t in part) for part in parts)


def test_there_are_curves_only_of_what_did_not_pass(red: CheckResult, mixed: CheckResult) -> None:
    assert len(red.curves[0].baseline) == N_COLUMNS
    assert list(mixed.curves) == [0]
    assert mixed.curves[0].baseline == ()


# -- JUnit XML -----------------------------------------------------------------------------------

COUNTS = {"name", "tests", "failures", "errors", "skipped", "time"}
GRAMMAR: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (COUNTS, set(), {"testsuite"}),
    "testsuite": (COUNTS, set(), {"testcase"}),
    "testcase": ({"classname", "name", "time"}, {"file"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
    "system-out": (set(), set(), set()),
}
"""Required and optional attributes, and the elements inside: what https://github.com/testmoapp/junitxml documents."""


def cases(result: CheckResult) -> list[ElementTree.Element]:
    """Return the test cases of the XML, and check it against the grammar."""
    text = FORMATS["junit"](result)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, inside = GRAMMAR[element.tag]
        assert required <= set(element.keys()) <= required | optional
        assert {child.tag for child in element} <= inside
        if element.tag == "testcase":
            assert len(element) <= 1
        if element.tag in ("testsuite", "testsuites"):
            n = {tag: len(list(element.iter(tag))) for tag in ("testcase", "failure", "error", "skipped")}
            assert [int(element.attrib[key]) for key in ("tests", "failures", "errors", "skipped")] == list(n.values())
    found = list(root.iter("testcase"))
    assert len({(case.get("classname"), case.get("name")) for case in found}) == len(found)
    return found


def test_test_cases(red: CheckResult, mixed: CheckResult) -> None:
    found = cases(red)
    assert [(c.get("classname"), c.get("name")) for c in found] == [
        ("jit_decode_step", "growth of device_total"), ("jit_decode_step", "growth of peak"),
    ]  # fmt: skip
    for case, row in zip(found, red.rows(), strict=True):
        assert case[0].tag == "failure"
        assert case[0].get("message") == row["message"]
        assert case[0].text == f"{row['message']}\nwhy: {row['why']}\nat: /home/u/train/program.py:192"
    outcomes = {(c.get("classname"), c.get("name")): [e.tag for e in c] for c in cases(mixed)}
    assert outcomes == {
        ("jit_f", "device_total (budget 1)"): ["failure"],
        ("jit_f", "new"): ["system-out"],
        ("jit_g", "new"): ["system-out"],
        ("jit_h", "unreadable"): ["error"],
        ("jit_m_mlp_grad", "gone"): ["skipped"],
    }
    (warned, _) = cases(changed(red, status="warning"))
    assert warned[0].tag == "system-out"
    assert (warned[0].text or "").startswith("warning: ")
    assert [len(c) for c in cases(changed(red, status="passed"))] == [0, 0]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_in_test_cases(mixed: CheckResult, text: str) -> None:
    for case, row in zip(cases(hostile(mixed, text)), mixed.rows(), strict=True):
        assert case.get("classname") == one_line(text)
        if row["status"] in ("failed", "not known"):
            assert case[0].get("message") == one_line(text)


def test_the_check_of_the_grammar_sees_faults(red: CheckResult, monkeypatch: pytest.MonkeyPatch) -> None:
    good = FORMATS["junit"](red)
    for old, new in (('tests="2"', 'tests="3"'), (' type="growth"', ""), ("failure", "failed"), ("</testsuite>", "")):
        monkeypatch.setitem(FORMATS, "junit", lambda _, old=old, new=new: good.replace(old, new))
        with pytest.raises((AssertionError, KeyError, ElementTree.ParseError)):
            cases(red)


# -- all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_printable_utf8(mixed: CheckResult, name: str, text: str) -> None:
    for line in FORMATS[name](hostile(mixed, text)).split("\n"):
        line.encode()
        assert line.replace("\N{NO-BREAK SPACE}", " ").isprintable()
