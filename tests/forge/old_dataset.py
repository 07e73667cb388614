"""Makes tests/data/old-dataset: a dataset as an older version would have left it behind.

    python tests/forge/old_dataset.py

Fewer tables, the last columns of some of them missing, a ledger that says less. It is made once and kept: later
versions must read it as it is.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parents[1]
OLD = HERE / "data" / "old-dataset"
DUMPS = [HERE / "dumps" / "seeds" / "000_491faa5ce21a17c6.txt", HERE / "dumps" / "cpu-jaxlib-0.5.3-tuple3"]
LABELS = {"commit": "old"}
TABLES = ("modules", "allocations", "values", "labels", "peaks")
MISSING = {
    "modules": ["n_diagnostics", "content_hash", "program_fp", "interface_fp"],
    "values": ["uses_known"],
    "peaks": ["time"],
}
"""Columns that came later, at the end of their tables."""
VERSION = "0.0.9"


def main(to: Path = OLD) -> None:
    import xlamem

    shutil.rmtree(to, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        xlamem.convert(*DUMPS, to=made, tables=TABLES, labels=LABELS, engine="here")
        (entry,) = Path(made).glob("_ledger/entries/*.json")
        data = json.loads(entry.read_text())
        (batch,) = data["add"]
        for file in batch["files"]:
            table = pq.read_table(Path(made) / file["path"], partitioning=None)
            table = table.drop_columns(MISSING.get(file["table"], []))
            if file["table"] == "modules":
                table = _dated(table)
            (to / file["path"]).parent.mkdir(parents=True)
            pq.write_table(table, to / file["path"], compression="zstd", compression_level=3)
            file["bytes"] = (to / file["path"]).stat().st_size
            del file["columns"]
        batch |= {"tool_version": VERSION, "run_id": "20250131T000000-00000000"}
        del batch["tables"]
        data["at"] = 1738281600.0
        (to / "_ledger" / "entries").mkdir(parents=True)
        (to / "_ledger" / "entries" / entry.name).write_text(json.dumps(data, indent=1) + "\n")


def _dated(table: pa.Table) -> pa.Table:
    """The lineage of another day, another machine, another version."""
    then = datetime(2025, 1, 31, tzinfo=UTC)
    said = {"tool_version": VERSION, "run_id": "20250131T000000-00000000", "host": "old", "converted_at": then}
    for name, value in said.items():
        i = table.schema.get_field_index(name)
        values = pa.array([value] * table.num_rows, table.schema.field(i).type)
        table = table.set_column(i, name, values)
    return table


if __name__ == "__main__":
    sys.exit(main())
