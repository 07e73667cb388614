"""The queries and examples of docs/warehouse.md run and return the right numbers."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, HERE
from printed_names import scopes_of, with_printed_names

import xlamem
from xlamem import compute, schema
from xlamem.cli import main
from xlamem.warehouse import identity

DOC = (HERE.parent / "docs" / "warehouse.md").read_text()
QUERIES = {int(n): sql for n, sql in re.findall(r"^### (\d+)\. .*?```sql\n(.*?)```", DOC, re.M | re.S)}

BEFORE = [
    "cpu-jaxlib-0.4.26-scan_while",
    "cpu-jaxlib-0.4.35-cond_switch",
    "cpu-jaxlib-0.5.3-tuple3",
    "tpu-libtpu-0.0.50.1-v5e-host_offload",
]
AFTER = [
    "cpu-jaxlib-0.10.2-cond_switch",
    "cpu-jaxlib-0.12.0-multiheap",
    "cpu-jaxlib-0.12.0-scan_while",
    "cpu-killed-at-buffer-assignment",
    "gpu-jax-0.10.2-attn_cudnn",
    "tpu-libtpu-0.0.50.1-v5e-host_offload",
    "tpu-libtpu-0.0.50.1-v5e-mlp_grad",
]
ALL = list(dict.fromkeys(BEFORE + AFTER))
GIB16 = 16 << 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset `warehouse`: two nights, two commits."""
    folder = tmp_path_factory.mktemp("docs")
    bad = folder / "bad" / "module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b\x08 this is not gzip")
    for names, commit, night in ((BEFORE, "a1", "2025-01-30"), (AFTER, "b2", "2025-01-31")):
        sources = [DUMPS / n for n in names] + ([bad.parent] if commit == "b2" else [])
        labels = {"commit": commit, "night": night}
        xlamem.convert(*sources, to=folder / "warehouse", labels=labels, partition_by=["night"], engine="here")
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[int, list[dict[str, Any]]]:
    dataset = xlamem.Dataset(folder / "warehouse")
    return {n: dataset.sql(sql).to_pylist() for n, sql in QUERIES.items()}


def dump(name: str) -> xlamem.Dump:
    return xlamem.read(DUMPS / name)


def spaces(name: str) -> list[dict[str, Any]]:
    return xlamem.peak(dump(name)).spaces.to_pylist() if dump(name).allocations.num_rows else []


def test_there_are_twelve_queries() -> None:
    assert list(QUERIES) == list(range(1, 13))
    assert "Twelve queries" in DOC
    assert len(re.findall(r"```sql", DOC)) == len(QUERIES)


COLUMNS = {
    1: "platform module_name memory_space before after growth",
    2: "platform module_name instruction shape size padding",
    3: "platform module_name device_total headroom percent",
    4: "platform module_name change n",
    5: "scope bytes buffers programs",
    6: "module_name layer bytes layers",
    7: "platform module_name xla xlamem difference",
    8: "kind detail dumps example",
    9: "night dumps programs fresh allocated",
    10: "content_id module_name occurrences hosts since commits",
    11: "module_name memory_space size parameters outputs shareable",
    12: "platform target programs largest median",
}


@pytest.mark.parametrize("number", COLUMNS)
def test_every_query_returns_rows(number: int, folder: Path) -> None:
    found = xlamem.Dataset(folder / "warehouse").sql(QUERIES[number])
    assert found.column_names == COLUMNS[number].split()
    assert found.num_rows
    plain = {"int64", "string", "double", "timestamp[us, tz=UTC]"}
    assert {str(t) for t in found.schema.types} <= plain


def test_growth(answers: dict[int, Any]) -> None:
    # 483,632 - 483,488 and 262,400 - 262,384, by hand from the two buffer assignments of each
    assert answers[1] == [
        {"platform": "cpu", "module_name": "jit_m_scan_while", "memory_space": "memory",
         "before": 483488, "after": 483632, "growth": 144},
        {"platform": "cpu", "module_name": "jit_m_cond_switch", "memory_space": "memory",
         "before": 262384, "after": 262400, "growth": 16},
    ]  # fmt: skip
    for row, old, new in zip(answers[1], (BEFORE[0], BEFORE[1]), (AFTER[2], AFTER[0]), strict=True):
        assert (row["before"], row["after"]) == (spaces(old)[0]["reserved"], spaces(new)[0]["reserved"])


