"""Record what a run finds and does in the tables `occurrences`, `labels` and `runs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import xxhash

from .. import kernels as pc
from .. import schema
from .batch import Batch, File
from .ledger import Ledger
from .occurrences import (
    keys_of,
    new_occurrences,
    occurrence_table,
    occurrences_of_version_1,
    read_occurrences,
    recorded_occurrences,
    with_occurrences,
)
from .parquet import BatchWriter
from .result import Converted
from .state import State
from .storage import Storage
from .task import DumpInput, Options


class RunRecord:
    """The record of one run.

    The occurrences are committed before any dump is converted: no content is ever stored without one, and a killed run
    leaves the same occurrences as a complete one.
    """

    def __init__(self, storage: Storage, ledger: Ledger, options: Options, call: dict[str, Any]) -> None:
        """Describe a run. `call` contains the arguments that are recorded in `runs.options`."""
        self.storage, self.ledger, self.options = storage, ledger, options
        self.row: dict[str, Any] = {
            "run_id": options.run_id,
            "host": options.host,
            "tool_version": options.tool_version,
            "schema_version": schema.VERSION,
            "started_at": options.started,
            "options": json.dumps(call, ensure_ascii=False),
        }
        self.batch: Batch | None = None
        self.found = schema.OCCURRENCES.warehouse.empty_table()
        """The occurrences of what this run has identified, whether they were recorded before or not."""
        self._recorded: set[str] = set()
        """The batches that have these occurrences, except those in `_missing`."""
        self._missing = self.found
        self._parts = count()
        self.occurrences = 0
        """Rows that this run added to `occurrences`."""

    def begin(self, dumps: Iterable[DumpInput]) -> None:
        """Commit the occurrences that are new, the labels, and the row of a run that has not finished."""
        self.found = occurrence_table(dumps, self.options)
        with self.storage.output_errors():
            labels = self._write("labels", labels_table(self.options.run_id, self.options.labels))
            self.batch = self._run_batch("begin", [*labels, *self._write("runs", self._runs())])
            while not self._commit_new():
                pass

    def _commit_new(self) -> bool:
        """Commit the occurrences that are not recorded yet, unless another run records the same ones meanwhile."""
        assert self.batch is not None
        state, labels = self.ledger.refresh(), dict(self.options.labels)
        known = {batch.name for batch in state.occurrences(labels)}
        new = self._not_recorded(self.found, state)
        batches = self._occurrence_batches(new)
        if not self.ledger.commit_occurrences(*batches, self.batch, labels=labels, known=known):
            return False
        self._recorded = known.union(batch.name for batch in batches)
        self.occurrences = new.num_rows
        return True

    def _not_recorded(self, found: pa.Table, state: State) -> pa.Table:
        """Return those of these occurrences that are not in the dataset."""
        labels = dict(self.options.labels)
        sources = (recorded_occurrences, occurrences_of_version_1)
        return new_occurrences(found, (table for read in sources for table in read(self.storage, state, labels)))

    def _occurrence_batches(self, occurrences: pa.Table) -> list[Batch]:
        part = f"occurrences {next(self._parts)}"
        files = self._write("occurrences", occurrences, part)
        return [replace(self._run_batch(part, files), runs=())] if files else []

    def dropped(self, content_ids: Set[str], state: State) -> list[Batch]:
        """Return a batch with the occurrences of contents, about to be stored, that were dropped since `begin`, if any.

        The entry that stores a content must add them: no content is without an occurrence.
        """
        names = {batch.name for batch in state.occurrences(dict(self.options.labels))}
        if not self._recorded <= names:
            self._missing, self._recorded = self._not_recorded(self.found, state), names
        return self._occurrence_batches(_of(self._missing, content_ids))

    def forget(self, content_ids: Set[str]) -> None:
        """Remove the occurrences of contents that changed before they were read, unless these are in the dataset."""
        with self.storage.output_errors():
            while not self._forget(content_ids):
                pass

    def _forget(self, content_ids: Set[str]) -> bool:
        state, run_id = self.ledger.refresh(), self.options.run_id
        absent = content_ids - state.stored.find(content_ids).keys() - state.quarantined.keys()
        gone = keys_of(_of(self.found, absent))
        new: list[Batch] = []
        removed: list[str] = []
        n_own = 0
        for batch in state.occurrences(dict(self.options.labels)):
            rows = read_occurrences(self.storage, batch.table_files("occurrences"))
            is_gone = pc.is_in(keys_of(rows), gone)
            if pc.any(is_gone).as_py():
                removed.append(batch.name)
                n_own += rows["run_id"].filter(is_gone).to_pylist().count(run_id)
                if (kept := rows.filter(pc.invert(is_gone))).num_rows:
                    new.append(with_occurrences(self.storage, batch, kept, run_id))
        if removed and not self.ledger.commit_if_current(new, tuple(removed)):
            return False
        self.occurrences -= n_own
        return True

    def finish(self, result: Converted, outcome: str) -> None:
        """Replace the row of the run by one with its end and its counts, if `begin` has committed it."""
        if self.batch is None:
            return
        self.row |= {
            **{name: getattr(result, name) for name in schema.RUNS.names if hasattr(result, name)},
            "failed": len(result.failed),
            "changed": len(result.changed),
            "truncated": len(result.cut),
            "finished_at": datetime.now(UTC),
            "outcome": outcome,
        }
        with self.storage.output_errors():
            begun = self.ledger.refresh().batches.get(self.batch.name)
            if begun is None:  # interrupted before
                return
            files = begun.table_files("labels") + self._write("runs", self._runs(), "end")
            self.ledger.commit(self._run_batch("end", files), remove=(self.batch.name,))

    def _runs(self) -> pa.Table:
        row = {name: self.row.get(name) for name in schema.RUNS.names}
        return pa.Table.from_pylist([row], schema.RUNS.warehouse)

    def _run_batch(self, part: str, files: Sequence[File]) -> Batch:
        o, tables = self.options, tuple(schema.RUN_TABLES)
        name = batch_name(o.run_id, part)
        return Batch(
            name, (), (), tuple(files), o.tool_version, schema.VERSION, o.run_id, tables, labels=dict(o.labels),
            runs=(o.run_id,),
        )  # fmt: skip

    def _write(self, name: str, table: pa.Table, part: str = "begin") -> list[File]:
        return write_table(self.storage, self.options.folder, batch_name(self.options.run_id, part), name, table)


def _of(occurrences: pa.Table, content_ids: Iterable[str]) -> pa.Table:
    """Return the occurrences of these contents."""
    return pc.filter(occurrences, pc.is_in(occurrences["content_id"], pa.array(sorted(content_ids), pa.string())))


def batch_name(run_id: str, part: str) -> str:
    """Return the name of a batch that belongs to a run rather than to dumps."""
    return xxhash.xxh3_128_hexdigest(f"{run_id}\0{part}".encode())


def write_table(storage: Storage, folder: str, batch: str, name: str, table: pa.Table) -> list[File]:
    """Write a table as files of a batch; an empty table has no file."""
    with BatchWriter(storage, folder, batch) as writer:
        writer.add(name, table)
        return writer.close()


def labels_table(run_id: str, labels: Sequence[tuple[str, str]]) -> pa.Table:
    """Return the rows of `labels` of a run."""
    rows = [{"run_id": run_id, "key": key, "value": value} for key, value in labels]
    return pa.Table.from_pylist(rows, schema.LABELS.warehouse)
