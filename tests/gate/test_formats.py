"""The formats of a result: JSON against the schema that the package ships."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import json_schemas
import jsonschema
import pytest
from conftest import DUMPS
from variants import CUT, TEXTS, inner, written

import xlamem
from xlamem import schema
from xlamem.gate.formats import FORMATS

SCHEMA = json.loads(resources.files("xlamem.cli").joinpath("schemas/check.schema.json").read_text("utf-8"))


def is_valid(data: Any) -> bool:
    return jsonschema.Draft202012Validator(json_schemas.closed(SCHEMA)).is_valid(data)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[xlamem.CheckResult]:
    """Results with every status: passed, failed, not known, and notes."""
    folder = tmp_path_factory.mktemp("formats")
    programs = folder / "programs"
    programs.mkdir()
    written(programs, [("jit_f", TEXTS), ("jit_g", inner(3)), ("jit_h", CUT)])
    base = folder / "base.json"
    config = {"budget": [{"program": "jit_f", "device_total": "1KiB"}]}
    return [
        xlamem.check(DUMPS / "cpu-jaxlib-0.10.2-cond_switch", config={}, baseline=base, bless=True),
        xlamem.check(programs, config=config, baseline=base),
        xlamem.check(DUMPS, config={"budget": [{"device": "v5e"}]}),
    ]


def test_json_follows_its_schema(results: list[xlamem.CheckResult]) -> None:
    statuses = set()
    for result in results:
        data = json.loads(FORMATS["json"](result))
        assert is_valid(data)
        assert data["findings"] == result.rows()
        statuses |= {row["status"] for row in data["findings"]}
    assert statuses >= {"passed", "note", "not known", "failed"}


def test_the_validator_sees_faults(results: list[xlamem.CheckResult]) -> None:
    data = json.loads(FORMATS["json"](results[1]))
    for key, wrong in (("status", "fine"), ("exit_code", 2), ("version", 2), ("summary", None), ("more", 1)):
        assert not is_valid({**data, key: wrong})
    for key, wrong in (("rule", "x"), ("message", None), ("value", "1"), ("source_line", True)):
        assert not is_valid({**data, "findings": [{**data["findings"][0], key: wrong}]})
    del data["programs"][0]["peak"]
    assert not is_valid(data)


@pytest.mark.parametrize(
    ("key", "table"),
    [("findings", "findings"), ("programs", "checked_programs"), ("contributors", "contributors")],
)
def test_the_schema_has_the_columns(key: str, table: str) -> None:
    items = SCHEMA["properties"][key]["items"]
    names = list(schema.CHECKED[table].names)
    assert list(items["properties"]) == items["required"] == names
    for column in schema.CHECKED[table].columns:
        spec = items["properties"][column.name]
        assert spec["description"].startswith(column.doc)
        values = {"status": schema.STATUSES, "rule": schema.RULES}.get(column.name)
        assert spec.get("enum") == (list(values) if values else None)
        assert values or ("null" in spec["type"]) == column.nullable


def test_text_has_at_most_80_columns(results: list[xlamem.CheckResult], tmp_path: Path) -> None:
    for result in results:
        lines = FORMATS["text"](result).split("\n")
        assert max(map(len, lines)) <= 80
        assert lines[-1] == result.summary
        for row in result.rows("failed", "not known"):
            assert row["message"].split()[0] in " ".join(lines)
