"""Names of buffers as columns: op_name, source line, origin, argument, layer, phase and kind."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..dump import hlo_body
from ..parse.hlo_body import CALLS, HloBody
from .callers import function_paths
from .columns import Ints, Mask, arrow_array, decoded, encoded, flags_of, ints, nullable, take, take_text
from .hlo_flow import operand_items
from .op_names import (
    OPTIMIZER,
    PHASES,
    is_optimizer_file,
    is_optimizer_state,
    layers,
    matching,
    patterns_of,
)
from .origins import HLO, NONE, ORIGINS, USER, has_opcode, operands_of, origins, uses_of
from .program import Program
from .slice_reads import SliceReads, are_read

KINDS = (
    "parameter",
    "optimizer state",
    "gradient",
    "activation",
    "residual of a scan",
    "collective",
    "copy between memories",
    "tuple table",
    "scratch",
)
_PARAMETER, _STATE, _GRADIENT, _ACTIVATION, _RESIDUAL, _COLLECTIVE, _COPY, _TUPLE, _SCRATCH = range(len(KINDS))

_COLLECTIVES = (
    r"^(?:all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute|collective-broadcast|"
    r"send|recv)(?:-start|-done)?$"
)
_COPIES = r"^(?:copy|copy-start|slice-start|dynamic-slice-start)$"
_SYNC_FLAGS = ("sflag", "smem")
_TRIP_COUNT = r'"known_trip_count":\s*\{"n":\s*"?(?P<n>\d{1,18})'

_UPDATES = "dynamic[-_]update[-_]slice"
_SIZES = 10**9
"""More than any size of a dimension that is compared with a trip count: they have at most nine digits."""
MIN_READ = 0.05
"""Minimum size of a buffer of which the HLO text tells whether a loop reads slices, as a share of all allocations."""
MAX_NESTING = 8
"""Maximum number of fusions in fusions. In a damaged text, one may call itself."""


def source_columns(p: Program, values: Ints) -> dict[str, pa.Array]:
    """Return the columns op_name, source_file and source_line of these values (null for -1).

    Buffers without an op_name of their own have that of their origin (see `Origins`).
    """
    rows, lines, names = _rows(p, values), _rows_of_lines(p, values), origins(p).names
    return names.columns(lines) | {"op_name": names.columns(rows)["op_name"]}


def stack_frames(p: Program, values: Ints) -> Ints:
    """Return the id of the stack frame of the instruction that names each value, -1 if it has none."""
    return take(ints(origins(p).names.table, "stack_frame"), _rows_of_lines(p, values))


def functions(p: Program, values: Ints) -> pa.Array:
    """Return the functions of the model that call each other where each value is named (see `function_paths`)."""
    frames = p.optional("frames")
    if frames is None or not frames.num_rows:
        return pa.nulls(len(values), pa.string())
    return decoded(*function_paths(frames, stack_frames(p, values)))


def buffer_names(p: Program, values: Ints, wanted: Collection[str] | None = None) -> dict[str, pa.Array]:
    """Return the columns of `live_set` that name these values (null for -1); with `wanted`, at least these."""
    columns: dict[str, pa.Array] = {}
    for names, name_columns in _NAMES.items():
        if wanted is None or any(name in wanted for name in names):
            columns |= name_columns(p, values)
    return columns


def _origin_columns(p: Program, values: Ints) -> dict[str, pa.Array]:
    found = origins(p)
    argument = take(found.argument, values)
    return {
        "origin": decoded(np.where(values >= 0, take(found.origin, values), NONE), pa.array(ORIGINS, pa.string())),
        "origin_instruction": found.names.instructions(take(found.source, values)),
        "argument": nullable(take(ints(p.allocations, "parameter_number"), argument)),
        "argument_index": take_text(p.allocations["parameter_shape_index"], argument),
    }


def _layer_columns(p: Program, values: Ints) -> dict[str, pa.Array]:
    layer, index = _layers(origins(p).names.columns(_rows(p, values))["op_name"])
    return {"layer": layer, "layer_index": index}


def _kind_columns(p: Program, values: Ints) -> dict[str, pa.Array]:
    phase, iterations = phases_of_values(p, values), _iterations(p, values)
    is_read = take(p.once("read by slices", partial(_is_read_by_slices, p)), values) > 0
    return {
        "phase": decoded(phase, pa.array(PHASES, pa.string())),
        "kind": decoded(_kinds(p, values, _contents_of(p, values, phase, iterations)), pa.array(KINDS, pa.string())),
        "iterations": nullable(np.where(is_read & (iterations < 0), _first_dimension(p, values), iterations)),
    }


_NAMES = {
    ("op_name", "source_file", "source_line"): source_columns,
    ("origin", "origin_instruction", "argument", "argument_index"): _origin_columns,
    ("layer", "layer_index"): _layer_columns,
    ("phase", "kind", "iterations"): _kind_columns,
}
"""What computes the columns that name buffers."""


def _rows(p: Program, values: Ints) -> Ints:
    """Return the rows of `NamedInstructions` that name these values: of their origins, or else their own.

    That of an argument has no name in old versions of JAX.
    """
    source = take(origins(p).source, values)
    return np.where(source < 0, take(p.instruction_row, values), source)


def _rows_of_lines(p: Program, values: Ints) -> Ints:
    """Return the rows of `NamedInstructions` that have the source lines of these values.

    A name that is only known from a user says less than the line of a value that has an op_name, if only that of a
    move: the gradient of a mean is broadcast, and has the line of the mean.
    """
    rows, own, names = _rows(p, values), take(p.instruction_row, values), origins(p).names
    is_clear = (names.op_name[0] >= 0) & (names.innermost_file[0] >= 0) & ~names.is_control_flow
    return np.where((take(origins(p).origin, values) == USER) & (take(is_clear, own) > 0), own, rows)


def _layers(op_names: pa.Array) -> tuple[pa.Array, pa.Array]:
    codes, names = encoded(op_names)
    used, row = np.unique(codes, return_inverse=True)
    layer, index = layers(pc.cast(decoded(used, names), pa.string()))
    rows = arrow_array(row.ravel())
    return pc.take(layer, rows), pc.take(index, rows)


# -- phases --------------------------------------------------------------------------------------


def phases_of_values(p: Program, values: Ints) -> Ints:
    """Return the phase of each value as an index in PHASES, -1 if it is not known.

    A phase that is only known from a user is not: that may belong to another phase. An element of a fusion with a full
    name of its own has the phase of that name or none: an update is no gradient, although it is fused with a product.
    """
    rows, origin = _rows(p, values), take(origins(p).origin, values)
    phase = phases_of_rows(p, rows)
    codes, names = origins(p).names.op_name
    is_full = flags_of(matching(names, r"^jit\("), take(codes, rows)) & (origin == HLO)
    is_guess = (origin == USER) | ((phase < 0) & ~is_full)
    return np.where(is_guess, phases_of_rows(p, take(p.instruction_row, values)), phase)


def phases_of_rows(p: Program, rows: Ints) -> Ints:
    """Return the phase of each of these rows of `NamedInstructions` as an index in PHASES, -1 if it is not known."""
    named = origins(p).names
    phase = take(named.phase, take(named.op_name[0], rows))
    codes, files = named.innermost_file
    in_optimizer = take(is_optimizer_file(pc.cast(files, pa.string())), take(codes, rows)) > 0
    return np.where((phase < 0) & in_optimizer, OPTIMIZER, phase)


# -- kinds ---------------------------------------------------------------------------------------


def contents(p: Program, values: Ints) -> Ints:
    """Return whether each value is an activation, a residual of a scan or a gradient, as an index in KINDS, or -1."""
    return _contents_of(p, values, phases_of_values(p, values), _iterations(p, values))


def _contents_of(p: Program, values: Ints, phase: Ints, iterations: Ints) -> Ints:
    """Return the content of values of these phases. A copy of an argument has the phase of what moves it."""
    is_copy = (take(origins(p).argument, values) >= 0) & (iterations <= 0)
    return _contents(np.where(is_copy, -1, phase), iterations)


def _contents(phase: Ints, iterations: Ints) -> Ints:
    forward = (phase == PHASES.index("forward")) | (phase == PHASES.index("recompute"))
    conditions = [forward & (iterations > 0), forward, phase == PHASES.index("backward")]
    return np.select(conditions, [_RESIDUAL, _ACTIVATION, _GRADIENT], -1)


def _kinds(p: Program, values: Ints, content: Ints) -> Ints:
    """Return the kind of each value, -1 if it is not known. A copy has the kind of what it copies, if that is known."""
    live = values >= 0
    is_argument = np.isin(values, p.entry_parameters)
    conditions = [
        (live & _is_tuple(p, values), _TUPLE),
        (is_argument & _is_state(p, values), _STATE),
        (is_argument, _PARAMETER),
        (live & (_is_sync_flag(p, values) | _is_workspace(p, values)), _SCRATCH),
        (_has_opcode(p, values, _COLLECTIVES), _COLLECTIVE),
        ((content < 0) & _moves_between_memories(p, values), _COPY),
    ]
    return np.select([c for c, _ in conditions], [k for _, k in conditions], content)


def _is_tuple(p: Program, values: Ints) -> Mask:
    codes, names = p.texts("values", "element_type")
    is_tuple: Mask = take(codes, values) == _code_of(names, "tuple")
    return is_tuple


def _is_state(p: Program, values: Ints) -> Mask:
    codes, names = origins(p).names.op_name
    return take(is_optimizer_state(names), take(codes, _rows(p, values))) > 0


def _is_sync_flag(p: Program, values: Ints) -> Mask:
    names = np.array([s.name in _SYNC_FLAGS for s in p.spaces], bool)
    return take(names, take(p.space, values)) > 0


def _is_workspace(p: Program, values: Ints) -> Mask:
    """Return which values are bytes that a custom call or an asynchronous operation needs besides its result.

    The third element of an asynchronous start is its context; those of an all-reduce-start are results.
    """
    codes, names = p.texts("values", "element_type")
    is_byte = np.isin(take(codes, values), [_code_of(names, "u8"), _code_of(names, "s8")])
    index = p.element
    requested = is_byte & (take(index, values) > 0) & _has_opcode(p, values, "^custom-call$")
    context = (take(index, values) == 2) & _has_opcode(p, values, "-(?:start|update)$")
    context &= ~_has_opcode(p, values, "^all-reduce-start$")
    is_workspace: Mask = requested | context
    return is_workspace


def _has_opcode(p: Program, values: Ints, pattern: str) -> Mask:
    return has_opcode(p, take(p.instruction_row, values), pattern)


def _moves_between_memories(p: Program, values: Ints) -> Mask:
    """Return which values are copies of a value in another memory space."""
    moved = np.zeros(len(values), bool)
    copies = np.flatnonzero((values >= 0) & _has_opcode(p, values, _COPIES))
    rows = values[copies]
    operand = operands_of(p, rows, np.zeros(len(rows), np.int64))
    moved[copies] = (operand >= 0) & (take(p.space, operand) != p.space[rows])
    return moved


def _code_of(names: pa.Array, text: str) -> int:
    code: int = pc.index(pc.cast(names, pa.string()), text).as_py()
    return code if code >= 0 else -2


# -- loops ---------------------------------------------------------------------------------------


def _iterations(p: Program, values: Ints) -> Ints:
    """Return the number of iterations that each value has one slice for, -1 for other values.

    These are arrays in a chain (see `Program.chains`) that a loop carries and writes or reads slice by slice, whose
    first dimension is the trip count of the loop.
    """
    first, carried = _first_dimension(p, values), p.once("carried slices", partial(_carried_slices, p))
    is_sliced = take(p.once("sliced", partial(_is_sliced, p)), values) > 0
    is_count = np.isin(np.where(values >= 0, take(p.chains, values) * _SIZES + first, -1), carried)
    return np.where(is_sliced & (first > 1) & is_count, first, -1)


def _is_read_by_slices(p: Program) -> Mask:
    """Return which large temporaries loops only read, and slice by slice in fusions, which the HLO text shows."""
    first = _first_dimension(p, np.arange(len(p.owner)))
    carried = p.once("carried slices", partial(_carried_slices, p))
    is_large = p.in_temp & (p.size >= MIN_READ * float(p.allocation_size.sum(dtype=np.float64)))
    is_large &= ~p.once("sliced", partial(_is_sliced, p)) & are_read(p)
    candidates = np.flatnonzero(is_large & (first > 1) & np.isin(p.chains * _SIZES + first, carried))
    found = np.zeros(len(p.owner), bool)
    if len(candidates) and (body := hlo_body(p.tables)) is not None:
        reads = SliceReads(p, body)
        found[candidates] = [reads.are_only_slices(value) for value in candidates.tolist()]
    return found


def stacked_over(p: Program, values: Ints, loops: Mask) -> Ints:
    """Return the number of iterations in which one of these loops writes a slice of each value, -1 for others."""
    iterations, chains = _iterations(p, values), take(p.chains, values)
    _, carried, loop, counts = p.once("loops", partial(_loops, p))
    carried, loop = carried[loops[loop]], loop[loops[loop]]
    is_written = (take(_slices(p, _UPDATES), p.instruction_row) > 0) | origins(p).is_stacked
    stacked = (iterations > 0) & np.isin(chains, p.chains[is_written])
    stacked &= np.isin(chains * _SIZES + iterations, p.chains[carried] * _SIZES + np.minimum(counts[loop], _SIZES - 1))
    return np.where(stacked, iterations, -1)


def _is_sliced(p: Program) -> Mask:
    """Return which values are written or read slice by slice, or are in a chain with one that is."""
    value, user, _, _ = uses_of(p)
    sliced = take(_slices(p, r"dynamic[-_](?:update[-_])?slice"), p.instruction_row) > 0
    sliced |= origins(p).is_stacked
    sliced[value[(value >= 0) & (take(_slices(p, r"dynamic[-_]slice"), user) > 0)]] = True
    is_sliced: Mask = np.isin(p.chains, p.chains[sliced])
    return is_sliced


def _slices(p: Program, pattern: str) -> Mask:
    """Return which instructions slice, by their name or their op_name."""
    by_name = np.zeros(p.tables["instructions"].num_rows, bool)
    for column in ("instruction", "op_name"):
        codes, names = p.texts("instructions", column)
        of_name, patterns = p.once(("patterns", column), partial(patterns_of, pc.cast(names, pa.string())))
        by_name |= flags_of(matching(patterns, pattern)[of_name], codes)
    return by_name


def _first_dimension(p: Program, values: Ints) -> Ints:
    codes, shapes = p.texts("values", "shape")
    sizes = pc.struct_field(pc.extract_regex(pc.cast(shapes, pa.string()), r"^[a-z0-9]+\[(?P<n>\d{1,9})[,\]]"), "n")
    sizes = pc.fill_null(pc.cast(sizes, pa.int64()), -1).to_numpy(zero_copy_only=False)
    return take(np.asarray(sizes, np.int64), take(codes, values))


def trip_counts_of(p: Program) -> list[int]:
    """Return the trip count of each loop, -1 if it is not known."""
    is_loop, _, _, counts = p.once("loops", partial(_loops, p))
    return [int(n) for n in counts[is_loop]]


def trip_counts(p: Program) -> Ints:
    """Return the trip count of each instruction that is a loop, -1 if it is not known; others have any number."""
    return p.once("loops", partial(_loops, p))[3]


def _carried_slices(p: Program) -> Ints:
    """Return the pairs chain * _SIZES + trip count of what loops carry. Nested loops may carry the same."""
    _, value, loop, counts = p.once("loops", partial(_loops, p))
    known = counts[loop] > 1
    return p.chains[value[known]] * _SIZES + np.minimum(counts[loop[known]], _SIZES - 1)


def _loops(p: Program) -> tuple[Mask, Ints, Ints, Ints]:
    """Return which instructions are loops, pairs of a carried value and its loop, and trip counts by instruction."""
    positions = p.optional("positions")
    codes, opcodes = p.texts("instructions", "opcode")
    is_loop = codes == _code_of(opcodes, "while")
    loop = p.row_of_instruction(positions["instruction"])
    carried = np.flatnonzero(take(is_loop, loop) > 0)
    value, loop = p.row_of_value(ints(positions, "value_id")[carried]), loop[carried]
    value, loop = value[value >= 0], loop[value >= 0]
    counts = _printed_trip_counts(p, np.flatnonzero(is_loop))
    compared = _compared_trip_counts(p, np.flatnonzero(is_loop & (counts < 0)))
    counts = np.where(counts >= 0, counts, compared)
    unknown = counts[loop] < 0
    written = _written_slices(p, value[unknown], loop[unknown])
    return is_loop, value, loop, np.where(counts >= 0, counts, written)


def _printed_trip_counts(p: Program, loops: Ints) -> Ints:
    """Return the trip count in the backend_config of these rows of `instructions`; -1 for other rows."""
    table = p.tables["instructions"]
    counts = np.full(table.num_rows, -1)
    if len(loops):
        config = pc.cast(pc.take(table["backend_config"], arrow_array(loops)), pa.string()).combine_chunks()
        n = pc.fill_null(pc.cast(pc.struct_field(pc.extract_regex(config, _TRIP_COUNT), "n"), pa.int64()), -1)
        counts[loops] = n.to_numpy(zero_copy_only=False)
    return counts


def _compared_trip_counts(p: Program, loops: Ints) -> Ints:
    """Return the constant with which the HLO text compares the counter of these loops, else -1. Counters begin at 0."""
    table = p.tables["instructions"]
    counts = np.full(table.num_rows, -1)
    if not len(loops) or (body := hlo_body(p.tables)) is None:
        return counts
    row = np.repeat(np.arange(len(body)), np.diff(body.call_begin))
    condition, calls = np.full(len(body), -1), (body.call_kind == CALLS.index("condition")) & (body.call >= 0)
    condition[row[calls]] = body.call[calls]
    names = pc.cast(pc.take(table["instruction"], arrow_array(loops)), pa.string()).combine_chunks()
    loop = np.asarray(body.rows_of(names), np.int64)
    compare = take(np.asarray(body.root, np.int64), take(condition, loop))
    compare, limit = (
        p.row_of_instruction(pc.take(body.text("instruction"), nullable(rows)))
        for rows in (compare, _operand(body, compare, np.ones(len(loops), np.int64)))
    )
    less = pc.cast(take_text(table["attributes"], compare), pa.string())
    is_less = pc.fill_null(pc.match_substring_regex(less, r"\bdirection=LT\b"), False).to_numpy(zero_copy_only=False)
    is_known = is_less & has_opcode(p, compare, "^compare$") & has_opcode(p, limit, "^constant$")
    number = pc.cast(take_text(table["operands"], np.where(is_known, limit, -1)), pa.string())
    number = pc.fill_null(pc.cast(pc.struct_field(pc.extract_regex(number, r"^(?P<n>\d{1,9})$"), "n"), pa.int64()), -1)
    counts[loops] = number.to_numpy(zero_copy_only=False)
    return counts


def _written_slices(p: Program, value: Ints, loop: Ints) -> Ints:
    """Return the number of slices of the carries of each loop that are written slice by slice; -1 if it differs.

    A carry is written slice by slice if a dynamic-update-slice, which may be fused, writes to its chain, but not if it
    always writes at the same place of the first dimension: `x[:, i]`.
    """
    table = p.tables["instructions"]
    updates = _slices(p, _UPDATES)
    if len(loop):
        updates &= ~_writes_other_dimensions(p)
    written = p.chains[take(updates, p.instruction_row) > 0]
    selected = np.isin(p.chains[value], written)
    value, loop = value[selected], loop[selected]
    n = _first_dimension(p, value)
    low, high = np.full(table.num_rows, np.iinfo(np.int64).max), np.full(table.num_rows, -1)
    np.minimum.at(low, loop[n > 0], n[n > 0])
    np.maximum.at(high, loop[n > 0], n[n > 0])
    return np.where(low == high, high, -1)


def _writes_other_dimensions(p: Program) -> Mask:
    """Return which instructions only write slices whose index in the first dimension is a constant of the HLO text."""
    is_fixed, varies = (np.zeros(p.tables["instructions"].num_rows, bool) for _ in range(2))
    if (body := hlo_body(p.tables)) is None:
        return is_fixed
    codes, opcodes = encoded(body.text("opcode"))
    caller = np.full(len(body.computation_name), -1)
    fusions = np.flatnonzero(codes == _code_of(opcodes, "fusion"))
    caller[body.called[fusions]] = fusions
    at = np.flatnonzero(codes == _code_of(opcodes, "dynamic-update-slice"))
    index = _operand(body, at, np.full(len(at), 2))
    for _ in range(MAX_NESTING):
        is_constant = take(codes, index) == _code_of(opcodes, "constant")
        row = p.row_of_instruction(pc.take(body.text("instruction"), arrow_array(at)))
        is_fixed[row[(row >= 0) & is_constant]] = True
        varies[row[(row >= 0) & ~is_constant]] = True
        # An update in a fusion is one by the fusion, which may give it the index.
        outer = take(caller, np.asarray(body.computation[at], np.int64))
        number = take(np.asarray(body.parameter_number, np.int64), index)
        index = np.where(number >= 0, _operand(body, outer, number), index)[outer >= 0]
        at = outer[outer >= 0]
    is_fixed &= ~varies
    return is_fixed


def _operand(body: HloBody, rows: Ints, number: Ints) -> Ints:
    """Return the row of an operand of each of these rows of the HLO text, or -1."""
    return take(np.asarray(body.operand_row, np.int64), operand_items(body, rows, number))
