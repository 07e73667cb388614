"""The table of tables: every table, column, type, unit and meaning.

No other module lists the columns of a table: readers, the converter and the documentation walk `TABLES`. Within one
`VERSION`, columns are only ever appended to a table, never renamed or reordered; those appended are nullable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from . import __version__

VERSION = 2

Kind = Literal["int", "float", "bool", "name", "text", "time"]
"""int: int64. float: float64. bool: boolean. name: text that repeats, as int32 codes into a dictionary. text: UTF-8.
time: a timestamp in microseconds."""

ARROW: dict[Kind, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "name": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(),
    "time": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class Column:
    """A column: its name, kind, description, unit, and whether it can be null."""

    name: str
    kind: Kind
    doc: str
    unit: str = ""
    nullable: bool = False

    @cached_property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, ARROW[self.kind])


@dataclass(frozen=True)
class Table:
    """A table: what a row is, what it is read from, and its columns in order."""

    name: str
    row: str
    source: str
    columns: tuple[Column, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema in memory (names are dictionary<int32, string>)."""
        return pa.schema([c.arrow for c in self.columns])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def empty(self) -> pa.Table:
        """The table without rows."""
        return pa.Table.from_batches([], self.arrow)  # Schema.empty_table searches for pandas, which takes 1 ms

    @cached_property
    def warehouse(self) -> pa.Schema:
        """The Arrow schema in Parquet: the same columns, names are plain text."""
        plain = {"name": pa.string()}
        return pa.schema([pa.field(c.name, plain.get(c.kind, ARROW[c.kind])) for c in self.columns])

    @cached_property
    def parquet(self) -> pa.Schema:
        """The schema of Parquet files: `warehouse` with required columns, field ids and descriptions.

        The field id of a column is its position, from 1, which never changes within a VERSION. The metadata of the file
        describes the table and, as JSON, its columns.
        """
        columns = [{"name": c.name, "description": c.doc, "unit": c.unit} for c in self.columns]
        metadata = {
            "xlamem.schema_version": str(VERSION),
            "xlamem.table": self.name,
            "xlamem.row": self.row,
            "xlamem.columns": json.dumps(columns, ensure_ascii=False),
        }
        fields = [
            field.with_nullable(column.nullable).with_metadata({"PARQUET:field_id": str(i)})
            for i, (field, column) in enumerate(zip(self.warehouse, self.columns, strict=True), 1)
        ]
        return pa.schema(fields, metadata)

    def described(self, key: str) -> pa.Schema:
        """Return the schema in Parquet, with the description of each column under a key of its metadata."""
        texts = (f"{c.doc} ({c.unit})" if c.unit else c.doc for c in self.columns)
        return pa.schema([field.with_metadata({key: text}) for field, text in zip(self.warehouse, texts, strict=True)])

    def __getitem__(self, column: str) -> Column:
        return next(c for c in self.columns if c.name == column)


def _int(name: str, doc: str, unit: str = "", *, null: bool = False) -> Column:
    return Column(name, "int", doc, unit, null)


def _float(name: str, doc: str, *, null: bool = False) -> Column:
    return Column(name, "float", doc, "", null)


def _bool(name: str, doc: str, *, null: bool = False) -> Column:
    return Column(name, "bool", doc, "", null)


def _name(name: str, doc: str, *, null: bool = False) -> Column:
    return Column(name, "name", doc, "", null)


def _text(name: str, doc: str, *, null: bool = False) -> Column:
    return Column(name, "text", doc, "", null)


_VALUE_ID = _int("value_id", "id of the dataflow value; unique within a dump, but not consecutive")
_INSTRUCTION = _name("instruction", "name of the instruction, without '%'")
_INDEX = _name(
    "shape_index",
    "index into the instruction's tuple shape, as printed ({}, {0,1}); null where none is printed because the shape is "
    "not a tuple",
    null=True,
)

_ATTRIBUTES = _text(
    "attributes",
    "fields of the line that this version does not recognize, verbatim, joined with ', '; null if there are none",
    null=True,
)

SECTION_TABLES = (
    Table(
        "allocations",
        "allocation",
        "BufferAssignment",
        (
            _int("allocation", "index of the allocation"),
            _int("size", "size of the allocation", "bytes"),
            _int("color", "color (number of the memory space); 0 if none is printed"),
            _name("memory_space", "xlamem's name for platform and color; color_N if it has none"),
            _int("page", "allocation page", null=True),
            _text("address", "heap address of XLA's object, as printed (2017-2022)", null=True),
            _int("parameter_number", "number of the entry parameter that it holds", null=True),
            _name("parameter_shape_index", "index into that parameter's shape, as printed", null=True),
            _name("parameter_shape", "shape printed for the parameter, without layout", null=True),
            _name("output_shape", "shape of the entry root, without layout", null=True),
            _bool("is_parameter", "holds an entry parameter"),
            _bool("is_entry_root", "holds the top-level buffer of the entry root"),
            _bool("is_constant", "holds a literal of the program"),
            _bool("is_thread_local", "stack of a computation that an instruction calls"),
            _bool("is_live_out", "may hold an output or a part of one (maybe-live-out)"),
            _bool("is_temp", "holds temporaries (preallocated-temp)"),
            _ATTRIBUTES,
        ),
    ),
    Table(
        "values",
        "value assigned to an allocation (used value if the file with the allocations is missing)",
        "BufferAssignment",
        (
            _VALUE_ID,
            _name("instruction", "name of the defining instruction, without '%'"),
            _INDEX,
            _bool("is_phi", "is a merge point: a while loop, its parameters, or a conditional"),
            _int("color", "the value's own color; null if none is printed, or, with e1_values, -1", null=True),
            _int("allocation", "the allocation that holds it", null=True),
            _int("offset", "offset in its allocation", "bytes", null=True),
            _int("size", "size in its allocation, padding included", "bytes", null=True),
            _name("shape", "shape with layout, as printed", null=True),
            _name("element_type", "element type of the shape, or tuple, token, opaque, buffer", null=True),
            _int(
                "unpadded_size",
                "number of elements times width of an element, without tiles; 8 per element of a tuple, 0 for a token, "
                "8 for opaque; null if a dimension is unbounded or the shape is unknown",
                "bytes",
                null=True,
            ),
            _bool(
                "uses_known",
                "false if the dump prints that the uses are not initialized; null without a used-values section",
                null=True,
            ),
            _ATTRIBUTES,
        ),
    ),
    Table(
        "cross_color",
        "line in a block 'reused by buffers of a different color'",
        "BufferAssignment",
        (
            _int("allocation", "the allocation under which it is printed"),
            _int("ordinal", "position in the block, from 0"),
            _VALUE_ID,
            _INSTRUCTION,
            _INDEX,
            _bool("is_phi", "is a merge point"),
            _int("value_color", "color printed with the value", null=True),
            _int("printed_color", "color printed at the end of the line"),
        ),
    ),
    Table(
        "positions",
        "instruction and index at which a value appears",
        "Used values",
        (
            _VALUE_ID,
            _int("ordinal", "position in the value's list, from 0; 0 is the defining one"),
            _INSTRUCTION,
            _INDEX,
        ),
    ),
    Table(
        "uses",
        "operand that reads a value",
        "Used values",
        (
            _VALUE_ID,
            _int("ordinal", "position in the value's list, from 0"),
            _name("instruction", "name of the instruction that reads it, without '%'"),
            _int("operand", "number of the operand"),
            _name("operand_shape_index", "index into the operand's tuple shape, as printed", null=True),
        ),
    ),
    Table(
        "instructions",
        "distinct defining instruction (text printed after 'from instruction:')",
        "Used values",
        (
            _name("instruction", "name, without '%'"),
            _name("shape", "shape with layout, as printed"),
            _name("opcode", "opcode"),
            _text("operands", "text between the parentheses after the opcode, as printed"),
            _name("op_type", "metadata op_type, unescaped", null=True),
            _name("op_name", "metadata op_name (named scopes of the model), unescaped", null=True),
            _name("source_file", "metadata source_file, unescaped", null=True),
            _int("source_line", "metadata source_line", null=True),
            _int("stack_frame_id", "metadata stack_frame_id: an id of the table frames", null=True),
            _name("custom_call_target", "custom_call_target, unescaped", null=True),
            _name("fusion_kind", "kind= of a fusion (kLoop, kInput, kOutput, kCustom)", null=True),
            _text(
                "called_computations",
                "computations named by calls, to_apply, condition, body, branch_computations, called_computations, "
                "true_computation, false_computation, select and scatter, in printed order, without braces, joined "
                "with ', '",
                null=True,
            ),
            _text("sharding", "value of sharding=, as printed", null=True),
            _text("backend_config", "value of backend_config=; the quoted form unescaped", null=True),
            _text(
                "attributes",
                "remaining text after the opcode's parentheses, verbatim, joined with ', '; metadata fields without a "
                "column of their own are kept as metadata={…}",
                null=True,
            ),
            _text("text", "the instruction verbatim, starting with its name; null unless requested", null=True),
        ),
    ),
    Table(
        "schedule",
        "step of the schedule",
        "HloLiveRange",
        (_int("time", "the step", "schedule steps"), _INSTRUCTION),
    ),
    Table(
        "live_ranges",
        "live range of a value",
        "HloLiveRange",
        (
            _int("value_id", "id of the value; null if the dump has no value with this name and index", null=True),
            _INSTRUCTION,
            _name(
                "shape_index",
                "index into the instruction's tuple shape, as printed; null for an array, for which {} is printed",
                null=True,
            ),
            _int("start", "first step at which it is live", "schedule steps"),
            _int("end", "last step at which it is live (the range is closed)", "schedule steps"),
            _ATTRIBUTES,
        ),
    ),
    Table(
        "printed_peak",
        "line of XLA's list 'Live ranges at N (peak)'",
        "HloLiveRange",
        (
            _int("ordinal", "position in the list, from 0"),
            _INSTRUCTION,
            _name("shape_index", "as in live_ranges; also null in lists that print none", null=True),
            _int("bytes", "bytes as printed (of the shape, unpadded)", "bytes"),
            _int("cumulative", "running total as printed", "bytes", null=True),
        ),
    ),
    Table(
        "printed_stack",
        "node of XLA's tree 'Stack trace breakdown for peak usage'",
        "HloLiveRange",
        (
            _int("ordinal", "position in the printed tree, from 0"),
            _int("depth", "0 for a root"),
            _text("label", "label as printed; it can contain newlines and tabs"),
            _text("percent", "percentage as printed, without '%'"),
            _int("total", "bytes of the node and its children", "bytes"),
            _int("current", "bytes of the node itself", "bytes"),
            _int("remaining", "bytes that remain to be printed after this node", "bytes"),
        ),
    ),
    Table(
        "printed_report",
        "line of the memory-usage report",
        "memory-usage-report",
        (
            _int("ordinal", "position among these rows, from 0"),
            _name(
                "part",
                "list: line of 'Allocations sorted by size'; table: header of a table (in layout A with its allocation "
                "line); row: line of a table; rest: 'The rest N …'; space: a memory space printed without a table",
            ),
            _int("color", "color of the memory space (layout B)", null=True),
            _name("space_label", "XLA's label of that space; wrong for several colors (layout B)", null=True),
            _int("total_bytes", "total printed for the space (layout B) or the dump (layout A)", "bytes", null=True),
            _int("allocation", "allocation that the line describes (layout A)", null=True),
            _text("cumulative", "cumulative size as printed (list, row)", null=True),
            _text("percent", "percentage as printed, without '%'; can be -nan (list, row)", null=True),
            _text("size", "size as printed (list and table of layout A, row)", null=True),
            _text("remaining", "total minus cumulative size, as printed (list)", null=True),
            _int("offset", "offset in the allocation (row)", "bytes", null=True),
            _int(
                "n_values",
                "number of values at that offset (row); 1 for a table of layout A without rows, whose allocation has "
                "one value",
                null=True,
            ),
            _int("n_rest", "number of lines not shown (rest)", null=True),
            _text("shapes", "shapes at that offset, as printed (row)", null=True),
        ),
    ),
    Table(
        "frames",
        "stack frame in the header of the HLO text",
        "HLO header",
        (
            _int("id", "id that stack_frame_id refers to"),
            _int("parent", "id of the calling frame, null for none; XLA prints this id plus one", null=True),
            _name("file", "file name, unescaped", null=True),
            _name("function", "function name, unescaped", null=True),
            _int("line", "first line", null=True),
            _int("column", "first column", null=True),
            _int("end_line", "last line", null=True),
            _int("end_column", "last column", null=True),
        ),
    ),
    Table(
        "aliases",
        "input/output alias or buffer donor (first line of the HLO text)",
        "HLO header",
        (
            _name("output_index", "index into the output shape; null for a donor", null=True),
            _int("parameter", "number of the entry parameter"),
            _name("parameter_index", "index into that parameter's shape"),
            _name("kind", "may-alias, must-alias or donor; null in old texts that print none", null=True),
        ),
    ),
    Table(
        "flags",
        "flag of the compile",
        "debug_options, tpu_comp_env.txt, target_arguments.txt",
        (
            _int("ordinal", "position among the flags of its file, from 0"),
            _name("role", "file with the flag: debug-options, tpu-environment or target-arguments"),
            _text("name", "name, after the names of the messages around it and dots; a repeated flag has several rows"),
            _text("value", "value as printed: text in double quotes with C escapes; {} for an empty message"),
            _text(
                "comment",
                "comment above it or its message: the TPU compiler names a flag that differs from its default",
                null=True,
            ),
        ),
    ),
)

