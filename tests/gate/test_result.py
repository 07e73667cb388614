"""The result of a check, and what each format says of it, on handmade tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_ci_formats import built, commands

from xlamem import CheckResult, schema
from xlamem.gate.config import Config
from xlamem.gate.curves import Curves
from xlamem.gate.formats import FORMATS
from xlamem.gate.formats.as_github import Annotation
from xlamem.gate.formats.as_markdown import _curves, _rank, sparkline
from xlamem.gate.formats.as_text import _shown
from xlamem.gate.formats.wording import change, from_here, notes, number_cells
from xlamem.gate.result import worst

MIB = 1 << 20


def result(
    programs: list[dict[str, Any]], findings: list[dict[str, Any]], changes: list[dict[str, Any]] | None = None,
    **more: Any,
) -> CheckResult:
    """Return a result of programs, numbered from 0, and findings; columns that are not given are null."""
    plain = {"occurrences": 1, "status": "passed", "module_name": "jit_f", "platform": "tpu", "uri": "/d/x.txt"}
    programs = [{**plain, "program": i, **p} for i, p in enumerate(programs)]
    names = {p["program"]: {k: p[k] for k in ("module_name", "platform", "uri")} for p in programs}
    found = [{"status": "note", "message": "said", **names.get(f.get("program"), {}), **f} for f in findings]
    tables = {"findings": found, "checked_programs": programs, "contributors": changes or []}
    made = []
    for name, rows in tables.items():
        columns = schema.CHECKED[name].columns
        made.append(built([{c.name: row.get(c.name) for c in columns} for row in rows], columns))
    return CheckResult(*made, **{"config": Config(), **more})


def failed(program: int, **more: Any) -> dict[str, Any]:
    return {"program": program, "rule": "growth", "status": "failed", "message": "what must fit grew", **more}


# -- the result ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "status", "code"),
    [
        ([], "passed", 0),
        (["passed", "note", "warning"], "passed", 0),
        (["warning", "not known", "note"], "not known", 3),
        (["failed", "not known"], "failed", 1),
    ],
)
def test_status_and_exit_code(statuses: list[str], status: str, code: int) -> None:
    r = result([{}], [{"program": 0, "rule": "fits", "status": s} for s in statuses])
    assert (r.status, r.exit_code, r.passed) == (status, code, status == "passed")
    assert worst(statuses) == max(statuses, key=list(schema.STATUSES).index, default="passed")
    gone = result([{}], [{"rule": "gone", "status": "note"}])
    assert (gone.status, gone.of_program(0), len(gone.rows("note")), gone.rows("failed")) == ("passed", [], 1, [])


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([], "passed: 0 programs checked, 0 passed"),
        (["passed"], "passed: 1 program checked, 1 passed"),
        (["note", "warning", "warning"], "passed: 3 programs checked, 3 passed (2 with warnings)"),
        (["failed", "passed", "not known", "failed"], "failed: 4 programs checked, 2 failed, 1 not known, 1 passed"),
        (["not known", "warning"], "not known: 2 programs checked, 1 not known, 1 passed (1 with warnings)"),
    ],
)
def test_the_summary(statuses: list[str], text: str) -> None:
    findings = [{"program": i, "rule": "fits", "status": s} for i, s in enumerate(statuses)]
    assert result([{"status": s} for s in statuses], findings).summary == text


def test_what_a_terminal_shows() -> None:
    """What did not pass, with names that differ."""
    programs = [{"uri": f"/d/{folder}/x.txt"} for folder in "ab"]
    rows = [failed(0), {"program": 0, "rule": "flags", "status": "warning"}, {"program": 1, "rule": "new"},
            {"program": 1, "rule": "fits", "status": "not known"}]  # fmt: skip
    lines = repr(result(programs, rows)).splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [
        ["program", "rule"], ["a/jit_f", "growth"], ["a/jit_f", "flags"], ["b/jit_f", "fits"],
    ]  # fmt: skip
    assert "rule" not in repr(result(programs, rows[2:3]))


@pytest.mark.parametrize(
    ("programs", "names"),
    [
        ([{}], ["jit_f"]),
        ([{}, {"module_name": "jit_g"}], ["jit_f", "jit_g"]),
        ([{"uri": "/d/a/x"}, {"uri": "/d/b/x"}], ["a/jit_f", "b/jit_f"]),
        ([{"uri": "/d/a/x", "module_id": 3}, {"uri": "/d/b/x", "module_id": 3}], ["a/jit_f", "b/jit_f"]),
        ([{"module_id": 0}, {"module_id": 12}], ["0000.jit_f", "0012.jit_f"]),
        ([{"module_id": 0}, {}, {"module_name": "jit_g", "uri": "/d/e/x"}], ["0000.jit_f", "jit_f", "jit_g"]),
        (
            [{"uri": "/d/a/x", "module_id": 1}, {"uri": "/d/a/x", "module_id": 2}, {"uri": "/d/b/x", "module_id": 1}],
            ["a/0001.jit_f", "a/0002.jit_f", "b/jit_f"],
        ),
        ([{"module_name": None, "uri": "/d/dump.txt"}, {"module_name": None, "uri": None}], [None, None]),
    ],
)
def test_longer_names_of_programs(programs: list[dict[str, Any]], names: list[str | None]) -> None:
    """With the folder, and the number where that does not tell them apart."""
    found = result(programs, [failed(i) for i in range(len(programs))]).with_distinct_names()
    assert found.programs["module_name"].to_pylist() == found.findings["module_name"].to_pylist() == names


def test_programs_that_are_gone_keep_their_names() -> None:
    rows = [failed(0), failed(1), {"rule": "gone", "module_name": "jit_f"}]
    found = result([{"module_id": 1}, {"module_id": 2}], rows).with_distinct_names()
    assert found.findings["module_name"].to_pylist() == ["0001.jit_f", "0002.jit_f", "jit_f"]


# -- words ---------------------------------------------------------------------------------------


def test_numbers_of_a_program() -> None:
    assert [change(*pair) for pair in ((None, 1), (1, None), (0, MIB), (MIB, 0), (3, 3))] == [
        "", "", "+1.00 MiB", "-1.00 MiB", "±0",
    ]  # fmt: skip
    row = {"device_total": 2 * MIB, "device_total_baseline": MIB, "peak": MIB, "peak_baseline": 3 * MIB}
    assert number_cells(row, is_new=False) == ["2.00 MiB", "+1.00 MiB", "1.00 MiB", "-2.00 MiB"]
    assert number_cells(row, is_new=True) == ["2.00 MiB", "new", "1.00 MiB", "new"]
    assert number_cells({**row, "peak": None}, is_new=False) == ["2.00 MiB", "+1.00 MiB", "?", ""]


def test_notes_about_new_and_gone_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new = [{"program": i, "rule": "new", "message": "not in it"} for i in range(5)]
    gone = [{"rule": "gone", "message": f"{m} it", "module_name": n} for n, m in zip("xyzw", "aaba", strict=True)]
    programs = [{"module_name": name} for name in ("a", "b", "a", "c", "c")]
    r = result(programs, [*new, *gone, {"program": 0, "rule": "improved"}, failed(1)], written=str(tmp_path / "b.json"))
    assert notes(r) == [
        "new: 5 programs (a, b, c): not in it", "gone: 3 programs (x, y, w): a it", "gone: 1 program (z): b it",
        "wrote b.json",
    ]  # fmt: skip
    four = result([{"module_name": n} for n in ("d", "c", "b", None)], new[:4])
    assert notes(four) == ["new: 4 programs (d, c, b, …): not in it"]
    assert notes(result([{"module_name": None}], new[:1])) == ["new: 1 program (?): not in it"]
    assert notes(result([{}], [])) == []
    assert from_here(str(tmp_path.parent / "b.json")) == str(tmp_path.parent / "b.json")


# -- text ----------------------------------------------------------------------------------------


SOURCE = {"source_file": "/home/u/m.py", "source_line": 7}
MIXED = (
    [
        {"status": "failed", "device_total": 5 * MIB, "device_total_baseline": 3 * MIB, "peak": 2 * MIB,
         "peak_baseline": 2 * MIB},
        {"module_name": "jit_g", "status": "note", "device_total": MIB, "peak": MIB},
        {"module_name": "jit_h", "status": "not known", "device_total": MIB},
        {"module_name": "jit_i", "status": "warning", "device_total": MIB, "peak": 5},
    ],
    [
        failed(0, number="device_total", budget=2, why="w is larger", **SOURCE),
        failed(0, number="peak", message="peak grew", why="w is larger", **SOURCE),
        {"program": 0, "rule": "flags", "status": "warning", "message": "flag a is 1"},
        {"program": 0, "rule": "fits", "status": "passed", "message": "it fits"},
        {"program": 1, "rule": "new", "message": "not in the baseline"},
        {"program": 1, "rule": "improved", "message": "peak fell", "why": "less", **SOURCE},
        {"program": 2, "rule": "unreadable", "status": "not known", "message": "the dump is truncated"},
        {"program": 3, "rule": "growth", "status": "warning", "message": "grew", "why": "why"},
        {"rule": "gone", "message": "in the baseline", "module_name": "jit_old"},
    ],
    [{"program": 0, "cause": "larger", "name": "w", "category": "temp", "n": 2, "bytes_baseline": 1, "bytes": 2 * MIB,
      "change": 2 * MIB, "shape": "f32[8]", **SOURCE}],
)  # fmt: skip
"""Programs with each status."""


def test_text() -> None:
    assert FORMATS["text"](result(*MIXED)).splitlines() == [
        "           program  must fit     change      peak  change",
        "FAILED     jit_f    5.00 MiB  +2.00 MiB  2.00 MiB      ±0",
        "  growth (budget 2): what must fit grew",
        "  growth: peak grew",
        "  warning, flags: flag a is 1",
        "  why: w is larger",
        "  at: /home/u/m.py:7",
        "ok         jit_g    1.00 MiB        new  1.00 MiB     new",
        "  note, improved: peak fell",
        "NOT KNOWN  jit_h    1.00 MiB                    ?",
        "  not known, unreadable: the dump is truncated",
        "warning    jit_i    1.00 MiB                  5 B",
        "  warning, growth: grew",
        "  why: why",
        "new: 1 program (jit_g): not in the baseline",
        "gone: 1 program (jit_old): in the baseline",
        "failed: 4 programs checked, 1 failed, 1 not known, 2 passed (1 with warnings)",
    ]
    assert FORMATS["text"](result([], [])) == "passed: 0 programs checked, 0 passed"


def test_a_long_cause_is_cut() -> None:
    """At six lines."""
    for n, cut in ((85, False), (90, True)):
        why = " ".join(["word"] * n)
        lines = FORMATS["text"](result([{"status": "failed"}], [failed(0, why=why)])).splitlines()[3:-1]
        assert len(lines) == 6
        assert (lines[-1] == "    …") == cut


def test_the_largest_programs_that_passed_are_shown() -> None:
    """In their order, with all that did not pass."""
    programs = [{"program": i, "status": "passed" if i % 5 else "failed", "device_total": i % 7 or None}
                for i in range(40)]  # fmt: skip
    shown, n_more = _shown(programs)
    passed = [p for p in programs if p["status"] == "passed"]
    kept = sorted(passed, key=lambda p: (-(p["device_total"] or 0), p["program"]))[:20]
    assert (shown, n_more) == ([p for p in programs if p in kept or p["status"] == "failed"], 12)
    assert _shown(passed[:20]) == (passed[:20], 0)
    text = FORMATS["text"](result([{"module_name": f"jit_{i}"} for i in range(22)], []))
    assert "and 2 more programs that passed" in text


# -- the other formats ---------------------------------------------------------------------------


MARKDOWN = r"""<!-- xlamem check -->
**failed: 4 programs checked, 1 failed, 1 not known, 2 passed (1 with warnings)**

