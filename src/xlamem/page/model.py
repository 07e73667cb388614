"""The data of a report: the same as `script/data/model.ts` describes, with columns as arrays.

`as_json` encodes them. Sizes are in bytes and times are schedule steps. A row number refers to a row of the columns
that the comment names; -1 means none. `report.schema.json` describes the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .columns import Encoder, Ints

FORMAT, VERSION = "xlamem.report", 1


def as_json(value: Any, encoder: Encoder | None = None) -> Any:
    """Return data of a report as JSON: arrays of NumPy and Arrow become encoded columns."""
    encoder = encoder or Encoder()
    encoder.start(columns_of(value))
    return _as_json(value, encoder)


def _as_json(value: Any, encoder: Encoder) -> Any:
    if isinstance(value, (np.ndarray, pa.Array)):
        return encoder(value)
    if is_dataclass(value):
        return {f.name: _as_json(getattr(value, f.name), encoder) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _as_json(item, encoder) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item, encoder) for item in value]
    return value


def columns_of(value: Any) -> Iterator[Any]:
    """Yield the columns of data of a report."""
    if isinstance(value, (np.ndarray, pa.Array)):
        yield value
    elif is_dataclass(value):
        for f in fields(value):
            yield from columns_of(getattr(value, f.name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from columns_of(item)


def size_as_json(value: Any, encoder: Encoder) -> int:
    """Return about how many bytes data take as JSON."""
    if isinstance(value, (np.ndarray, pa.Array)):
        return encoder.size(value)
    if is_dataclass(value):
        return sum(len(f.name) + 4 + size_as_json(getattr(value, f.name), encoder) for f in fields(value))
    if isinstance(value, Mapping):
        return sum(len(key) + 4 + size_as_json(item, encoder) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(1 + size_as_json(item, encoder) for item in value) + 2
    return len(json.dumps(value))


# -- what the program needs, in words ------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """A device, or a capacity, with which a program is compared."""

    name: str
    capacity: int
    resident: int
    fraction: float
    available: int
    note: str
    """Where the capacity comes from."""


@dataclass(frozen=True)
class Verdict:
    """What must fit, and what to do about it."""

    must_fit: int | None
    terms: list[dict[str, Any]]
    """memory_space and bytes."""
    device: Device | None
    fits: bool | None
    reason: str
    headline: str
    decided_by: list[str]
    first_step: str


# -- memory spaces -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """A memory space. The steps are null without live ranges."""

    memory_space: str
    color: int
    page: int
    in_device_memory: bool
    allocated: int
    reserved: int
    peak: int | None
    first_step: int | None
    last_step: int | None
    n_plateaus: int | None
    plateaus: list[dict[str, int]]
    """first_step, last_step and bytes."""
    categories: dict[str, int]
    """Bytes in use at the peak; without live ranges, sizes of the allocations."""
    usage: Ints
    """Bytes in use at every step."""


@dataclass(frozen=True)
class BillLine:
    """A line of a bill; the bytes of its parts add up to its own."""

    line: str
    label: str
    bytes: int
    in_use: bool
    note: str
    parts: list[dict[str, Any]]
    """part, label, kind, n, bytes and note."""


@dataclass(frozen=True)
class Account:
    """Why so much memory must fit; the lines add up to the total."""

    account: str
    page: int
    step: int | None
    total: int
    in_use: int
    lines: list[BillLine]


@dataclass(frozen=True)
class Phases:
    """Consecutive steps of the same phase, without steps whose phase is not known."""

    names: list[str]
    phase: Ints
    first_step: Ints
    last_step: Ints


# -- buffers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allocations:
    """Allocations except thread-local ones."""

    allocation: Ints
    space: Ints
    size: Ints
    category: Ints
    category_names: list[str]
    label: pa.Array


@dataclass(frozen=True)
class Instructions:
    """Instructions that define or read buffers, or run at a step, in the order of the schedule."""

    name: pa.Array
    opcode: Ints
    opcode_names: list[str]


@dataclass(frozen=True)
class Buffers:
    """Values in these allocations, by first step; those without live ranges last."""

    value_id: Ints
    instruction: Ints
    shape_index: Ints
    shape_index_names: pa.Array
    allocation: Ints
    offset: Ints
    size: Ints
    unpadded: Ints
    start: Ints
    end: Ints
    shape: Ints
    shape_names: pa.Array
    op_name: Ints
    op_name_names: pa.Array
    source: Ints
    source_names: pa.Array
    scope: Ints
    origin: Ints
    origin_names: list[str]
    origin_instruction: Ints
    category: Ints
    category_names: list[str]
    phase: Ints
    phase_names: list[str]
    kind: Ints
    kind_names: list[str]
    layer: Ints
    layer_names: list[str]
    layer_index: Ints
    iterations: Ints
    saving: Ints


@dataclass(frozen=True)
class Uses:
    """Instructions that read a buffer, by buffer and step."""

    buffer: Ints
    instruction: Ints
    step: Ints


@dataclass(frozen=True)
class Aliases:
    """Other positions of the same bytes, by buffer."""

    buffer: Ints
    instruction: Ints
    shape_index: Ints
    shape_index_names: pa.Array


@dataclass(frozen=True)
class Scopes:
    """Tree of scopes with layers folded. Row 0 is the root; a parent comes before its children."""

    name: pa.Array
    parent: Ints
    functions: bool
    """Whether temporaries and outputs are arranged by function, because their op_names have no modules."""


# -- a program -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Everything that the page shows of one program."""

    name: str
    path: str
    module_id: int | None
    platform: str | None
    target: str | None
    steps: int | None
    complete: bool
    understood: bool
    consistent: bool
    problems: list[str]
    folded: list[str]
    verdict: Verdict
    spaces: list[Space]
    bill: list[Account]
    phases: Phases
    allocations: Allocations
    instructions: Instructions
    buffers: Buffers
    uses: Uses
    aliases: Aliases
    scopes: Scopes
    schedule: Ints
    """Row of instructions at each step."""
    advice: list[dict[str, Any]]
    explain: list[dict[str, Any]]
    diagnostics: list[dict[str, Any]]
    n_diagnostics: int