_SPACE = (
    _name("memory_space", "xlamem's name of the memory space"),
    _int("color", "color of the space"),
    _int("page", "page of the space; 0 if none is printed"),
)
_SOURCE = (
    _name(
        "op_name",
        "named scopes of the defining instruction, or of the origin of its bytes if it has none (see live_set.origin)",
        null=True,
    ),
    _name("source_file", "source file, from the metadata or the stack frame", null=True),
    _int("source_line", "line in the source file", null=True),
)

_CATEGORY = (
    "category of the allocation; temp_in_output for a temporary in the allocation of an output (live_out, donated): a "
    "value that is neither the output (live after the last instruction) nor the donated parameter (live from step 0)"
)

_ORIGIN = (
    _name(
        "origin",
        "how op_name was found. own: the defining instruction has it. Other buffers have none, or one that names "
        "only control flow or a move of bytes, or are elements of a fusion; theirs is that of: argument (the entry "
        "parameter that the bytes come from), operand (what a copy or another forwarding instruction reads), slot "
        "(the only name among the buffers of the same slot whose live ranges touch, as that of the writer of a loop "
        "carry), hlo (the instructions inside the fusion or loop body, from the HLO text), user (an instruction "
        "that reads it, or what is computed from it); none: no name",
    ),
    _name("origin_instruction", "instruction that has the op_name", null=True),
    _int("argument", "number of the entry parameter that the bytes come from", null=True),
    _name("argument_index", "index into the shape of that parameter", null=True),
    _name("layer", "layer in op_name, its number replaced by *, as in layers_*", null=True),
    _int("layer_index", "number of the layer", null=True),
    _name(
        "phase",
        "phase in op_name (forward, backward, recompute, optimizer); null if it cannot be told, or if origin is user",
        null=True,
    ),
    _name(
        "kind",
        "parameter, optimizer state, gradient, activation, residual of a scan (stacked over the iterations of a loop), "
        "collective, copy between memories, tuple table, scratch; null if it cannot be told",
        null=True,
    ),
    _int("iterations", "trip count of a loop that the buffer has one slice for in each iteration", null=True),
)
_LIVE_BUFFER = (
    *_SPACE,
    _name("role", "value, or reserved: the bytes of a parameter, constant or output that no live value covers"),
    _int("value_id", "id of the value; null for reserved", null=True),
    _name(
        "instruction",
        "defining instruction; for reserved that of the parameter or output, else of the largest value",
        null=True,
    ),
    _name("shape_index", "index into the shape of that instruction", null=True),
    _int("allocation", "the allocation"),
    _name("category", _CATEGORY),
    _int("offset", "offset of the value in it; null for reserved", "bytes", null=True),
    _int("size", "size of the value; for reserved of the allocation", "bytes"),
    _int("bytes", "bytes charged to this row; shared bytes are charged to the lowest live value_id", "bytes"),
    _int("exclusive", "bytes that only this row covers", "bytes"),
    _int("shared", "bytes that other live values also cover", "bytes"),
    _name("shape", "shape", null=True),
    _name("element_type", "element type", null=True),
    _int("unpadded_size", "bytes without padding", "bytes", null=True),
    _name("opcode", "opcode of the defining instruction", null=True),
)

DEFINITIONS = {
    "device_total": "sum of `reserved` over the spaces in the device's main memory: what must fit into the device",
    "reserved": "sum of all allocations of the space except thread-local ones: what must fit into the space. For TPU "
    "programs this is the figure in the compiler's out-of-memory messages",
    "peak": "maximum bytes in use at any step",
    "peak_together": "maximum bytes in use at any step, all memory spaces added up",
    "device_peak": "maximum bytes in use at any step, the memory spaces in `device_total` added up",
    "live": "maximum bytes covered by live values at any step: what the program itself needs",
    "half_open": "the peak, computed with half-open live ranges",
    "fixed": "parameters, constants and outputs, in use in full at every step",
    "indefinite": "the name of `fixed` in datasets written by earlier versions",
    "slack": "total size of the temp allocations minus the maximum bytes covered in them by live values",
    "allocated": "sum of all allocations of the space",
    "xprof": "XProf's peak heap (memory viewer): `fixed` plus the maximum bytes of live temporaries, without "
    "tuple tables",
    "xla_total": "XLA's 'Total bytes used' as printed: all allocations of all spaces",
    "xla_rule": "XLA's 'Live ranges at N (peak)', recomputed: unpadded, all spaces together, every alias counted",
    "xla_printed": "XLA's 'Live ranges at N (peak)' as printed: unpadded, all spaces together, every alias counted",
    "jax": "JAX's memory_analysis()",
}
"""The definition of every number that `explain` and the dataset's `peaks` report, by name."""

BILL_LINES = {
    "parameters": "allocations of parameters, in full",
    "donated": "allocations of parameters that are also outputs, in full",
    "outputs": "allocations of outputs, in full",
    "constants": "allocations of constants, in full",
    "temporaries": "bytes that live values cover in temp allocations at the step of the account; without live ranges, "
    "temp allocations in full",
    "alignment": "other bytes of the cells that hold them. A cell is one granule of its allocation: the largest power "
    "of two that divides every offset, at most 64 KiB; 1 byte with fewer than two distinct offsets",
    "another_step": "temp allocations at the step at which most bytes of their cells are in use, minus the same at the "
    "step of the account",
    "packing": "the rest of the temp allocations: bytes of cells not in use at the first of those steps",
}
"""The lines of a bill, in order, and their definitions."""

