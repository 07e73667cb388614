"""The computations of the HLO text beside a dump: every instruction, including those in fusions and loop bodies.

No table contains them, and reading a dump does not read them: `read_body` does, on demand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _hlo_body
from ..input.files import evict_pages
from .arrays import Bools, Codes, Ints, codes, flags, ints
from .arrays import Rows as Index
from .batch import Section
from .interners import Interner
from .reader import Reader

CALLS: tuple[str, ...] = _hlo_body.CALLS
"""The attributes that name computations."""

BYTES_PER_INSTRUCTION = 256
"""Typical length of a line, from which the number of names is estimated."""

_HEADER = re.compile(rb"HloModule [^\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*"?')
_DEVICES = tuple(re.compile(rb", %b=([1-9]\d{0,8})\b" % field) for field in (b"replica_count", b"num_partitions"))

_INTERNER_OF = {"operand": "instruction", "operand_index": "shape_index", "computation_name": "computation"}
"""Interners of columns of codes, if not named like the column."""


@dataclass(frozen=True, eq=False, repr=False)
class HloBody:
    """The instructions of an HLO text in the order of the text, as columns.

    Columns of names contain codes of `interners`, -1 for none; `text` converts them. Rows are numbers of
    instructions. The operands of row i are the items operand_begin[i] to operand_begin[i + 1] - 1 of the columns of
    operands, in the order of the text; calls and the instructions of a computation likewise. No name has a `%`.
    """

    interners: Mapping[str, Interner]
    """Texts of `instruction`, `computation`, `opcode`, `op_name`, `source_file`, `shape_index` and `element_type`."""

    # -- instructions --
    instruction: Codes
    """Name. XLA gives no two instructions of a module the same."""
    computation: Codes
    """Number of the computation that contains it."""
    opcode: Codes
    element_type: Codes
    """Of the result, if that is an array."""
    op_name: Codes
    source_file: Codes
    source_line: Ints
    """`arrays.NULL` if not printed; so is `stack_frame_id`."""
    stack_frame_id: Ints
    """An id of the table `frames`, which has the file and line of instructions without `source_file`."""
    is_root: Bools
    parameter_number: Ints
    """-1 for other instructions than parameters."""
    tuple_index: Ints
    """`index` of a get-tuple-element, otherwise -1."""
    called: Codes
    """Number of the computation that it calls: of a while loop the body, otherwise the first. -1 if there is none."""

    # -- operands --
    operand_begin: Ints
    """First operand of each instruction, and the number of operands at the end."""
    operand: Codes
    """Name of the instruction, in the same computation. -1 if it was not understood."""
    operand_index: Codes
    """Element of the operand, otherwise -1: ``{0,1}`` for ``%while#0#1``, which stands for two get-tuple-elements."""
    operand_row: Codes
    """Row of the instruction, -1 if the computation does not define it (truncated text)."""

    # -- calls: computations named by an attribute --
    call_begin: Ints
    """First call of each instruction, and the number of calls at the end."""
    call: Codes
    """Number of the computation, -1 if the text does not contain it."""
    call_kind: Bools
    """Index in `CALLS` of the attribute."""

    # -- computations --
    computation_name: Codes
    computation_begin: Ints
    """First instruction of each computation, and the number of instructions at the end."""
    root: Codes
    """Row of the root, -1 if it was cut off."""

    devices: int
    """Number of devices that run the program, its replicas times its partitions; 0 if the header prints neither."""
    entry: int
    """Number of the entry computation, -1 if it was cut off."""
    unknown_lines: int
    """Number of lines that were not understood, at least in part."""
    complete: bool
    """Whether the text ends after its entry computation."""

    def __len__(self) -> int:
        """Return the number of instructions."""
        return len(self.instruction)

    def __repr__(self) -> str:
        return f"<HloBody: {len(self)} instructions in {len(self.computation_name)} computations>"

    def text(self, column: str) -> pa.ChunkedArray:
        """Return a column of names as a dictionary-encoded text column; -1 becomes null."""
        return pa.chunked_array(self.interners[_INTERNER_OF.get(column, column)].arrays(getattr(self, column)))

    def rows_of(self, names: pa.StringArray) -> Codes:
        """Return the row of each instruction by name, -1 if there is none."""
        wanted = self.interners["instruction"].find(names).astype(np.int64)
        return _first(self.instruction, wanted)


