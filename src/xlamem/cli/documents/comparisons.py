"""Documents about two sides, many points, budgets and reports."""

from typing import Annotated, Literal, TypedDict

from ... import schema
from .common import Bytes, Dump, Row, Without


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
