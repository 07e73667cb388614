"""Compute the fingerprints of programs from stored tables, for dumps that an older version stored without them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..parse.fingerprints import Fingerprints
from .offsets import with_columns
from .spill import Scratch
from .stored import with_dump_types

KNOWN_BY = ("complete", "features", "n_allocations")
"""The columns of `modules` from which `can_be_known` tells."""
MODULES_READ = ("module_name", "platform", *KNOWN_BY)


def with_fingerprints(modules: pa.Table, rows: Callable[[str], Iterable[pa.Table]]) -> pa.Table:
    """Return `modules` with its fingerprints. ``rows(table)`` yields rows of the same dumps."""
    dumps, n = modules.select(MODULES_READ).to_pylist(), modules.num_rows
    fingerprints = Fingerprints(n, Scratch().empty if n == 1 else None)
    ids = modules["content_id"].combine_chunks()
    for name in Fingerprints.TABLES:
        empty = schema.WAREHOUSE[name].warehouse.empty_table()
        for table in rows(name) if n == 1 else [pa.concat_tables([empty, *rows(name)])]:
            of_dump = pc.index_in(table["content_id"], ids).to_numpy().astype(np.int64)
            typed = with_dump_types(name, table.select(schema.TABLES[name].names)).unify_dictionaries()
            fingerprints.add(name, typed, of_dump if n > 1 else None)
    names = [(dump["module_name"], dump["platform"]) for dump in dumps]
    columns = fingerprints.columns(names, [can_be_known(dump) for dump in dumps])
    return with_columns(modules, **{name: pa.array(items, pa.string()) for name, items in columns.items()})


def can_be_known(module: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether program and interface can be told: the dump is complete and has the sections.

    `module` has the columns in KNOWN_BY.
    """
    features = set((module["features"] or "").split(","))
    interface = bool(module["complete"] and module["n_allocations"])
    used = bool(features & {"values_inline", "values_split"})
    live = bool(features & {"live_inline", "live_split"}) and "live_unavailable" not in features
    return interface and used and live, interface
