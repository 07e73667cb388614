"""Delta tables of the files of a dataset: the folder of each table gets a ``_delta_log``, which names its files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from .. import schema
from ..errors import UsageError
from .batch import File
from .storage import Storage, s3_endpoint


@contextmanager
def opened(storage: Storage) -> Iterator[Callable[[str], DeltaFiles]]:
    """Yield a function that opens a table by its name, and creates it or adds columns that it lacks."""
    try:
        import deltalake
    except ImportError as error:
        raise UsageError("the format delta needs deltalake: pip install 'xlamem[delta]'") from error
    if storage.local and unquote(storage.root) != storage.root:
        raise UsageError(f"{storage.uri} cannot be registered: deltalake replaces the % in its path")

    yield partial(_open, deltalake, storage)


def _open(library: Any, storage: Storage, name: str) -> DeltaFiles:
    spec = library.Schema.from_arrow(schema.WAREHOUSE[name].described("comment"))
    folder = storage.path(name) if storage.local else storage.uri_of(name).partition("?")[0]
    table = library.DeltaTable.create(
        folder, spec, "ignore", name=name, description=f"one row per {schema.WAREHOUSE[name].row}",
        storage_options=_options(storage),
    )  # fmt: skip
    there = {field.name for field in table.schema().fields}
    if missing := [field for field in spec.fields if field.name not in there]:
        table.alter.add_columns(missing)
    return DeltaFiles(table, name)


def _options(storage: Storage) -> dict[str, str]:
    """Return options for what the URI of a dataset on S3 says of its server."""
    endpoint, region = s3_endpoint(storage.uri)
    options = {"aws_endpoint_url": endpoint, "aws_region": region}
    is_plain = (endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http:")
    return {key: value for key, value in options.items() if value} | ({"aws_allow_http": "true"} if is_plain else {})


class DeltaFiles:
    """The files of a Delta table, as of the time it was opened."""

    def __init__(self, table: Any, name: str) -> None:
        self.table, self.name = table, name

    def files(self) -> Mapping[str, int]:
        """Return the sizes of the files by their paths relative to the dataset."""
        rows = pa.table(self.table.get_add_actions())
        paths = (f"{self.name}/{unquote(path)}" for path in rows["path"].to_pylist())
        return dict(zip(paths, rows["size_bytes"].to_pylist(), strict=True))

    def replace(self, added: list[File], removed: list[str]) -> bool:
        """Add and remove files in one commit, unless the table was changed since it was opened; return whether."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction

        now = int(time.time() * 1000)
        actions = [
            *(AddAction(self._path(f.path), f.bytes, {}, now, True, json.dumps({"numRecords": f.rows})) for f in added),
            *(RemoveAction(self._path(path), True, now) for path in removed),
        ]
        try:
            self.table.create_write_transaction(
                actions, "append", self.table.schema(), commit_properties=CommitProperties(max_commit_retries=0)
            )
        except CommitFailedError:
            return False
        return True

    def _path(self, path: str) -> str:
        """Return a path relative to the table."""
        return path.removeprefix(f"{self.name}/")
