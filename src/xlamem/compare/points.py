"""The programs of a dataset at each value of a label, such as a commit or a night."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, Mask, decoded, encoded, groups_of, ints, nullable
from ..errors import UsageError
from ..formatting import natural_order
from ..warehouse import Dataset
from .ordering import ranks
from .programs import (
    DESCRIBED_BY,
    ProgramEntry,
    known_numbers,
    no_such_key,
    no_such_value,
    relative_folders,
    stored_doubts,
    stored_errors,
    stored_numbers,
    with_problem,
    without_module,
)
from .quarantined import is_one_of, unloaded

Order = Literal["seen", "name"]

_DATE = re.compile(r"\d{4}-\d\d-\d\d(?!\d).*|\d{8}")
_TABLES = ("occurrences", "labels", "modules", "peaks", "quarantine")
_OCCURRENCE = ("content_id", "uri", "offset", "module_id", "run_id", "seen_at")
_MODULE = ("module_name", "program_fp", "interface_fp", *DESCRIBED_BY)


@dataclass(frozen=True)
class Contents:
    """The distinct contents at all points, a row for each."""

    table: pa.Table
    """content_id, the columns of `ProgramEntry` that come from it, and why it is not known."""
    key: Ints
    """Equal for two contents of one program: those with the same fingerprints."""
    interface: Ints
    """Code of interface_fp, -1 if it is not known."""
    device_total: Ints
    """Bytes, -1 if they are not known."""
    peak: Ints
    """Bytes, -1 if they are not known."""
    has_fingerprints: Mask


@dataclass(frozen=True)
class Points:
    """The programs at each point, in order of points and of compilation.

    As in `Programs`, dumps of one program in several folders are one program, and within a folder each counts.
    """

    names: tuple[str, ...]
    """The values of the label, in order."""
    contents: Contents
    point: Ints
    content: Ints
    """Row in `contents`."""
    module_id: Ints
    """-1 if it is not known."""
    occurrences: Ints
    uri: pa.ChunkedArray
    folder: pa.Array
    """Folder, relative to the one that contains all programs of the point."""

    def at(self, point: int) -> Ints:
        """Return the rows of the programs at a point."""
        return np.arange(*np.searchsorted(self.point, [point, point + 1]))

    def programs(self, rows: Ints) -> list[ProgramEntry]:
        """Return programs for pairing."""
        where = pa.array(rows)
        contents = pc.take(self.contents.table, pa.array(self.content[rows]))
        places = pa.table({
            "row": where, "uri": pc.take(self.uri, where), "module_id": nullable(self.module_id[rows]),
            "content_hash": contents["id"],
        })  # fmt: skip
        pairs = zip(places.to_pylist(), contents.to_pylist(), strict=True)
        return [ProgramEntry(**place, **content) for place, content in pairs]

    def folders_of(self, rows: Ints) -> list[str]:
        """Return the relative folders of programs."""
        folders: list[str] = pc.take(self.folder, pa.array(rows)).to_pylist()
        return folders


def read_points(dataset: Dataset, over: str, labels: Mapping[str, str], order: Order | None) -> Points:
    """Read the programs at each value of the label `over`, of the runs that also have these labels.

    Raises
    ------
    UsageError
        The dataset has no such label.
    """
    with dataset.damage_errors(*_TABLES):
        runs = _runs(dataset, over, labels)
        wanted = runs["run_id"].combine_chunks()
        is_wanted = is_one_of("run_id", wanted)
        rows = dataset["occurrences"].to_table(columns=list(_OCCURRENCE), filter=is_wanted)
        rows = pa.concat_tables([rows, unloaded(dataset, wanted).select(_OCCURRENCE)])
        if not rows.num_rows:
            raise UsageError(f"no dump has the label {over!r}{' and these labels' if labels else ''}")
        contents, content = _contents(dataset, rows)
    value, values = encoded(pc.take(runs["value"], pc.index_in(rows["run_id"], runs["run_id"].combine_chunks())))
    place, names = _ordered(value, values.to_pylist(), ints(rows, "seen_at"), order)
    return _distinct(rows, place[value], content, contents, names)


def _runs(dataset: Dataset, over: str, labels: Mapping[str, str]) -> pa.Table:
    """Return the runs that have these labels, and their values of the label `over`."""
    table = dataset["labels"].to_table(columns=["run_id", "key", "value"])
    for key in (over, *labels):
        if key not in dataset.label_keys:
            raise no_such_key(key, dataset.label_keys)
    runs = pc.filter(table, pc.equal(table["key"], over))
    for key, value in labels.items():
        of_key = pc.filter(table, pc.equal(table["key"], key))
        having = pc.filter(of_key, pc.equal(of_key["value"], value))
        if not having.num_rows:
            raise no_such_value(key, value, pc.unique(of_key["value"]).to_pylist())
        runs = pc.filter(runs, pc.is_in(runs["run_id"], having["run_id"].combine_chunks()))
    return runs


def _ordered(value: Ints, values: Sequence[str], seen_at: Ints, order: Order | None) -> tuple[Ints, tuple[str, ...]]:
    """Return the place of each value in the order of the points, and the values in this order."""
    first = np.full(len(values), np.iinfo(np.int64).max)
    np.minimum.at(first, value, seen_at)
    names = [natural_order(text) for text in values]
    by_name = order == "name" or (order is None and all(map(_DATE.fullmatch, values)))
    rows = sorted(range(len(values)), key=lambda i: names[i] if by_name else (int(first[i]), names[i]))
    place = np.empty(len(values), np.int64)
    place[rows] = np.arange(len(values))
    return place, tuple(values[i] for i in rows)


# -- contents ------------------------------------------------------------------------------------


def _contents(dataset: Dataset, occurrences: pa.Table) -> tuple[Contents, Ints]:
    """Return the contents, and the row there of each occurrence."""
    content, ids = encoded(occurrences["content_id"])
    stored = dataset["modules"].to_table(columns=["content_id", *_MODULE])
    at = pc.index_in(ids, stored["content_id"].combine_chunks())
    columns = {"id": ids, **{name: pc.take(stored[name], at) for name in _MODULE}}
    numbers = known_numbers(columns, stored_numbers(dataset, ids), stored_doubts(dataset, columns))
    fingerprints = [encoded(columns[name])[0] for name in ("program_fp", "interface_fp")]
    has_both = (fingerprints[0] >= 0) & (fingerprints[1] >= 0)
    alone = np.where(has_both, -1, np.arange(len(ids)))
    key = groups_of(alone, *(np.where(has_both, codes, -1) for codes in fingerprints))[1]
    table = _with_problems(dataset, pa.table(columns | numbers), occurrences, content)
    total, peak = (ints(table, name) for name in ("device_total", "peak"))
    return Contents(table, key, fingerprints[1], total, peak, has_both), content


def _with_problems(dataset: Dataset, table: pa.Table, occurrences: pa.Table, content: Ints) -> pa.Table:
    """Replace the columns DESCRIBED_BY and `doubt` by the problem of each content. Those with one are few."""
    problems: list[str | None] = [None] * table.num_rows
    readable = np.ones(table.num_rows, bool)
    names = table["module_name"].to_pylist()
    is_fine = pc.and_(pc.fill_null(table["complete"], False), pc.is_valid(table["program_fp"]))
    rows = np.flatnonzero(pc.or_(pc.invert(is_fine), pc.is_valid(table["doubt"])).to_numpy())
    first = np.full(table.num_rows, -1)
    first[content[::-1]] = np.arange(len(content))[::-1]
    errors = stored_errors(dataset) if len(rows) else {}
    uris = pc.take(occurrences["uri"], pa.array(first[rows])).to_pylist()
    for i, row, uri in zip(rows.tolist(), pc.take(table, pa.array(rows)).to_pylist(), uris, strict=True):
        if row["complete"] is None:
            program = without_module(i, row["id"], uri, dataset, errors)
            problems[i], names[i], readable[i] = program.problem, program.module_name, program.readable
        else:
            problems[i] = with_problem(row, dataset)["problem"]
    table = table.drop_columns([*DESCRIBED_BY, "doubt", "module_name"]).append_column("readable", pa.array(readable))
    table = table.append_column("module_name", pa.array(names, pa.string()))
    return table.append_column("problem", pa.array(problems, pa.string()))


# -- programs ------------------------------------------------------------------------------------


def _distinct(rows: pa.Table, point: Ints, content: Ints, contents: Contents, names: tuple[str, ...]) -> Points:
    """Keep one row for each program at each point."""
    module_id = ints(rows, "module_id")
    uris, folders, texts = _places(rows["uri"])
    order = np.lexsort((uris, np.where(module_id < 0, np.iinfo(np.int64).max, module_id), point))
    # Runs with several sets of labels may find a dump: it counts once.
    nowhere = len(uris) + np.arange(len(uris))
    place = np.where(pc.is_valid(rows["uri"]).to_numpy(), uris, nowhere)
    offset = np.unique(ints(rows, "offset"), return_inverse=True)[1]
    order = order[np.sort(groups_of(*(codes[order] for codes in (point, contents.key[content], place, offset)))[0])]
    point, content, module_id = point[order], content[order], module_id[order]
    key = contents.key[content]
    group = groups_of(point, key, folders[order])[1]
    first, program = groups_of(point, key, ranks(group, np.arange(len(group))))
    n = np.bincount(program, minlength=len(first))
    by_place = np.argsort(first)
    kept = first[by_place]
    uri = pc.take(rows["uri"], pa.array(order[kept]))
    folder = _relative(point[kept], folders[order][kept], texts)
    return Points(names, contents, point[kept], content[kept], module_id[kept], n[by_place], uri, folder)


def _relative(point: Ints, folder: Ints, texts: pa.Array) -> pa.Array:
    """Return the folder of each program, relative to the one that contains all programs of its point."""
    first, place = groups_of(point, folder)
    ends = np.append(np.flatnonzero(np.diff(point[first], prepend=-1)), len(first))
    names = ["" if code < 0 else texts[code].as_py() for code in folder[first].tolist()]
    relative = [text for begin, end in pairwise(ends.tolist()) for text in relative_folders(names[begin:end])]
    return decoded(place, pa.array(relative, pa.string()))


def _places(uris: pa.ChunkedArray) -> tuple[Ints, Ints, pa.Array]:
    """Return the rank of each URI, the code of its folder, and the folders."""
    codes, texts = encoded(uris)
    rank = np.empty(len(texts) + 1, np.int64)
    rank[np.asarray(pc.array_sort_indices(texts).to_numpy())] = np.arange(len(texts))
    rank[-1] = len(texts)
    folders, names = encoded(pc.replace_substring_regex(texts, "/?[^/]*$", ""))
    return rank[codes], np.append(folders, -1)[codes], names
