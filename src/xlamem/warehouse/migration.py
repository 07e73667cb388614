"""Convert the files of version 1 (`schema=v1`) to this version.

Each batch is replaced by one ledger entry, so that a migration can be killed at any time: what it has not converted yet
is read as before, and the next migration continues. Converters may run at the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import xxhash

from .. import kernels as pc
from .. import schema
from ..parse.fingerprints import Fingerprints
from .batch import Batch
from .ledger import Ledger
from .maintenance import maintained
from .occurrences import distinct, new_occurrences, recorded_occurrences
from .old import RUN_TABLES, OldDumps, with_content_ids
from .parquet import BatchWriter
from .result import Progress, Status
from .rewrite import with_current_columns
from .storage import Storage
from .stored_fingerprints import with_fingerprints


@dataclass(frozen=True)
class Migrated:
    """The result of `migrate`."""

    batches: int
    """Batches of version 1 that were converted."""
    dumps: int
    """Dumps in these batches."""
    contents: int
    """Contents that were stored for them; the other dumps were duplicates."""
    seconds: float


def migrate(
    dest: str | os.PathLike[str], *, single_writer: bool = False, progress: Progress | None = None
) -> Migrated:
    """Convert the files of a dataset that version 1 wrote, and delete them.

    Dumps with the same content are stored once, and each of them becomes a row of `occurrences`. `progress` is
    called with a `Status` as the migration proceeds. To resume after an interruption, repeat the call.

    Raises
    ------
    UsageError
        `dest` is not a dataset, or does not support conditional writes.
    OutputError
        A file cannot be written. What was committed before is kept.
    """
    start = time.monotonic()
    with maintained(dest, single_writer=single_writer) as (storage, ledger, run_id):
        migration = _Migration(storage, ledger, run_id)
        of_dumps = sum(len(batch.dumps) for batch in migration.old.batches)
        for batch in migration.old.batches:
            migration.convert(batch.name)
            if progress:
                seconds = time.monotonic() - start
                progress(Status("migrate", migration.dumps, of_dumps, 0, 0, 0, seconds))
    return Migrated(migration.batches, migration.dumps, migration.contents, time.monotonic() - start)


class _Migration:
    def __init__(self, storage: Storage, ledger: Ledger, run_id: str) -> None:
        self.storage, self.ledger, self.run_id = storage, ledger, run_id
        self.old = OldDumps(storage, ledger.state)
        self.batches = self.dumps = self.contents = 0

    def convert(self, name: str) -> None:
        """Replace a batch, unless another migration has done so. Repeat if another run interferes."""
        while (old := self.ledger.refresh().batches.get(name)) is not None:
            contents = {i: dump.dump_id for i, dump in self.old.contents_of(old).items()}
            new = [*self._content_batch(old, contents), *self._occurrence_batch(old), *self._run_batch(old)]
            if not self.ledger.commit(*new, remove=(name,)):
                self.batches += 1
                self.dumps += len(old.dumps)
                self.contents += len(contents)

    def _content_batch(self, old: Batch, contents: dict[str, str]) -> Iterator[Batch]:
        """Yield a batch with the rows of the dumps that represent contents, and of those in quarantine."""
        quarantined = tuple(i for i in self.old.quarantined_ids() if i in old.quarantined)
        if not contents and not quarantined:
            return
        ids = tuple(sorted(contents))
        name = _hash(old.name, *ids, "", *quarantined)
        with self._writer(old, name) as writer:
            for table in schema.WAREHOUSE:
                if table not in RUN_TABLES:
                    of_table = {i: i for i in quarantined} if table == "quarantine" else contents
                    for rows in self._rows(old, table, of_table):
                        writer.add(table, rows)
            files = tuple(writer.close())
        yield replace(
            old,
            name=name,
            dumps=ids,
            quarantined=quarantined,
            files=files,
            schema_version=schema.VERSION,
            attempts={i: n for i, n in old.attempts.items() if i in quarantined},
            system=tuple(i for i in old.system if i in quarantined),
            places={i: path for i, path in old.places.items() if i in quarantined},
        )

    def _rows(self, old: Batch, table: str, contents: dict[str, str]) -> Iterator[pa.Table]:
        """Yield the rows of a table, sorted by content_id. A batch with a large dump has no other dump to sort."""
        ids = pa.table({"dump_id": pa.array(contents.values(), pa.string()),
                        "content_id": pa.array(contents.keys(), pa.string())})  # fmt: skip
        spec = schema.WAREHOUSE[table].warehouse
        parts: Iterator[pa.Table] = (
            with_current_columns(with_content_ids(part, ids), spec) for part in self._row_groups(old, table)
        )
        if len(contents) > 1 or table == "modules":
            rows = pa.concat_tables([spec.empty_table(), *parts])
            parts = iter([rows.take(pc.sort_indices(rows["content_id"]))])
        has_all = {*Fingerprints.TABLES} <= {*(old.tables or schema.TABLES)}
        for part in parts:
            if table == "modules" and part.num_rows and has_all:
                yield with_fingerprints(part, lambda name: self._rows(old, name, contents))
            else:
                yield part

    def _row_groups(self, batch: Batch, table: str) -> Iterator[pa.Table]:
        """Yield the rows of a table of version 1, and those that it did not store but that can be computed."""
        for file in batch.table_files(table):
            yield from self.storage.row_groups(file.path)
        if table == "peaks":
            yield self.old.device_peaks(batch)

    def _occurrence_batch(self, old: Batch) -> Iterator[Batch]:
        """Yield a batch with the occurrences of the dumps of a batch."""
        labels = self.old.labels[old.name]
        rows = self.old.occurrences_of(old)
        rows = distinct(new_occurrences(rows, recorded_occurrences(self.storage, self.ledger.state, labels)))
        if rows.num_rows:
            yield replace(self._new_batch(old, "occurrences", {"occurrences": rows}), labels=labels)

    def _run_batch(self, old: Batch) -> Iterator[Batch]:
        """Yield a batch with the row and the labels of the run that wrote a batch, if they are missing."""
        if old.run_id not in self.ledger.state.runs:
            tables = {name: self.old.run_table(name) for name in ("labels", "runs")}
            rows = {name: table.filter(pc.equal(table["run_id"], old.run_id)) for name, table in tables.items()}
            yield replace(self._new_batch(old, "run", rows), runs=(old.run_id,))

    def _new_batch(self, old: Batch, part: str, tables: dict[str, pa.Table]) -> Batch:
        name = _hash(old.name, part)
        with self._writer(old, name) as writer:
            for table, rows in tables.items():
                writer.add(table, rows)
            files = tuple(writer.close())
        return Batch(name, (), (), files, old.tool_version, schema.VERSION, old.run_id, tuple(schema.RUN_TABLES))

    def _writer(self, old: Batch, name: str) -> BatchWriter:
        """Create a writer for files in the partition of a batch."""
        folders = old.files[0].path.split("/")[2:-1] if old.files else []
        folder = "/".join([f"v{schema.VERSION}", *folders])
        return BatchWriter(self.storage, folder, name, run_id=self.run_id)


def _hash(*fields: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(fields).encode())
