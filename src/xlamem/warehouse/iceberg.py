"""Iceberg tables of the files of a dataset, in a catalog of pyiceberg."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from .. import schema
from ..errors import UsageError, without_passwords
from .batch import File
from .storage import Storage

FOLDER = "_iceberg"
"""In the dataset: the catalog, and the metadata of its tables."""
NAMESPACE = "xlamem"
"""The namespace of the tables in that catalog."""
PROPERTIES = {
    "commit.retry.num-retries": "0",  # a commit to a table that was changed since it was opened must fail
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}


@contextmanager
def opened(storage: Storage, place: str = "") -> Iterator[Callable[[str], IcebergFiles]]:
    """Yield a function that opens a table by its name, and creates it or adds columns that it lacks.

    `place`: CATALOG.NAMESPACE, where pyiceberg's configuration has the catalog. If empty, an SQLite file in the dataset
    is the catalog.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL
    except ImportError as error:
        raise UsageError("the format iceberg needs pyiceberg: pip install 'xlamem[iceberg]'") from error

    name, _, namespace = place.partition(".")
    if not place and not storage.local:
        raise UsageError(
            f"{storage.uri} has no place for a catalog: give one of pyiceberg's configuration, as in "
            "iceberg:CATALOG.NAMESPACE"
        )
    if not place:
        os.makedirs(storage.path(FOLDER), exist_ok=True)
    database = URL.create("sqlite", database=f"{storage.path(FOLDER)}/catalog.db")  # quotes the path
    uri = {"uri": database.render_as_string(), "warehouse": storage.path(FOLDER)}
    with closing(load_catalog(name) if place else SqlCatalog(NAMESPACE, **uri)) as catalog:
        catalog.create_namespace_if_not_exists(namespace or NAMESPACE)
        yield partial(_open, catalog, namespace or NAMESPACE, storage)


def _open(catalog: Any, namespace: str, storage: Storage, name: str) -> IcebergFiles:
    from pyiceberg.exceptions import NoSuchTableError

    spec = schema.WAREHOUSE[name].described("doc")
    try:
        table = catalog.load_table((namespace, name))
    except NoSuchTableError:
        properties = PROPERTIES | {"comment": f"one row per {schema.WAREHOUSE[name].row}"}
        # Iceberg numbers the columns as `Table.parquet` does, so that the files have the field ids of the table.
        table = catalog.create_table_if_not_exists((namespace, name), spec, properties=properties)
    if {*spec.names} - {*table.schema().column_names}:
        with table.update_schema() as update:
            update.union_by_name(spec)
    return IcebergFiles(storage, table)


class IcebergFiles:
    """The files of an Iceberg table, as of the time it was opened."""

    def __init__(self, storage: Storage, table: Any) -> None:
        self.storage, self.table = storage, table
        files = (task.file for task in table.scan().plan_files())
        self.entries = {file.file_path.removeprefix(self._location("")): file for file in files}

    def _location(self, path: str) -> str:
        if self.storage.local:
            return f"{self.storage.root}/{path}"
        return without_passwords(self.storage.uri_of(path).partition("?")[0])  # it is written to the metadata

    def files(self) -> Mapping[str, int]:
        """Return the sizes of the files by their paths relative to the dataset."""
        return {path: entry.file_size_in_bytes for path, entry in self.entries.items()}

    def replace(self, added: list[File], removed: list[str]) -> bool:
        """Add and remove files in one commit, unless the table was changed since it was opened; return whether."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            self._replace([self._location(file.path) for file in added], removed)
        except CommitFailedException:
            return False
        if removed:
            with suppress(CommitFailedException):  # another run has changed the table: a later one expires them
                self._expire_snapshots()
        return True

    def _replace(self, added: list[str], removed: list[str]) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        with self.table.transaction() as transaction:
            update = transaction.update_snapshot()
            with update.overwrite() if removed else update.merge_append() as snapshot:
                for location in added:
                    file = parquet_file_to_data_file(self.table.io, transaction.table_metadata, location)
                    snapshot.append_data_file(file)
                for path in removed:
                    snapshot.delete_data_file(self.entries[path])

    def _expire_snapshots(self) -> None:
        """Expire all snapshots but the current one: they name files that are deleted soon."""
        metadata = self.table.metadata
        old = [s for s in metadata.snapshots if s.snapshot_id != metadata.current_snapshot_id]
        unused = self._manifests(old)
        self.table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in old]).commit()
        for location in unused - self._manifests(self.table.metadata.snapshots):  # pyiceberg keeps them
            with suppress(FileNotFoundError):
                self.table.io.delete(location)

    def _manifests(self, snapshots: Iterable[Any]) -> set[str]:
        """Return the locations of the lists of manifests, and of the manifests, of snapshots."""
        lists = {s.manifest_list for s in snapshots}
        return lists | {m.manifest_path for s in snapshots for m in s.manifests(self.table.io)}
