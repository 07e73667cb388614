"""What the page says of a buffer, in its table and beside it, is what the commands say of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS
from node import bundled, run

import xlamem
from xlamem.cli.reporters.buffers import padding_bytes

WORDING = """
import { decode } from "./data/decode.js";
import { bufferName } from "./data/names.js";
import { labelOf, originOf } from "./parts/wording.js";
const data = await decode(given.programs[0]);
const buffers = Array.from(data.buffers.valueId, (id, row) => {
  return { id, name: bufferName(data, row), label: labelOf(data, row), origin: originOf(data, row).join("") };
});
console.log(JSON.stringify(buffers));
"""

TABLE = """
import { decode } from "./data/decode.js";
import { tabSeparated } from "./buffers/columns.js";
import { liveSet } from "./data/live.js";
import { matching } from "./data/matching.js";
import { neighboursOf } from "./data/sharing.js";
const data = await decode(given.programs[0]);
const { space, step } = given;
const live = liveSet(data, space, step);
const rows = Int32Array.from({ length: live.length }, (_, i) => i);
const ids = Array.from(data.buffers.valueId);
console.log(JSON.stringify({
  table: tabSeparated({ data, live, step }, rows),
  found: given.queries.map((query) => ids.filter((_, row) => matching(data, query, 0)[row])),
  sharing: ids.map((_, row) => neighboursOf(data, row).sharing.length),
}));
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundled(TABLE, tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundled(WORDING, tmp_path_factory.mktemp("script"))


def buffers_of(script: Path, dump: xlamem.Dump) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(script, **xlamem.report(dump).as_json())
    return found


@pytest.mark.parametrize("name", ["cpu-jaxlib-0.4.26-scan_while", "tpu-libtpu-0.0.35-v4-scan_while"])
def test_only_arguments_have_their_names(script: Path, name: str) -> None:
    dump = xlamem.read(DUMPS / name)
    arguments = {row["allocation"]: row["parameter_number"] for row in dump.allocations.to_pylist()}
    values = {row["value_id"]: arguments[row["allocation"]] for row in dump.values.to_pylist()}
    opcode = {row["instruction"]: row["opcode"] for row in dump.instructions.to_pylist()}
    buffers = buffers_of(script, dump)
    for buffer in buffers:
        assert buffer["label"] == buffer["name"] or values[buffer["id"]] is not None
        if buffer["origin"] == "An argument of the program.":
            assert opcode[buffer["name"].split("{")[0]] == "parameter"
    assert any(buffer["label"] != buffer["name"] for buffer in buffers)


def test_the_table_has_the_padding_of_the_live_set(table: Path) -> None:
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree")
    report = xlamem.report(dump)
    space = report.programs[0].spaces[0]
    found = run(table, **report.as_json(), space=0, step=space.first_step, queries=[])
    rows = csv.DictReader(io.StringIO(found["table"]), delimiter="\t", quoting=csv.QUOTE_NONE)
    live = xlamem.live_set(dump, space.first_step, space=space.memory_space).to_pylist()
    wanted = [("reserved" if row["role"] == "reserved" else row["instruction"], padding_bytes(row)) for row in live]
    shown = [(row["role"] if row["role"] == "reserved" else row["name"].split("{")[0], row["padding"]) for row in rows]
    assert sorted(shown) == sorted((name, str(n)) for name, n in wanted)
    assert {row["role"] for row in live} == {"value", "reserved"}


def test_categories_are_found(table: Path) -> None:
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree")
    program = xlamem.report(dump).programs[0]
    b = program.buffers
    queries = {"temporary": ("temp", "temp_in_output"), "donated": ("donated",), "constant": ("constant",)}
    found = run(table, **xlamem.report(dump).as_json(), space=0, step=0, queries=[*queries])
    for categories, ids in zip(queries.values(), found["found"], strict=True):
        rows = zip(b.value_id.tolist(), b.category.tolist(), strict=True)
        assert {i for i, category in rows if b.category_names[category] in categories} <= set(ids)


def test_without_live_ranges_no_buffers_share_bytes(table: Path) -> None:
    report = xlamem.report(DUMPS / "cpu-tf-1.15.0-loop")
    assert report.programs[0].steps is None
    assert not any(run(table, **report.as_json(), space=0, step=0, queries=[])["sharing"])
