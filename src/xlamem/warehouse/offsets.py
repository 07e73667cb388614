"""Offsets that keep the ids and pages of several dumps distinct in merged tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, ints, nullable


class LocalPage(NamedTuple):
    """A dump, and the number of a page within it."""

    dump: Ints
    page: Ints


@dataclass(frozen=True)
class Offsets:
    """Strides by which ids are offset: those of the i-th dump by i times the stride of their kind."""

    stride: dict[str, int] = field(default_factory=dict)
    """Stride by kind of id: page, allocation, value_id, id (of a stack frame). Empty for a single dump."""

    def add(self, key: str, ids: Ints, dump: Ints) -> Ints:
        """Return ids that are unique among the dumps; negative ids become -1."""
        return np.where(ids >= 0, ids + dump * self.stride[key], -1) if self.stride else ids

    def local_page(self, page: Ints) -> LocalPage:
        """Return the dump of each merged page, and the number of the page in that dump."""
        if not self.stride:
            return LocalPage(np.zeros(len(page), np.int64), page)
        return LocalPage(*np.divmod(page, self.stride["page"]))

    def split(self, table: pa.Table) -> pa.Table:
        """Prepend the dump of each row, restore the pages and ids of the dumps, and sort by dump, color and page."""
        dump, page = self.local_page(ints(table, "page"))
        columns = {"page": pa.array(page)}
        for key in {"value_id", "allocation"} & set(table.column_names) & self.stride.keys():
            merged = ints(table, key)
            columns[key] = nullable(np.where(merged >= 0, merged % self.stride[key], -1))
        order = np.lexsort((page, ints(table, "color"), dump))
        return pc.take(with_columns(table, **columns).add_column(0, "dump", pa.array(dump)), pa.array(order))


def with_columns(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """Replace columns of a table."""
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