BILL_PARTS = {
    "data": "bytes of values without padding",
    "padding": "bytes that layouts add to values",
    "never_covered": "bytes that no value ever covers",
    "never_touched": "cells that no value ever touches",
    "one_value": "cells of slots that nothing else ever uses: all values there have one offset and size",
    "shared": "cells that values of different offset or size use at different steps",
}
"""The parts of the lines of a bill, and their definitions."""

BILL_KINDS = {
    "async copy table": "tuple table of an asynchronous copy or slice",
    "collective table": "tuple table of a collective",
    "tuple table": "tuple table of any other instruction",
    "activation": "activation, as `kind` of live_set: a temporary of the forward phase, or a copy of one",
    "residual of a scan": "residual of a scan, as `kind` of live_set, or a copy of one",
    "gradient": "temporary of the backward phase, or a copy of one",
    "collective": "buffer of a collective",
    "async copy": "buffer of any other asynchronous copy or slice",
    "copy": "any other copy",
}
"""The kinds of buffers that a bill distinguishes."""

COMPUTED_TABLES = (
    Table(
        "occupancy",
        "memory space and step",
        "compute",
        (
            *_SPACE,
            _int("time", "step; the last one is the state after the last instruction", "schedule steps"),
            _int("occupied", "bytes in use: the sum of the next five columns", "bytes"),
            _int("parameter", "sizes of all parameters", "bytes"),
            _int("donated", "sizes of all parameters that are also live-out", "bytes"),
            _int("constant", "sizes of all constants", "bytes"),
            _int("live_out", "sizes of all outputs", "bytes"),
            _int("temp", "bytes that live values cover in temp allocations", "bytes"),
            _int("live", "bytes that live values cover in all of these allocations", "bytes"),
        ),
    ),
    Table(
        "peaks",
        "memory space",
        "compute",
        (
            *_SPACE,
            _int("allocated", DEFINITIONS["allocated"], "bytes"),
            _int("reserved", DEFINITIONS["reserved"], "bytes"),
            _int("peak", DEFINITIONS["peak"], "bytes", null=True),
            _int("first_step", "first step of its first plateau", "schedule steps", null=True),
            _int("last_step", "last step of its first plateau", "schedule steps", null=True),
            _int("plateaus", "number of plateaus of this height", null=True),
            _int("live_peak", DEFINITIONS["live"], "bytes", null=True),
            _int("live_step", "first step of live_peak", "schedule steps", null=True),
            _int("half_open_peak", DEFINITIONS["half_open"], "bytes", null=True),
            _int("slack", DEFINITIONS["slack"], "bytes", null=True),
        ),
    ),
    Table(
        "plateaus",
        "plateau of a space: a longest run of steps with equal bytes in use and lower neighbours",
        "compute",
        (
            *_SPACE,
            _int("rank", "0 for the highest; of equal ones the earlier is first"),
            _int("first_step", "first step", "schedule steps"),
            _int("last_step", "last step", "schedule steps"),
            _int("bytes", "bytes in use", "bytes"),
        ),
    ),
    Table(
        "live_set",
        "live value, or reserved bytes that no live value covers",
        "compute",
        (*_LIVE_BUFFER, *_SOURCE, *_ORIGIN),
    ),
    Table(
        "scopes",
        "named scope with bytes in use at the peak of a memory space",
        "compute",
        (
            *_SPACE,
            _text("scope", "scope as in `attribution`; null for buffers without an op_name", null=True),
            _int("bytes", "bytes in use at the first step of the peak of the space", "bytes"),
            _int("n", "number of rows of the live set"),
        ),
    ),
    Table(
        "bills",
        "line of the account of a memory space, or of device_total: the rows of an account add up to it",
        "compute",
        (
            _name("account", "memory space, or device_total for all spaces in the device's main memory"),
            _name("memory_space", "xlamem's name of the memory space; null for device_total", null=True),
            _int("color", "color of the space; null for device_total", null=True),
            _int("page", "page of the space; null for device_total", null=True),
            _int(
                "step",
                "first step of the peak of the space, or of the combined peak of the spaces in device_total; null if "
                "nothing is ever in use, or without live ranges",
                "schedule steps",
                null=True,
            ),
            _name("line", "what takes the bytes: a key of schema.BILL_LINES"),
            _name("part", "part of the line: a key of schema.BILL_PARTS; null if it is not divided", null=True),
            _name("kind", "kind of the buffers: a key of schema.BILL_KINDS; null if none of them", null=True),
            _int(
                "n",
                "number of buffers with such bytes: slots (one_value), live values (temporaries, alignment), or "
                "allocations (parameters, donated, outputs, constants, undivided temporaries); null for other lines",
                null=True,
            ),
            _int("buffer_bytes", "total size of those buffers; null without n", "bytes", null=True),
            _int("buffer_size", "size of each of those buffers; null if they differ", "bytes", null=True),
            _int(
                "granule",
                "granule of the temp allocations, of which all offsets are multiples; null if they differ, and for "
                "parameters, donated, outputs and constants",
                "bytes",
                null=True,
            ),
            _int("bytes", "bytes of the row, never 0", "bytes"),
        ),
    ),
    Table(
        "scope_peaks",
        "named scope in a temp allocation",
        "compute",
        (
            *_SPACE,
            _int("allocation", "the allocation"),
            _text("scope", "scope as in `attribution`; null for values without an op_name", null=True),
            _int("peak", "most bytes that the values of the scope cover at any step", "bytes"),
            _int("step", "first such step", "schedule steps"),
            _int("first_step", "first step at which a value of the scope is live", "schedule steps"),
            _int("last_step", "last step at which a value of the scope is live", "schedule steps"),
            _int("n", "number of values of the scope"),
        ),
    ),
    Table(
        "rematerialized",
        "value that the compiler rematerializes: it computes it later, or again, instead of keeping it",
        "compute",
        (
            *_SPACE,
            _int("value_id", "the value of the clone"),
            _INSTRUCTION,
            _INDEX,
            _int("original_id", "the value of the cloned instruction; null if it is not in the dump", null=True),
            _int("size", "its size", "bytes"),
            _int("original_end", "last step of the original", "schedule steps", null=True),
            _int("start", "first step of the clone", "schedule steps", null=True),
            _int("saved", "bytes that the clone keeps out of the peak of the space: its size, or 0", "bytes"),
            _bool("at_peak", "the clone is live at the first step of the peak of the space"),
            *_SOURCE,
        ),
    ),
    Table(
        "fragmentation",
        "temp allocation",
        "compute",
        (
            *_SPACE,
            _int("allocation", "the allocation"),
            _int("size", "its size", "bytes"),
            _int("unassigned", "bytes that no value ever covers", "bytes"),
            _int("peak", "maximum bytes that live values cover at any step", "bytes", null=True),
            _int("fragmentation", "size - unassigned - peak", "bytes", null=True),
            _int("value_bytes", "sum of the sizes of its values", "bytes"),
            _float("reuse", "value_bytes divided by size", null=True),
            _int("n_holes", "number of holes at the requested step", null=True),
            _int("hole_bytes", "bytes in all holes", "bytes", null=True),
            _int("largest_hole", "size of the largest hole", "bytes", null=True),
        ),
    ),
    Table(
        "savings",
        "buffer without which the peak would be lower",
        "compute",
        (
            *_SPACE,
            _name("role", "value (in a temp allocation) or allocation (parameter, constant or output)"),
            _int("value_id", "id of the value; null for an allocation", null=True),
            _name("instruction", "defining instruction; for an allocation as for reserved in live_set", null=True),
            _name("shape_index", "index into the shape of that instruction", null=True),
            _int("allocation", "the allocation"),
            _int("size", "its size", "bytes"),
            _int("saving", "bytes by which the peak would be lower without it: an upper bound", "bytes"),
            *_SOURCE,
        ),
    ),
    Table(
        "padding",
        "value with its padding",
        "compute",
        (
            *_SPACE,
            _int("value_id", "the value"),
            _INSTRUCTION,
            _INDEX,
            _int("allocation", "the allocation"),
            _name("category", _CATEGORY),
            _name("shape", "shape"),
            _int("size", "its size", "bytes"),
            _int("unpadded_size", "bytes without padding", "bytes", null=True),
            _int(
                "padding",
                "size - unpadded_size, not below 0; 0 if the padding of the slot (allocation, offset, size) is counted "
                "in another value; null if the unpadded size is unknown",
                "bytes",
                null=True,
            ),
            _bool("at_peak", "live at the first step of the peak of its space, or in a parameter, constant or output"),
            *_SOURCE,
        ),
    ),
    Table(
        "space_padding",
        "memory space",
        "compute",
        (
            *_SPACE,
            _int("peak", "bytes in use at the peak of the space", "bytes"),
            _int("padding", "bytes of padding among them: of each value at most the bytes charged to it", "bytes"),
            _int("unknown", "bytes of values whose unpadded size is unknown", "bytes"),
        ),
    ),
    Table(
        "donation",
        "allocation of an entry parameter",
        "compute",
        (
            _int("parameter", "number of the parameter"),
            _name("parameter_index", "index into the shape of the parameter"),
            _name("op_name", "op_name of the parameter: with JAX, the name of the argument", null=True),
            *_SPACE,
            _int("allocation", "its allocation"),
            _name("shape", "shape", null=True),
            _int("size", "size", "bytes"),
            _name("state", "taken: shares the allocation of an output; refused: donated, not taken; no: not donated"),
            _name("output_index", "index of the output in its allocation; if refused, of the requested one", null=True),
            _int("last_use", "last step at which it is read", "schedule steps", null=True),
            _bool(
                "candidate",
                "not taken, and XLA would alias it with an output if it were donated: one that nothing aliases yet, "
                "with the same number of bytes in the same memory space and (in a program for one device) the same "
                "number of elements; matched one to one, exact matches first",
            ),
            _bool("exact", "is a candidate, and the output has the same shape and element type"),
            _name("candidate_output", "index of that output in the program's output", null=True),
            _name("candidate_instruction", "instruction that defines that output", null=True),
            _name("candidate_shape_index", "index into the shape of that instruction", null=True),
            _int(
                "saving_lower",
                "minimum saving of a donation: 0, because XLA may have to copy; null if not a candidate",
                "bytes",
                null=True,
            ),
            _int(
                "saving_upper",
                "maximum saving of a donation: the allocation of the output; null if not a candidate",
                "bytes",
                null=True,
            ),
            _bool(
                "free_in_schedule",
                "in the current schedule, the last read of the parameter is not after the first write to the "
                "allocation of that output; null if not a candidate, or without live ranges or uses",
                null=True,
            ),
        ),
    ),
    Table(
        "idle",
        "longest gap between uses of a value",
        "compute",
        (
            *_SPACE,
            _int("value_id", "the value"),
            _INSTRUCTION,
            _INDEX,
            _int("allocation", "the allocation"),
            _int("size", "its size", "bytes"),
            _int("from_step", "step of the definition or use before the gap", "schedule steps"),
            _int("to_step", "step of the use after the gap", "schedule steps"),
            _int("gap", "number of steps between them", "schedule steps"),
            _bool("over_peak", "the gap includes the first step of the peak of the space"),
            *_SOURCE,
        ),
    ),
    Table(
        "advice",
        "intervention that saves memory",
        "compute",
        (
            _int("rank", "position in the list, 0 for the first; of what each saves, try and dtype count half"),
            _name(
                "kind",
                "donate or shard an argument; shape: a layout without padding; dtype: a smaller element type; "
                "recompute or offload activations; scan over chunks; loss: logits in chunks; attention in parts; "
                "reduce what a loop stacks; carry what it reads and stacks anew; slice: compute in the loop what it "
                "reads slice by slice; a smaller batch; slots: fewer small buffers; collective: less in flight; tuple: "
                "fewer results; sparse: gradients of few rows; select: no choice between an array and its successor",
            ),
            _name("argument", "argument of the function that it concerns", null=True),
            _int("parameter", "first parameter number of that argument", null=True),
            _name("scope", "scope with most of its bytes, layers folded", null=True),
            _int("value_id", "largest buffer that it concerns, of the scope if there is one", null=True),
            _name("instruction", "instruction that defines this buffer", null=True),
            _name("shape_index", "index into the shape of that instruction", null=True),
            _int("allocation", "allocation of this buffer"),
            _name("shape", "shape of this buffer", null=True),
            _int("n_buffers", "number of buffers that it concerns"),
            _int("bytes", "sum of their sizes", "bytes"),
            _int("lower", "bytes by which device_total falls at least; it may grow if negative", "bytes"),
            _int("upper", "bytes by which device_total falls at most", "bytes"),
            _name(
                "confidence",
                "exact: the saving follows from the buffer assignment; likely: bounds from recompiled programs; try: "
                "the compiler decides",
            ),
            _name("source_file", "source file of this buffer: of the line in `function` if there is one", null=True),
            _int("source_line", "line in the source file", null=True),
            _text("names", "names for checkpoint_name and save_only_these_names, comma-separated", null=True),
            _text("action", "what to do, in terms of JAX"),
            _bool(
                "in_plan",
                "is in the list that reaches the budget, largest lower bounds first; null without a budget",
                null=True,
            ),
            _name("function", "function that runs several times, if its activations are to be recomputed", null=True),
        ),
    ),
    Table(
        "explain",
        "published number of the program",
        "compute",
        (
            _name("name", "name of the number"),
            _name("memory_space", "name of the space; null for all spaces together", null=True),
            _int("bytes", "the number; null if the text does not determine it", "bytes", null=True),
            _int("time", "step at which it is reached", "schedule steps", null=True),
            _text("definition", "definition of the number"),
            _int(
                "difference", "the number minus xlamem's peak of the same space, or of all spaces", "bytes", null=True
            ),
            _text("causes", "the rows of explain_causes as text", null=True),
            _int("color", "color of the space; null for all spaces together", null=True),
            _int("page", "page of the space; null for all spaces together", null=True),
            _name(
                "basis",
                "exact: the text contains it; inferred: computed by a formula that was right on n_equal of n_compared "
                "real dumps",
                null=True,
            ),
            _int("n_equal", "number of dumps on which the formula gave the figure of the tool", "dumps", null=True),
            _int("n_compared", "number of dumps on which it was compared", "dumps", null=True),
            _text("releases", "releases that print this value, if releases differ", null=True),
        ),
    ),
    Table(
        "explain_causes",
        "cause of a difference between a published number and xlamem's peak",
        "compute",
        (
            _name("name", "name of the number, as in explain"),
            _name("memory_space", "name of the space; null for all spaces together", null=True),
            _int("color", "color of the space; null for all spaces together", null=True),
            _int("page", "page of the space; null for all spaces together", null=True),
            _name("cause", "cause of the difference"),
            _int("bytes", "bytes due to this cause, never 0; those of a number add up to its difference", "bytes"),
        ),
    ),
)

