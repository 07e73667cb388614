"""Drop occurrences from a dataset, and the contents that are found nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from .. import kernels as pc
from ..errors import OutputError, UsageError
from .batch import Batch
from .dataset import Dataset
from .dumps_view import labels_in_sql
from .maintenance import maintained
from .occurrences import read_occurrences, row_keys, with_occurrences
from .query import quoted
from .rewrite import rewrite
from .state import State
from .storage import Storage

MAX_ATTEMPTS = 10
"""Number of times that the drop is planned, if others write to the dataset meanwhile."""


@dataclass(frozen=True)
class Dropped:
    """The result of `drop`."""

    occurrences: int
    """Occurrences that were dropped."""
    contents: int
    """Contents that were stored and have no occurrence left."""
    quarantined: int
    """The same of contents in quarantine."""
    batches: int
    """Batches that were removed or written again without these."""
    dry_run: bool
    """Whether nothing was changed."""


def drop(
    dest: str | os.PathLike[str], where: str, *, dry_run: bool = False, single_writer: bool = False
) -> Dropped:
    """Drop the occurrences for which an SQL condition is true, and the contents of which no occurrence remains.

    The condition (which needs the extra ``xlamem[duckdb]``) uses the columns of the view `dumps`; ``label.KEY`` is
    short for ``label_KEY``. All of it takes effect with one ledger entry. Then, files that are no longer part of the
    dataset are deleted, unless another run is active. The tables `runs` and `labels` keep their rows.

    Raises
    ------
    UsageError
        `dest` is not a dataset, does not support conditional writes, or has files of version 1; or the condition is
        not valid.
    OutputError
        A file cannot be written, or the dataset changed again and again.
    """
    if dry_run:
        dataset = _open(dest)
        return _Plan(dataset.storage, dataset.state, _matching(dataset, where)).result(dry_run=True)
    with maintained(dest, single_writer=single_writer) as (storage, ledger, run_id):
        for _ in range(MAX_ATTEMPTS):
            state = ledger.refresh()
            dataset = _open(dest)
            if dataset.state.number != state.number:
                continue
            plan = _Plan(storage, state, _matching(dataset, where))
            if not plan.removed or ledger.commit_if_current(plan.batches(run_id), plan.removed):
                return plan.result(dry_run=False)
    raise OutputError(f"{dataset.storage.uri} is being written to: repeat the command")


def _open(dest: str | os.PathLike[str]) -> Dataset:
    dataset = Dataset(dest)
    if dataset.old.batches:
        raise UsageError(f"{dataset.storage.uri} has files of xlamem 0.1: convert them with `xlamem dataset migrate`")
    return dataset


def _matching(dataset: Dataset, where: str) -> pa.Table:
    """Return what identifies the occurrences that are to be dropped."""
    if not where.strip():
        raise UsageError("the condition is empty; `true` drops every occurrence")
    keys = labels_in_sql(dataset.label_keys)
    labels = ", ".join(f"{quoted(key)} := {quoted(f'label_{key}')}" for key in keys)
    struct = f", struct_pack({labels}) AS label" if labels else ""
    columns = 'content_id, uri, "offset", host, run_id'
    return dataset.sql(f"SELECT {columns} FROM (SELECT *{struct} FROM dumps) WHERE (\n{where}\n)")


@dataclass
class _Plan:
    """The batches that are replaced."""

    storage: Storage
    state: State
    matching: pa.Table
    remaining: dict[str, pa.Table] = field(default_factory=dict)
    """The rows that remain in each batch with occurrences of which some do not."""

    def __post_init__(self) -> None:
        keys = row_keys(self.matching)
        left = [pa.array([], pa.string())]
        for batch in self.state.batches.values():
            if files := batch.table_files("occurrences"):
                rows = read_occurrences(self.storage, files)
                kept = rows.filter(pc.invert(pc.is_in(row_keys(rows), keys)))
                if kept.num_rows < rows.num_rows:
                    self.remaining[batch.name] = kept
                left.append(kept["content_id"].combine_chunks())
        candidates = self.matching["content_id"].unique()
        gone = candidates.filter(pc.invert(pc.is_in(candidates, pa.concat_arrays(left)))).to_pylist()
        self.stored = self.state.stored.find(gone)
        self.quarantined = {i: name for i in gone if (name := self.state.quarantined.get(i))}

    @property
    def removed(self) -> tuple[str, ...]:
        """The names of the batches that are removed."""
        return tuple(sorted({*self.remaining, *self.stored.values(), *self.quarantined.values()}))

    def batches(self, run_id: str) -> Iterator[Batch]:
        """Write and yield the batches that replace them."""
        gone = {*self.stored, *self.quarantined}
        for name in self.removed:
            old = self.state.batches[name]
            if name not in self.remaining:
                if new := rewrite(self.storage, old, gone, frozenset(), run_id):
                    yield new
            elif (rows := self.remaining[name]).num_rows:
                yield with_occurrences(self.storage, old, rows, run_id)

    def result(self, *, dry_run: bool) -> Dropped:
        counts = self.matching.num_rows, len(self.stored), len(self.quarantined)
        return Dropped(*counts, len(self.removed), dry_run)
