"""The table of tables: every table, column, type, unit and meaning.

Nothing else in the package names a column in a list of its own: readers, renderers, the
converter and the documentation walk `TABLES`. Within one `VERSION` columns are added at the end
of a table, never renamed or moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

VERSION = 1

Kind = Literal["int", "float", "bool", "name", "text", "time"]
"""int: int64. float: float64. bool. name: text that repeats, int32 codes into a dictionary. text: UTF-8. time: an
instant, in microseconds."""

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
    """One column: its name, kind, meaning, unit, whether it can be null."""

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
    """One table: what a row is, where it is read from, and its columns in order."""

    name: str
    row: str
    source: str
    columns: tuple[Column, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema in memory (names as dictionary<int32, string>)."""
        return pa.schema([c.arrow for c in self.columns])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def empty(self) -> pa.Table:
        """The table without rows."""
        return self.arrow.empty_table()

    @cached_property
    def warehouse(self) -> pa.Schema:
        """The Arrow schema in Parquet: the same columns, names as plain text."""
        plain = {"name": pa.string()}
        return pa.schema([pa.field(c.name, plain.get(c.kind, ARROW[c.kind])) for c in self.columns])

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


_VALUE_ID = _int("value_id", "id of the dataflow value; unique within a dump, not dense")
_INSTRUCTION = _name("instruction", "name of the instruction, without '%'")
_INDEX = _name(
    "shape_index",
    "index into the instruction's tuple shape, as printed ({}, {0,1}); null where the dump prints "
    "none because that shape is no tuple",
    null=True,
)