_ROUNDED = "as exact as printed"

OOM_TABLES = (
    Table(
        "reports",
        "message",
        "out-of-memory report",
        (
            _int("report", "position in the log, from 0"),
            _text(
                "rank",
                "label before the line in the log (rank3, default0, worker pid=42); null without one",
                null=True,
            ),
            _text("thread", "thread in the log prefix of its first line; null without one", null=True),
            _int("line", "first line in the log, from 1"),
            _int("last_line", "last line in the log that was recognized as part of it", null=True),
            _text("form", "a key of oom.FORMS"),
            _text("code", "error code as printed (E1000, E1001)", null=True),
            _text("memory_space", "memory space as printed, in lower case; null if none is named", null=True),
            _int("used_bytes", f"bytes needed; {_ROUNDED}", null=True),
            _text("used_text", "the same as printed", null=True),
            _int("capacity_bytes", f"bytes available; {_ROUNDED}", null=True),
            _text("capacity_text", "the same as printed", null=True),
            _int("exceeded_bytes", f"bytes in excess, if printed; {_ROUNDED}", null=True),
            _text("exceeded_text", "the same as printed", null=True),
            _int("requested_bytes", f"size of the one allocation that failed; {_ROUNDED}", null=True),
            _text("requested_text", "the same as printed", null=True),
            _int("free_bytes", f"bytes free at that time; {_ROUNDED}", null=True),
            _text("free_text", "the same as printed", null=True),
            _text("module_name", "HLO module, if named", null=True),
            _text("instruction", "instruction that could not be allocated, as printed", null=True),
            _bool("complete", "the message is not known to be truncated", null=True),
            _int("same_as", "an earlier report with the same content; null for the first one", null=True),
            _text("text", "first line verbatim, without the log prefix"),
        ),
    ),
    Table(
        "usage",
        "line of the totals",
        "out-of-memory report",
        (
            _int("report", "number of the report"),
            _int("ordinal", "position in the report, from 0"),
            _text("memory_space", "memory space as printed, in lower case; null in statistics", null=True),
            _text(
                "part",
                "total: under 'Total … usage'; program: under 'Program … requirement'; output: the line about the "
                "output; compiled: 'XLA::TPU program … usage'; stats: statistics of the buffer assignment",
                null=True,
            ),
            _text(
                "label",
                "what the line measures, as printed; total for a heading; shared: shared with arguments",
                null=True,
            ),
            _int("bytes", f"size; {_ROUNDED}; null if 'unknown' is printed", null=True),
            _text("size_text", "the same as printed", null=True),
            _text("utilization", "percentage as printed, without '%'", null=True),
            _int("unpadded_bytes", f"size without padding; {_ROUNDED}", null=True),
            _int("padded_bytes", f"size with padding; {_ROUNDED}", null=True),
            _text("fragmentation", "percentage as printed, without '%'", null=True),
            _int("fragmentation_bytes", f"bytes lost to fragmentation; {_ROUNDED}", null=True),
            _int("capacity_bytes", f"size of the memory (compiled); {_ROUNDED}", null=True),
        ),
    ),
    Table(
        "buffers",
        "buffer in a list",
        "out-of-memory report",
        (
            _int("report", "number of the report"),
            _text(
                "list",
                "'program allocations', 'program arguments and outputs', 'peak buffers'; 'failed allocation' for the "
                "allocation that failed",
            ),
            _int("ordinal", "number in the list, as printed; counted if none is printed", null=True),
            _text("memory_space", "memory space of the list; null if none is named", null=True),
            _int("size_bytes", f"size; {_ROUNDED}", null=True),
            _text("size_text", "the same as printed", null=True),
            _int("unpadded_bytes", f"size without padding; {_ROUNDED}", null=True),
            _int(
                "padding_bytes",
                f"extra memory due to padding; {_ROUNDED}; null if not printed",
                null=True,
            ),
            _float("expansion", "expansion factor due to padding, as printed (1.2)", null=True),
            _text("op_type", "metadata op_type, unescaped", null=True),
            _text("op_name", "metadata op_name (named scopes of the model), unescaped", null=True),
            _text("source_file", "metadata source_file, unescaped", null=True),
            _int("source_line", "metadata source_line", null=True),
            _int("stack_frame_id", "metadata stack_frame_id", null=True),
            _text("operator", "the metadata verbatim", null=True),
            _text("shape", "shape as printed", null=True),
            _text("xla_label", "instruction (TPU; can be abbreviated) or opcode (GPU, CPU), as printed", null=True),
            _text("allocation_type", "type of allocation, as printed (HLO temp, scoped)", null=True),
            _text(
                "parameter",
                "shape printed as 'Entry Parameter Subshape'; null if the buffer is not an entry parameter",
                null=True,
            ),
            _text("tag", "purpose of the allocation, as printed", null=True),
            _bool("complete", "the entry is not truncated", null=True),
        ),
    ),
    Table(
        "unknown",
        "line of a message that was not understood",
        "out-of-memory report",
        (
            _int("report", "number of the report"),
            _int("line", "line in the log, from 1"),
            _text("text", "the line without the log prefix"),
        ),
    ),
)

