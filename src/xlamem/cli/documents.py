"""The JSON documents that the commands print, as types.

`schema.DOCUMENTS` lists them, with their versions. `make schemas` writes the files in `schemas` from these types.
Strings in `Annotated` are descriptions; tables give an object the columns of their rows. `format`, `version` and
`tool`, with which every document begins, are added by `console.write_document`.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from .. import schema

Row = dict[str, Any]
Bytes = Annotated[int, "bytes"]


class Nullable:
    """Columns of a table that can be null in this document."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns


class Without:
    """Columns of a table that this document leaves out."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns


Module = Annotated[Row, schema.MODULES]
UnchargedBuffer = Annotated[Row, schema.COMPUTED["live_set"], Nullable("bytes", "exclusive", "shared")]


class Failure(TypedDict):
    """An input that could not be read."""

    name: str
    error: str


class Program(TypedDict):
    """What identifies a program."""

    name: Annotated[str, "common stem of the dump's files"]
    module: Module


class Dump(Program):
    """A program, and where its dump is."""

    place: Annotated[str, "directory, archive or URI of the dump"]


# -- peak ----------------------------------------------------------------------------------------


class Capacity(TypedDict):
    """The memory that programs are compared with."""

    name: Annotated[str, "device, or `capacity`"]
    bytes: Annotated[int, "memory of the device, as far as programs can use it"]
    resident: Annotated[int, "bytes of it that other data occupy"]
    available: Annotated[int, "bytes that a program may need"]
    stated: NotRequired[Annotated[str, "memory in the words of the vendor"]]
    source: NotRequired[Annotated[str, "document that states it"]]
    stated_bytes: NotRequired[Annotated[int, "memory according to the vendor"]]
    reported_by: NotRequired[Annotated[str | None, "what reports `bytes`; null if they are those of the vendor"]]


class Categories(TypedDict):
    """Bytes in use at the peak by category; without live ranges, sizes of the allocations."""

    parameter: Bytes
    donated: Bytes
    live_out: Bytes
    constant: Bytes
    temp: Bytes


class SpaceDetails(TypedDict):
    """What a memory space has besides the columns of `peaks`."""

    in_device_memory: Annotated[bool, "whether the space is part of device_total"]
    plateau_list: list[Annotated[Row, schema.COMPUTED["plateaus"]]]
    categories: Categories
    n_buffers: Annotated[int, "number of buffers, whatever --limit"]
    buffers: Annotated[
        list[UnchargedBuffer],
        "rows of `live_set` at the peak; without live ranges, the largest values, with `exclusive` and `shared` null",
    ]


class PeakDump(Dump):
    """The numbers of one program."""

    device_total: Annotated[int | None, "bytes that must fit into the device's memory; null if that is not known"]
    fits: Annotated[bool | None, "null if no capacity was given, or if the dump proves neither"]
    reason: Annotated[str | None, "the verdict in words; null if no capacity was given"]
    spaces: Annotated[
        list[Annotated[Row, schema.COMPUTED["peaks"], SpaceDetails]], "memory spaces, the main memory first"
    ]


class Peak(TypedDict):
    """What must fit, and what is in use at the peak."""

    capacity: Annotated[Capacity | None, "from --device or --capacity"]
    dumps: Annotated[list[PeakDump], "largest device_total first"]
    failed: list[Failure]


# -- parts of one program ------------------------------------------------------------------------


class SpaceInUse(TypedDict):
    """The bytes in use in a memory space at one step."""

    memory_space: str
    color: NotRequired[int]
    page: NotRequired[int]
    time: Annotated[int | None, "the step"]
    bytes: Annotated[int, "bytes in use at the step: the sum of the rows of this space"]
    peak: Annotated[int | None, "peak of the space"]


class Top(Program):
    """Where the bytes in use are."""

    by: Annotated[list[str], "keys that the rows are grouped by"]
    time: Annotated[int | None, "step of --at; null for the peak of each memory space"]
    spaces: list[SpaceInUse]
    rows: Annotated[
        list[Row], "rows of `live_set` for --by buffer; otherwise the keys of `by`, with `bytes` and the number `n`"
    ]
    n_rows: Annotated[int, "number of rows, whatever --limit"]


class Packing(TypedDict):
    """The best packing found for a temp allocation."""

    memory_space: str
    color: int
    page: int
    allocation: int
    size: Annotated[int, "bytes of the allocation"]
    found: Annotated[int, "bytes with the best packing found"]
    lower_bound: Annotated[int, "bytes that every packing needs"]
    n_buffers: int
    attempts: Annotated[int, "number of packings tried"]
    optimal: Annotated[bool, "whether no packing is better than the one found"]


class Bill(Program):
    """Why so much memory must fit."""

    bill: Annotated[list[Annotated[Row, schema.COMPUTED["bills"]]], "the rows of an account add up to it"]
    packings: Annotated[list[Packing] | None, "null without --repack"]


class Plan(TypedDict):
    """How far the interventions get that --budget selects."""

    device_total: Annotated[int, "bytes that must fit now"]
    budget: Bytes
    saved: Annotated[int, "lower bound of what the interventions of the plan save together"]
    n: Annotated[int, "number of these interventions"]
    is_reached: Annotated[bool, "whether they are enough"]


class Advise(Program):
    """What would make the program need less memory."""

    device_total: Annotated[int | None, "bytes that must fit; null if that is not known"]
    plan: Annotated[Plan | None, "null without --budget, or without live ranges"]
    advice: list[Annotated[Row, schema.COMPUTED["advice"]]]
    n_rows: Annotated[int, "number of interventions, whatever --limit"]


class Explain(Program):
    """The published numbers of a program."""

    numbers: list[Annotated[Row, schema.COMPUTED["explain"]]]
    causes: list[Annotated[Row, schema.COMPUTED["explain_causes"]]]


class User(TypedDict):
    """A use of a buffer."""

    instruction: str
    operand: int
    operand_shape_index: str | None
    step: Annotated[int | None, "null if the instruction is not in the schedule"]
    op_name: str | None


class LiveRange(TypedDict):
    """First and last step of a live range."""

    start: int
    end: int


class Position(TypedDict):
    """A position of a buffer in the shape of an instruction."""

    instruction: str
    shape_index: str | None


class Buffer(Program):
    """Everything about one buffer."""

    value: UnchargedBuffer
    start: Annotated[int | None, "first step of the live range; null without live ranges"]
    end: Annotated[int | None, "last step of the live range"]
    peak_step: Annotated[int | None, "first step of the peak of its memory space"]
    definer: Annotated[
        Annotated[Row, schema.TABLES["instructions"]] | None, "the defining instruction; null if it is not printed"
    ]
    users: Annotated[list[User], "in the order of steps"]
    positions: Annotated[list[Position], "all positions of the value: its aliases"]
    mates: Annotated[
        list[Annotated[Row, schema.COMPUTED["live_set"], Nullable("bytes", "exclusive", "shared"), LiveRange]],
        "values whose bytes and live ranges overlap or touch its own",
    ]
    saving: Annotated[
        int | None, "by how many bytes the peak would be lower without it, at most; null without live ranges"
    ]


# -- contents ------------------------------------------------------------------------------------


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


# -- comparisons ---------------------------------------------------------------------------------


class Side(Dump):
    """One of two programs that are compared."""

    problems: Annotated[list[str], "why its numbers may not be right"]


class Diff(TypedDict):
    """What changed between two programs."""

    a: Side
    b: Side
    verdict: Annotated[str, "what changed, in a sentence"]
    is_known: Annotated[bool, "whether the numbers of both programs are known to be right"]
    doubt: Annotated[str | None, "why they are not"]
    is_same: Annotated[bool, "whether no number changed"]
    grown: Annotated[bool, "whether device_total or its peak is larger in B"]
    grown_accounts: Annotated[list[str], "accounts that grew"]
    device_total_change: Bytes
    peak_change: Bytes
    account_differences: list[Annotated[Row, schema.COMPARED["account_differences"]]]
    bill_differences: list[Annotated[Row, schema.COMPARED["bill_differences"]]]
    edits: Annotated[list[Annotated[Row, schema.COMPARED["edits"]]], "what explains most comes first"]
    account: Annotated[str, "memory space, or device_total, whose peak the groups divide"]
    by: Annotated[list[str], "keys of the groups"]
    difference_groups: list[Annotated[Row, schema.COMPARED["difference_groups"]]]
    differences: list[Annotated[Row, schema.COMPARED["differences"]]]
    matches: list[Annotated[Row, schema.COMPARED["matches"]]]
    n_difference_groups: int
    n_differences: int
    n_matches: int


class Pairs(TypedDict):
    """What changed between the programs of two sides."""

    summary: Annotated[str, "how many programs changed, in a sentence"]
    n_programs: int
    n_changed: int
    n_unknown: Annotated[int, "programs with a number that is not known"]
    n_new: int
    n_gone: int
    is_known: Annotated[bool, "whether all numbers are known"]
    grown: Annotated[bool, "whether a program grew"]
    largest: Annotated[str | None, "verdict on the largest change; null if nothing changed"]
    pairs: Annotated[list[Annotated[Row, schema.COMPARED["pairs"]]], "largest change first"]


class PointDetails(TypedDict):
    """What a point has besides the columns of `series`."""

    is_known: Annotated[bool, "whether device_total is known"]


class SeriesDetails(TypedDict):
    """What a program has besides the columns of `series_programs`."""

    points: list[Annotated[Row, schema.COMPARED["series"], Without("program"), PointDetails]]
    jumps: list[Annotated[Row, schema.COMPARED["jumps"], Without("program")]]
    verdict: Annotated[str | None, "what changed at its largest jump; null if it was not compared"]


class Series(TypedDict):
    """The programs of a dataset over the values of a label."""

    over: Annotated[str, "key of the label"]
    points: Annotated[list[str], "its values, in order"]
    summary: Annotated[str, "how many programs changed, in a sentence"]
    n_programs: int
    n_changed: int
    n_grown: int
    n_new: int
    n_gone: int
    n_unknown: int
    n_same: int
    is_known: bool
    grown: Annotated[bool, "whether a program needs more at its last known point than at its first"]
    programs: list[Annotated[Row, schema.COMPARED["series_programs"], SeriesDetails]]


# -- checks and reports --------------------------------------------------------------------------


class Check(TypedDict):
    """The result of a check."""

    status: Literal["passed", "not known", "failed"]
    exit_code: Literal[0, 1, 3]
    summary: Annotated[str, "the result in a sentence"]
    config: Annotated[str | None, "the configuration file; null without one"]
    baseline: Annotated[str | None, "where the baseline is; null without one"]
    written: Annotated[str | None, "the baseline file that was written; null if none was"]
    programs: list[Annotated[Row, schema.CHECKED["checked_programs"]]]
    findings: list[Annotated[Row, schema.CHECKED["findings"]]]
    contributors: list[Annotated[Row, schema.CHECKED["contributors"]]]


class UnreadPath(TypedDict):
    """A dump of a directory that cannot be read."""

    path: str
    error: str


class ReportFile(TypedDict):
    """The file that `xlamem report` wrote."""

    output: Annotated[str, "path of the file"]
    bytes: int
    kind: Literal["program", "comparison", "directory"]
    title: str
    fits: Annotated[bool | None, "whether all programs fit; null if that is not known, or no capacity was given"]
    failed: list[UnreadPath]


# -- datasets ------------------------------------------------------------------------------------


class FailedDump(TypedDict):
    """A dump that could not be converted."""

    content_id: str
    name: str
    uri: str
    error: str
    line: int | None
    offset: int | None
    excerpt: str
    kind: Literal["content", "system"]
    attempts: Annotated[int, "failed runs, including this one"]
    identified: Annotated[bool, "whether content_id is a hash of the content"]


class Convert(TypedDict):
    """The result of a conversion."""

    to: Annotated[str, "the dataset"]
    run_id: str
    found: Annotated[int, "dumps found, including duplicates"]
    dumps: Annotated[int, "dumps written by this run, including truncated ones"]
    already_stored: int
    duplicates: Annotated[int, "dumps with the same content as another one"]
    occurrences: Annotated[int, "dumps that were not found before at their place with these labels"]
    files: Annotated[int, "Parquet files written"]
    bytes: Annotated[int, "size of these files"]
    rows: Annotated[int, "rows in these files"]
    text_bytes: Annotated[int, "size of the text of the dumps written"]
    failed: list[FailedDump]
    known: Annotated[int, "dumps in quarantine since an earlier run, which were not retried"]
    changed: Annotated[list[str], "dumps that were modified during the run"]
    cut: Annotated[list[str], "truncated dumps, which were converted up to their end"]
    empty: Annotated[list[str], "paths without a dump"]
    stopped: Annotated[bool, "whether there were more failures than --max-failures"]
    seconds: float


class DatasetFile(TypedDict):
    """A file of a dataset."""

    table: str
    path: Annotated[str, "path or URI"]
    rows: int
    bytes: int
    batch: str
    tool_version: str
    schema_version: int
    run_id: str


class DatasetFiles(TypedDict):
    """The committed files of a dataset."""

    files: list[DatasetFile]


class DatasetMigrate(TypedDict):
    """The result of a migration."""

    batches: Annotated[int, "batches of version 0.1 that were converted"]
    dumps: Annotated[int, "dumps in these batches"]
    contents: Annotated[int, "contents that were stored for them"]
    seconds: float


class DatasetDrop(TypedDict):
    """What was dropped, or would be."""

    occurrences: int
    contents: Annotated[int, "contents that have no occurrence left"]
    quarantined: Annotated[int, "the same of contents in quarantine"]
    batches: Annotated[int, "batches that were removed or written again"]
    dry_run: Annotated[bool, "whether nothing was changed"]


class DatasetCompact(TypedDict):
    """The result of a compaction."""

    batches: Annotated[int, "batches that were merged"]
    merged: Annotated[int, "batches that they were merged into"]
    files: Annotated[int, "files of the merged batches"]
    bytes: Annotated[int, "size of these files"]
    new_files: Annotated[int, "files that replace them"]
    new_bytes: Annotated[int, "size of these files"]


# -- this installation ---------------------------------------------------------------------------


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


TYPES: dict[str, type] = {
    "advise": Advise, "bill": Bill, "buffer": Buffer, "check": Check, "convert": Convert,
    "dataset-compact": DatasetCompact, "dataset-drop": DatasetDrop, "dataset-files": DatasetFiles,
    "dataset-migrate": DatasetMigrate, "diff": Diff, "explain": Explain, "info": Info, "oom": Oom, "pairs": Pairs,
    "peak": Peak, "report-file": ReportFile, "schema": Schema, "self": Self, "series": Series, "show": Show,
    "sql": Sql, "top": Top,
}  # fmt: skip
"""The type of each document but `report`, whose schema is `page/report.schema.json`."""