| program | must fit | change | peak | change | status |
|---|---:|---:|---:|---:|---|
| `jit_f` | 5.00 MiB | +2.00 MiB | 2.00 MiB | ±0 | ❌ failed |
| `jit_h` | 1.00 MiB |  | ? |  | ❔ not known |
| `jit_i` | 1.00 MiB |  | 5 B |  | ⚠️ warning |
| `jit_g` | 1.00 MiB | new | 1.00 MiB | new | ✅ passed |

new: 1 program (jit\_g): not in the baseline

gone: 1 program (jit\_old): in the baseline

- `jit_g`: improved: peak fell

`jit_f` in use over the schedule, from 1 B (▁) to 2.00 MiB (█), with the peak:

```text
baseline  ▁▅  1.00 MiB
now       ▁█  2.00 MiB
```

<details><summary>failed: <code>jit_f</code></summary>

- **growth** (budget 2): what must fit grew
- **growth**: peak grew
- **flags**: flag a is 1
- why: w is larger
- at: `/home/u/m.py:7`

| change | cause | n | buffers at the peak | shape | source |
|---:|---|---:|---|---|---|
| +2.00 MiB | larger | 2 | `w` | `f32[8]` | `m.py:7` |

</details>

<details><summary>not known: <code>jit_h</code></summary>

