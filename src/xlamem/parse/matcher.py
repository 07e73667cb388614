"""What connects rows of different spans: which value a live range is of, which instruction texts repeat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .arrays import Bools, Codes, Ints
from .batch import Batch, Section

SAME_TEXT = "the text printed for that instruction before"


class Matcher(ABC):
    """Two ways give the same answers: by interner codes (`by_code`), and by offsets in the files (`by_offset`)."""

    @abstractmethod
    def drop_repeats(self, batches: Sequence[Batch]) -> None:
        """Drop instructions whose text an earlier batch has; report those whose text differs."""

    @abstractmethod
    def match_ranges(self, batches: Sequence[Batch]) -> None:
        """Give live ranges the `value_id` of their value, and arrays a null `shape_index`."""

    # -- for the cross-checks --------------------------------------------------------------------

    @abstractmethod
    def overflowing(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """(first row, allocation, offset, size) of values that may end beyond their allocation."""

    @abstractmethod
    def records_agree(self) -> bool:
        """Whether the used values certainly are the values, one for one; False if that was not compared."""

    @abstractmethod
    def same_names(self, rows: Codes) -> Any:
        """For each used value whether row rows[i] of `values` has its instruction and index."""

    @abstractmethod
    def range_rows(self) -> Codes | None:
        """The row in `values` of each live range, or -1; None without allocations."""

    @abstractmethod
    def has_bytes(self) -> Bools:
        """For each row of `values` whether its unpadded size exceeds 0."""

    @abstractmethod
    def label(self, table: str, row: int) -> tuple[str, str]:
        """Instruction and index ({} for none) of a row of `values` or `live_ranges`."""

    @abstractmethod
    def report_columns(self, section: Section) -> Mapping[str, Any]:
        """The columns of one memory-usage report."""

    @abstractmethod
    def differing_rows(self, section: Section) -> list[tuple[int, bool]]:
        """Rows of a report that contradict the allocations (see `report_checks.differing_rows`)."""