DIAGNOSTICS = Table(
    "diagnostics",
    "line that was not understood, or failed cross-check",
    "xlamem",
    (
        _name("file", "uri of the file"),
        _int("line", "line, from 1; null for a cross-check of the entire dump", null=True),
        _int("offset", "byte offset in the file, from 0", "bytes", null=True),
        _name("section", "section of the dump"),
        _name("code", "kind of problem: a key of schema.CODES"),
        _name("severity", "error: the dump is incomplete; warning: any other problem"),
        _text("wanted", "what was expected"),
        _text("excerpt", "text at that offset, shortened"),
    ),
)

UNKNOWN = Table(
    "unknown_text",
    "field or line that this version does not recognize",
    "xlamem",
    (
        _name("file", "uri of the file"),
        _int("offset", "byte offset in the file, from 0", "bytes"),
        _name("section", "section of the dump"),
        _name("table", "table with a row for the line; null if there is none", null=True),
        _int("row", "number of that row, from 0", null=True),
        _text("text", "text verbatim, with separators; a line includes its newline"),
    ),
)

FILES = Table(
    "files",
    "member file",
    "xlamem",
    (
        _int("ordinal", "position in the dump, from 0"),
        _name("role", "a key of schema.ROLES"),
        _text("uri", "path or URI that it was read from"),
        _int("bytes", "size, after decompression", "bytes"),
        _text("content_hash", "XXH3-128 of those bytes; null unless requested", null=True),
        _text("features", "features of this file, sorted and joined with commas: keys of schema.FEATURES"),
        _bool("complete", "the file is not known to be truncated"),
    ),
)

MODULES = Table(
    "modules",
    "dump",
    "xlamem",
    (
        _text(
            "module_name",
            "name of the HLO module, from the file name, or else from the HLO text if `aliases` or `frames` are read; "
            "null if it is not there",
            null=True,
        ),
        _int("module_id", "number in the file name", null=True),
        _name("platform", "tpu, gpu or cpu; null if unknown", null=True),
        _name("target", "GPU architecture in the file name (sm_9.0a, gfx942)", null=True),
        _int("changelist", "cl_N in the file name", null=True),
        _int("timestamp_us", "timestamp in the file name", "microseconds since 1970", null=True),
        _text("features", "features, sorted and joined with commas: keys of schema.FEATURES"),
        _bool("complete", "no file is known to be truncated"),
        _int("total_bytes", "'Total bytes used' as printed", "bytes", null=True),
        _int("schedule_length", "'HloLiveRange (max N)' as printed", "schedule steps", null=True),
        _int("printed_peak_time", "'Live ranges at N (peak)' as printed", "schedule steps", null=True),
        _int("printed_peak_bytes", "sum of XLA's own peak list", "bytes", null=True),
        *(
            _int(f"n_{t.name}", f"rows of {t.name}; null if not read", "rows", null=True)
            for t in SECTION_TABLES
            if t.name != "flags"
        ),
        _int("n_diagnostics", "rows of diagnostics", "rows"),
        _text(
            "content_hash", "XXH3-128 over the hashes of the members but those with flags; null unless requested",
            null=True,
        ),
        _bool("understood", "every line and every field was recognized"),
        _bool("consistent", "every cross-check of the tables that were read passed"),
        _text(
            "program_fp",
            "fingerprint of the memory behaviour: equal for programs with the same allocations, values (offset, size, "
            "shape, opcode, live range) and schedule, whatever their names, ids and lines; a page that is not printed "
            "differs from page 0; null unless requested, or if the allocations, used values or live ranges are "
            "missing, truncated or were left out",
            null=True,
        ),
        _text(
            "interface_fp",
            "fingerprint of the module name (without a number at its end), the platform, and the shapes of the entry "
            "parameters and of the output; null unless requested, or if the allocations are missing, truncated or were "
            "left out",
            null=True,
        ),
        _int("n_flags", "rows of flags; null if not read", "rows", null=True),
    ),
)

TABLES: dict[str, Table] = {t.name: t for t in (MODULES, FILES, *SECTION_TABLES, DIAGNOSTICS, UNKNOWN)}
"""The tables of a `Dump`."""

COMPUTED: dict[str, Table] = {t.name: t for t in COMPUTED_TABLES}
"""The tables that `xlamem.compute` derives from them."""


def _of_side(side: str, what: str) -> tuple[Column, ...]:
    """Return the columns of `differences` about a buffer of A or B."""
    return (
        _int(f"value_id_{side}", f"value of {what}; the matching value if the buffer is not in use there", null=True),
        _int(f"allocation_{side}", "its allocation; null if it is not in use there", null=True),
        _name(f"memory_space_{side}", "memory space of the value", null=True),
        _name(f"category_{side}", "category as in `live_set`", null=True),
        _int(f"start_{side}", "first step of its live range", "schedule steps", null=True),
        _int(f"end_{side}", "last step of its live range", "schedule steps", null=True),
        _name(f"instruction_{side}", "defining instruction", null=True),
        _name(f"shape_index_{side}", "as in `values`", null=True),
        _name(f"shape_{side}", "as in `values`", null=True),
        _name(f"element_type_{side}", "as in `values`", null=True),
        _name(f"source_file_{side}", "source file as in `live_set`", null=True),
        _int(f"source_line_{side}", "source line as in `live_set`", null=True),
    )


def _program_of(side: str, where: str) -> tuple[Column, ...]:
    """Return the columns of `pairs` about a program of A or B."""
    return (
        _int(f"program_{side}", f"number of the program in {where}, in order of compilation", null=True),
        _text(f"module_name_{side}", "as in `modules`", null=True),
        _int(f"module_id_{side}", "as in `modules`, of its first occurrence", null=True),
        _text(
            f"id_{side}",
            "content hash of its first occurrence; its content_id in a dataset, or if it cannot be read",
            null=True,
        ),
        _text(f"uri_{side}", "first file of its first occurrence", null=True),
        _int(f"occurrences_{side}", f"number of dumps of the program in {where}", null=True),
        _int(
            f"device_total_{side}",
            "bytes that must fit into the device's memory; null if the dump is not complete or does not prove it",
            "bytes",
            null=True,
        ),
        _int(f"peak_{side}", "peak of the memory spaces in `device_total`", "bytes", null=True),
        _text(f"problem_{side}", "why program_fp or a number is not known; null if all are", null=True),
        _bool(f"readable_{side}", "whether the dump could be read", null=True),
    )


def _side_of_jump(side: str, point: str) -> tuple[Column, ...]:
    """Return the columns of `jumps` about one of its two points."""
    return (
        _int(f"ordinal_{side}", f"number of the {point}"),
        _name(f"point_{side}", "value of the label there"),
        _name(f"content_id_{side}", "the dump there"),
        _int(f"device_total_{side}", "bytes that must fit there", "bytes"),
        _int(f"peak_{side}", "the peak there", "bytes", null=True),
    )


