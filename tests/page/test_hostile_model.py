"""The model of dumps that were made to break something: it follows the schema, or there is an error of ours."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from conftest import every
from decoding import decoded
from fuzz.check import source_of
from fuzz.mutate import Members, mutate
from fuzz.run import seeds
from hostile import hostile_dump

import xlamem
from xlamem.compute.advice.activations import Activations
from xlamem.compute.advice.what_if import WhatIf
from xlamem.compute.program import program
from xlamem.page.model import as_json
from xlamem.page.program_model import program_model

SCHEMA = json.loads(resources.files("xlamem.page").joinpath("report.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["Program"], "$defs": SCHEMA["$defs"]})
HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
HUGE = (1 << 53) + 1
LIVE = """HloLiveRange (max 2):
  InstructionSequence:
    0:a
    1:b
  BufferLiveRange:
    a{}:0-2
  Live ranges at 0 (peak):
    a: 8 bytes (cumulative: 8 bytes)
"""


def check(members: Members) -> None:
    try:
        data = as_json(program_model(xlamem.read(source_of(members)), {"capacity": "16GiB"}))
    except xlamem.XlaMemError:
        return
    VALIDATOR.validate(data)
    program = decoded(data)
    for column in ("instruction", "allocation", "scope"):
        assert (program["buffers"][column] >= (-1 if column == "instruction" else 0)).all()


@pytest.mark.parametrize("part", every(4, range(8)))
def test_changed_dumps(part: int) -> None:
    inputs = [m for m in seeds([]) if sum(map(len, m.values())) < 20_000]
    for i in range(part, 120, 8):
        rng = random.Random(i)
        check(mutate(rng, rng.choice(inputs), inputs))


@pytest.mark.parametrize("folder", sorted(HOSTILE.iterdir()), ids=lambda p: p.name)
def test_kept_dumps(folder: Path) -> None:
    for source in xlamem.find(folder):
        try:
            VALIDATOR.validate(as_json(program_model(xlamem.read(source))))
        except xlamem.XlaMemError:
            continue


def test_names_of_strangers(tmp_path: Path) -> None:
    data = xlamem.report(hostile_dump(tmp_path / "dump"), device="v5e").as_json()
    VALIDATOR.validate(data["programs"][0])
    assert len(json.dumps(data)) < 100_000


def test_live_ranges_without_allocations() -> None:
    dump = xlamem.read(source_of({"buffer-assignment": f"BufferAssignment:\n\n{LIVE}".encode()}))
    assert xlamem.peak(dump).spaces.num_rows == 0
    assert xlamem.bill(dump).num_rows == 0
    program = decoded(as_json(program_model(dump)))
    assert program["steps"] == 3
    assert program["spaces"] == program["bill"] == []


def test_a_shape_with_an_empty_dimension() -> None:
    text = (
        "BufferAssignment:\nallocation 0: size 8192, preallocated-temp:\n"
        f" value: <0 a @0> (size=8192,offset=0): f32[2,,1024]{{1,0}}\n\n{LIVE}"
    )
    dump = xlamem.read(source_of({"buffer-assignment": text.encode()}))
    assert Activations(WhatIf(program(dump))).dimensions[0, :3].tolist() == [2, 1024, 0]


def test_numbers_that_a_page_cannot_show() -> None:
    header = f"BufferAssignment:\nallocation 0: size {HUGE}, preallocated-temp:\n"
    text = f"{header} value: <0 a @0> (size=8,offset=0): f32[2]\n"
    dump = xlamem.read(source_of({"buffer-assignment": text.encode()}))
    with pytest.raises(xlamem.UsageError, match="2\\^53"):
        xlamem.report(dump)
