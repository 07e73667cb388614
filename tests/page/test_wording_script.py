"""What the page's script says of a buffer is what `xlamem buffer` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS
from node import bundled, run

import xlamem

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
