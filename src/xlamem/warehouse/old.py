"""Read what version 1 stored (`schema=v1`) as contents, occurrences and runs.

Version 1 stored a dump once for each name and each set of labels, by its `dump_id`. Here, each of these dumps is an
occurrence, and of those with the same content, the rows of one represent the content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.bills import DEVICE_TOTAL, UNUSED
from ..input import names
from ..input.member import Member
from .batch import Batch
from .identity import content_id
from .offsets import with_columns
from .state import State
from .storage import Storage

MODULES_READ = (
    "dump_id", "content_hash", "module_name", "module_id", "platform", "target", "changelist", "timestamp_us", "run_id",
    "host", "converted_at",
)  # fmt: skip


RUN_TABLES = ("occurrences", "labels", "runs")
"""Tables that are derived from the dumps, because version 1 did not have them or kept its labels by dump."""


@dataclass(frozen=True)
class OldDump:
    """A dump that version 1 stored."""

    dump_id: str
    content_id: str
    """The dump_id if version 1 did not store the hash of the content."""
    is_known: bool
    """Whether it did."""
    batch: Batch
    occurrence: dict[str, Any]
    """Its row of `occurrences`."""


@dataclass(frozen=True)
class _Name:
    """The parts of a name that identify a program."""

    module_name: str | None
    platform: Any
    target: str | None
    changelist: int | None


class OldDumps:
    """The dumps in the batches that version 1 wrote. They are read on first use."""

    def __init__(self, storage: Storage, state: State) -> None:
        self.storage, self.state = storage, state
        self.batches = sorted(state.old_batches, key=lambda batch: batch.name)

    @cached_property
    def by_batch(self) -> dict[str, list[OldDump]]:
        """The dumps of each batch, without those that are stored again although their content was not known."""
        return {batch.name: [d for d in self._dumps_of(batch) if self._is_shown(d)] for batch in self.batches}

    @property
    def dumps(self) -> list[OldDump]:
        """All of these dumps."""
        return [dump for dumps in self.by_batch.values() for dump in dumps]

    def _is_shown(self, dump: OldDump) -> bool:
        return dump.is_known or dump.dump_id not in self.state.hidden

    @cached_property
    def _first(self) -> dict[str, OldDump]:
        """The dump of each content that was seen first."""
        return {dump.content_id: dump for dump in sorted(self.dumps, key=_order, reverse=True)}

    @cached_property
    def contents(self) -> dict[str, OldDump]:
        """The dump that represents each content that is stored only by version 1, at the time of the first use."""
        stored = self.state.stored.find(self._first)
        return {i: dump for i, dump in self._first.items() if i not in stored}

    def contents_of(self, batch: Batch) -> dict[str, OldDump]:
        """Return the contents that are stored only by version 1 now, and that a dump of a batch represents."""
        first = [dump for dump in self.by_batch[batch.name] if self._first[dump.content_id] is dump]
        stored = self.state.stored.find([dump.content_id for dump in first])
        return {dump.content_id: dump for dump in first if dump.content_id not in stored}

    def quarantined_ids(self) -> list[str]:
        """Return the ids that are in quarantine only by version 1 now."""
        ids = {i for batch in self.batches for i in batch.quarantined}
        return sorted(ids - self.state.hidden - self.state.quarantined.keys())

    @cached_property
    def quarantined(self) -> list[str]:
        """The `quarantined_ids` at the first use."""
        return self.quarantined_ids()

    @cached_property
    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of each batch; all of its dumps have the same ones."""
        return {batch.name: self._labels_of(batch) for batch in self.batches}

    def content_ids(self, table: str) -> pa.Table:
        """Return the columns `dump_id` and `content_id` of the dumps whose rows of a table represent a content."""
        pairs = [(dump.dump_id, i) for i, dump in self.contents.items()]
        if table == "quarantine":
            pairs = [(i, i) for i in self.quarantined]
        return pa.table({"dump_id": pa.array([a for a, _ in pairs], pa.string()),
                         "content_id": pa.array([b for _, b in pairs], pa.string())})  # fmt: skip

    # -- tables that version 1 did not have

    def run_table(self, name: str) -> pa.Table:
        """Return the rows of `occurrences`, `labels` or `runs`."""
        if name == "occurrences":
            rows = [dump.occurrence for dump in self.dumps]
        else:
            rows = list(self._labels_rows() if name == "labels" else self._run_rows())
        return pa.Table.from_pylist(rows, schema.RUN_TABLES[name].warehouse)

    def occurrences_of(self, *batches: Batch) -> pa.Table:
        """Return the occurrences of the dumps in some batches."""
        rows = [dump.occurrence for batch in batches for dump in self.by_batch[batch.name]]
        return pa.Table.from_pylist(rows, schema.OCCURRENCES.warehouse)

    def occurrences_with(self, labels: Mapping[str, str]) -> pa.Table:
        """Return the occurrences that have exactly these labels."""
        return self.occurrences_of(*(batch for batch in self.batches if self.labels[batch.name] == labels))

    @property
    def _runs(self) -> dict[str, Batch]:
        """A batch of each run that has no row in `runs`."""
        return {batch.run_id: batch for batch in reversed(self.batches) if batch.run_id not in self.state.runs}

    def _labels_rows(self) -> Iterator[dict[str, Any]]:
        for run_id in sorted(self._runs):
            batches = [batch for batch in self.batches if batch.run_id == run_id]
            labels = {k: v for batch in batches for k, v in self.labels[batch.name].items()}
            yield from ({"run_id": run_id, "key": key, "value": value} for key, value in sorted(labels.items()))

    def _run_rows(self) -> Iterator[dict[str, Any]]:
        seen = {dump.occurrence["run_id"]: dump.occurrence for dump in self.dumps}
        for run_id, batch in sorted(self._runs.items()):
            occurrence = seen.get(run_id, {})
            yield {
                "run_id": run_id, "tool_version": batch.tool_version, "schema_version": batch.schema_version,
                "host": occurrence.get("host"), "started_at": occurrence.get("seen_at"),
            }  # fmt: skip

    def device_peaks(self, *batches: Batch) -> pa.Table:
        """Return the rows of `peaks` that version 1 did not store but that its bills determine, with `dump_id`."""
        stored = [batch for batch in batches if "bills" in batch.tables]
        peaks, bills = (pa.concat_tables([self._rows(batch, t) for batch in stored] + [_typed(t).empty_table()])
                        for t in ("peaks", "bills"))  # fmt: skip
        return device_peaks_of(peaks, bills)

    # -- reading

    def read(self, batch: Batch, table: str, columns: tuple[str, ...]) -> pa.Table:
        """Return columns of a table of a batch; columns that it does not have are null."""
        tables = [pa.table({name: pa.array([], pa.null()) for name in columns})]
        for file in batch.table_files(table):
            with self.storage.open_parquet(file.path) as parquet:
                stored = parquet.read(columns=[c for c in columns if c in parquet.schema_arrow.names])
            tables.append(stored)
        return pa.concat_tables(tables, promote_options="permissive").select(columns)

    def _rows(self, batch: Batch, table: str) -> pa.Table:
        """Return all columns of a table of a batch, with the types of this version."""
        spec = _typed(table)
        return self.read(batch, table, tuple(spec.names)).cast(spec)

    def _labels_of(self, batch: Batch) -> dict[str, str]:
        table = self.read(batch, "labels", ("key", "value"))
        pairs = table.group_by(["key", "value"]).aggregate([]).to_pylist()
        return {pair["key"]: pair["value"] for pair in sorted(pairs, key=str)}

    def _dumps_of(self, batch: Batch) -> Iterator[OldDump]:
        modules = {row["dump_id"]: row for row in self.read(batch, "modules", MODULES_READ).to_pylist()}
        uris: dict[str, list[str]] = {}
        for row in self.read(batch, "files", ("dump_id", "uri")).to_pylist():  # in the order of their ordinals
            uris.setdefault(row["dump_id"], []).append(row["uri"])
        for dump_id in batch.dumps:
            yield _old_dump(dump_id, batch, modules.get(dump_id, {}), uris.get(dump_id, []))