_ATTRIBUTES = _text(
    "attributes",
    "fields of the line that this version does not know, verbatim, joined with ', '; null where there are none",
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
            _int("color", "color (memory space number); 0 where none is printed"),
            _name("memory_space", "xlamem's name for (platform, color); color_N where it has none"),
            _int("page", "allocation page", null=True),
            _text("address", "heap address of XLA's own object, as printed (2017-2022)", null=True),
            _int("parameter_number", "entry parameter that it holds", null=True),
            _name("parameter_shape_index", "index into that parameter's shape, as printed", null=True),
            _name("parameter_shape", "shape printed for the parameter, without layout", null=True),
            _name("output_shape", "shape of the entry root, without layout", null=True),
            _bool("is_parameter", "holds an entry parameter"),
            _bool("is_entry_root", "holds the top-level buffer of the entry root"),
            _bool("is_constant", "a literal of the program"),
            _bool("is_thread_local", "stack of a computation called from within an instruction"),
            _bool("is_live_out", "may be (part of) an output (maybe-live-out)"),
            _bool("is_temp", "temporary (preallocated-temp)"),
            _ATTRIBUTES,
        ),
    ),
    Table(
        "values",
        "value assigned to an allocation (where the allocations' file is missing: used value)",
        "BufferAssignment",
        (
            _VALUE_ID,
            _name("instruction", "name of the defining instruction, without '%'"),
            _INDEX,
            _bool("is_phi", "a merge point: while, its parameters, conditional"),
            _int("color", "the value's own color; null where none is printed (or -1)", null=True),
            _int("allocation", "the allocation that holds it", null=True),
            _int("offset", "where it begins in its allocation", "bytes", null=True),
            _int("size", "bytes that it takes there, padding included", "bytes", null=True),
            _name("shape", "its own shape, with layout, as printed", null=True),
            _name("element_type", "element type of that shape, or tuple, token, opaque, buffer", null=True),
            _int(
                "unpadded_size",
                "elements times element width without tiles; 8 per element of a tuple, 0 for a "
                "token, 8 for opaque; null where a dimension is unbounded or the shape is unknown",
                "bytes",
                null=True,
            ),
            _bool(
                "uses_known",
                "false where the dump says that the uses are not initialized; null where the dump "
                "has no used-values section",
                null=True,
            ),
            _ATTRIBUTES,
        ),
    ),
    Table(
        "cross_color",
        "line of a block 'reused by buffers of a different color'",
        "BufferAssignment",
        (
            _int("allocation", "the allocation under which it is printed"),
            _int("ordinal", "place in that block, from 0"),
            _VALUE_ID,
            _INSTRUCTION,
            _INDEX,
            _bool("is_phi", "a merge point"),
            _int("value_color", "color printed with the value", null=True),
            _int("printed_color", "color printed at the end of the line"),
        ),
    ),
    Table(
        "positions",
        "place where a value's bytes appear",
        "Used values",
        (
            _VALUE_ID,
            _int("ordinal", "place in the value's list, from 0; 0 is the defining position"),
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
            _int("ordinal", "place in the value's list, from 0"),
            _name("instruction", "the instruction that reads, without '%'"),
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
            _text("operands", "what stands between the opcode's parentheses, as printed"),
            _name("op_type", "metadata op_type, escapes undone", null=True),
            _name("op_name", "metadata op_name (named scopes of the model), escapes undone", null=True),
            _name("source_file", "metadata source_file, escapes undone", null=True),
            _int("source_line", "metadata source_line", null=True),
            _int("stack_frame_id", "metadata stack_frame_id: id in the table frames", null=True),
            _name("custom_call_target", "custom_call_target, escapes undone", null=True),
            _name("fusion_kind", "kind= of a fusion (kLoop, kInput, kOutput, kCustom)", null=True),
            _text(
                "called_computations",
                "computations named by calls, to_apply, condition, body, branch_computations, "
                "called_computations, true_computation, false_computation, select, scatter, in the "
                "order printed, joined with ', ', braces removed",
                null=True,
            ),
            _text("sharding", "value of sharding=, as printed", null=True),
            _text("backend_config", "value of backend_config=; the quoted form with escapes undone", null=True),
            _text(
                "attributes",
                "what is left after the opcode's parentheses, verbatim, joined with ', '; metadata "
                "fields without a column stay as metadata={…}",
                null=True,
            ),
            _text("text", "the instruction verbatim, from its name on; null unless asked for", null=True),
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
            _int("value_id", "the value; null where the dump has no value of that name and index", null=True),
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
        "line of XLA's own list 'Live ranges at N (peak)'",
        "HloLiveRange",
        (
            _int("ordinal", "place in the list, from 0"),
            _INSTRUCTION,
            _name("shape_index", "as in live_ranges; null also in lists that print none", null=True),
            _int("bytes", "bytes as printed (shape bytes, unpadded)", "bytes"),
            _int("cumulative", "running total as printed", "bytes", null=True),
        ),
    ),
    Table(
        "printed_stack",
        "node of XLA's own tree 'Stack trace breakdown for peak usage'",
        "HloLiveRange",
        (
            _int("ordinal", "place in the tree as printed, from 0"),
            _int("depth", "0 for a root"),
            _text("label", "label, raw: it can hold newlines, tabs, anything"),
            _text("percent", "percentage as printed, without '%'"),
            _int("total", "bytes of the node and its children", "bytes"),
            _int("current", "bytes of the node itself", "bytes"),
            _int("remaining", "bytes not yet printed after this node", "bytes"),
        ),
    ),
    Table(
        "printed_report",
        "line of the memory-usage report",
        "memory-usage-report",
        (
            _int("ordinal", "place among these rows, from 0"),
            _name(
                "part",
                "list: line of 'Allocations sorted by size'; table: head of a table (and in layout A its "
                "allocation line); row: line of a table; rest: 'The rest N …'; space: a memory space "
                "printed without any table",
            ),
            _int("color", "color of the memory space (layout B)", null=True),
            _name("space_label", "XLA's own label of that space, wrong for several colors (layout B)", null=True),
            _int("total_bytes", "total printed for that space (B) or for the dump (A)", "bytes", null=True),
            _int("allocation", "allocation that the line is about (layout A)", null=True),
            _text("cumulative", "cumulative size as printed (list, row)", null=True),
            _text("percent", "percentage as printed, without '%'; -nan is real (list, row)", null=True),
            _text("size", "size as printed (list and table of layout A, row)", null=True),
            _text("remaining", "total minus cumulative size as printed (list)", null=True),
            _int("offset", "offset in the allocation (row)", "bytes", null=True),
            _int(
                "n_values",
                "values at that offset (row); 1 for a table of layout A that is only a head, because its "
                "allocation has one value",
                null=True,
            ),
            _int("n_rest", "lines not shown (rest)", null=True),
            _text("shapes", "shapes at that offset, as printed (row)", null=True),
        ),
    ),
    Table(
        "frames",
        "stack frame (tables in the head of the HLO text)",
        "HLO header",
        (
            _int("id", "id that stack_frame_id points to"),
            _int("parent", "id of the calling frame; null for none (XLA prints it one too high)", null=True),
            _name("file", "file name, escapes undone", null=True),
            _name("function", "function name, escapes undone", null=True),
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
            _name("kind", "may-alias, must-alias or donor; null where an old text prints none", null=True),
        ),
    ),
)

