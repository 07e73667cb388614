"""Interface for connecting rows of different spans: live ranges with values, and repeated instruction texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .arrays import Bools, Codes, Ints
from .batch import Batch, Section

SAME_TEXT = "the text printed for that instruction before"


class Matcher(ABC):
    """Connects rows of different spans. `by_code` compares interner codes, `by_offset` text at offsets in the files."""

    @abstractmethod
    def drop_repeats(self, batches: Sequence[Batch]) -> None:
        """Drop instructions whose text occurs in an earlier batch; report those whose text differs."""

    @abstractmethod
    def match_ranges(self, batches: Sequence[Batch]) -> None:
        """Set the `value_id` of each live range, and the `shape_index` of arrays to null."""

    # -- for the cross-checks --------------------------------------------------------------------

    @abstractmethod
    def overflowing(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """Yield (first row, allocation, offset, size) of values that may end beyond their allocation."""

    @abstractmethod
    def records_agree(self) -> bool:
        """Return True if the used values are known to match the values one to one; False if that is unknown."""

    @abstractmethod
    def same_names(self, rows: Codes) -> Any:
        """Return, for each used value i, whether row rows[i] of `values` has the same instruction and index."""

    @abstractmethod
    def range_rows(self) -> Codes | None:
        """Return the row in `values` of each live range, or -1; None without allocations."""

    @abstractmethod
    def has_bytes(self) -> Bools:
        """Return, for each row of `values`, whether its unpadded size exceeds 0."""

    @abstractmethod
    def label(self, table: str, row: int) -> tuple[str, str]:
        """Return the instruction and the index ({} for none) of a row of `values` or `live_ranges`."""

    @abstractmethod
    def report_columns(self, section: Section) -> Mapping[str, Any]:
        """Return the columns of one memory-usage report."""

    @abstractmethod
    def differing_rows(self, section: Section) -> list[tuple[int, bool]]:
        """Return the rows of a report that contradict the allocations (see `report_checks.differing_rows`)."""
