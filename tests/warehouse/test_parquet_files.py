"""The Parquet files of a dataset, as other tools see them."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import duckdb
import polars
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse import compaction, parquet, plan

COLUMNS = Path(__file__).parents[1] / "data" / "columns-v2.json"
"""The columns that the first release with `schema.VERSION` 2 stores."""
HAS_BLOOM_FILTERS = "bloom_filter_options" in inspect.signature(pq.ParquetWriter).parameters


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All dumps in several batches, with a label in the path."""
    dest = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_BATCH_BYTES", 100_000)
        xlamem.convert(DUMPS, to=dest, labels={"night": "monday"}, partition_by=["night"], engine="here")
    return dest


@pytest.fixture(scope="module")
def compacted(converted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("files") / "merged"
    shutil.copytree(converted, dest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "BLOOM_FILTER_BYTES", 0)
        patch.setattr(parquet, "ROW_GROUP_BYTES", 20_000)
        patch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 5_000)
        warehouse.compact(dest)
    return dest


@pytest.fixture(params=["converted", "compacted"])
def dest(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def files(dest: Path, table: str) -> list[Path]:
    return sorted((dest / table).rglob("*.parquet"))


def test_columns_are_only_appended() -> None:
    """To add columns before the release, write `stored_columns()` to the file."""
    for name, before in json.loads(COLUMNS.read_text()).items():
        now = stored_columns()[name]
        assert now[: len(before)] == before, name
        assert all(nullable for _, _, nullable in now[len(before) :]), f"{name}: new columns must be nullable"


def stored_columns() -> dict[str, list[list[object]]]:
    return {
        name: [[field.name, str(field.type), field.nullable] for field in table.parquet]
        for name, table in schema.WAREHOUSE.items()
    }


def test_fields_have_stable_ids_and_required_columns_are_marked(dest: Path) -> None:
    for name, table in schema.WAREHOUSE.items():
        for path in files(dest, name):
            found = duckdb.sql(f"SELECT name, field_id, repetition_type FROM parquet_schema('{path}')").fetchall()[1:]
            assert found == [
                (c.name, i, "OPTIONAL" if c.nullable else "REQUIRED") for i, c in enumerate(table.columns, 1)
            ]


def test_the_metadata_describes_table_and_columns(dest: Path) -> None:
    for name, table in schema.WAREHOUSE.items():
        for path in files(dest, name):
            metadata = pq.read_metadata(path).metadata
            assert metadata[b"xlamem.table"].decode() == name
            assert metadata[b"xlamem.row"].decode() == table.row
            assert int(metadata[b"xlamem.schema_version"]) == schema.VERSION
            columns = json.loads(metadata[b"xlamem.columns"])
            assert [(c["name"], c["description"], c["unit"]) for c in columns] == [
                (c.name, c.doc, c.unit) for c in table.columns
            ]


def test_rows_are_sorted_as_the_file_says(dest: Path) -> None:
    for name in schema.WAREHOUSE:
        for path in files(dest, name):
            with pq.ParquetFile(path) as file:
                for i in range(file.num_row_groups):
                    order = file.metadata.row_group(i).sorting_columns
                    names = [file.schema_arrow.names[column.column_index] for column in order]
                    expected = compaction.SORTED_BY if dest.name == "merged" else parquet.SORTED_BY
                    assert (*names,) == expected.get(name, ())
                    assert not any(column.descending or column.nulls_first for column in order)
                    rows = file.read_row_group(i)
                    assert not names or rows.equals(rows.sort_by([(n, "ascending") for n in names]))


def test_a_copy_of_a_batch_keeps_its_order(compacted: Path, tmp_path: Path) -> None:
    shutil.copytree(compacted, tmp_path / "out")
    night = "label.night = 'monday' and module_name = 'jit_m_mlp_grad'"
    assert warehouse.drop(tmp_path / "out", where=night).contents
    (path,) = files(tmp_path / "out", "modules")
    assert [c.column_index for c in pq.read_metadata(path).row_group(0).sorting_columns] == [
        schema.WAREHOUSE["modules"].names.index(name) for name in compaction.ORDER
    ]


@pytest.mark.skipif(not HAS_BLOOM_FILTERS, reason="pyarrow cannot write Bloom filters")
def test_bloom_filters_of_merged_files_exclude_row_groups(compacted: Path) -> None:
    (path,) = files(compacted, "values")
    ids = pq.read_table(path, columns=["content_id"], partitioning=None)["content_id"].unique().to_pylist()

    def excluded(content_id: str) -> list[bool]:
        probe = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'content_id', '{content_id}')"
        return [found for (found,) in duckdb.sql(probe).fetchall()]

    assert len(excluded(ids[0])) > 1
    assert not any(all(excluded(content_id)) for content_id in ids)
    assert sum(map(sum, map(excluded, ids))) > len(ids)


def test_paths_add_no_column_but_the_labels(dest: Path) -> None:
    """A folder as each tool reads it by default, and hive partitioning where that is an option."""
    for name, table in schema.WAREHOUSE.items():
        glob, names = f"{dest}/{name}/**/*.parquet", [*table.names, "night"]
        if not files(dest, name):
            continue
        assert pq.read_table(dest / name).column_names == names
        assert duckdb.sql(f"FROM '{glob}'").columns in (names, names[:-1])
        assert duckdb.sql(f"FROM read_parquet('{glob}', hive_partitioning = true)").columns == names
        assert polars.scan_parquet(dest / name).collect_schema().names() == names
        hive = pyarrow.dataset.dataset(dest / name, partitioning="hive")
        assert hive.schema.names == names
