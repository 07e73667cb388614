"""What a type checker must accept."""

from __future__ import annotations

import io
from pathlib import Path
from typing import assert_type

import pyarrow as pa

import xlamem
from xlamem.compare.difference import Diff
from xlamem.compute import Fits, MemoryAnalysis, Peak

dump = xlamem.read("dumps/")
assert_type(dump.values, pa.Table)
assert_type(dump["values"], pa.Table)
assert_type(dump.verify(), pa.Table)
assert_type(dump.batches("values"), pa.RecordBatchReader)
assert_type(dump.platform, str | None)
for source in xlamem.find("dumps/"):
    assert_type(xlamem.peak(source), Peak)
assert_type(xlamem.peak("dumps/", k=2).spaces, pa.Table)
assert_type(xlamem.live_set(Path("dumps"), 3, space="hbm"), pa.Table)
assert_type(xlamem.attribution(io.BytesIO(b""), by=("scope", "category"), depth=2), pa.Table)
assert_type(xlamem.savings(b"BufferAssignment:"), pa.Table)
assert_type(xlamem.fits(dump, capacity="16GiB"), Fits)
assert_type(xlamem.memory_analysis(dump), MemoryAnalysis)
assert_type(xlamem.memory_analysis(dump).by_release[0].bytes, int)
assert_type(xlamem.diff("before/", dump).verdict, str)
assert_type(xlamem.diff(dump, dump).buffers, pa.Table)
assert_type(xlamem.diff(dump, dump), Diff)
assert_type(xlamem.sql(dump, "from peaks"), pa.Table)
assert_type(xlamem.sql(xlamem.Dataset("dataset"), "from peaks"), pa.Table)
assert_type(xlamem.Dataset("dataset").read("0123"), xlamem.Dump)
