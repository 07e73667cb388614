"""Connects rows by interner codes: for dumps whose batches share interners."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _liveness, _rules
from .._column import in_order
from .arrays import Bools, Codes, Ints, Rows, codes, ints, joined
from .batch import Batch, Section
from .interners import Interners
from .matcher import SAME_TEXT, Matcher
from .reader import Reader
from .repeats import SeenInstructions
from .report_checks import differing_rows
from .sections import ASSIGNMENT, LIVE, REPORT, USED
from .stores import Store


class CodeMatcher(Matcher):
    """Connects rows by codes. Columns come from the reader's stores; the reader itself is referenced weakly."""

    def __init__(self, reader: Reader, interners: Interners) -> None:
        self._reader: Reader = weakref.proxy(reader)  # a cycle would be freed only by the garbage collector
        self._interners = interners
        self._range_rows = np.empty(0, np.int32)
        self._order: Codes | None = None

    def release(self) -> None:
        """Release memory that only the cross-checks need."""
        self._range_rows, self._order = np.empty(0, np.int32), None

    def _values(self) -> tuple[Store, str]:
        """Return the store and the name of the table that contain the names of all values."""
        if self._reader.assignment is not None:
            return self._reader.stores[ASSIGNMENT], "values"
        return self._reader.stores[USED], "records"

    def drop_repeats(self, batches: Sequence[Batch]) -> None:
        if len(batches) < 2:  # a scan drops its own repeats
            return
        seen = SeenInstructions(len(self._interners["instruction"].names), [f.text.data for f in self._reader.files])
        for batch in batches:
            section = batch.span.section
            for line in seen.drop_repeats(batch).tolist():
                self._reader.diagnostics.add(section.file, line, section.kind, "instruction_differs", SAME_TEXT)

    # -- live ranges -----------------------------------------------------------------------------

    def match_ranges(self, batches: Sequence[Batch]) -> None:
        if not any(b.rows("live_ranges") or b.rows("printed_peak") for b in batches):
            for batch in batches:
                batch.tables["live_ranges"]["value_id"] = np.empty(0, np.int64)
            return
        ids = self._match([b.tables["live_ranges"] for b in batches])
        for batch in batches:
            columns = batch.tables["live_ranges"]
            n = len(columns["instruction"])
            columns["value_id"], ids = ids[:n], ids[n:]
        self._null_indices(batches)

    def _match(self, ranges: Sequence[Mapping[str, Any]]) -> Ints:
        """Match ranges by (instruction, shape_index): store the row of each range and return the ids."""
        name, index = (joined([r[c] for r in ranges], np.int32) for c in ("instruction", "shape_index"))
        store, table = self._values()
        ids, ordered = store.ints(table, "value_id"), self._in_order()
        # Ids repeat only in corrupt text; both values are kept then.
        order = np.argsort(ids, kind="stable").astype(np.int32) if ordered is None else ordered
        top = self._interners["shape_index"].code("{}")
        instructions, indices = store.codes(table, "instruction"), store.codes(table, "shape_index")
        matches, rows = _liveness.match(instructions, indices, ids, order, name, index, top)
        value_ids = ints(matches)
        self._range_rows = Rows(ids)(value_ids).astype(np.int32) if ordered is None else codes(rows)
        return value_ids

    def _in_order(self) -> Codes | None:
        """Return the rows of the values in ascending order of their ids; None if an id is repeated."""
        if self._order is None:
            store, table = self._values()
            ordered = in_order(store.ints(table, "value_id"))
            self._order = None if ordered is None else codes(ordered)
        return self._order

    def _null_indices(self, batches: Sequence[Batch]) -> None:
        """Set the index of arrays to null: live ranges and peak lists print {} for them."""
        store, table = self._values()
        is_array = np.append(store.codes(table, "shape_index") < 0, False)
        has_array = np.zeros(len(self._interners["instruction"].names), bool)
        has_array[store.codes(table, "instruction")[is_array[:-1]]] = True
        top, first = self._interners["shape_index"].code("{}"), 0
        for batch in batches:
            for name in ("live_ranges", "printed_peak"):
                columns = batch.tables[name]
                index = columns["shape_index"]
                if name == "live_ranges":
                    arrays = is_array[self._range_rows[first : first + len(index)]]
                    first += len(index)
                else:
                    arrays = has_array[columns["instruction"]]
                columns["shape_index"] = np.where((index == top) & arrays, np.int32(-1), index)

    # -- for the cross-checks --------------------------------------------------------------------

    def overflowing(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        return self._reader.stores[ASSIGNMENT].batches("values", "allocation", "offset", "size")

    def records_agree(self) -> bool:
        a, b = self._reader.stores[ASSIGNMENT], self._reader.stores[USED].of("records")
        order, first = self._in_order(), 0
        if order is None or len(order) != sum(len(columns["value_id"]) for columns in b):
            return False
        values = (
            a.codes("values", "instruction"), a.codes("values", "shape_index"), a.flags("values", "is_phi"),
            a.ints("values", "color"), a.ints("values", "value_id"),
        )  # fmt: skip
        for c in b:
            records = c["instruction"], c["shape_index"], c["is_phi"], c["color"], c["value_id"]
            if not _rules.agree(order, values, records, first):
                return False
            first += len(c["value_id"])
        return True

    def same_names(self, rows: Codes) -> Any:
        a, b = self._reader.stores[ASSIGNMENT], self._reader.stores[USED]
        same = np.ones(len(rows), bool)
        for column in ("instruction", "shape_index"):
            same &= a.codes("values", column)[rows] == b.codes("records", column)
        return same

    def range_rows(self) -> Codes | None:
        return None if self._reader.assignment is None else self._range_rows

    def has_bytes(self) -> Bools:
        shape = self._reader.stores[ASSIGNMENT].codes("values", "shape")
        has_bytes = self._interners.shape_sizes()[1][shape] > 0 if len(shape) else np.empty(0, bool)
        return has_bytes.view(np.uint8)

    def label(self, table: str, row: int) -> tuple[str, str]:
        store = self._reader.stores[LIVE if table == "live_ranges" else ASSIGNMENT]
        name, index = (
            self._interners[meaning].text(int(store.codes(table, meaning)[row]))
            for meaning in ("instruction", "shape_index")
        )
        return name or "", index or "{}"

    def report_columns(self, section: Section) -> Mapping[str, Any]:
        number = list(self._reader.reports).index(section)
        return self._reader.stores[REPORT].of("printed_report")[number]

    def differing_rows(self, section: Section) -> list[tuple[int, bool]]:
        return differing_rows(self._reader, section, self.report_columns(section))