COMPARED_TABLES = (
    Table(
        "differences",
        "buffer that contributes to the difference of two programs A and B, for one account; see docs/numbers.md",
        "compare",
        (
            _name("account", "memory space, or device_total"),
            _name("memory_space", "memory space of the buffer"),
            _name("cause", "why it contributes: a key of schema.CAUSES"),
            _int("bytes_a", "bytes in use in A at the step that corresponds to the peak of B", "bytes"),
            _int("bytes_b", "bytes in use in B at its peak", "bytes"),
            _int("change", "bytes_b - bytes_a", "bytes"),
            _int("data_change", "part of the change that is not padding", "bytes"),
            _name(
                "match", "how the values of A and B were matched; null for new and gone ones that are no copies",
                null=True,
            ),
            *_of_side("a", "A"),
            *_of_side("b", "B"),
            _name("op_name", "op_name as in `live_set`, of B, or of A if there is none in B", null=True),
            _int("argument", "as in `live_set`", null=True),
            _name("argument_index", "as in `live_set`", null=True),
            _name("layer", "as in `live_set`", null=True),
            _int("layer_index", "as in `live_set`", null=True),
            _name("phase", "as in `live_set`", null=True),
            _name("kind", "as in `live_set`", null=True),
            _int("edit", "number of the edit that explains it (table `edits`)", null=True),
        ),
    ),
    Table(
        "matches",
        "pair of matching values of two programs A and B",
        "compare",
        (
            _int("value_id_a", "value of A"),
            _int("value_id_b", "value of B"),
            _name("match", "how they were matched: a key of schema.MATCHES"),
        ),
    ),
    Table(
        "edits",
        "something that differs between two programs A and B, apart from the sizes of buffers",
        "compare",
        (
            _int("edit", "number, from 0"),
            _name("kind", "a key of schema.EDITS"),
            _text("text", "what differs"),
            _name("evidence", "where it was found: a key of schema.EVIDENCE"),
            _int("change", "bytes of device_total at the peak that it explains: the sum of `change`", "bytes"),
            _int("n", "number of these buffers"),
        ),
    ),
    Table(
        "difference_groups",
        "group of buffers that contribute to the difference of two programs A and B; keys that do not group are null",
        "compare",
        (
            _name("buffer", "op_name without wrappers, with folded layers, or the name of the instruction", null=True),
            _name("cause", "a key of schema.CAUSES", null=True),
            _name("edit", "text of the edit that explains them", null=True),
            *(_name(key, "as in `live_set`, of B, or of A if it is gone", null=True) for key in (
                "scope", "layer", "phase", "kind", "category", "memory_space",
            )),
            _name("source", "file:line", null=True),
            _name("element_type", "as in `live_set`", null=True),
            _int("bytes_a", "bytes in use in A", "bytes"),
            _int("bytes_b", "bytes in use in B", "bytes"),
            _int("change", "bytes_b - bytes_a", "bytes"),
            _int("n", "number of buffers"),
            _int("n_shapes", "number of distinct shapes"),
            *(_name(f"{name}_{side}", f"of the buffer with the largest change, in {side.upper()}", null=True)
              for name in ("instruction", "shape", "source_file", "memory_space") for side in "ab"),
            *(_int(f"source_line_{side}", "its source line", null=True) for side in "ab"),
        ),
    ),
    Table(
        "account_differences",
        "memory space, or device_total, of two programs A and B",
        "compare",
        (
            _name("account", "memory space, or device_total"),
            _int("reserved_a", "`reserved` of A: what it must have", "bytes"),
            _int("reserved_b", "`reserved` of B", "bytes"),
            _int("peak_a", "peak of A; without live ranges in A or B, what its allocations reserve", "bytes"),
            _int("peak_b", "peak of B", "bytes"),
            _int("peak_step_a", "first step of that peak; null if it is 0 or not known", "schedule steps", null=True),
            _int("peak_step_b", "first step of that peak", "schedule steps", null=True),
            _int("step_a", "step of A that is compared with step_b: one of them has the larger peak", "schedule steps"),
            _int("step_b", "step of B", "schedule steps"),
            _int("in_use_a", "bytes in use in A at that step", "bytes"),
            _int("in_use_b", "bytes in use in B at that step", "bytes"),
            _int("moved", "change of the peak because the smaller one is at another step than the larger", "bytes"),
        ),
    ),
    Table(
        "bill_differences",
        "line of the bills of two programs A and B that differs",
        "compare",
        (
            _name("account", "memory space, or device_total"),
            _name("line", "as in `bills`"),
            _name("part", "as in `bills`", null=True),
            _int("bytes_a", "bytes in the bill of A", "bytes"),
            _int("bytes_b", "bytes in the bill of B", "bytes"),
            _int("change", "bytes_b - bytes_a; the rows of an account add up to the change of `reserved`", "bytes"),
        ),
    ),
    Table(
        "pairs",
        "pair of programs of A and B, or program without a partner; programs with equal fingerprints share a row",
        "compare",
        (
            _name("how", "how the programs were paired: a key of schema.PAIRED"),
            _float(
                "score",
                "similarity of the instructions, from 0 to 1; null if it is not known, or without a partner",
                null=True,
            ),
            _text("reason", "why they were paired, in words"),
            *_program_of("a", "A"),
            *_program_of("b", "B"),
        ),
    ),
    Table(
        "series",
        "program at a point, such as a commit, at which it was found; sorted by program and point",
        "compare",
        (
            _int("program", "number of the program (table `series_programs`)"),
            _name("module_name", "name of the module", null=True),
            _int("module_id", "number of the module", null=True),
            _int("ordinal", "number of the point, from 0"),
            _name("point", "value of the label"),
            _name("content_id", "the dump"),
            _int("device_total", "bytes that must fit; null if they are not known", "bytes", null=True),
            _int("peak", "peak of the memory spaces in `device_total`", "bytes", null=True),
            _int("change", "change of device_total since the last point at which it is known", "bytes", null=True),
            _int("peak_change", "change of the peak since that point", "bytes", null=True),
            _name("how", "how it was paired with the program before: a key of schema.PAIRED (`new`: with none)"),
            _float("score", "similarity to the program before, as in `pairs`", null=True),
            _int("occurrences", "number of dumps of the program at this point"),
            _name("problem", "why program_fp or a number is not known; null if all are", null=True),
        ),
    ),
    Table(
        "jumps",
        "change of device_total or of the peak of a program between two points; largest change first",
        "compare",
        (
            _int("program", "number of the program (table `series_programs`)"),
            _name("module_name", "name of the module after the change", null=True),
            *_side_of_jump("a", "last point before the change at which it is known"),
            *_side_of_jump("b", "point of the change"),
            _int("change", "device_total_b - device_total_a", "bytes"),
            _int("peak_change", "peak_b - peak_a", "bytes", null=True),
            _name("how", "how the programs were paired: a key of schema.PAIRED"),
            _float("score", "similarity of the programs, as in `pairs`", null=True),
        ),
    ),
    Table(
        "series_programs",
        "program of a dataset over several points; the largest jump first, then those that are not at all points",
        "compare",
        (
            _int("program", "number, from 0"),
            _name("module_name", "name of the module at its last point", null=True),
            _int("module_id", "number of the module there", null=True),
            _int("n_points", "number of points at which it was found"),
            _int("n_known", "number of points at which device_total is known"),
            _int("ordinal_first", "number of its first point"),
            _int("ordinal_last", "number of its last point"),
            _name("point_first", "value of the label at its first point"),
            _name("point_last", "value of the label at its last point"),
            _int("device_total_first", "device_total at the first point at which it is known", "bytes", null=True),
            _int("device_total_last", "device_total at the last point at which it is known", "bytes", null=True),
            _int("peak_first", "peak at the first point at which it is known", "bytes", null=True),
            _int("peak_last", "peak at the last point at which it is known", "bytes", null=True),
            _int("jump", "row of its largest jump in `jumps`; null if no number changed", null=True),
        ),
    ),
)

PAIRED = {
    "same": "the same interface_fp and program_fp, or the same content",
    "interface": "the same interface_fp; program_fp differs, or is not known",
    "similar": "similar instructions; name, parameters or output differ",
    "name": "the same module name; there is nothing else to compare, because a dump is unreadable or incomplete",
    "gone": "only in A",
    "new": "only in B",
}
"""How `xlamem.pair` found the partner of a program."""

CAUSES = {
    "new": "A has no matching value, or only a far smaller or larger one in another memory space",
    "gone": "B has no matching value, or only a far smaller or larger one in another memory space",
    "moved to another space": "the matching value is in another memory space, and between half and twice as large",
    "lives longer": "the matching value of A is not live at the corresponding step",
    "lives shorter": "the matching value of B is not live at the corresponding step",
    "sharing changed": "the matching value is live there, but shares its memory with another buffer",
    "larger": "both are in use, and B has more data",
    "smaller": "both are in use, and B has less data",
    "padding changed": "both are in use with as much data",
}
"""Why a buffer contributes to a difference. Of several causes, the first counts."""

EVIDENCE = {
    "interface": "arguments and outputs",
    "names": "op_names and instructions",
    "buffers": "buffers only, so that it may follow from another edit",
    "files": "flags beside the dumps, names of files, and the format of the dumps",
}
"""Where an edit was found."""

MATCHES = {
    "output": "outputs with the same index and shape",
    "subgraph": "defined by instructions with the same opcode, op_name, shape and surroundings",
    "operation": "defined by instructions with the same opcode, op_name and shape, in the same order",
    "structure": "defined by instructions with the same opcode, shape and surroundings, but other op_names",
    "resized": "defined by instructions with the same opcode and op_name, but another shape",
    "neighbor": "defined by operands or users of matching instructions",
    "scope": "in the same scope and category, with the same shape or element type",
    "schedule": "defined by instructions with the same opcode and shape, between matching instructions",
}
"""How values of two programs are matched; the first way that applies."""

EDITS = {
    "layers": "layers, numbered like others, that one side does not have",
    "arguments": "arguments that one side does not have, has in another order, or has stacked",
    "donation": "arguments that are donated on one side only",
    "outputs": "outputs that one side does not have, or that have another shape",
    "sharding": "arguments that are sharded differently, or another number of devices",
    "loops": "loops that one side does not have, with another number of iterations, or that stack other arrays",
    "rematerialization": "the backward pass recomputes more or less (jax.checkpoint)",
    "element type": "buffers have another element type",
    "dimensions": "arguments or many buffers have another dimension",
    "constants": "constants take more or less",
    "operations": "scopes and operations that one side does not have",
    "repetitions": "lines that run more or fewer operations, such as those in a loop of Python",
    "instructions": "other numbers of instructions of the same operations",
    "operation types": "operations compute with another floating-point type",
    "memory space": "buffers are in another memory space",
    "flags": "flags of the compiler",
    "compiler": "platform, or version of the compiler",
}
"""What can differ between two programs. An edit of an earlier kind explains a buffer first."""

COMPARED: dict[str, Table] = {t.name: t for t in COMPARED_TABLES}
"""The tables that compare two programs, or the programs of two sides."""

