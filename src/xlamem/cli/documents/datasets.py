"""Documents about what was done to a dataset."""

from typing import Annotated, Literal, TypedDict


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
    recent: Annotated[int, "dumps that are left to the next run because of --min-age"]
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


class DatasetRegister(TypedDict):
    """The tables of one format, after they have followed the dataset."""

    to: Annotated[str, "iceberg or delta"]
    tables: int
    files: Annotated[int, "files that the tables name"]
    added: Annotated[int, "files that were added"]
    removed: Annotated[int, "files that were removed"]