PROGRAM = """BufferAssignment:
allocation 0: size {size}, parameter 0, shape |f32[{n}]| at ShapeIndex {{}}:
 value: <{id} p.{k} @0> (size={size},offset=0): f32[{n}]{{0}}
allocation 1: size {size}, output shape is |f32[{n}]|, maybe-live-out:
 value: <{id}1 add.{k} @0> (size={size},offset=0): f32[{n}]{{0}}
allocation 2: size {temp}, preallocated-temp:
 value: <{id}2 exp.{k} @0> (size={temp},offset=0): f32[{m}]{{0}}

Total bytes used: {total}

Used values:
<{id} p.{k} @0>
 positions:
  p.{k}
 uses:
  exp.{k}, operand 0
 from instruction: %p.{k} = f32[{n}]{{0}} parameter(0)
<{id}1 add.{k} @0>
 positions:
  add.{k}
 uses:
 from instruction: %add.{k} = f32[{n}]{{0}} add(%exp.{k}, %p.{k}), metadata={{op_name="add" source_line={k}}}
<{id}2 exp.{k} @0>
 positions:
  exp.{k}
 uses:
  add.{k}, operand 0
 from instruction: %exp.{k} = f32[{m}]{{0}} broadcast(%p.{k})

HloLiveRange (max 3):
  InstructionSequence:
    0:p.{k}
    1:exp.{k}
    2:add.{k}
  BufferLiveRange:
    p.{k}{{}}:0-3
    add.{k}{{}}:2-3
    exp.{k}{{}}:1-2
  Live ranges at 2 (peak):
    p.{k}: {size} bytes
    add.{k}: {size} bytes
    exp.{k}: {temp} bytes
"""


def compile_all(folder: Path, grown: set[int], first: int) -> Path:
    """500 programs of one name: pairs have the same interface, and some of them a temporary three times as large."""
    folder.mkdir(parents=True)
    for i in range(500):
        n, m = 8 + i // 2, (40 + i) * (3 if i in grown else 1)
        number = first + (i * 137) % 500
        numbers = {"size": 4 * n, "temp": 4 * m, "total": 8 * n + 4 * m, "id": number + 1, "k": number}
        name = f"module_{number:04}.jit_broadcast_in_dim.cpu_after_optimizations-buffer-assignment.txt"
        (folder / name).write_text(PROGRAM.format(n=n, m=m, **numbers))
    return folder


