"""What xlamem asks of pyiceberg and deltalake, with stand-ins for both: `make test` does not install them."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from xlamem import schema
from xlamem.errors import UsageError
from xlamem.warehouse import delta, iceberg
from xlamem.warehouse.batch import File
from xlamem.warehouse.storage import Storage

FILES = [File("values", "values/v2/a.parquet", 3, 40), File("values", "values/v2/b.parquet", 5, 60)]


class ConflictError(Exception):
    """Another run has changed a table."""


def library(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """Let a module have these contents, and let its packages exist."""
    for i in range(name.count(".") + 1):
        part = ".".join(name.split(".")[: i + 1])
        if part not in sys.modules:
            monkeypatch.setitem(sys.modules, part, ModuleType(part))
    for key, value in contents.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


# ---- Delta


def stored_at(uri: str) -> Any:
    """Return a remote storage that is not reached."""
    found: Any = SimpleNamespace(uri=uri, local=False, root="/nowhere")
    found.uri_of = lambda name: Storage.uri_of(found, name)
    found.path = lambda name: Storage.path(found, name)
    return found


@pytest.mark.parametrize(
    ("uri", "environment", "options"),
    [
        ("s3://b/d", None, {}),
        ("s3://b/d?region=eu", None, {"aws_region": "eu"}),
        ("s3://b/d?endpoint_override=h:9&scheme=http", None,
         {"aws_endpoint_url": "http://h:9", "aws_allow_http": "true"}),
        ("s3://b/d?endpoint_override=h:9", "http://other", {"aws_endpoint_url": "https://h:9"}),
        ("s3://b/d", "http://h", {"aws_allow_http": "true"}),
        ("s3://b/d", "https://h", {}),
    ],
)  # fmt: skip
def test_options_of_a_server(
    uri: str, environment: str | None, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if environment:
        monkeypatch.setenv("AWS_ENDPOINT_URL", environment)
    assert delta._options(stored_at(uri)) == options


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("n_missing", [0, 2])
def test_a_delta_table_is_created_and_gets_columns(n_missing: int, is_local: bool, tmp_path: Path) -> None:
    storage = Storage(tmp_path) if is_local else stored_at("s3://b/d?region=eu")
    created: list[Any] = []
    fields = [SimpleNamespace(name=name) for name in schema.WAREHOUSE["values"].warehouse.names]
    schema_ = SimpleNamespace(fields=fields[: len(fields) - n_missing])
    table = SimpleNamespace(schema=lambda: schema_, alter=SimpleNamespace(add_columns=created.append))

    def create(*arguments: Any, **options: Any) -> Any:
        created.append((arguments, options))
        return table

    module = SimpleNamespace(
        Schema=SimpleNamespace(from_arrow=lambda spec: SimpleNamespace(fields=fields, spec=spec)),
        DeltaTable=SimpleNamespace(create=create),
    )
    found = delta._open(module, storage, "values")
    ((folder, spec, mode), options), *added = created
    assert (found.table, found.name, mode) == (table, "values", "ignore")
    assert folder == (f"{tmp_path}/values" if is_local else "s3://b/d/values")
    assert spec.spec == schema.WAREHOUSE["values"].described("comment")
    assert options == {
        "name": "values", "description": f"one row per {schema.WAREHOUSE['values'].row}",
        "storage_options": {} if is_local else {"aws_region": "eu"},
    }  # fmt: skip
    assert added == ([fields[-n_missing:]] if n_missing else [])


@pytest.mark.parametrize(("name", "is_known"), [("plain", True), ("100%", True), ("a%20b", False)])
def test_paths_that_deltalake_misreads(
    name: str, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(monkeypatch, "deltalake")
    wrong = nullcontext() if is_known else pytest.raises(UsageError, match="replaces the %")
    with wrong, delta.opened(Storage(tmp_path / name)) as open_:
        assert open_.func is delta._open  # type: ignore[attr-defined]


def test_deltalake_reads_uris_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, "deltalake")
    storage = stored_at("s3://b/a%20b")
    storage.root = "b/a%20b"
    with delta.opened(storage) as open_:
        assert callable(open_)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_commit_to_a_delta_table(is_changed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def action(kind: str) -> Any:
        return lambda *values: (kind, *values)

    def write(*arguments: Any, **options: Any) -> None:
        written.append((arguments, options))
        if is_changed:
            raise ConflictError

    written: list[Any] = []
    library(monkeypatch, "deltalake.exceptions", CommitFailedError=ConflictError)
    library(monkeypatch, "deltalake.transaction", AddAction=action("add"), RemoveAction=action("remove"),
            CommitProperties=lambda **options: options)  # fmt: skip
    monkeypatch.setattr(delta.time, "time", lambda: 12.3456)
    rows = {"path": ["v2/a%20b.parquet", "v2/c.parquet"], "size_bytes": [7, 8]}
    table = SimpleNamespace(create_write_transaction=write, schema=lambda: "columns", get_add_actions=lambda: rows)
    found = delta.DeltaFiles(table, "values")
    assert found.files() == {"values/v2/a b.parquet": 7, "values/v2/c.parquet": 8}
    assert found.replace(FILES, ["values/v2/c.parquet"]) is not is_changed
    assert written == [(
        ([("add", "v2/a.parquet", 40, {}, 12345, True, json.dumps({"numRecords": 3})),
          ("add", "v2/b.parquet", 60, {}, 12345, True, json.dumps({"numRecords": 5})),
          ("remove", "v2/c.parquet", True, 12345)], "append", "columns"),
        {"commit_properties": {"max_commit_retries": 0}},
    )]  # fmt: skip


# ---- Iceberg


@pytest.mark.parametrize(
    ("place", "is_local", "wanted"),
    [("", True, ("own", "xlamem")), ("lake.xla", True, ("lake", "xla")), ("lake.xla", False, ("lake", "xla")),
     ("lake", True, ("lake", "xlamem")), ("", False, None)],
)  # fmt: skip
def test_which_catalog(
    place: str, is_local: bool, wanted: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(tmp_path) if is_local else stored_at("s3://b/d")
    used: list[Any] = []

    def catalog(name: str, **options: Any) -> Any:
        used.append((name, options))
        return SimpleNamespace(create_namespace_if_not_exists=used.append, close=lambda: used.append("closed"))

    def url(kind: str, database: str) -> Any:
        return SimpleNamespace(render_as_string=lambda: f"{kind}:{database}")

    library(monkeypatch, "pyiceberg.catalog", load_catalog=catalog)
    library(monkeypatch, "pyiceberg.catalog.sql", SqlCatalog=lambda name, **options: catalog("own", **options))
    library(monkeypatch, "sqlalchemy", URL=SimpleNamespace(create=url))
    if wanted is None:
        with pytest.raises(UsageError, match="no place for a catalog"), iceberg.opened(storage, place):
            pass
        return
    with iceberg.opened(storage, place) as open_:
        assert open_.args[1:] == (wanted[1], storage)  # type: ignore[attr-defined]
    folder = f"{tmp_path}/_iceberg"
    options = {} if place else {"uri": f"sqlite:{folder}/catalog.db", "warehouse": folder}
    assert used == [(wanted[0], options), wanted[1], "closed"]
    assert (tmp_path / "_iceberg").exists() == (not place)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("n_missing", [0, 1])
def test_an_iceberg_table_is_created_or_gets_columns(
    is_there: bool, n_missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MissingError(Exception):
        pass

    names = schema.WAREHOUSE["values"].warehouse.names
    done: list[Any] = []
    update = SimpleNamespace(union_by_name=done.append)
    table = SimpleNamespace(
        schema=lambda: SimpleNamespace(column_names=names[: len(names) - n_missing]),
        update_schema=lambda: nullcontext(update), scan=lambda: SimpleNamespace(plan_files=list),
    )  # fmt: skip

    def load(name: tuple[str, str]) -> Any:
        if not is_there:
            raise MissingError
        done.append(name)
        return table

    def create(*arguments: Any, **options: Any) -> Any:
        done.append((*arguments, options))
        return table

    library(monkeypatch, "pyiceberg.exceptions", NoSuchTableError=MissingError)
    known = SimpleNamespace(load_table=load, create_table_if_not_exists=create)
    assert iceberg._open(known, "xla", Storage(tmp_path), "values").table is table
    spec = schema.WAREHOUSE["values"].described("doc")
    properties = iceberg.PROPERTIES | {"comment": f"one row per {schema.WAREHOUSE['values'].row}"}
    first = ("xla", "values") if is_there else (("xla", "values"), spec, {"properties": properties})
    assert done == [first, *[spec] * n_missing]


class Table:
    """A table of pyiceberg with two files and three snapshots, which says what is done with it."""

    def __init__(self, root: str, conflicts: tuple[str, ...]) -> None:
        self.done: list[Any] = []
        self.conflicts = conflicts
        paths = [f"{root}/values/v2/{name}.parquet" for name in "cd"]
        self.entries = [SimpleNamespace(file_path=path, file_size_in_bytes=i) for i, path in enumerate(paths, 7)]
        manifests = ({"m.1", "m.2"}, {"m.2", "m.3"}, {"m.3", "m.4"})
        self.snapshots = [
            SimpleNamespace(snapshot_id=i, manifest_list=f"list.{i}", manifests=lambda io, found=found: [
                SimpleNamespace(manifest_path=path) for path in sorted(found)
            ])
            for i, found in enumerate(manifests, 1)
        ]  # fmt: skip
        self.io = SimpleNamespace(delete=self.delete)
        self.maintenance = SimpleNamespace(expire_snapshots=lambda: SimpleNamespace(by_ids=self.by_ids))

    def scan(self) -> Any:
        return SimpleNamespace(plan_files=lambda: [SimpleNamespace(file=file) for file in self.entries])

    @property
    def metadata(self) -> Any:
        return SimpleNamespace(snapshots=self.snapshots, current_snapshot_id=3)

    def by_ids(self, ids: list[int]) -> Any:
        def commit() -> None:
            if "expire" in self.conflicts:
                raise ConflictError
            self.done.append(("expire", *ids))
            self.snapshots = [s for s in self.snapshots if s.snapshot_id not in ids]

        return SimpleNamespace(commit=commit)

    def delete(self, location: str) -> None:
        self.done.append(("delete", location))
        raise FileNotFoundError

    def transaction(self) -> Any:
        if "replace" in self.conflicts:
            raise ConflictError
        snapshot = SimpleNamespace(append_data_file=lambda file: self.done.append(("append", file)),
                                   delete_data_file=lambda file: self.done.append(("remove", file)))  # fmt: skip

        def how(name: str) -> Any:
            return lambda: self.done.append(name) or nullcontext(snapshot)  # type: ignore[func-returns-value]

        update = SimpleNamespace(overwrite=how("overwrite"), merge_append=how("merge"))
        return nullcontext(SimpleNamespace(update_snapshot=lambda: update, table_metadata="metadata"))


@pytest.mark.parametrize(
    ("removed", "conflicts", "is_done"),
    [(False, (), True), (True, (), True), (True, ("expire",), True), (False, ("replace",), False),
     (True, ("replace",), False)],
)  # fmt: skip
@pytest.mark.parametrize("root", ["", "s3://b/d"])
def test_a_commit_to_an_iceberg_table(
    root: str, removed: bool, conflicts: tuple[str, ...], is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are removed leave no snapshot that names them, nor manifests of such snapshots."""
    library(monkeypatch, "pyiceberg.exceptions", CommitFailedException=ConflictError)
    library(monkeypatch, "pyiceberg.io.pyarrow",
            parquet_file_to_data_file=lambda io, metadata, location: (metadata, location))  # fmt: skip
    storage = Storage(tmp_path) if not root else stored_at("s3://key:secret@b/d?region=eu")
    this: Any = SimpleNamespace(storage=storage)
    place = iceberg.IcebergFiles._location(this, "").rstrip("/")
    table = Table(place, conflicts)
    found = iceberg.IcebergFiles(storage, table)
    assert "secret" not in found._location("x")
    assert found._location("x") == f"{place}/x"
    assert root or place == str(tmp_path)
    assert found.files() == {"values/v2/c.parquet": 7, "values/v2/d.parquet": 8}
    assert found.replace(FILES, ["values/v2/c.parquet"] if removed else []) is is_done
    wanted: list[Any] = []
    if is_done:
        wanted = ["overwrite" if removed else "merge"]
        wanted += [("append", ("metadata", found._location(file.path))) for file in FILES]
    if is_done and removed:
        wanted.append(("remove", table.entries[0]))
    is_expired = is_done and removed and not conflicts
    wanted += [("expire", 1, 2)] * is_expired
    n = len(wanted)
    assert table.done[:n] == wanted
    assert sorted(table.done[n:]) == [("delete", path) for path in ("list.1", "list.2", "m.1", "m.2") if is_expired]
