"""Tables that a dataset has in addition to those of its dumps: peaks, their causes, and what is in use at them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.charges import Charges, charge, live_set_columns
from ..compute.columns import Ints, Mask, arrow_array, groups_of, ints, nullable, runs, sums_of, table_of_columns
from ..compute.layout import MAX_DUMP_SPACES, MAX_TOTAL_BYTES, module_lengths
from ..compute.op_names import scopes
from ..compute.peaks import selected_steps
from ..compute.requirement import must_fit
from ..parse.interners import Interner
from .bill_sums import bill_sums
from .memory import release_memory
from .merged import DumpSet, MergedProgram, MergedTables
from .parquet import cast_table
from .peak_numbers import module_numbers, peak_numbers

MAX_CELLS = 1 << 22
"""Maximum number of cells (memory spaces times schedule steps) of merged dumps. A single dump may have more."""

OP_NAMES_PER_CALL = 1 << 16
"""Number of op_names that are converted to scopes at once."""

MAX_ID = 1 << 31
"""Dumps with larger ids or pages are not merged with others, because offsets could overflow."""


def derive(dumps: DumpSet, top: int) -> dict[str, pa.Table]:
    """Return `peaks`, `explain_causes`, `bills`, `peak_members` (the `top` largest of each space) and `scopes`."""
    names = ("peaks", "explain_causes", "bills", "peak_members", "scopes")
    tables: dict[str, list[pa.Table]] = {name: [] for name in names}
    tables["peaks"].append(module_numbers(dumps.tables["modules"], _device_totals(dumps)))
    for group in _groups(dumps):
        for name, table in _derive_merged(dumps.select(group), top):
            number = table["dump"].to_numpy()
            tables[name].append(table.set_column(0, "dump", pa.array(group[number])))
    return {name: _concatenated(name, pieces, dumps.ids) for name, pieces in tables.items() if pieces}


def device_numbers(dumps: DumpSet) -> tuple[pa.Array, pa.Array]:
    """Return `device_total` and `device_peak` of each dump, null where they are not known."""
    peak = np.full(len(dumps.ids), -1)
    for group in _groups(dumps):
        p = MergedProgram(MergedTables(dumps.select(group)))
        numbers, _ = peak_numbers(p, p.tables.offsets, p.dumps.tables["modules"])
        rows = pc.filter(numbers, pc.equal(numbers["definition"], "device_peak"))
        peak[group[ints(rows, "dump")]] = ints(rows, "bytes")
    return _device_totals(dumps), nullable(peak)


def _concatenated(name: str, tables: list[pa.Table], ids: list[str]) -> pa.Table:
    """Concatenate tables, sort the rows by dump, and cast them to the types of the dataset."""
    spec = schema.WAREHOUSE[name].warehouse
    numbered = pa.schema([pa.field("dump", pa.int64()), *list(spec)[1:]])
    table = pa.concat_tables([cast_table(t, numbered) for t in tables])
    table = pc.take(table, pa.array(np.argsort(ints(table, "dump"), kind="stable"))).combine_chunks()
    content_ids = pc.take(pa.array(ids, pa.string()), table["dump"].combine_chunks())
    return table.set_column(0, spec.field(0), content_ids)


# -- which dumps are merged ----------------------------------------------------------------------


def _groups(dumps: DumpSet) -> Iterator[Ints]:
    """Split the dumps that have peaks into groups to be merged, of similar schedule length and within MAX_CELLS."""
    n, lengths = len(dumps.ids), module_lengths(dumps.tables["modules"])
    has_allocations = np.bincount(dumps.dump_of_row["allocations"], minlength=n) > 0
    spaces, has_large_ids = _count_spaces(dumps), _has_large_ids(dumps)
    has_peaks = has_allocations & _has_valid_sizes(dumps) & (spaces <= MAX_DUMP_SPACES)
    for i in np.flatnonzero(has_peaks & has_large_ids).tolist():
        yield np.array([i])
    mergeable = np.flatnonzero(has_peaks & ~has_large_ids)
    for timed in (False, True):
        remaining = mergeable[(lengths[mergeable] >= 0) == timed]
        remaining = remaining[np.argsort(lengths[remaining], kind="stable")]
        while len(remaining):
            cells = np.cumsum(spaces[remaining]) * (lengths[remaining] + 1)
            stop = max(1, int(np.searchsorted(cells, MAX_CELLS, "right")))
            yield np.sort(remaining[:stop])
            remaining = remaining[stop:]


def _count_spaces(dumps: DumpSet) -> Ints:
    """Return the number of memory spaces of each dump."""
    allocations, dump = dumps.tables["allocations"], dumps.dump_of_row["allocations"]
    colors, color = np.unique(ints(allocations, "color"), return_inverse=True)
    pages, page = np.unique(np.maximum(ints(allocations, "page", 0), 0), return_inverse=True)
    spaces = np.unique((dump * len(colors) + color) * len(pages) + page)
    return np.bincount(spaces // max(len(colors) * len(pages), 1), minlength=len(dumps.ids))


def _has_valid_sizes(dumps: DumpSet) -> Mask:
    """Return which dumps have sizes and offsets that cannot overflow (see `Layout`); the others have no peaks."""
    total = np.zeros(len(dumps.ids))
    for table, column in (("allocations", "size"), ("values", "size"), ("values", "offset")):
        size = ints(dumps.tables[table], column, 0).astype(np.float64)
        total += np.bincount(dumps.dump_of_row[table], np.where(size < 0, np.inf, size), minlength=len(total))
    is_valid: Mask = total < MAX_TOTAL_BYTES
    return is_valid


def _has_large_ids(dumps: DumpSet) -> Mask:
    """Return which dumps have ids or pages below 0 or above MAX_ID."""
    large = np.zeros(len(dumps.ids), bool)
    for table, columns in (
        ("allocations", ("allocation", "page")), ("values", ("value_id", "allocation")), ("live_ranges", ("value_id",)),
        ("frames", ("id",)), ("instructions", ("stack_frame_id",)),
    ):  # fmt: skip
        for column in columns:
            number = ints(dumps.tables[table], column, 0)
            large[dumps.dump_of_row[table][(number < 0) | (number >= MAX_ID)]] = True
    return large


def _device_totals(dumps: DumpSet) -> pa.Array:
    """Return the `device_total` of each dump, null if it has no allocations."""
    allocations, dump = dumps.tables["allocations"], dumps.dump_of_row["allocations"]
    totals = np.full(len(dumps.ids), -1)
    totals[dump] = 0
    platforms = np.array(dumps.tables["modules"]["platform"].to_pylist(), object)
    for platform in {*platforms}:
        selected = np.flatnonzero(platforms[dump] == platform)
        rows = pc.take(allocations.select(["color", "size", "is_thread_local"]), pa.array(selected))
        counted = must_fit(rows, platform)
        np.add.at(totals, dump[selected[counted]], ints(rows, "size")[counted])
    return nullable(np.where(_has_valid_sizes(dumps), totals, -1))


# -- the tables of merged dumps ------------------------------------------------------------------


def _derive_merged(dumps: DumpSet, top: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the derived tables of a group. Their first column is the index of the dump in the group."""
    p = MergedProgram(MergedTables(dumps))
    modules = dumps.tables["modules"]
    numbers, causes = dumps.large.numbers if dumps.large else peak_numbers(p, p.tables.offsets, modules)
    yield "peaks", numbers
    yield "explain_causes", causes.table(modules)
    yield "bills", dumps.large.bills if dumps.large else bill_sums(p, p.tables.offsets, modules)
    if p.steps is not None:
        charges = charge(p, selected_steps(p))
        yield "peak_members", _peak_members(p, charges, top)
        if dumps.large:
            release_memory()
        yield "scopes", _scopes(p, charges)


