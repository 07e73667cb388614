"""Text in the quarantine of a dataset that could not be loaded, which has no occurrences."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import kernels as pc
from ..input import names
from ..input.access import URI
from ..warehouse import Dataset
from ..warehouse.plan import search_of

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset


def unloaded(dataset: Dataset, runs: pa.Array | None) -> pa.Table:
    """Return the text in quarantine that could not be loaded, by all or some runs, with columns of `occurrences`.

    It has no occurrence, because its content is not known. Its run is the one that put it there; among some runs, also
    each later one that searched for it again, because such a run would have taken it out of quarantine if it was gone.
    """
    columns = ["content_id", "uri", "run_id", "converted_at"]
    rows = dataset["quarantine"].to_table(columns=[*columns, "host"])
    ids = rows["content_id"].combine_chunks()
    seen = dataset["occurrences"].to_table(columns=["content_id"], filter=is_one_of("content_id", ids))
    rows = pc.filter(rows, pc.invert(pc.is_in(ids, seen["content_id"].combine_chunks())))
    if runs is not None:
        rows = pa.concat_tables([pc.filter(rows, pc.is_in(rows["run_id"], runs)), _skipped(dataset, rows, runs)])
    rows = rows.select(columns)
    parsed = [names.parse(os.path.basename(uri or "")) for uri in rows["uri"].to_pylist()]
    numbers = pa.array([name and name.module_id for name in parsed], pa.int64())
    rows = rows.append_column("offset", pa.nulls(len(rows), pa.int64())).append_column("module_id", numbers)
    return rows.rename_columns([*columns[:-1], "seen_at", "offset", "module_id"])


def _skipped(dataset: Dataset, rows: pa.Table, runs: pa.Array) -> pa.Table:
    """Return these rows of `quarantine` for each later one of the runs that found them again and did not try again."""
    columns = ["run_id", "host", "started_at", "known", "options"]
    found = rows.to_pylist()
    searches = dataset["runs"].to_table(columns=columns, filter=is_one_of("run_id", runs)) if found else pa.table({})
    skipped = []
    for run in searches.to_pylist():
        if not run["known"] or not run["options"]:
            continue
        options = json.loads(run["options"])
        lists_all = options["n_sources"] == len(options["sources"])  # otherwise any path may have been searched
        was_searched = search_of(options["sources"])
        skipped += [
            {**row, "run_id": run["run_id"], "converted_at": run["started_at"]}
            for row in found
            if row["converted_at"] < run["started_at"]
            and (row["host"] == run["host"] or URI.match(row["uri"]))
            and (not lists_all or was_searched(row["uri"]))
        ]
    return pa.Table.from_pylist(skipped, rows.schema)


def is_one_of(column: str, values: Any) -> arrow_dataset.Expression:
    """Return a filter for the rows of a dataset that have one of these values in a column."""
    from pyarrow.dataset import field  # takes long to import, and directories do not need it

    return field(column).isin(values)