def _old_dump(dump_id: str, batch: Batch, module: dict[str, Any], uris: list[str]) -> OldDump:
    file_names = [Member("", uri.rpartition("::")[2]).file_name for uri in uris]
    content = module.get("content_hash")
    identity = content_id(content, _name_parts(module, file_names)) if content else dump_id
    if file_names and not names.split(file_names[0]) and module.get("module_id") is not None:
        file_names = []  # a captured stream: the names of its frames were not stored
    stem = names.split(file_names[0]) if file_names else None
    return OldDump(dump_id, identity, bool(content), batch, {
        "content_id": identity,
        "uri": uris[0] if uris else None,
        "stem": stem[0] if stem else file_names[0] if file_names else None,
        "members": ",".join(file_names) if file_names else None,
        "offset": None,
        "module_id": module.get("module_id"),
        "timestamp_us": module.get("timestamp_us"),
        "run_id": batch.run_id,
        "host": module.get("host"),
        "seen_at": module.get("converted_at"),
    })  # fmt: skip


def _typed(table: str) -> pa.Schema:
    """Return the columns of a table of a dataset, with `dump_id` for `content_id`."""
    spec = schema.WAREHOUSE[table].warehouse
    return spec.set(0, spec.field(0).with_name("dump_id"))


def device_peaks_of(peaks: pa.Table, bills: pa.Table) -> pa.Table:
    """Return `device_peak` of the dumps with live ranges: what is in use in the account of `device_total`."""
    peaks = peaks.filter(pc.equal(peaks["definition"], "peak_together"))
    is_unused = pc.is_in(bills["line"], pa.array([*UNUSED]))
    in_use = bills.filter(pc.and_not(pc.equal(bills["account"], DEVICE_TOTAL), is_unused))
    sums = in_use.group_by("dump_id").aggregate([("bytes", "sum"), ("step", "min")])
    row = pc.index_in(peaks["dump_id"], sums["dump_id"].combine_chunks())
    found = {"bytes": sums["bytes_sum"], "time": sums["step_min"]}
    columns = {name: pc.fill_null(column.take(row), 0) for name, column in found.items()}  # without a row, 0 at step 0
    return with_columns(peaks, definition=pa.array(["device_peak"] * len(peaks), pa.string()), **columns)


def _order(dump: OldDump) -> tuple[str, str, str]:
    return str(dump.occurrence["seen_at"]), str(dump.occurrence["uri"]), dump.dump_id


def _name_parts(module: dict[str, Any], file_names: list[str]) -> _Name | None:
    """Return what the name of the dump stated, as opposed to what its text states.

    Only names have the number of the module. A dump without a number in a file with one is one of several in that file.
    """
    numbered = module["module_id"] is not None
    if parts := names.parse(file_names[0]) if file_names else None:
        return _Name(parts.module_name if numbered else None, parts.platform, parts.target, parts.changelist)
    if numbered:  # the name of a frame in a captured stream
        return _Name(module["module_name"], module["platform"], module["target"], module["changelist"])
    return None


def with_content_ids(table: pa.Table, ids: pa.Table) -> pa.Table:
    """Replace `dump_id` by `content_id`, and drop the rows of other dumps."""
    row = pc.index_in(table["dump_id"], ids["dump_id"].combine_chunks())
    table = table.filter(pc.is_valid(row))
    content = ids["content_id"].take(row.drop_null())
    return table.set_column(table.schema.get_field_index("dump_id"), "content_id", content)
