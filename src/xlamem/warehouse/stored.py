"""One dump of a dataset, as the tables of a `Dump`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import schema
from ..dump import check_table
from ..errors import DumpError, UsageError
from ..input import names
from ..input.find import Member, Source
from ..parse.arrays import Ints, numbers_of
from .catalog import Catalog

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset


class StoredTables:
    """The tables of a dump in Parquet, each read from the files of its batch on first use."""

    def __init__(self, catalog: Catalog, content_id: str, tables: Iterable[str] | None) -> None:
        self.catalog, self.content_id = catalog, content_id
        self.batch, self.stored_id = catalog.locate(content_id)
        self.stored = tuple(t for t in schema.TABLES if t in self.batch.tables or not self.batch.tables)
        requested = self.stored if tables is None else [tables] if isinstance(tables, str) else list(tables)
        if missing := [t for t in requested if t not in self.stored]:
            raise UsageError(
                f"no table {', '.join(missing)} of this dump is stored; there are {', '.join(self.stored)}"
            )
        self.tables = tuple(t for t in schema.TABLES if t in requested)
        self.cache: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._read_tables: dict[str, pa.Table] = {}
        self.source = self._source()

    @property
    def _key(self) -> tuple[str, str, tuple[str, ...]]:
        return self.catalog.storage.uri, self.content_id, self.tables

    def __reduce__(self) -> tuple[Callable[..., StoredTables], tuple[str, str, tuple[str, ...]]]:
        return _stored_tables, self._key

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, StoredTables) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def platform(self) -> str | None:
        return self.source.platform

    @property
    def schedule_length(self) -> int | None:
        length: int | None = self.summary("modules")["schedule_length"][0].as_py()
        return length

    def __getitem__(self, name: str) -> pa.Table:
        self._check_table(name)
        return self.summary(name)

    def table(self, name: str) -> pa.Table:
        return self[name]

    def integers(self, name: str, *columns: str) -> list[Ints]:
        return [numbers_of(self[name][column]) for column in columns]

    def count_rows(self, name: str) -> int:
        return int(self.summary("modules")[f"n_{name}"][0].as_py() or 0)

    def summary(self, name: str) -> pa.Table:
        """Return a stored table, even if it was not requested."""
        self._check_stored(name)
        with self._lock:
            if name not in self._read_tables:
                self._read_tables[name] = self._read(name)
            return self._read_tables[name]

    def batches(self, name: str) -> pa.RecordBatchReader:
        self._check_table(name)
        return pa.RecordBatchReader.from_batches(schema.TABLES[name].arrow, self._batches(name))

    def _check_table(self, name: str) -> None:
        """Raise UsageError unless a table was requested and is stored."""
        if name in schema.TABLES:
            self._check_stored(name)
        check_table(name, self.tables)

    def _check_stored(self, name: str) -> None:
        if name not in self.stored:
            raise UsageError(f"the table {name!r} of this dump is not stored; there are {', '.join(self.stored)}")

    def verify(self) -> pa.Table:
        """Return the diagnostics that were stored when the dump was converted."""
        return self.summary("diagnostics")

    def _read(self, name: str) -> pa.Table:
        with self.catalog.damage_errors(name):
            table = self._scanner(name).to_table()
        self._check_rows(name, table.num_rows)
        return with_dump_types(name, table).unify_dictionaries()

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        rows = 0
        with self.catalog.damage_errors(name):
            for batch in self._scanner(name).to_batches():
                rows += batch.num_rows
                if batch.num_rows:
                    yield from with_dump_types(name, pa.table(batch)).to_batches()
        self._check_rows(name, rows)

    def _scanner(self, name: str) -> arrow_dataset.Scanner:
        import pyarrow.dataset as arrow_dataset

        key, files = "dump_id" if self.batch.is_old else "content_id", self.batch.table_files(name)
        if self.batch.merged_bytes:
            scanned = self.catalog.scan_dump(name, files, self.stored_id)
        else:
            scanned = self.catalog.scan_files(name, files, key=key)
        return scanned.scanner(
            columns=schema.TABLES[name].arrow.names,
            filter=arrow_dataset.field(key) == self.stored_id,
            batch_readahead=1,
            fragment_readahead=1,
        )

    def _check_rows(self, name: str, rows: int) -> None:
        """Raise an error if the files do not have all rows of the dump, rather than return a partial table."""
        expected = None
        if name in ("modules", "files"):
            expected = max(rows, 1)
        elif (column := f"n_{name}") in schema.TABLES["modules"].arrow.names and "modules" in self.stored:
            expected = self.summary("modules")[column][0].as_py()
        if expected not in (None, rows):
            if not rows:
                raise UsageError(f"the table {name!r} of this dump is not stored")
            uri = self.catalog.storage.uri
            raise DumpError(uri, f"{expected:,} rows of {name} of the dump {self.content_id}, not {rows:,}")

    def _source(self) -> Source:
        """Return the files that the dump was read from when it was converted. They may no longer exist."""
        files, module = self._rows("files"), self._rows("modules")
        members = tuple(Member(f["role"], f["uri"], size=f["bytes"]) for f in files)
        members = members or (Member("buffer-assignment", self.catalog.storage.uri),)
        name, _ = names.split(members[0].file_name) or (members[0].file_name, "")
        keys = ("module_id", "module_name", "platform", "target", "changelist", "timestamp_us")
        return Source(name, members, **{key: module[0][key] for key in keys if module})

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, or an empty list if it is not stored."""
        with suppress(UsageError):
            rows: list[dict[str, Any]] = self.summary(name).to_pylist()
            return rows
        return []


def _stored_tables(dest: str, content_id: str, tables: tuple[str, ...]) -> StoredTables:
    return StoredTables(Catalog(dest), content_id, tables)


def with_dump_types(name: str, table: pa.Table) -> pa.Table:
    """Convert the columns of a dataset to the types of a `Dump`, dictionary-encoding names."""
    spec = schema.TABLES[name].arrow
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for column, field in zip(table.columns, spec, strict=True)
    ]
    return pa.table(columns, schema=spec)