def test_growth_hidden_behind_a_name(tmp_path: Path) -> None:
    """Fifteen of 500 programs of one name grow; all are recompiled, with other numbers, names and lines."""
    grown = set(range(1, 120, 8))
    for commit, found in (("a1", set()), ("b2", grown)):
        folder = compile_all(tmp_path / commit, found, 0 if commit == "a1" else 7)
        xlamem.convert(folder, to=tmp_path / "out", labels={"commit": commit}, engine="here")
    dataset = xlamem.Dataset(tmp_path / "out")
    assert len(dataset.ids) == 1000
    assert dataset["modules"].to_table()["complete"].to_pylist() == [True] * 1000
    rows = dataset.sql(QUERIES[1].replace("LIMIT 10", "")).to_pylist()
    sizes = [(8 * (8 + i // 2) + 4 * (40 + i), 8 * (40 + i)) for i in sorted(grown, reverse=True)]
    assert [(r["before"], r["growth"]) for r in rows] == sizes
    assert {r["module_name"] for r in rows} == {"jit_broadcast_in_dim"}
    assert dataset.sql(QUERIES[4]).to_pylist() == [
        {"platform": "cpu", "module_name": "jit_broadcast_in_dim", "change": "changed", "n": len(grown)}
    ]
    totals = dataset.sql("SELECT label_commit, max(total_bytes) AS n FROM dumps GROUP BY 1 ORDER BY 1").to_pylist()
    assert totals[0]["n"] == totals[1]["n"]  # the largest program of the name did not grow


def test_padding(answers: dict[int, Any]) -> None:
    wanted = [
        v["size"] - v["unpadded_size"]
        for name in ALL
        for v in dump(name)["values"].to_pylist()
        if v["unpadded_size"] is not None and v["element_type"] != "tuple"
    ]
    assert [r["padding"] for r in answers[2]] == sorted((p for p in wanted if p > 0), reverse=True)[:10]
    assert answers[2][0]["padding"] == 508  # a scalar f32 in a tile of 512 bytes


def test_headroom(answers: dict[int, Any]) -> None:
    wanted = [xlamem.peak(dump(n)).device_total for n in ALL if dump(n).platform in ("tpu", "gpu")]
    assert [r["headroom"] for r in answers[3]] == sorted(GIB16 - r for r in wanted)
    assert answers[3][0] == {
        "platform": "gpu", "module_name": "jit_f", "device_total": 8421700, "headroom": 17171447484,
        "percent": 0.049,
    }  # fmt: skip


def test_changes(answers: dict[int, Any]) -> None:
    assert {r["n"] for r in answers[4]} == {1}
    found = {r["module_name"]: r["change"] for r in answers[4]}
    assert found == {
        "jit_m_cond_switch": "changed",
        "jit_m_scan_while": "changed",
        "jit_m_tuple3": "removed",
        "jit_train_step_unrolled": "new",
        "jit_train_step_cpu_single_l24_d128_t64": "new",
        "jit_f": "new",
        "jit_m_mlp_grad": "new",
    }


def test_scopes(answers: dict[int, Any]) -> None:
    held: dict[str | None, int] = {}
    for name in ALL:
        if any(s["peak"] is not None for s in spaces(name)):
            rows = with_printed_names(dump(name), xlamem.live_set(dump(name))).to_pylist()
            for (space, scope), (size, _) in scopes_of(rows).items():
                if space in ("hbm", "device", "memory"):
                    held[scope] = held.get(scope, 0) + size
    found = {r["scope"]: r["bytes"] for r in answers[5]}
    assert found == {scope: held[scope] for scope in found}
    assert sorted(found.values(), reverse=True) == sorted(held.values(), reverse=True)[:10]


def test_layers(answers: dict[int, Any]) -> None:
    assert all(not re.search("[0-9]", r["layer"]) for r in answers[6])
    assert answers[6] == sorted(answers[6], key=lambda r: -r["bytes"])


def test_two_peaks(answers: dict[int, Any]) -> None:
    wanted = []
    for name in ALL:
        (module,) = dump(name).modules.to_pylist()
        rows = xlamem.occupancy(dump(name)).to_pylist()
        ours = max((sum(r["occupied"] for r in rows if r["time"] == t) for t in {r["time"] for r in rows}), default=0)
        if (printed := module["printed_peak_bytes"]) is not None and ours != printed:
            wanted.append((module["module_name"], printed, ours))
    wanted.sort(key=lambda w: -abs(w[2] - w[1]))
    found = [(r["module_name"], r["xla"], r["xlamem"]) for r in answers[7]]
    assert sorted(found) == sorted(wanted[:10])
    assert answers[7][0]["difference"] == abs(wanted[0][2] - wanted[0][1])


def test_failures(answers: dict[int, Any]) -> None:
    one, other = answers[8]
    assert (one["kind"], one["dumps"]) == ("unreadable", 1)
    assert "gzip" in one["detail"]
    assert one["example"].endswith("module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz")
    assert (other["kind"], other["detail"], other["dumps"]) == ("error", "truncated", 1)


def test_nights(answers: dict[int, Any]) -> None:
    def total(names: list[str]) -> int:
        return sum(dump(n).modules["total_bytes"][0].as_py() or 0 for n in names)

    assert answers[9] == [
        {"night": "2025-01-30", "dumps": 4, "programs": 4, "fresh": 4, "allocated": total(BEFORE)},
        {"night": "2025-01-31", "dumps": 7, "programs": 7, "fresh": 6, "allocated": total(AFTER)},
    ]


def test_hosts(answers: dict[int, Any], folder: Path) -> None:
    original = xlamem.read(DUMPS / BEFORE[-1], hashes=True)
    dataset = xlamem.Dataset(folder / "warehouse")
    starts = dataset["runs"].to_table()["started_at"].to_pylist()
    first, *others = answers[10]
    assert first == {
        "content_id": identity.content_id(original.modules["content_hash"][0].as_py(), original.source),
        "module_name": "jit_m_host_offload",
        "occurrences": 2,
        "hosts": 1,
        "since": min(starts),
        "commits": "a1, b2",
    }
    assert len(others) == len(ALL) - 1
    assert {(r["occurrences"], r["hosts"]) for r in others} == {(1, 1)}


def test_donation(answers: dict[int, Any]) -> None:
    # q, k, v go in, and their gradients come out, 1 MiB each
    first = {"module_name": "jit_f", "memory_space": "device", "size": 1 << 20, "parameters": 3, "outputs": 3}
    assert {k: v for k, v in answers[11][0].items() if k != "shareable"} == first
    assert answers[11][0]["shareable"] == 3 << 20


def test_platforms(answers: dict[int, Any]) -> None:
    rows = {(r["platform"], r["target"]): r["programs"] for r in answers[12]}
    assert rows == {("cpu", None): 7, ("gpu", "sm_9.0a"): 1, ("tpu", None): 2}
    for r in answers[12]:
        names = [n for n in ALL if dump(n).platform == r["platform"]]
        assert r["largest"] == max(compute.device_total(dump(n)) or 0 for n in names)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # polars_iceberg would be quicker
def test_the_python_examples_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    known: dict[str, Any] = {}
    ran = 0
    for block in re.findall(r"```python\n(.*?)```", DOC, re.S):
        missing = False
        for library, form in (("pyiceberg", "iceberg"), ("deltalake", "delta")):
            if library in block and importlib.util.find_spec(library):
                xlamem.warehouse.register("warehouse", form)
            missing |= library in block and not importlib.util.find_spec(library)
        if not missing:
            exec(compile(block, "docs/warehouse.md", "exec"), known)
        ran += 1
    assert ran == 6


def test_the_commands_of_the_timers_run(tmp_path: Path) -> None:
    """Those of the services and of cron, on folders of this test."""
    (units,) = re.findall(r"```ini\n(.*?)```", DOC, re.S)
    lines = re.findall(r"^ExecStart=(.*)$", units, re.M) + re.findall(r"^[*0][*0-9/ ]+flock (.*)$", DOC, re.M)
    assert len(lines) == 5
    (tmp_path / "dumps").mkdir()
    shutil.copytree(DUMPS / BEFORE[2], tmp_path / "dumps" / "one")
    for path in (tmp_path / "dumps" / "one").iterdir():
        os.utime(path, (0, time.time() - 600))
    for line in lines:
        text = line.replace("/dumps", f"{tmp_path}/dumps").replace("/data/", f"{tmp_path}/")
        _, command = text.split("/opt/xlamem/bin/xlamem ")
        assert main([*shlex.split(command), *(["--engine", "here"] if command.startswith("convert") else [])]) == 0
    assert len(xlamem.Dataset(tmp_path / "warehouse").ids) == 1


def test_every_derived_table_is_listed() -> None:
    for table in (*schema.DERIVED, *schema.RUN_TABLES):
        assert f"| `{table}` |" in DOC
    (occurrences,) = (line for line in DOC.splitlines() if line.startswith("| `occurrences` |"))
    assert re.findall("`([a-z_]+)`", occurrences) == ["occurrences", *schema.OCCURRENCES.names]


def test_the_demo_runs_a_query_of_this_page() -> None:
    text = (HERE.parent / "Makefile").read_text().replace("\\\n", " ")
    (query,) = re.findall(r'xlamem sql demo-out "([^"]*)"', text)
    assert " ".join(query.split()) == " ".join(QUERIES[7].split())
    assert text.index("xlamem sql demo-out") > text.index("xlamem peak")
