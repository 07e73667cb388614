"""How the ids and pages of several dumps are kept apart in common tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints, ints, nullable


class OwnPage(NamedTuple):
    """A page as its own dump numbers it."""

    dump: Ints
    page: Ints


@dataclass(frozen=True)
class Offsets:
    """Ids of the i-th dump are offset by i times the stride of their column; those of one dump alone are not."""

    stride: dict[str, int] = field(default_factory=dict)
    """By kind of id: page, allocation, value_id, id (of a stack frame). Empty for one dump."""

    def add(self, key: str, own: Ints, dump: Ints) -> Ints:
        """Return the common ids; negative ones stay."""
        return np.where(own >= 0, own + dump * self.stride[key], -1) if self.stride else own

    def own_page(self, page: Ints) -> OwnPage:
        """Return the dump of each common page, and its number in that dump."""
        if not self.stride:
            return OwnPage(np.zeros(len(page), np.int64), page)
        return OwnPage(*np.divmod(page, self.stride["page"]))

    def split(self, table: pa.Table) -> pa.Table:
        """Add the dump of each row as the first column, restore own pages and ids, sort by dump, color and page."""
        dump, page = self.own_page(ints(table, "page"))
        columns = {"page": pa.array(page)}
        for key in {"value_id", "allocation"} & set(table.column_names) & self.stride.keys():
            common = ints(table, key)
            columns[key] = nullable(np.where(common >= 0, common % self.stride[key], -1))
        order = np.lexsort((np.arange(len(page)), page, ints(table, "color"), dump))
        return with_columns(table, **columns).add_column(0, "dump", pa.array(dump)).take(pa.array(order))


def with_columns(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """Replace columns of a table."""
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