_SPACE = (
    _name("memory_space", "xlamem's name of the memory space"),
    _int("color", "color of the space"),
    _int("page", "page of the space; 0 where none is printed"),
)
_PLACE = (
    _name(
        "op_name",
        "named scopes of the defining instruction; for one without, in a parameter's allocation, the parameter's",
        null=True,
    ),
    _name("source_file", "source file, from the metadata or through the stack frame", null=True),
    _int("source_line", "source line", null=True),
)

_CATEGORY = (
    "category of the allocation; temp_in_output for a value in the allocation of an output (live_out, donated) that is "
    "neither the output (live after the last instruction) nor the donated parameter (live from step 0): a temporary "
    "in an output's space"
)

DEFINITIONS = {
    "device_total": "sum of `reserved` over the spaces in the device's main memory: what must fit into the device",
    "reserved": "sum of all allocations of the space except thread-local ones: what must fit into the space. For TPU "
    "programs this is the figure in the compiler's out-of-memory messages",
    "peak": "maximum bytes in use at any step",
    "peak_together": "maximum bytes in use at any step, all memory spaces added up",
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

COMPUTED_TABLES = (
    Table(
        "occupancy",
        "memory space and step",
        "compute",
        (
            *_SPACE,
            _int("time", "the step; the last one is the state after the last instruction", "schedule steps"),
            _int("occupied", "bytes in use: the sum of the next five", "bytes"),
            _int("parameter", "parameters, whole", "bytes"),
            _int("donated", "parameters that are live-out too, whole", "bytes"),
            _int("constant", "constants, whole", "bytes"),
            _int("live_out", "outputs, whole", "bytes"),
            _int("temp", "bytes in the union of the live values' ranges in temp allocations", "bytes"),
            _int("live", "bytes in the union of the live values' ranges in all of them", "bytes"),
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
            _int("plateaus", "number of plateaus at the peak", null=True),
            _int("live_peak", DEFINITIONS["live"], "bytes", null=True),
            _int("live_step", "first step of that", "schedule steps", null=True),
            _int("half_open_peak", DEFINITIONS["half_open"], "bytes", null=True),
            _int("slack", DEFINITIONS["slack"], "bytes", null=True),
        ),
    ),
    Table(
        "plateaus",
        "plateau of a space: a longest run of equal occupied bytes with lower neighbours",
        "compute",
        (
            *_SPACE,
            _int("rank", "0 for the highest; earlier ones first among equals"),
            _int("first_step", "first step", "schedule steps"),
            _int("last_step", "last step", "schedule steps"),
            _int("bytes", "bytes in use", "bytes"),
        ),
    ),
    Table(
        "live_set",
        "value that holds an instant, or bytes reserved that no live value covers",
        "compute",
        (
            *_SPACE,
            _name("role", "value, or reserved: a whole allocation's bytes that no live value covers"),
            _int("value_id", "the value; null for reserved", null=True),
            _name(
                "instruction", "its instruction; for reserved the parameter or the value with the highest id", null=True
            ),
            _name("shape_index", "its index", null=True),
            _int("allocation", "the allocation"),
            _name("category", _CATEGORY),
            _int("offset", "where the value begins in it; null for reserved", "bytes", null=True),
            _int("size", "the value's size; for reserved the allocation's", "bytes"),
            _int("bytes", "bytes charged to this row: shared ones go to the lowest live value_id", "bytes"),
            _int("exclusive", "bytes that only this row covers", "bytes"),
            _int("shared", "bytes that other live values cover too", "bytes"),
            _name("shape", "shape", null=True),
            _name("element_type", "element type", null=True),
            _int("unpadded_size", "bytes without padding", "bytes", null=True),
            _name("opcode", "opcode of the defining instruction", null=True),
            *_PLACE,
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
            _int("peak", "most bytes that live values cover at any step", "bytes", null=True),
            _int("fragmentation", "size - unassigned - peak", "bytes", null=True),
            _int("value_bytes", "sum of its values' sizes", "bytes"),
            _float("reuse", "value_bytes over size", null=True),
            _int("n_holes", "holes at the instant asked for", null=True),
            _int("hole_bytes", "their bytes", "bytes", null=True),
            _int("largest_hole", "the largest of them", "bytes", null=True),
        ),
    ),
    Table(
        "savings",
        "buffer whose absence would lower the peak",
        "compute",
        (
            *_SPACE,
            _name("role", "value (in a temp allocation) or allocation (whole)"),
            _int("value_id", "the value; null for a whole allocation", null=True),
            _name("instruction", "its instruction; for an allocation as in live_set", null=True),
            _name("shape_index", "its index", null=True),
            _int("allocation", "the allocation"),
            _int("size", "its size", "bytes"),
            _int("saving", "how far the peak falls without it: an upper bound", "bytes"),
            *_PLACE,
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
                "size - unpadded_size, if above 0; 0 for a value that shares its slot (allocation, offset, size) with "
                "one that has it already; null where the unpadded size is not known",
                "bytes",
                null=True,
            ),
            _bool("at_peak", "live at the first step of the peak of its space, or in a whole allocation"),
            *_PLACE,
        ),
    ),
    Table(
        "space_padding",
        "memory space",
        "compute",
        (
            *_SPACE,
            _int("peak", "bytes in use at the peak of the space", "bytes"),
            _int("padding", "how many of them are padding: of each value at most the bytes charged to it", "bytes"),
            _int("unknown", "bytes of rows whose unpadded size is not known", "bytes"),
        ),
    ),
    Table(
        "donation",
        "entry parameter's allocation",
        "compute",
        (
            _int("parameter", "number of the parameter"),
            _name("parameter_index", "index into its shape"),
            *_SPACE,
            _int("allocation", "its allocation"),
            _name("shape", "shape", null=True),
            _int("size", "size", "bytes"),
            _name("state", "taken: it shares its allocation with an output; refused: donated, not taken; no"),
            _name("output_index", "index of the output that it shares with; if refused, that was asked for", null=True),
            _int("last_use", "last step at which it is read", "schedule steps", null=True),
            _bool(
                "candidate",
                "not taken, and XLA would alias it with an output if it were donated: one that nothing aliases, of as "
                "many bytes in the same memory space and (in a program for one device) as many elements; matched one "
                "to one, exact ones first",
            ),
            _bool("exact", "a candidate whose output has the same shape and element type"),
            _name("candidate_output", "index of that output in the program's output", null=True),
            _name("candidate_instruction", "instruction that defines it", null=True),
            _name("candidate_shape_index", "index into the shape of that instruction", null=True),
            _int(
                "saving_lower",
                "least that donating saves: 0, because XLA may have to copy; null without a candidate",
                "bytes",
                null=True,
            ),
            _int(
                "saving_upper",
                "most that donating saves: the output's allocation; null without a candidate",
                "bytes",
                null=True,
            ),
            _bool(
                "free_in_schedule",
                "the parameter is last read at or before the step at which that output's allocation is first "
                "written, as scheduled now; null without a candidate, live ranges or uses",
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
            _int("from_step", "step of the use (or definition) before the gap", "schedule steps"),
            _int("to_step", "step of the use after it", "schedule steps"),
            _int("gap", "steps between them", "schedule steps"),
            _bool("over_peak", "the gap holds the first step of the peak"),
            *_PLACE,
        ),
    ),
    Table(
        "explain",
        "published number of the program",
        "compute",
        (
            _name("name", "name of the number"),
            _name("memory_space", "its space; null for all together", null=True),
            _int("bytes", "its value; null where the text cannot say", "bytes", null=True),
            _int("time", "its step", "schedule steps", null=True),
            _text("definition", "what it is"),
            _int(
                "difference", "bytes by which it differs from our peak of the same space, or of all", "bytes", null=True
            ),
            _text("causes", "the rows of explain_causes as text", null=True),
            _int("color", "color of the space; null for all together", null=True),
            _int("page", "page of the space; null for all together", null=True),
            _name(
                "basis",
                "exact: the text gives it; inferred: by a formula that n_equal of n_compared real dumps bore out",
                null=True,
            ),
            _int("n_equal", "dumps on which the formula gave the tool's own figure", "dumps", null=True),
            _int("n_compared", "dumps on which it was compared", "dumps", null=True),
            _text("releases", "releases that print this value, where they differ", null=True),
        ),
    ),
    Table(
        "explain_causes",
        "cause of a difference between a published number and xlamem's peak",
        "compute",
        (
            _name("name", "name of the number, as in explain"),
            _name("memory_space", "its space; null for all together", null=True),
            _int("color", "color of the space; null for all together", null=True),
            _int("page", "page of the space; null for all together", null=True),
            _name("cause", "what makes the difference"),
            _int("bytes", "its share, never 0: those of a number add up to its difference", "bytes"),
        ),
    ),
)

_ROUNDED = "only as exact as the print"

OOM_TABLES = (
    Table(
        "reports",
        "message",
        "out-of-memory report",
        (
            _int("report", "place in the log, from 0"),
            _text(
                "rank",
                "label that the log puts before the line (rank3, default0, worker pid=42); null without",
                null=True,
            ),
            _text("thread", "thread in the log prefix of its first line; null without", null=True),
            _int("line", "line of the log on which it begins, from 1"),
            _int("last_line", "last line of the log that was understood as part of it", null=True),
            _text("form", "a key of oom.FORMS"),
            _text("code", "error code as printed (E1000, E1001)", null=True),
            _text("memory_space", "memory space as printed, lower case; null where none is named", null=True),
            _int("used_bytes", f"bytes needed; {_ROUNDED}", null=True),
            _text("used_text", "the same as printed", null=True),
            _int("capacity_bytes", f"bytes that there are; {_ROUNDED}", null=True),
            _text("capacity_text", "the same as printed", null=True),
            _int("exceeded_bytes", f"bytes too much, where printed; {_ROUNDED}", null=True),
            _text("exceeded_text", "the same as printed", null=True),
            _int("requested_bytes", f"size of the one allocation that failed; {_ROUNDED}", null=True),
            _text("requested_text", "the same as printed", null=True),
            _int("free_bytes", f"bytes that were free then; {_ROUNDED}", null=True),
            _text("free_text", "the same as printed", null=True),
            _text("module_name", "HLO module, where named", null=True),
            _text("instruction", "instruction for which there was no room, as printed", null=True),
            _bool("complete", "nothing says that the message was cut", null=True),
            _int("same_as", "an earlier report that says exactly the same; null for the first", null=True),
            _text("text", "the line with which it begins, verbatim, without the log's prefix"),
        ),
    ),
    Table(
        "usage",
        "line of the totals",
        "out-of-memory report",
        (
            _int("report", "the report"),
            _int("ordinal", "place in the report, from 0"),
            _text("memory_space", "memory space as printed, lower case; null in statistics", null=True),
            _text(
                "part",
                "total: under 'Total … usage'; program: under 'Program … requirement'; output: the line "
                "about the output; compiled: 'XLA::TPU program … usage'; stats: statistics of the buffer assignment",
                null=True,
            ),
            _text(
                "label",
                "what is measured, as printed; total for a heading; shared: shared with arguments",
                null=True,
            ),
            _int("bytes", f"size; {_ROUNDED}; null where the print says 'unknown'", null=True),
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
        "listed buffer",
        "out-of-memory report",
        (
            _int("report", "the report"),
            _text(
                "list",
                "'program allocations', 'program arguments and outputs', 'peak buffers'; 'failed "
                "allocation' for the one that a message is about",
            ),
            _int("ordinal", "number in the list, as printed (counted where none is)", null=True),
            _text("memory_space", "memory space of the list; null where none is named", null=True),
            _int("size_bytes", f"size; {_ROUNDED}", null=True),
            _text("size_text", "the same as printed", null=True),
            _int("unpadded_bytes", f"size without padding; {_ROUNDED}", null=True),
            _int(
                "padding_bytes",
                f"extra memory due to padding; {_ROUNDED}; null where no such line is printed",
                null=True,
            ),
            _float("expansion", "factor by which padding makes it larger, as printed (1.2)", null=True),
            _text("op_type", "metadata op_type, escapes undone", null=True),
            _text("op_name", "metadata op_name (named scopes of the model), escapes undone", null=True),
            _text("source_file", "metadata source_file, escapes undone", null=True),
            _int("source_line", "metadata source_line", null=True),
            _int("stack_frame_id", "metadata stack_frame_id", null=True),
            _text("operator", "all of the metadata, verbatim", null=True),
            _text("shape", "shape as printed", null=True),
            _text("xla_label", "instruction (TPU; it can be shortened) or opcode (GPU, CPU), as printed", null=True),
            _text("allocation_type", "as printed (HLO temp, scoped)", null=True),
            _text(
                "parameter",
                "shape printed as 'Entry Parameter Subshape': the buffer is an entry parameter",
                null=True,
            ),
            _text("tag", "purpose of the allocation, as printed", null=True),
            _bool("complete", "its end was seen", null=True),
        ),
    ),
    Table(
        "unknown",
        "line inside a message that was not understood",
        "out-of-memory report",
        (
            _int("report", "the report"),
            _int("line", "line of the log, from 1"),
            _text("text", "the line, without the log's prefix"),
        ),
    ),
)

DIAGNOSTICS = Table(
    "diagnostics",
    "line that was not understood, or rule that did not hold",
    "xlamem",
    (
        _name("file", "uri of the file"),
        _int("line", "line, from 1; null where the rule is about the whole dump", null=True),
        _int("offset", "byte offset in the file, from 0", "bytes", null=True),
        _name("section", "section of the dump"),
        _name("code", "what is wrong: a key of schema.CODES"),
        _name("severity", "error: the dump is not complete; warning: anything else"),
        _text("wanted", "what was expected"),
        _text("excerpt", "what stood there, shortened"),
    ),
)

UNKNOWN = Table(
    "unknown_text",
    "text that this version does not know: a field of a line, or a line",
    "xlamem",
    (
        _name("file", "uri of the file"),
        _int("offset", "byte offset in the file, from 0", "bytes"),
        _name("section", "section of the dump"),
        _name("table", "table that has a row for the line; null for none", null=True),
        _int("row", "that row, from 0", null=True),
        _text("text", "the text verbatim, with its separators; a line with its newline"),
    ),
)

FILES = Table(
    "files",
    "member file",
    "xlamem",
    (
        _int("ordinal", "place in the dump, from 0"),
        _name("role", "a key of schema.ROLES"),
        _text("uri", "where it was read"),
        _int("bytes", "size, after decompression", "bytes"),
        _text("content_hash", "XXH3-128 of those bytes; null unless asked for", null=True),
        _text("features", "features seen in this file, sorted, comma-joined"),
        _bool("complete", "nothing says that this file was cut"),
    ),
)

MODULES = Table(
    "modules",
    "dump",
    "xlamem",
    (
        _text("module_name", "name of the HLO module; null where neither file name nor HLO text says", null=True),
        _int("module_id", "number in the file name", null=True),
        _name("platform", "tpu, gpu or cpu; null where the dump does not say", null=True),
        _name("target", "GPU architecture in the file name (sm_9.0a, gfx942)", null=True),
        _int("changelist", "cl_N in the file name", null=True),
        _int("timestamp_us", "timestamp in the file name", "microseconds since 1970", null=True),
        _text("features", "features seen, sorted, comma-joined: keys of schema.FEATURES"),
        _bool("complete", "nothing says that a file was cut"),
        _int("total_bytes", "'Total bytes used' as printed", "bytes", null=True),
        _int("schedule_length", "'HloLiveRange (max N)' as printed", "schedule steps", null=True),
        _int("printed_peak_time", "'Live ranges at N (peak)' as printed", "schedule steps", null=True),
        _int("printed_peak_bytes", "sum of XLA's own peak list", "bytes", null=True),
        *(
            _int(f"n_{t.name}", f"rows of {t.name}; null if not read", "rows", null=True)
            for t in SECTION_TABLES
        ),
        _int("n_diagnostics", "rows of diagnostics", "rows"),
        _text("content_hash", "XXH3-128 over the members' hashes; null unless asked for", null=True),
        _bool("understood", "every line and every field was placed in a column"),
        _bool("consistent", "the cross-checks hold, as far as their tables were read"),
    ),
)

TABLES: dict[str, Table] = {t.name: t for t in (MODULES, FILES, *SECTION_TABLES, DIAGNOSTICS, UNKNOWN)}
"""What a `Dump` holds."""

COMPUTED: dict[str, Table] = {t.name: t for t in COMPUTED_TABLES}
"""What `xlamem.compute` derives from it."""

OOM: dict[str, Table] = {t.name: t for t in OOM_TABLES}
"""What `xlamem.parse.oom` reads from a log."""

_DUMP_ID = _name("dump_id", "XXH3-128 of the members' content hashes, the name, the labels and the partition values")
_LINEAGE = (
    _text("tool_version", "version of xlamem that wrote the row"),
    _int("schema_version", "schema.VERSION of that xlamem"),
    _text("run_id", "the run of `xlamem convert` that wrote it"),
    _text("host", "machine on which that ran"),
    Column("converted_at", "time", "when the run began"),
)


def _stored(table: Table, *before: Column) -> Table:
    return Table(table.name, table.row, table.source, (_DUMP_ID, *before, *table.columns))


DERIVED: dict[str, Table] = {
    t.name: t
    for t in (
        Table("labels", "label of a dump", "convert", (_text("key", "its name"), _text("value", "its value"))),
        Table(
            "peaks",
            "number of a dump, of one memory space or of all together",
            "compute",
            (
                _text("memory_space", "xlamem's name of the memory space; null for all together", null=True),
                _int("color", "color of the space; null for all together", null=True),
                _int("page", "page of the space; null for all together", null=True),
                _text("definition", "a key of schema.DEFINITIONS"),
                _int("bytes", "the number; null where the text cannot say", "bytes", null=True),
                _int("time", "the first step at which it is reached, if it has one", "schedule steps", null=True),
            ),
        ),
        Table(
            "peak_members",
            "row of the live set at the peak of a memory space: the largest ones",
            "compute",
            (_int("rank", "place in its space, from 0: the largest first"), *COMPUTED["live_set"].columns),
        ),
        Table(
            "explain_causes",
            "cause of a difference between a number in `peaks` and the peak of its space, or of all together",
            "compute",
            (
                _text("definition", "the number: a key of schema.DEFINITIONS"),
                *COMPUTED["explain_causes"].columns[1:],
            ),
        ),
        Table(
            "scopes",
            "named scope with bytes in use at the peak of a memory space",
            "compute",
            (
                *_SPACE,
                _text("scope", "as `attribution` by scope gives it; null for what has no op_name", null=True),
                _int("bytes", "bytes in use at the first step of the peak of the space", "bytes"),
                _int("n", "rows of the live set that they are made of"),
            ),
        ),
    )
}
"""What the converter adds to the tables of a dump."""

QUARANTINE = Table(
    "quarantine",
    "dump that could not be read",
    "convert",
    (
        _text("dump_id", "as elsewhere; where the content could not be read: hash of the place (and of a bad content)"),
        _text("name", "name of the dump"),
        _text("uri", "file in which the error lies"),
        _int("line", "line, from 1", null=True),
        _int("offset", "byte offset in the file, from 0", "bytes", null=True),
        _text("error", "what is wrong"),
        _text("excerpt", "what stood there, shortened"),
        *_LINEAGE,
        _text(
            "kind",
            "content: it stays until its content or xlamem's version changes; "
            "system (I/O, memory, a worker that died): the next run tries it again",
            null=True,
        ),
        _int("attempts", "runs that tried it and failed, the last of them for this error", null=True),
    ),
)

WAREHOUSE: dict[str, Table] = {
    **{name: _stored(table, *(_LINEAGE if table is MODULES else ())) for name, table in TABLES.items()},
    **{name: _stored(table) for name, table in DERIVED.items()},
    "quarantine": QUARANTINE,
}
"""What a dataset of `xlamem convert` holds; see `Table.warehouse` for the types in Parquet."""

ROLES = {
    "buffer-assignment": "allocations; up to 2025 everything else too",
    "buffer-assignment-values": "total and used values",
    "live-range": "schedule, live ranges, XLA's own peak",
    "memory-usage-report": "XLA's own report",
    "hlo": "HLO text, of which only the head is read",
}

FEATURES = {
    "address": "allocations have a heap address",
    "cross_color": "blocks 'reused by buffers of a different color'",
    "crlf": "every line ends in CR LF",
    "e0_values": "values as NAME[i](#ID @C) [offset,size]: shape",
    "e1_values": "values as blocks with positions and uses inside the allocation",
    "frames": "stack-frame tables in the HLO text",
    "from_instruction": "used values print their instruction",
    "from_instruction_blank": "with a blank after the colon",
    "glued": "no newline after the instruction: the next record follows on the same line",
    "human_total": "the total is printed for people too",
    "live_inline": "live ranges in the same file as the allocations",
    "live_split": "live ranges in a file of their own",
    "live_unavailable": "live ranges were released before the dump was written",
    "log": "taken out of a log: its lines had prefixes",
    "not_utf8": "some bytes are not UTF-8",
    "operand_shapes": "operands are printed with their shapes",
    "page": "allocations have a page",
    "peak_a": "peak list without index",
    "peak_b": "peak list with index",
    "peak_c": "peak list with index and running total",
    "report_a": "memory-usage report, first layout",
    "report_b": "memory-usage report, second layout",
    "tree": "stack trace breakdown of the peak",
    "tree_spaced": "its numbers have a blank every three digits",
    "uses_none": "'(none)' stands where a value has no uses",
    "uses_unknown": "'uses are not initialized yet.' stands in some record",
    "values_inline": "used values in the same file as the allocations",
    "values_split": "used values in a file of their own",
}

CODES = {
    "truncated": "the file ends before its text does",
    "unknown_line": "a line that no rule explains",
    "unknown_field": "lines have a field that this version does not know: kept verbatim in the table `unknown_text`",
    "more_diagnostics": "there are more diagnostics of one code in a file than are listed: how many",
    "not_utf8": "bytes that are not UTF-8 were stored as \\xNN",
    "mixed_newlines": "some lines end in CR LF and some in LF",
    "instruction_differs": "an instruction is printed again with another text",
    "total_differs": "the allocations' sizes do not add up to the printed total",
    "records_differ": "the used values are not the values of the allocations",
    "value_outside": "a value ends beyond its allocation",
    "ids_descend": "value ids do not ascend within an allocation or in the used values",
    "schedule_gap": "the schedule is not 0, 1, 2, …",
    "steps_differ": "the schedule has another number of steps than its head says",
    "range_outside": "live ranges start before the schedule, end behind it, or end before they start",
    "live_range_missing": "a value of a temp allocation has no live range: it counts as live at every step",
    "live_range_unmatched": "a live range names a value that no allocation holds",
    "tree_differs": "the tree's roots do not add up to the total in its head",
    "report_differs": "the report contradicts the allocations",
}

NOT_UNDERSTOOD = {"unknown_line", "unknown_field"}
NOT_CONSISTENT = CODES.keys() - NOT_UNDERSTOOD - {"truncated", "more_diagnostics", "not_utf8", "mixed_newlines"}
"""The codes that say that a dump is not `understood`, and not `consistent`."""

PROBLEMS = {"complete": "truncated", "understood": "not understood", "consistent": "not consistent"}
"""What a dump is if one of these columns of `modules` is false."""

SPACES: dict[str, dict[int, str]] = {
    "tpu": {0: "hbm", 1: "vmem", 2: "sflag", 3: "cmem", 4: "smem", 5: "host"},
    "gpu": {0: "device", 1: "collective", 2: "temp", 5: "host"},
    "cpu": {0: "memory", 5: "host"},
}


DEVICE_MEMORY: dict[str, set[int]] = {"tpu": {0, 7, 9}, "gpu": {0, 1, 2}, "cpu": {0}}
"""Colors in the device's main memory: on TPU also the SparseCore's private stack and pinned HBM."""
OTHER_MEMORY: dict[str, set[int]] = {"tpu": {1, 2, 3, 4, 5, 6, 8, 10, 11, 12}, "gpu": {5}, "cpu": {5}}
"""Colors known to be elsewhere: on the host, or in small memories on the chip."""


def in_device_memory(platform: str | None, color: int) -> bool:
    """Whether a color lives in the device's main memory; all but the host's where the platform is not known."""
    return color in DEVICE_MEMORY[platform] if platform in DEVICE_MEMORY else color != 5


def memory_space(platform: str | None, color: int) -> str:
    """xlamem's name for a color: XLA's own labels are wrong for several (FORMAT 4.4)."""
    return SPACES.get(platform or "", {}).get(color, f"color_{color}")


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
    """All of this module as plain data: what `xlamem schema --json` prints."""
    return {
        "version": VERSION,
        "tables": [_as_json(t) for t in TABLES.values()],
        "computed": [_as_json(t) for t in COMPUTED.values()],
        "oom": [_as_json(t) for t in OOM.values()],
        "warehouse": [_as_json(t) for t in WAREHOUSE.values()],
        "definitions": DEFINITIONS,
        "roles": ROLES,
        "features": FEATURES,
        "codes": CODES,
        "memory_spaces": {p: {str(c): n for c, n in s.items()} for p, s in SPACES.items()},
    }
