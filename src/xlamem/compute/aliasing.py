"""Find out which parameters share the allocation of an output, and which ones could if they were donated."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..dump import DumpLike
from ..parse.arrays import row_of
from .columns import (
    Ints,
    Mask,
    arrow_array,
    computed_table,
    decoded,
    encoded,
    ints,
    nullable,
    runs,
    take,
    texts_of,
)
from .layout import DONATED, LIVE_OUT, MAX_TOTAL_BYTES, PARAMETER
from .program import Program, distinct_rows, program
from .uses import use_steps

PARTITIONED = {"sharding": r"devices=|'=(?:[2-9]|\d\d)", "opcode": "^(?:all-|collective-|reduce-scatter|partition-id)"}
"""Patterns that occur only in programs for several devices: shardings such as ``{devices=[4,1]<=[4]}`` or
``{mesh['x'=4], …}``, and collectives."""

STATES = ("taken", "refused", "no")


def donation(dump: DumpLike) -> pa.Table:
    """Return whether the allocation of each entry parameter is donated, and what donating it could save.

    ``taken``: the allocation holds a parameter and is live-out, so XLA reuses it for an output. ``refused``: the
    header of the HLO text lists it as an alias or donor, but it holds no output.

    For the others, ``candidate`` means that XLA would alias the parameter with an output if it were donated. JAX
    requires the same number of elements, and XLA the same number of bytes on the device and the same memory space.
    Shape and element type may differ, unless ``exact`` is true. Like JAX, xlamem matches each output with one parameter
    in the order of their numbers, exact matches first. The output of a donated parameter needs no separate allocation.
    This saves at most its size, and nothing if XLA has to copy because the parameter is still read when the output is
    written. These bounds ignore changes of other temporaries. ``free_in_schedule`` means that, in the current schedule,
    the last read of the parameter is not after the first write to the allocation of the output.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``donation`` in bytes and steps, sorted by parameter number. ``last_use`` is null if there are no uses.
    """
    p = program(dump)
    parameters, outputs, match = matched(p)
    taken = p.category[parameters.allocation] == DONATED
    listed, printed_output = _listed_aliases(p, parameters)
    candidate, output = match.output >= 0, take(outputs.value, match.output)
    output_of_parameter = row_of(p.owner[outputs.value].astype(np.int64), parameters.allocation)
    size = p.allocation_size[parameters.allocation]
    columns = {"parameter": parameters.number, "parameter_index": parameters.index}
    row = take(p.instruction_row, parameters.value)
    columns["op_name"] = texts_of(p.texts("instructions", "op_name"), row)
    columns.update(p.space_columns(p.space_of_allocation[parameters.allocation]))
    columns["allocation"], columns["size"] = p.allocation_ids[parameters.allocation], size
    columns["shape"] = p.value_text("shape", parameters.value)
    columns["state"] = decoded(np.where(taken, 0, np.where(listed, 1, 2)), pa.array(STATES, pa.string()))
    columns["output_index"] = pc.coalesce(printed_output, pc.take(outputs.index, nullable(output_of_parameter)))
    columns["candidate"], columns["exact"] = candidate, match.exact
    columns["candidate_output"] = pc.take(outputs.index, nullable(match.output))
    columns["candidate_instruction"] = p.value_text("instruction", output)
    columns["candidate_shape_index"] = p.value_text("shape_index", output)
    columns["saving_lower"] = arrow_array(np.zeros_like(size), ~candidate)
    columns["saving_upper"] = arrow_array(size, ~candidate)
    columns.update(_schedule_columns(p, parameters.value, output))
    return computed_table("donation", columns)


def matched(p: Program) -> tuple[Parameters, Outputs, Match]:
    """Return the parameters and outputs, and the output with which XLA would alias each parameter that is not taken."""
    return p.once("matched parameters", lambda: _matched(p))


def _matched(p: Program) -> tuple[Parameters, Outputs, Match]:
    parameters, outputs = _parameters(p), outputs_of(p)
    taken = p.category[parameters.allocation] == DONATED
    return parameters, outputs, _match(p, parameters, outputs, np.flatnonzero(~taken & (parameters.value >= 0)))


# -- parameters and outputs ----------------------------------------------------------------------


class Parameters(NamedTuple):
    """The allocations of entry parameters, by number and index."""

    allocation: Ints
    """Row in `allocations`."""
    value: Ints
    """Row in `values` that represents the allocation, -1 for none."""
    number: Ints
    index: pa.Array


class Outputs(NamedTuple):
    """The outputs of a program."""

    value: Ints
    """Row in `values`."""
    index: pa.Array
    """Index into the output shape; null if unknown."""


def _parameters(p: Program) -> Parameters:
    rows = np.flatnonzero((p.category == PARAMETER) | (p.category == DONATED))
    number = ints(p.allocations, "parameter_number")[rows]
    index = _shape_indices(pc.take(p.allocations["parameter_shape_index"], arrow_array(rows)))
    order = np.lexsort((_ranks(index), number))
    return Parameters(rows[order], p.representative[rows[order]], number[order], pc.take(index, arrow_array(order)))


def outputs_of(p: Program) -> Outputs:
    """Return the outputs. Without live ranges, only those that are alone in their allocation can be identified."""
    return p.once("outputs", partial(_outputs_of, p))


def _outputs_of(p: Program) -> Outputs:
    values = np.flatnonzero((p.value_category == LIVE_OUT) | (p.value_category == DONATED))
    if p.steps is not None:
        values = values[p.is_output(values)]
    else:
        values = values[np.bincount(p.owner, minlength=1)[p.owner[values]] == 1]
    values = values[np.unique(p.owner[values], return_index=True)[1]]
    positions, schedule = p.tables["positions"], p.tables["schedule"]
    if not schedule.num_rows:
        return Outputs(values, pa.nulls(len(values), pa.string()))
    # The root of the program is its last instruction.
    root = schedule["instruction"][int(ints(schedule, "time").argmax())].as_py()
    codes, names = encoded(positions["instruction"])
    at_root = np.flatnonzero(codes == pc.index(names, root).as_py())
    row = row_of(ints(positions, "value_id")[at_root], p.value_ids[values])
    index = _shape_indices(pc.take(positions["shape_index"], arrow_array(at_root)))
    return Outputs(values, pc.take(index, nullable(row)))


def _listed_aliases(p: Program, parameters: Parameters) -> tuple[Mask, pa.Array]:
    """Return which parameters the HLO header lists as aliases or donors, and the output index printed for them."""
    aliases = p.tables["aliases"]
    listed = _keys(ints(aliases, "parameter"), _shape_indices(aliases["parameter_index"]))
    row = pc.index_in(_keys(parameters.number, parameters.index), listed)
    output = pc.replace_substring(pc.cast(aliases["output_index"], pa.string()).combine_chunks(), " ", "")
    return pc.is_valid(row).to_numpy(zero_copy_only=False), pc.take(output, row)


def _shape_indices(column: pa.ChunkedArray) -> pa.Array:
    """Return shape indices as text without spaces, and ``{}`` if none is printed."""
    texts = pc.fill_null(pc.cast(column, pa.string()).combine_chunks(), "{}")
    return pc.replace_substring(texts, " ", "")


def _ranks(indices: pa.Array) -> Ints:
    """Return the rank of each shape index in numeric order, with {2} before {10}."""
    encoded_indices = pc.dictionary_encode(indices)
    texts = encoded_indices.dictionary.to_pylist()
    numbers = [[(len(n), n) for n in re.findall(r"[1-9]\d*|0", text or "")] for text in texts]  # of any length
    rank = np.empty(len(numbers), np.int64)
    rank[sorted(range(len(numbers)), key=numbers.__getitem__)] = np.arange(len(numbers))
    codes = np.asarray(pc.fill_null(encoded_indices.indices, -1).to_numpy(zero_copy_only=False), np.int64)
    return np.where(codes >= 0, rank[codes], -1) if len(numbers) else codes


def _keys(number: Ints, index: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pc.cast(arrow_array(number), pa.string()), index, "")


# -- the schedule --------------------------------------------------------------------------------


def _schedule_columns(p: Program, parameter: Ints, output: Ints) -> dict[str, pa.Array]:
    """Return the columns last_use and free_in_schedule."""
    last = np.full(len(p.owner), -1, np.int64)
    value, step = use_steps(p)
    np.maximum.at(last, value, step)
    last_use = np.full(len(parameter), -1, np.int64)
    last_use[parameter >= 0] = last[parameter[parameter >= 0]]
    timed = (output >= 0) & (p.steps is not None) & bool(p.tables["uses"].num_rows)
    written = np.full(len(parameter), -1, np.int64)
    written[timed] = _first_writes(p)[p.owner[output[timed]]]
    return {"last_use": nullable(last_use), "free_in_schedule": arrow_array(written >= last_use, ~timed)}


def _first_writes(p: Program) -> Ints:
    """Return the first step at which a value of each allocation is live, or the largest number if none is."""
    steps = np.full(len(p.allocation_ids), np.iinfo(np.int64).max)
    start, _ = p.ranges
    np.minimum.at(steps, p.owner[start >= 0], start[start >= 0])
    return steps


# -- matching ------------------------------------------------------------------------------------


class Match(NamedTuple):
    """The output with which each parameter would be aliased."""

    output: Ints
    """Index of the output, -1 for none."""
    exact: Mask
    """Whether shape and element type are the same."""


def _match(p: Program, parameters: Parameters, outputs: Outputs, candidates: Ints) -> Match:
    """Match these parameters with outputs that share no allocation with a parameter, in the order of their indices."""
    free = np.flatnonzero(p.value_category[outputs.value] == LIVE_OUT)
    free = free[np.argsort(_ranks(pc.take(outputs.index, arrow_array(free))), kind="stable")]
    match = _match_values(p, parameters.value[candidates], outputs.value[free])
    output, exact = np.full(len(parameters.value), -1, np.int64), np.zeros(len(parameters.value), bool)
    matched = match.output >= 0
    output[candidates[matched]] = free[match.output[matched]]
    exact[candidates] = match.exact
    return Match(output, exact)


def _match_values(p: Program, parameters: Ints, outputs: Ints) -> Match:
    """Match these values as JAX and XLA do.

    JAX first matches equal shapes and element types, then equal numbers of elements, always in order. XLA rematches the
    latter by bytes. In a program for several devices, XLA matches everything by bytes (unless `out_shardings` assigns
    each output).
    """
    both = np.concatenate([parameters, outputs])
    form, elements = _forms(p.value_text("shape", both))
    if is_partitioned(p):
        elements = np.zeros_like(elements)
    slot = np.stack([p.space_of_allocation[p.owner[both]], p.allocation_size[p.owner[both]]], axis=1)
    n = len(parameters)

    def pairs(left: Ints, right: Ints, *more: Ints) -> Ints:
        keys = np.column_stack([slot, *more])
        return _pair(keys[:n][left], keys[n:][right])

    output, exact = np.full(n, -1, np.int64), np.zeros(n, bool)
    left, right = np.flatnonzero(form[:n] >= 0), np.flatnonzero(form[n:] >= 0)
    partner = pairs(left, right, form)
    matched = partner >= 0
    output[left[matched]], exact[left[matched]] = right[partner[matched]], True
    left, right = left[~matched], np.delete(right, partner[matched])
    left = left[pairs(left, right, elements) >= 0]
    output[left] = right[pairs(left, right)]
    return Match(output, exact)


def is_partitioned(p: Program) -> bool:
    """Return whether the program is for several devices. Its shapes are those on each of them."""
    texts = {column: pc.cast(p.tables["instructions"][column], pa.string()) for column in PARTITIONED}
    return any(pc.any(pc.match_substring_regex(texts[c], pattern)).as_py() for c, pattern in PARTITIONED.items())


def _forms(shapes: pa.DictionaryArray) -> tuple[Ints, Ints]:
    """Return a code for the element type and dimensions of each array, and its number of elements; -1 for tuples."""
    matches = [re.match(r"(\w+)\[([\d,<= ]*)\]", text or "") for text in shapes.dictionary.to_pylist()]
    forms = pc.dictionary_encode(pa.array([m and m[0] for m in matches], pa.string()))
    form = pc.fill_null(forms.indices, -1).to_numpy(zero_copy_only=False)
    elements = [_product(re.findall(r"\d+", m[2])) if m else -1 for m in matches]
    codes = pc.fill_null(shapes.indices, -1).to_numpy(zero_copy_only=False)
    return tuple(np.append(np.array(c, np.int64), -1)[codes] for c in (form, elements))


def _product(dimensions: list[str]) -> int:
    """Return the number of elements; -1 if there are too many for an allocation, however long the text is."""
    product = 1
    for digits in dimensions:
        product = min(product * (int(digits) if len(digits) < 20 else MAX_TOTAL_BYTES), MAX_TOTAL_BYTES)
    return product if product < MAX_TOTAL_BYTES else -1


def _pair(left: Ints, right: Ints) -> Ints:
    """Pair the k-th occurrence of each key in `left` with its k-th occurrence in `right`; -1 for none."""
    n = len(left)
    code = distinct_rows(*np.concatenate([left, right]).T)
    occurrence = np.empty(len(code), np.int64)
    for side in (slice(n), slice(n, None)):
        order = np.argsort(code[side], kind="stable")
        first, last = runs(code[side][order])
        occurrence[side][order] = np.arange(len(order)) - np.repeat(first, last - first + 1)
    keys = code * len(code) + occurrence
    return row_of(keys[n:], keys[:n])
