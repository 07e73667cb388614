"""Enough of pyarrow-stubs to see its types in xlamem's signatures."""

from typing import Any

class Table:
    num_rows: int

class RecordBatchReader: ...

def __getattr__(name: str) -> Any: ...
