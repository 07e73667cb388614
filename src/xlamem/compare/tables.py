"""The tables of a difference, and what follows from their numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import arrow_array, ints, is_in

HOST = "host"
"""The memory space of the host, as `schema` names it on all platforms."""


@dataclass(frozen=True, repr=False)
class DiffTables:
    """The difference of two programs A and B. Sizes are in bytes; a change is that of B minus that of A."""

    a: str
    """Name of A."""
    b: str
    accounts: pa.Table
    """Table ``account_differences``: what must fit, and the peaks."""
    bills: pa.Table
    """Table ``bill_differences``: the lines of the bills that differ."""
    buffers: pa.Table
    """Table ``differences``: the buffers that contribute, by account. Together with ``moved`` of `accounts`, their
    changes add up to that of the peak."""
    edits: pa.Table
    """Table ``edits``: what differs in the programs, that with the largest change first."""
    doubt: str
    """Why the numbers of one side are not known to be right; empty if they are."""

    @property
    def has_peaks(self) -> bool:
        """Whether the peaks are known. If a program has no live ranges, allocations are compared as a whole."""
        row = self.accounts.slice(0, 1).to_pylist()[0]
        return row["peak_step_a"] is not None or row["peak_step_b"] is not None or not (row["peak_a"] or row["peak_b"])

    @property
    def device_total_change(self) -> int:
        """Change of what must fit into the device's main memory."""
        return self._change("reserved")

    @property
    def peak_change(self) -> int:
        """Change of the peak of the device's main memory; of what it reserves if the peaks are not known."""
        return self._change("peak")

    @property
    def host_change(self) -> int:
        """Change of what the host reserves, where arrays are offloaded to."""
        rows = pc.filter(self.accounts, arrow_array(is_in(self.accounts["account"], [HOST])))
        return int((ints(rows, "reserved_b") - ints(rows, "reserved_a")).sum())

    def _change(self, number: str) -> int:
        row = self.accounts.slice(0, 1)
        return int(row[f"{number}_b"][0].as_py() - row[f"{number}_a"][0].as_py())

    @property
    def is_known(self) -> bool:
        """Whether both dumps are complete and understood as far as the numbers depend on it."""
        return not self.doubt

    @property
    def is_same(self) -> bool:
        """Whether no number and no buffer differs."""
        return not self.bills.num_rows and not self.buffers.num_rows and not self.grown and not self._shrunk

    @property
    def has_grown(self) -> bool:
        """Whether more must fit, or more is in use at the peak of the device's main memory."""
        return self.device_total_change > 0 or self.peak_change > 0

    @property
    def grown(self) -> list[str]:
        """Accounts of which `reserved` or the peak grew: device_total, and memory spaces."""
        return self._changed(1)

    @property
    def _shrunk(self) -> list[str]:
        return self._changed(-1)

    def _changed(self, sign: int) -> list[str]:
        t = self.accounts
        grew = np.zeros(t.num_rows, bool)
        for number in ("reserved", "peak"):
            grew |= sign * (ints(t, f"{number}_b") - ints(t, f"{number}_a")) > 0
        names: list[str] = pc.filter(t["account"], arrow_array(grew)).to_pylist()
        return names