def _peak_members(p: MergedProgram, charges: Charges, top: int) -> pa.Table:
    """Return the largest rows of the live set of each space, with their rank."""
    page, color = (np.array(column, np.int64) for column in ([s.page for s in p.spaces], [s.color for s in p.spaces]))
    local = p.tables.offsets.local_page(page)
    space_order = np.argsort(np.lexsort((local.page, color, local.dump)))
    space = space_order[p.space_of_allocation[charges.owner]]
    order = np.lexsort((p.allocation_ids[charges.owner], -charges.bytes, space))
    first, last = runs(space[order])
    rank = np.arange(len(order)) - np.repeat(first, last - first + 1)
    rows = order[rank < top]
    columns = live_set_columns(p, charges, rows) | p.source_columns(charges.value[rows])
    specs = schema.DERIVED["peak_members"].columns
    table = p.tables.offsets.split(table_of_columns([c for c in specs if c.name in columns], columns))
    return table.add_column(1, "rank", pa.array(rank[rank < top]))


def _scopes(p: MergedProgram, charges: Charges) -> pa.Table:
    """Return the bytes in use at the peak of each space, by scope."""
    codes, op_names, _ = p.op_names(charges.value)
    scope_of_name, names = _scope_codes(codes, op_names)
    width = len(names.names) + 1
    key = p.space_of_allocation[charges.owner] * width + scope_of_name[codes] + 1
    first, group = groups_of(key)
    space, scope = np.divmod(key[first], width)
    columns = p.space_columns(space)
    columns["scope"] = pc.cast(pa.chunked_array(names.arrays((scope - 1).astype(np.int32))), pa.string())
    columns["bytes"] = arrow_array(sums_of(charges.bytes, group, len(first)))
    columns["n"] = arrow_array(np.bincount(group, minlength=len(first)))
    order = [("dump", "ascending"), ("color", "ascending"), ("page", "ascending"), ("bytes", "descending")]
    return pc.sort_by(p.tables.offsets.split(pa.table(columns)), [*order, ("scope", "ascending")])


def _scope_codes(codes: Ints, op_names: pa.Array) -> tuple[Ints, Interner]:
    """Return the code of the scope of each op_name in use, followed by -1 for null, and the scopes."""
    names, used = Interner(), np.unique(codes[codes >= 0])
    scope_of_name = np.full(len(op_names) + 1, -1)
    for begin in range(0, len(used), OP_NAMES_PER_CALL):
        chunk = used[begin : begin + OP_NAMES_PER_CALL]
        scope_of_name[chunk] = names.find(scopes(pc.take(op_names, pa.array(chunk))), add=True)
    return scope_of_name, names
