"""`xlamem bill`: the accounts on the screen, their width, JSON and CSV; and its line on the first screen."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli, schema
from xlamem.compute.bill_wording import bill_line

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
ADAM = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
TIMELESS = DUMPS / "cpu-tf-1.15.0-loop"
ALL = sorted(p for p in DUMPS.iterdir() if p.is_dir())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*args: str | Path, code: int = 0) -> str:
        monkeypatch.setenv("COLUMNS", "80")
        found = cli.main(["bill", *map(str, args)])
        out, err = capsys.readouterr()
        assert (found, code and bool(err)) == (code, bool(code)), err
        return err if code else out

    return call


def test_screen(run: Any) -> None:
    shown = run(TPU, "--space", "hbm").splitlines()
    assert "hbm  3.56 MiB  at step 8 of 15, its peak" in shown
    amounts = dict(line.split(maxsplit=1) for line in shown if line.endswith("%"))
    for label, size in (
        ("parameters", "1,048,576"), ("outputs", "525,312"), ("temporaries", "2,098,688"), ("alignment", "47,616"),
        ("packing", "16,896"), ("reserved", "3,737,088"),
    ):  # fmt: skip
        assert f" {size} " in amounts[label]
    assert "      2 tuple tables of async copies, 512 bytes each in slots of 16 KiB" in shown
    assert "    up to the next 16 KiB" in shown


def test_spaces(run: Any) -> None:
    """A space that is all of device_total is shown once, and small ones on one line."""
    shown = run(TPU)
    assert shown.count("parameters") == 1
    assert "device_total  3.56 MiB" in shown
    assert "must fit" in shown
    assert "Smaller memory spaces: sflag 4 B\n" in shown
    assert "no memory space 'nowhere'" in run(TPU, "--space", "nowhere", code=2)


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.name)
def test_every_dump(path: Path, run: Any) -> None:
    shown = run(path, "--repack", "0") if xlamem.read(xlamem.find(path)[0]).live_ranges.num_rows else run(path)
    lines = shown.replace(str(path), "").splitlines()
    assert max(map(len, lines)) <= 80


def test_without_live_ranges(run: Any) -> None:
    shown = run(TIMELESS)
    assert "temporaries" in shown
    assert "in use" not in shown
    assert "cannot be packed anew" in run(TIMELESS, "--repack", "1", code=2)


def test_data(run: Any) -> None:
    rows = xlamem.bill(TPU).to_pylist()
    data = json.loads(run(TPU, "--json"))
    assert data["bill"] == rows
    assert data["packings"] is None
    table = list(csv.DictReader(io.StringIO(run(TPU, "--csv"))))
    assert [int(row["bytes"]) for row in table] == [row["bytes"] for row in rows]
    assert tuple(table[0]) == schema.COMPUTED["bills"].names


def test_repack(run: Any) -> None:
    shown = run(ADAM, "--repack", "0", "--space", "hbm")
    line = shown.splitlines()[shown.splitlines().index("packing of the temporaries") + 1]
    (packing,) = json.loads(run(ADAM, "--repack", "0", "--space", "hbm", "--json"))["packings"]
    assert packing["found"] < packing["size"]
    assert packing["optimal"]
    assert re.match(r"  hbm: [\d.]+ KiB by the best packing found, [\d.]+ KiB less than the", line)
    assert "no packing needs less" in " ".join(shown.split())
    assert "nothing to pack" in run(DUMPS / "cpu-jaxlib-0.5.3-tuple3", "--repack", "0")
    assert "--repack and --csv exclude each other" in run(ADAM, "--repack", "0", "--csv", code=2)


def test_line_of_the_first_screen() -> None:
    line = bill_line(xlamem.bill(ADAM).to_pylist())
    assert line is not None
    assert line.startswith("packing: ")
    assert line.endswith("nearly all slots of 16 KiB that hold 32 bytes")
    assert bill_line(xlamem.bill(TPU).to_pylist()) is None  # 1.7 %
    assert bill_line([]) is None
    row = dict.fromkeys(schema.COMPUTED["bills"].names) | {"line": "parameters", "part": "data", "bytes": 100}
    unused = row | {"line": "another_step", "part": None}
    assert bill_line([row, unused | {"bytes": 3}]) is None
    line = bill_line([row, unused | {"bytes": 4}])
    assert line == "another step: 4 B of 104 B, at another step, more cells are in use"
    hole = row | {"line": "packing", "part": "never_touched", "bytes": 100}
    assert bill_line([row, hole]) == "packing: 100 B of 200 B, nearly all memory that no value ever uses"