def read_body(reader: Reader) -> HloBody | None:
    """Scan the HLO text of a dump; None if the dump has none, or one without computations.

    Neither truncated nor unknown text is an error: what is there is returned. Raises DumpError if the file cannot be
    read.
    """
    for section in reader.sections("hlo"):
        body = scan_body(section.data, section.begin, section.end)
        _release(section, reader)
        if len(body.computation_name):
            return body
    return None


def scan_body(data: bytes | memoryview, begin: int, end: int) -> HloBody:
    """Scan data[begin:end], complete lines of an HLO text."""
    interners = {meaning: Interner() for meaning in _hlo_body.INTERNERS}
    interners["instruction"].names.expect((end - begin) // BYTES_PER_INSTRUCTION)
    scanned = _hlo_body.scan(data, begin, end, tuple(i.names for i in interners.values()))
    instruction, names = codes(scanned["instruction"]), codes(scanned["computation_name"])
    call = _first(names, codes(scanned["call"]).astype(np.int64))
    call_kind, call_begin = flags(scanned["call_kind"]), _begins(ints(scanned["call_end"]))
    is_root, computation = flags(scanned["is_root"]), codes(scanned["computation"])
    return HloBody(
        interners=interners,
        instruction=instruction,
        computation=computation,
        opcode=codes(scanned["opcode"]),
        element_type=codes(scanned["element_type"]),
        op_name=codes(scanned["op_name"]),
        source_file=codes(scanned["source_file"]),
        source_line=ints(scanned["source_line"]),
        stack_frame_id=ints(scanned["stack_frame_id"]),
        is_root=is_root,
        parameter_number=ints(scanned["parameter_number"]),
        tuple_index=ints(scanned["tuple_index"]),
        called=_called(call_begin, call, call_kind),
        operand_begin=_begins(ints(scanned["operand_end"])),
        operand=codes(scanned["operand"]),
        operand_index=codes(scanned["operand_index"]),
        operand_row=codes(scanned["operand_row"]),
        call_begin=call_begin,
        call=call,
        call_kind=call_kind,
        computation_name=names,
        computation_begin=np.append(ints(scanned["computation_begin"]), len(instruction)),
        root=_roots(is_root, computation, len(names)),
        devices=_devices(data, begin, end),
        entry=scanned["entry"],
        unknown_lines=scanned["unknown"],
        complete=scanned["complete"],
    )


def _devices(data: bytes | memoryview, begin: int, end: int) -> int:
    """Return the number of devices in the header, 0 without. One is not printed, and old compilers print no number."""
    header = _HEADER.match(data, begin, end)
    text = _STRING.sub(b"", header[0]) if header else b""
    printed = [int(found[1]) for field in _DEVICES if (found := field.search(text))]
    return math.prod(printed) if printed else 0


def _release(section: Section, reader: Reader) -> None:
    if not reader.with_text:
        evict_pages(section.data, section.begin, section.end)


def _begins(ends: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), ends])


def _first(names: Codes, wanted: npt.NDArray[np.int64]) -> Codes:
    """Return the first row with each wanted code, -1 for none."""
    return Index(names)(wanted).astype(np.int32)


def _called(begin: Ints, call: Codes, kind: Bools) -> Codes:
    """Return the computation that represents the calls of each instruction."""
    first = begin[:-1]
    row = np.repeat(np.arange(len(first)), np.diff(begin))
    called = np.full(len(first), -1, np.int32)
    called[row[::-1]] = call[::-1]  # the first call of a row is written last
    body = kind == CALLS.index("body")
    called[row[body]] = call[body]
    return called


def _roots(is_root: Bools, computation: Codes, n: int) -> Codes:
    rows = np.flatnonzero(is_root)
    roots = np.full(n, -1, np.int32)
    roots[computation[rows]] = rows
    return roots