CHECKED_TABLES = (
    Table(
        "findings",
        "result of a rule of `xlamem check` for a program",
        "check",
        (
            _int("program", "number of the program in `checked_programs`; null for a program that is gone", null=True),
            _text("module_name", "name of the module", null=True),
            _name("platform", "as in `modules`", null=True),
            _text("uri", "first file of the program", null=True),
            _int("budget", "number of the budget in the configuration, from 1; null without one", null=True),
            _name("rule", "what was checked: a key of schema.RULES"),
            _name("status", "the result: a key of schema.STATUSES"),
            _name(
                "number",
                "what value, limit and baseline measure: device_total, peak, padding, packing, donation (bytes of "
                "arguments that are not donated) or named (bytes of temporaries with a name); null if nothing",
                null=True,
            ),
            _int("value", "the number of the program", "bytes", null=True),
            _int("limit", "the limit", "bytes", null=True),
            _int("baseline", "the number of the program in the baseline", "bytes", null=True),
            _text("limit_text", "the limit as configured, such as '5 %'", null=True),
            _text("message", "the result in a sentence"),
            _text("why", "the cause in a sentence, for findings that did not pass", null=True),
            _name("source_file", "source file of the buffer that contributes most", null=True),
            _int("source_line", "line in it", null=True),
        ),
    ),
    Table(
        "checked_programs",
        "program that `xlamem check` checked, however many processes dumped it",
        "check",
        (
            _int("program", "number of the program, in order of compilation"),
            _text("module_name", "name of the module", null=True),
            _int("module_id", "as in `modules`, of its first dump", null=True),
            _name("platform", "as in `modules`", null=True),
            _text("uri", "first file of its first dump", null=True),
            _int("occurrences", "number of dumps of the program"),
            _text("program_fp", "as in `modules`", null=True),
            _text("interface_fp", "as in `modules`", null=True),
            _name("status", "the worst result of its rules: a key of schema.STATUSES"),
            _int("device_total", "bytes that must fit into the device's memory", "bytes", null=True),
            _int("peak", "peak of the memory spaces in `device_total`", "bytes", null=True),
            _int("device_total_baseline", "the same in the baseline", "bytes", null=True),
            _int("peak_baseline", "the same in the baseline", "bytes", null=True),
            _text("name_baseline", "module name of the program in the baseline that it is compared with", null=True),
            _name("how", "how that program was found: a key of schema.PAIRED; null without a baseline", null=True),
            _text("doubt", "why a number is not known to be right; null if all are", null=True),
            _text("why", "what changed since the baseline, in a sentence; null if nothing did", null=True),
        ),
    ),
    Table(
        "contributors",
        "group of like buffers, argument or line of the bill that changed since the baseline; largest change first",
        "check",
        (
            _int("program", "number of the program in `checked_programs`"),
            _name("cause", "new, gone, larger, smaller, or another cause of schema.CAUSES"),
            _text("name", "op_name with layers folded, or the argument"),
            _name("category", "category as in `live_set`", null=True),
            _int("n_baseline", "number of buffers in the baseline", null=True),
            _int("n", "number of buffers, in the baseline if they are gone"),
            _int("bytes_baseline", "bytes in use in the baseline", "bytes", null=True),
            _int("bytes", "bytes in use", "bytes"),
            _int("change", "change in bytes; for a group that the baseline does not list, a lower bound", "bytes"),
            _text("shape", "shape of the largest buffer", null=True),
            _name("source_file", "source file of the largest buffer", null=True),
            _int("source_line", "line in it", null=True),
        ),
    ),
)

RULES = {
    "device_total": "what must fit is within the limit of a budget",
    "fits": "what must fit fits into what is left of the memory of a device",
    "peak": "the peak of the device's memory is within the limit of a budget",
    "growth": "device_total and the peak grew by no more than allowed since the baseline",
    "padding": "the bytes of padding in the bill are within the limit of a budget",
    "packing": "the bytes of packing in the bill are within the limit of a budget",
    "donation": "every argument that could be donated is donated",
    "named": "enough of the temporary bytes at the peak have a name",
    "compiler": "the version of the compiler is that of the baseline",
    "flags": "the flags of the compiler are those of the baseline",
    "improved": "the program needs less than the baseline allows",
    "new": "the program is not in the baseline",
    "gone": "a program of the baseline was not compiled",
    "unreadable": "the dump can be read, is complete and is understood",
}
"""What `xlamem check` checks."""

STATUSES = {
    "passed": "the check passed",
    "note": "something to know that is no failure",
    "warning": "something to look at that is no failure",
    "not known": "the dump cannot be read, is incomplete or is not understood where it matters",
    "failed": "the check failed",
}
"""Results of a check, from best to worst."""

CHECKED: dict[str, Table] = {t.name: t for t in CHECKED_TABLES}
"""The tables of `xlamem.check`."""

OOM: dict[str, Table] = {t.name: t for t in OOM_TABLES}
"""The tables that `xlamem.parse.oom` reads from a log."""

_CONTENT_ID = _name(
    "content_id",
    "XXH3-128 of modules.content_hash and of what the file name says of the program: module name, platform, target and "
    "changelist, but neither the number nor the timestamp",
)
_LINEAGE = (
    _text("tool_version", "version of xlamem that wrote the row"),
    _int("schema_version", "schema.VERSION of that version"),
    _text("run_id", "run of `xlamem convert` that wrote the row"),
    _text("host", "host that ran it"),
    Column("converted_at", "time", "start of the run"),
)


_NOT_IN_FIRST_DATASETS = {"n_diagnostics", "understood", "consistent"}
"""Columns of `modules` that the first versions did not store. They are null in datasets that were migrated."""


def _stored(table: Table, *before: Column) -> Table:
    columns = (replace(c, nullable=True) if c.name in _NOT_IN_FIRST_DATASETS else c for c in table.columns)
    return Table(table.name, table.row, table.source, (_CONTENT_ID, *before, *columns))


DERIVED: dict[str, Table] = {
    t.name: t
    for t in (
        Table(
            "peaks",
            "number of a dump, of one memory space or of all spaces together",
            "compute",
            (
                _text("memory_space", "xlamem's name of the memory space; null for all spaces together", null=True),
                _int("color", "color of the space; null for all spaces together", null=True),
                _int("page", "page of the space; null for all spaces together", null=True),
                _text("definition", "a key of schema.DEFINITIONS"),
                _int("bytes", "the number; null if the text does not determine it", "bytes", null=True),
                _int("time", "first step at which it is reached; null if it has no step", "schedule steps", null=True),
            ),
        ),
        Table(
            "peak_members",
            "one of the largest rows of the live set at the peak of a memory space",
            "compute",
            (_int("rank", "rank in its space, 0 for the largest"), *_LIVE_BUFFER, *_SOURCE),
        ),
        Table(
            "explain_causes",
            "cause of a difference between a number in `peaks` and the peak of its space, or of all spaces together",
            "compute",
            (
                _text("definition", "the number: a key of schema.DEFINITIONS"),
                *COMPUTED["explain_causes"].columns[1:],
            ),
        ),
        Table(
            "bills",
            "line of the bill of a memory space, or of device_total: the rows of an account add up to it",
            "compute",
            tuple(
                c for c in COMPUTED["bills"].columns if c.name not in ("kind", "buffer_bytes", "buffer_size", "granule")
            ),
        ),
        COMPUTED["scopes"],
    )
}
"""The tables that the converter adds to those of a dump."""

OCCURRENCES = Table(
    "occurrences",
    "place where a dump was found, for each set of labels",
    "convert",
    (
        _CONTENT_ID,
        _text("uri", "first member: its file, or its archive and entry", null=True),
        _name("stem", "name of the dump: what its file names have in common", null=True),
        _text("members", "file names of the members, joined with commas", null=True),
        _int("offset", "begin of the first member in its file", "bytes", null=True),
        _int("module_id", "number in the file name", null=True),
        _int("timestamp_us", "timestamp in the file name", "microseconds since 1970", null=True),
        _name("run_id", "run that was the first to find it there with these labels"),
        _name("host", "host of that run"),
        Column("seen_at", "time", "start of that run"),
    ),
)

LABELS = Table(
    "labels",
    "label of a run",
    "convert",
    (_name("run_id", "the run"), _text("key", "key of the label"), _text("value", "value of the label")),
)

RUNS = Table(
    "runs",
    "run of `xlamem convert`; of runs of version 1, little is known",
    "convert",
    (
        _text("run_id", "the run"),
        _text("host", "host that ran it; null if version 1 did not store it", null=True),
        _text("tool_version", "version of xlamem"),
        _int("schema_version", "schema.VERSION of that version"),
        Column("started_at", "time", "start of the run; null like host", nullable=True),
        Column("finished_at", "time", "end of the run; null if it is running or was killed", nullable=True),
        _text("outcome", "finished, stopped (by --max-failures) or interrupted; null like finished_at", null=True),
        _text("options", "sources and options as JSON", null=True),
        _int("found", "dumps found", null=True),
        _int("dumps", "dumps written", null=True),
        _int("already_stored", "dumps that were already stored", null=True),
        _int("duplicates", "dumps with the same content as another one of the run", null=True),
        _int("occurrences", "rows added to occurrences", null=True),
        _int("failed", "dumps that could not be read", null=True),
        _int("known", "dumps that were in quarantine and were not tried again", null=True),
        _int("changed", "dumps that were modified during the run", null=True),
        _int("truncated", "truncated dumps among those written", null=True),
        _int("files", "Parquet files written for these dumps", null=True),
        _int("rows", "rows in these files", "rows", null=True),
        _int("bytes", "total size of these files", "bytes", null=True),
        _int("text_bytes", "size of the text of the dumps written", "bytes", null=True),
        _float("seconds", "duration", null=True),
    ),
)

QUARANTINE = Table(
    "quarantine",
    "dump that could not be read",
    "convert",
    (
        _text("content_id", "as in other tables; if the content could not be read, a hash of location and error"),
        _text("name", "name of the dump"),
        _text("uri", "file with the error"),
        _int("line", "line, from 1", null=True),
        _int("offset", "byte offset in the file, from 0", "bytes", null=True),
        _text("error", "the error"),
        _text("excerpt", "text at that offset, shortened"),
        *_LINEAGE,
        _text(
            "kind",
            "content: not retried until the content or the version of xlamem changes; "
            "system (I/O, memory, a worker that died): retried by the next run",
            null=True,
        ),
        _int("attempts", "number of runs that failed on this dump, the last one with this error", null=True),
    ),
)

