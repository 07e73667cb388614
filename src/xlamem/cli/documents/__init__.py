"""The JSON documents that the commands print, as types.

`schema.DOCUMENTS` lists them, with their versions. `make schemas` writes the files in `schemas` from these types.
Strings in `Annotated` are descriptions; tables give an object the columns of their rows. `format`, `version` and
`tool`, with which every document begins, are added by `console.write_document`.
"""

from .common import Failure, Nullable, Program, Row, Without
from .comparisons import Check, Diff, Pairs, ReportFile, Series, Side
from .contents import Extra, Info, Oom, Schema, Self, Show, Sql
from .datasets import (
    Convert,
    DatasetCompact,
    DatasetDrop,
    DatasetFiles,
    DatasetMigrate,
    DatasetRegister,
    FailedDump,
)
from .one_program import Advise, Bill, Buffer, Capacity, Explain, Packing, Peak, Plan, Top

__all__ = [
    "TYPES", "Advise", "Bill", "Buffer", "Capacity", "Check", "Convert", "DatasetCompact", "DatasetDrop",
    "DatasetFiles", "DatasetMigrate", "DatasetRegister", "Diff", "Explain", "Extra", "FailedDump", "Failure",
    "Info", "Nullable", "Oom", "Packing", "Pairs", "Peak", "Plan", "Program", "ReportFile", "Row", "Schema", "Self",
    "Series", "Show", "Side", "Sql", "Top", "Without",
]  # fmt: skip

TYPES: dict[str, type] = {
    "advise": Advise, "bill": Bill, "buffer": Buffer, "check": Check, "convert": Convert,
    "dataset-compact": DatasetCompact, "dataset-drop": DatasetDrop, "dataset-files": DatasetFiles,
    "dataset-migrate": DatasetMigrate, "dataset-register": DatasetRegister, "diff": Diff, "explain": Explain,
    "info": Info, "oom": Oom, "pairs": Pairs, "peak": Peak, "report-file": ReportFile, "schema": Schema,
    "self": Self, "series": Series, "show": Show, "sql": Sql, "top": Top,
}  # fmt: skip
"""The type of each document but `report`, whose schema is `page/report.schema.json`."""