- **unreadable**: the dump is truncated

</details>

<details><summary>warning: <code>jit_i</code></summary>

- **growth**: grew
- why: why

</details>
"""


def test_markdown() -> None:
    r = result(*MIXED, curves={0: Curves((1, 2 * MIB), (1, MIB))})
    assert FORMATS["markdown"](r).replace("\N{NO-BREAK SPACE}", " ").splitlines() == MARKDOWN.splitlines()


def test_order_of_programs_in_markdown() -> None:
    rows = [{"status": s, "device_total": n} for s, n in (("passed", 9), ("failed", None), ("failed", 3), ("note", 1))]
    assert sorted(rows, key=_rank) == [rows[2], rows[1], rows[3], rows[0]]


@pytest.mark.parametrize(
    ("now", "baseline", "drawn", "scale"),
    [
        ((0, 4, 8), (), ["▁▅█"], "from 0 B (▁) to 8 B (█)"),
        ((4, 8), (8, 12), ["▅█", "▁▅"], "from 4 B (▁) to 12 B (█)"),
        ((5, 5), (), ["██"], "from 0 B (▁) to 5 B (█)"),
    ],
)
def test_curves_have_one_scale(now: tuple[int, ...], baseline: tuple[int, ...], drawn: list[str], scale: str) -> None:
    lines = _curves("f", Curves(now, baseline))
    assert scale in lines[1]
    assert [line.split()[1] for line in lines[4:-1]] == drawn
    assert sparkline([0, 7], 0, 7) == "▁█"


def annotated(*rows: Mapping[str, Any]) -> Annotation:
    return Annotation(str(rows[0]["status"]), "f", [dict(row) for row in rows])


def test_order_of_annotations() -> None:
    """By status, then by the bytes beyond a limit, or below it."""
    small, large, below, unknown = (
        annotated({"status": status, "value": value, "limit": limit})
        for status, value, limit in (("failed", 9, 5), ("failed", 99, 5), ("failed", 5, 50), ("not known", 999, None))
    )
    two = annotated({"status": "failed", "value": 6, "limit": 5}, {"status": "failed", "value": 80, "limit": 5})
    assert sorted([small, unknown, below, two, large], key=lambda a: a.rank) == [large, two, below, small, unknown]


def test_workflow_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first line of the findings that the repository has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    error, warning, unknown, other = sorted(commands(result(*MIXED)), key=lambda c: c.properties["title"])
    assert error.text.split("\n") == [
        "what must fit grew", "peak grew", "why: w is larger", "at: /home/u/m.py:7",
    ]  # fmt: skip
    assert (error.name, error.properties) == ("error", {"title": "jit_f: failed, growth"})
    assert (warning.name, warning.text, warning.properties["title"]) == (
        "warning", "flag a is 1", "jit_f: warning, flags",
    )  # fmt: skip
    assert (unknown.name, unknown.text) == ("error", "the dump is truncated")
    assert (other.name, other.text) == ("warning", "grew\nwhy: why")
    (tmp_path / "m.py").write_text("\n" * 9)
    rows = [failed(0, source_file="other.py"), failed(0, **SOURCE), failed(0, source_file="m.py", source_line=2)]
    (found,) = commands(result([{"status": "failed"}], rows))
    assert found.properties == {"file": "m.py", "line": "7", "title": "jit_f: failed, growth"}
    (found,) = commands(result([{"status": "failed"}], [failed(0, source_file="m.py")]))
    assert found.properties == {"file": "m.py", "title": "jit_f: failed, growth"}
    several = result([{"status": "failed"}], [*[failed(0, **SOURCE)] * 2, failed(0, source_file="m.py", source_line=2)])
    assert commands(several)[0].properties["line"] == "7"


def test_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations are counted by their findings, programs in Markdown one by one."""
    monkeypatch.chdir(tmp_path)
    programs = [{"module_name": f"jit_{i}", "status": "failed"} for i in range(12)]
    r = result(programs, [failed(i, value=20 - i, limit=0) for i in range(12) for _ in range(1 + i % 2)])
    *_, more, _ = FORMATS["github"](r).splitlines()
    assert more == "::notice title=xlamem::and 3 other findings"
    text = FORMATS["markdown"](r)
    n_shown = text.count("<details>")
    for limit in (50 + len(text.partition("<details>")[2].partition("</details>")[0]), 0):
        monkeypatch.setattr(sys.modules["xlamem.gate.formats.as_markdown"], "MAX_CHARACTERS", limit)
        text = FORMATS["markdown"](r)
        assert n_shown > text.count("<details>") == (1 if not limit else 2)
        assert f"and {12 - text.count('<details>')} other programs that did not pass" in text


