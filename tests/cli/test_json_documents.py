"""The JSON that every command prints, against the JSON schemas that the package ships."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import json_schemas
import jsonschema
import pytest
from conftest import DUMPS, every, label, sources

import xlamem
from xlamem import cli, schema
from xlamem.cli import documents
from xlamem.page.model import FORMAT, VERSION

DATA = DUMPS.parent / "data"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
MLP = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
CPU = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
ORIGINS = DATA / "origins"
STORED = [s for s in sources() if Path(s.members[0].uri).is_relative_to(DUMPS)]
HERE = ("--engine", "here", "--quiet")

Printed = Callable[..., Any]


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a document, which also refuses properties that the schema does not list."""
    return jsonschema.Draft202012Validator(json_schemas.closed(json_schemas.document(name)))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Run a command; check the document that it prints, and return it."""

    def call(name: str, *arguments: object) -> Any:
        code = cli.main([str(a) for a in arguments] + ["--json"])
        out, err = capsys.readouterr()
        assert code in (0, 1, 3), err
        document = json.loads(out)
        assert [e.message for e in validator(name).iter_errors(document)] == []
        return document

    return call


# -- the schemas


def test_the_files_are_what_the_types_say() -> None:
    """`make schemas` writes the files."""
    written = dict(json_schemas.texts())
    assert {p.name for p in json_schemas.FOLDER.iterdir()} == {p.name for p in written}
    for path, text in written.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run make schemas"


def test_every_document_has_a_schema() -> None:
    assert set(schema.DOCUMENTS) == {*documents.TYPES, "report"}
    assert ("xlamem.report", schema.DOCUMENTS["report"].version) == (FORMAT, VERSION)
    for name, document in schema.DOCUMENTS.items():
        made = json_schemas.document(name)
        jsonschema.Draft202012Validator.check_schema(made)
        assert made["properties"]["format"] == {"const": f"xlamem.{name}"}
        assert made["properties"]["version"] == {"const": document.version}
        assert {"format", "version", "tool"} <= set(made["required"])


def test_the_documentation_lists_the_documents() -> None:
    text = (DUMPS.parent.parent / "docs" / "cli.md").read_text()
    for name, document in schema.DOCUMENTS.items():
        command, _, about = document.command.partition(",")
        assert f"| `{name}` | `{command}`{',' if about else ''}{about}" in text


def test_every_command_has_a_document() -> None:
    commands = {d.command.split()[1] for d in schema.DOCUMENTS.values()}
    assert commands == set(cli.VERBS)


@pytest.mark.parametrize("name", schema.DOCUMENTS)
def test_the_command_prints_schemas(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "--document", name]) == 0
    assert json.loads(capsys.readouterr().out) == json_schemas.document(name)


def test_an_unknown_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "--document", "peek"]) == 2
    assert "no document 'peek'; did you mean 'peak'?" in capsys.readouterr().err
    assert cli.main(["schema", "--document", "peak", "values"]) == 2


def test_the_validator_sees_faults(printed: Printed) -> None:
    document = printed("peak", "peak", CPU)
    (dump,) = document["dumps"]
    (space,) = dump["spaces"]
    for faulty in (
        document | {"version": 2},
        document | {"more": 1},
        {k: v for k, v in document.items() if k != "failed"},
        document | {"dumps": [dump | {"device_total": "1"}]},
        document | {"dumps": [dump | {"spaces": [space | {"peak": 1.5}]}]},
        document | {"dumps": [dump | {"spaces": [space | {"reserved": None}]}]},
        document | {"dumps": [dump | {"spaces": [{k: v for k, v in space.items() if k != "slack"}]}]},
    ):
        assert not validator("peak").is_valid(faulty)


# -- what commands print


@pytest.mark.parametrize("source", every(2, STORED), ids=label)
def test_documents_of_one_program(source: xlamem.Source, printed: Printed, tmp_path: Path) -> None:
    for member in source.members:
        shutil.copy(member.uri, tmp_path)
    printed("peak", "peak", tmp_path, "--limit", 100, "--device", "v5e")
    printed("info", "info", tmp_path)
    printed("explain", "explain", tmp_path)
    printed("bill", "bill", tmp_path)
    if xlamem.read(source).schedule.num_rows:
        printed("top", "top", tmp_path)
        listed = printed("top", "top", tmp_path, "--by", "buffer", "--limit", 100)["rows"]
        printed("advise", "advise", tmp_path, "--budget", "1KiB", "--limit", 100)
        for row in [row for row in listed if row["value_id"] is not None][:2]:
            printed("buffer", "buffer", tmp_path, row["value_id"])


def test_documents_of_many_programs(printed: Printed) -> None:
    printed("peak", "peak", DUMPS, "--limit", 1, "--capacity", "1GiB")
    printed("info", "info", DUMPS)
    printed("check", "check", DUMPS, "--device", "v5e")
    printed("info", "info", MLP, CPU)
    printed("check", "check", MLP, CPU, "--max-device-total", "1KiB")


def test_other_options(printed: Printed, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed("top", "top", MLP, "--by", "buffer", "--at", 3)["rows"]
    tables = validator("peak").schema["properties"]["dumps"]["items"]["properties"]["spaces"]["items"]["properties"]
    of_live_set = jsonschema.Draft202012Validator(tables["buffers"]["items"])
    assert all(of_live_set.is_valid(row) for row in rows)
    assert printed("bill", "bill", TPU)["packings"] is None
    assert printed("bill", "bill", TPU, "--repack", 0)["packings"]
    assert printed("advise", "advise", TPU)["plan"] is None
    printed("schema", "schema")
    printed("schema", "schema", "peaks", "findings")
    assert printed("self", "info", "--self")["dependencies"]["pyarrow"]


def test_limits_leave_the_full_lengths(printed: Printed) -> None:
    every_number, first = (printed("explain", "explain", TPU, *limit) for limit in ((), ("--limit", 1)))
    assert first["numbers"] == every_number["numbers"][:1]
    assert first["n_numbers"] == every_number["n_numbers"] == len(every_number["numbers"]) > 1
    name = printed("top", "top", TPU, "--by", "buffer")["rows"][0]["value_id"]
    whole, short = (printed("buffer", "buffer", TPU, name, *limit) for limit in ((), ("--limit", 0)))
    for key in ("users", "positions", "mates"):
        assert short[key] == []
        assert short[f"n_{key}"] == whole[f"n_{key}"] == len(whole[key])
    assert whole["users"]


@pytest.mark.parametrize("table", ["values", "savings", "donation", "diagnostics"])
def test_tables(table: str, printed: Printed) -> None:
    shown = printed("show", "show", table, MLP)
    assert (shown["table"], shown["n_rows"]) == (table, len(shown["rows"]))
    spec = (schema.TABLES | schema.COMPUTED)[table]
    row = jsonschema.Draft202012Validator(json_schemas.closed(json_schemas._rows(spec, [])))
    assert all(row.is_valid(r) for r in shown["rows"])


def test_queries(printed: Printed) -> None:
    result = printed("sql", "sql", MLP, "SELECT size, 'x' AS text FROM allocations", "--limit", 1)
    assert (result["columns"], len(result["rows"]), result["n_rows"]) == (["size", "text"], 1, 14)


@pytest.mark.parametrize("log", sorted((DATA / "oom").glob("*.txt")), ids=lambda path: path.stem)
def test_logs(log: Path, printed: Printed) -> None:
    printed("oom", "oom", log)


def test_comparisons(printed: Printed, tmp_path: Path) -> None:
    a, b = ORIGINS / "cpu-scan-remat.tar.gz", ORIGINS / "cpu-scan.tar.gz"
    assert printed("diff", "diff", a, b)["grown"]
    assert printed("diff", "diff", TPU, TPU)["is_same"]
    truncated = tmp_path / "cut.txt"
    truncated.write_text("BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n value: <1 a @0> (size=8,off")
    assert printed("diff", "diff", truncated, CPU)["doubt"]
    printed("pairs", "diff", DUMPS, DUMPS, "--limit", 50)
    printed("pairs", "diff", DUMPS / "cpu-jaxlib-0.12.0-several_modules", ORIGINS, "--limit", 50)


def test_reports(printed: Printed, tmp_path: Path) -> None:
    printed("report-file", "report", MLP, "-o", tmp_path / "a.html", "--device", "v5e")
    printed("report-file", "report", MLP, TPU, "-o", tmp_path / "b.json")
    document = json.loads((tmp_path / "b.json").read_text())
    jsonschema.Draft202012Validator(json_schemas.document("report")).validate(document)


def test_datasets(printed: Printed, tmp_path: Path) -> None:
    broken = tmp_path / "module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz"
    broken.write_bytes(b"\x1f\x8b\x08 nope")
    dest = tmp_path / "dataset"
    for commit, path in (("a", MLP), ("b", CPU), ("c", TPU)):
        made = printed("convert", "convert", path, broken, "--to", dest, "--label", f"commit={commit}", *HERE)
        assert made["dumps"] == 1
    printed("series", "diff", dest, "--over", "commit")
    assert printed("show", "show", "modules", dest)["n_rows"] == 3
    assert printed("dataset-files", "dataset", "files", dest)["files"]
    assert printed("dataset-compact", "dataset", "compact", dest)["batches"]
    assert printed("dataset-drop", "dataset", "drop", dest, "--where", "label.commit = 'a'", "--yes")["contents"] == 1
    shutil.copytree(DATA / "v1-dataset", tmp_path / "v1")
    printed("dataset-migrate", "dataset", "migrate", tmp_path / "v1")