RUN_TABLES: dict[str, Table] = {t.name: t for t in (OCCURRENCES, LABELS, RUNS, QUARANTINE)}
"""The tables about what the converter found and did, which it always writes."""

WAREHOUSE: dict[str, Table] = {
    **{name: _stored(table, *(_LINEAGE if table is MODULES else ())) for name, table in TABLES.items()},
    **{name: _stored(table) for name, table in DERIVED.items()},
    **RUN_TABLES,
}
"""The tables of a dataset of `xlamem convert`; `Table.warehouse` has their types in Parquet."""

ROLES = {
    "buffer-assignment": "allocations; in releases until 2025 also every other section",
    "buffer-assignment-values": "printed total and used values",
    "live-range": "schedule, live ranges and XLA's peak list",
    "memory-usage-report": "XLA's memory-usage report",
    "hlo": "HLO text, of which only the header is read",
    "debug-options": "flags of the compile: DebugOptions that differ from their defaults, as protobuf text",
    "tpu-environment": "flags of the TPU compiler with their values, as protobuf text",
    "target-arguments": "the TPU and the topology that a program is compiled for, as protobuf text",
}

FEATURES = {
    "address": "allocations have a heap address",
    "cross_color": "there are blocks 'reused by buffers of a different color'",
    "crlf": "every line ends in CR LF",
    "e0_values": "values are printed as NAME[i](#ID @C) [offset,size]: shape",
    "e1_values": "values are printed as blocks with positions and uses, below their allocation",
    "frames": "the HLO text has stack-frame tables",
    "from_instruction": "used values print their instruction",
    "from_instruction_blank": "the text 'from instruction:' is followed by a blank",
    "glued": "no newline after an instruction: the next record follows on the same line",
    "human_total": "the total is also printed with a unit",
    "live_inline": "live ranges in the same file as the allocations",
    "live_split": "live ranges in a file of their own",
    "live_unavailable": "XLA released the live ranges before it wrote the dump",
    "log": "extracted from a log whose lines have prefixes",
    "not_utf8": "some bytes are not UTF-8",
    "operand_shapes": "operands are printed with their shapes",
    "page": "allocations have a page",
    "peak_a": "peak list without index",
    "peak_b": "peak list with index",
    "peak_c": "peak list with index and running total",
    "report_a": "memory-usage report, first layout",
    "report_b": "memory-usage report, second layout",
    "tree": "stack trace breakdown of the peak",
    "tree_spaced": "numbers in that breakdown have a blank after every three digits",
    "uses_none": "'(none)' is printed for a value without uses",
    "uses_unknown": "'uses are not initialized yet.' is printed for some value",
    "values_inline": "used values in the same file as the allocations",
    "values_split": "used values in a file of their own",
}

CODES = {
    "truncated": "the file ends before its text does",
    "unknown_line": "a line that was not understood",
    "unknown_field": "lines have a field that this version does not recognize, kept verbatim in `unknown_text`",
    "more_diagnostics": "number of diagnostics of one code in a file that are not listed",
    "not_utf8": "bytes that are not UTF-8 were stored as \\xNN",
    "mixed_newlines": "some lines end in CR LF, others in LF",
    "instruction_differs": "an instruction is printed again with a different text",
    "total_differs": "the sizes of the allocations do not add up to the printed total",
    "records_differ": "the used values differ from the values of the allocations",
    "value_outside": "a value ends after the end of its allocation",
    "size_too_large": "the size of a shape is not less than 2^63 bytes; `unpadded_size` is null",
    "ids_descend": "value ids are not ascending in an allocation or in the used values",
    "schedule_gap": "the schedule is not 0, 1, 2, …",
    "steps_differ": "the number of steps differs from the one in the header of the schedule",
    "range_outside": "a live range starts before the schedule, ends after it, or ends before it starts",
    "live_range_missing": "a value of a temp allocation has no live range; it counts as live at every step",
    "live_range_unmatched": "a live range names a value that is in no allocation",
    "tree_differs": "the roots of the tree do not add up to the total in its header",
    "report_differs": "the report contradicts the allocations",
}

NOT_UNDERSTOOD = {"unknown_line", "unknown_field", "size_too_large"}
NOT_CONSISTENT = CODES.keys() - NOT_UNDERSTOOD - {"truncated", "more_diagnostics", "not_utf8", "mixed_newlines"}
"""Codes for which a dump is not `understood`, and not `consistent`."""

PROBLEMS = {"complete": "truncated", "understood": "not understood", "consistent": "not consistent"}
"""What a dump is if one of these columns of `modules` is false."""

SPACES: dict[str, dict[int, str]] = {
    "tpu": {0: "hbm", 1: "vmem", 2: "sflag", 3: "cmem", 4: "smem", 5: "host"},
    "gpu": {0: "device", 1: "collective", 2: "temp", 5: "host"},
    "cpu": {0: "memory", 5: "host"},
}


DEVICE_MEMORY: dict[str, set[int]] = {"tpu": {0, 7, 9}, "gpu": {0, 1, 2}, "cpu": {0}}
"""Colors in the device's main memory; on TPU these include the SparseCore's private stack and pinned HBM."""
OTHER_MEMORY: dict[str, set[int]] = {"tpu": {1, 2, 3, 4, 5, 6, 8, 10, 11, 12}, "gpu": {5}, "cpu": {5}}
"""Colors known to be in other memories: on the host, or small memories on the chip."""


def in_device_memory(platform: str | None, color: int) -> bool:
    """Return whether a color is in the device's main memory. If the platform is unknown, all but the host's are."""
    return color in DEVICE_MEMORY[platform] if platform in DEVICE_MEMORY else color != 5


def memory_space(platform: str | None, color: int) -> str:
    """Return xlamem's name for a color; XLA's own labels are wrong for several colors."""
    return SPACES.get(platform or "", {}).get(color, f"color_{color}")


class Document(NamedTuple):
    """A JSON document: its version, and the command that prints it."""

    version: int
    command: str


DOCUMENTS = {
    "advise": Document(1, "xlamem advise PATH --json"),
    "bill": Document(1, "xlamem bill PATH --json"),
    "buffer": Document(1, "xlamem buffer PATH NAME --json"),
    "check": Document(1, "xlamem check PATH --json"),
    "convert": Document(1, "xlamem convert SRC --to DEST --json"),
    "dataset-compact": Document(1, "xlamem dataset compact DEST --json"),
    "dataset-drop": Document(1, "xlamem dataset drop DEST --where SQL --json"),
    "dataset-files": Document(1, "xlamem dataset files DEST --json"),
    "dataset-migrate": Document(1, "xlamem dataset migrate DEST --json"),
    "dataset-register": Document(1, "xlamem dataset register DEST --to FORMAT --json"),
    "diff": Document(1, "xlamem diff A B --json, for two programs"),
    "explain": Document(1, "xlamem explain PATH --json"),
    "info": Document(1, "xlamem info PATH --json"),
    "oom": Document(1, "xlamem oom LOG --json"),
    "pairs": Document(1, "xlamem diff A B --json, for directories and datasets"),
    "peak": Document(1, "xlamem peak PATH --json"),
    "report": Document(1, "xlamem report PATH -o FILE.json"),
    "report-file": Document(1, "xlamem report PATH --json"),
    "schema": Document(1, "xlamem schema --json"),
    "self": Document(1, "xlamem info --self --json"),
    "series": Document(1, "xlamem diff DATASET --over KEY --json"),
    "show": Document(1, "xlamem show TABLE PATH --json"),
    "sql": Document(1, "xlamem sql PATH QUERY --json"),
    "top": Document(1, "xlamem top PATH --json"),
}
"""The JSON documents, by their `format` without ``xlamem.``. Within a version, properties are only added."""


def envelope(name: str) -> dict[str, Any]:
    """Return the properties with which a document begins."""
    return {"format": f"xlamem.{name}", "version": DOCUMENTS[name].version, "tool": __version__}


def _as_json(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "row": table.row,
        "source": table.source,
        "columns": [
            {
                "name": c.name,
                "type": str(c.arrow.type),
                "warehouse_type": str(table.warehouse.field(c.name).type),
                "nullable": c.nullable,
                "unit": c.unit,
                "doc": c.doc,
            }
            for c in table.columns
        ],
    }


def as_json() -> dict[str, Any]:
    """Return this module as plain data, which `xlamem schema --json` prints."""
    return {
        "schema_version": VERSION,
        "tables": [_as_json(t) for t in TABLES.values()],
        "computed": [_as_json(t) for t in COMPUTED.values()],
        "compared": [_as_json(t) for t in COMPARED.values()],
        "checked": [_as_json(t) for t in CHECKED.values()],
        "oom": [_as_json(t) for t in OOM.values()],
        "warehouse": [_as_json(t) for t in WAREHOUSE.values()],
        "definitions": DEFINITIONS,
        "bill": {"lines": BILL_LINES, "parts": BILL_PARTS, "kinds": BILL_KINDS},
        "comparison": {"causes": CAUSES, "matches": MATCHES, "edits": EDITS, "paired": PAIRED},
        "check": {"rules": RULES, "statuses": STATUSES},
        "roles": ROLES,
        "features": FEATURES,
        "codes": CODES,
        "memory_spaces": {p: {str(c): n for c, n in s.items()} for p, s in SPACES.items()},
        "documents": [{"name": name, "version": d.version, "command": d.command} for name, d in DOCUMENTS.items()],
    }
