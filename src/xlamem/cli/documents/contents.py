"""Documents about what dumps, datasets, logs and this installation contain."""

from typing import Annotated, Literal, TypedDict

from ... import schema
from .common import Dump, Failure, Row


class Inspected(Dump):
    """The contents of a dump."""

    files: list[Annotated[Row, schema.FILES]]
    allocated_bytes: Annotated[int | None, "total as printed by XLA, or else the sum of the allocations"]
    checks: Annotated[
        dict[str, Literal["passed", "failed", "skipped"]],
        "result of each cross-check; skipped if the dump lacks what it compares",
    ]
    diagnostics: list[Annotated[Row, schema.DIAGNOSTICS]]


class Info(TypedDict):
    """What dumps contain, and whether they are consistent."""

    dumps: list[Inspected]
    duplicates: Annotated[list[list[str]], "groups of dumps with identical content"]
    failed: list[Failure]


class Show(TypedDict):
    """A table of a dump or a dataset."""

    table: str
    rows: Annotated[list[Row], "rows with the columns that `xlamem schema TABLE --json` describes"]
    n_rows: Annotated[int, "number of rows, whatever --limit"]


class Sql(TypedDict):
    """The result of a query."""

    columns: Annotated[list[str], "names of the columns"]
    rows: Annotated[list[Row], "numbers that are not finite are null; times and other types are text"]
    n_rows: Annotated[int, "number of rows, whatever --limit"]


class ColumnText(TypedDict):
    """A column of a table."""

    name: str
    type: Annotated[str, "Arrow type in memory"]
    warehouse_type: Annotated[str, "Arrow type in a dataset"]
    nullable: bool
    unit: str
    doc: str


class TableText(TypedDict):
    """A table."""

    name: str
    row: Annotated[str, "what a row is"]
    source: str
    columns: list[ColumnText]


class DocumentText(TypedDict):
    """A JSON document."""

    name: Annotated[str, "`format` without `xlamem.`"]
    version: int
    command: Annotated[str, "command that prints it"]


class BillText(TypedDict):
    """The values of the columns of `bills`, with descriptions."""

    lines: dict[str, str]
    parts: dict[str, str]
    kinds: dict[str, str]


class ComparisonText(TypedDict):
    """The values of columns of comparisons, with descriptions."""

    causes: dict[str, str]
    matches: dict[str, str]
    edits: dict[str, str]
    paired: dict[str, str]


class CheckText(TypedDict):
    """The values of columns of checks, with descriptions."""

    rules: dict[str, str]
    statuses: dict[str, str]


class Schema(TypedDict):
    """The tables and closed sets of values, described."""

    schema_version: Annotated[int, "version of the tables"]
    tables: Annotated[list[TableText], "tables of a dump"]
    computed: list[TableText]
    compared: list[TableText]
    checked: list[TableText]
    oom: list[TableText]
    warehouse: Annotated[list[TableText], "tables of a dataset"]
    definitions: Annotated[dict[str, str], "numbers of a dump"]
    bill: BillText
    comparison: ComparisonText
    check: CheckText
    roles: dict[str, str]
    features: dict[str, str]
    codes: dict[str, str]
    memory_spaces: Annotated[dict[str, dict[str, str]], "names of colors by platform"]
    documents: Annotated[list[DocumentText], "the JSON documents"]


class Oom(TypedDict):
    """The out-of-memory reports of a log."""

    source: Annotated[str, "the log"]
    reports: list[Annotated[Row, schema.OOM["reports"]]]
    usage: list[Annotated[Row, schema.OOM["usage"]]]
    buffers: list[Annotated[Row, schema.OOM["buffers"]]]
    unknown: list[Annotated[Row, schema.OOM["unknown"]]]


class Extra(TypedDict):
    """A package that an extra of xlamem installs."""

    extra: Annotated[str, "pip install 'xlamem[EXTRA]'"]
    package: str
    version: Annotated[str | None, "null if it is not installed"]


class Self(TypedDict):
    """The installation of xlamem."""

    path: Annotated[str, "folder of the package"]
    python: str
    platform: str
    build: Annotated[list[str], "options of CMake that the native modules were built with; empty for a release"]
    simd: Annotated[list[str], "instructions that the native modules use besides those of plain C"]
    cores: Annotated[int, "cores that this process may use"]
    threads: Annotated[int, "threads that read a large dump by default"]
    schema_version: Annotated[int, "version of the tables"]
    dependencies: Annotated[dict[str, str | None], "versions of the packages that xlamem requires"]
    extras: list[Extra]