def test_names_of_test_cases() -> None:
    """Different ones, and the same in the next run: without the number of the module."""
    rows = [
        failed(0, number="device_total"), failed(0, number="peak"), failed(1, number="device_total"),
        failed(1, number="device_total"), failed(1, rule="peak", number="peak", budget=3), failed(1, rule="fits"),
    ]  # fmt: skip
    text = FORMATS["junit"](result([{"module_name": "jit_f.12"}, {"module_name": "jit_f.3"}], rows))
    cases = list(ElementTree.fromstring(text.encode()).iter("testcase"))
    assert {case.get("classname") for case in cases} == {"jit_f"}
    assert [case.get("name") for case in cases] == [
        "growth of device_total", "growth of peak", "growth of device_total #2", "growth of device_total #3",
        "peak (budget 3)", "fits",
    ]  # fmt: skip


def test_json() -> None:
    r = result(*MIXED, config=Config(path="x.toml"), baseline="b.json", written="w.json")
    data = json.loads(FORMATS["json"](r))
    assert {k: v for k, v in data.items() if not isinstance(v, list)} == {
        **schema.envelope("check"), "status": "failed", "exit_code": 1, "summary": r.summary, "config": "x.toml",
        "baseline": "b.json", "written": "w.json",
    }  # fmt: skip
    assert [len(data[name]) for name in ("programs", "findings", "contributors")] == [4, 9, 1]
