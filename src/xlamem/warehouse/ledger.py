"""The ledger of a dataset: a log that states which files hold which contents, occurrences and runs.

Each entry, ``_ledger/entries/<number>.json``, adds and removes batches, and is created atomically. Numbers are
consecutive, so that only one of two concurrent converters can write the next entry. Files that no entry names are not
part of the dataset; they are deleted when no run is active. Every 64 entries are folded into a checkpoint (see
`checkpoints`), of which a reader or a run reads only what it needs; the entries before it are deleted a day later.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from .. import schema
from ..errors import OutputError, XlaMemError
from .activity import Marker, marker
from .batch import Batch
from .checkpoints import Checkpoints, entry_name
from .followers import follow
from .state import ORDINALS_PER_ENTRY, State
from .storage import TEMPORARY, Storage
from .task import PROGRESS

CHECKPOINT_INTERVAL = 64
"""Number of entries between checkpoints."""

_GENERATED_NAME = re.compile(r"[0-9a-f]{32}(-\d+(-[0-9a-f]{8})?\.parquet)?|\..*" + re.escape(TEMPORARY))


class Ledger:
    """The ledger of a dataset, and the state as of the last read."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.checkpoints = Checkpoints(storage)
        self.state = self.checkpoints.read()
        self._last_checkpoint = self.state.number
        self._has_written_checkpoint = False
        self._active: Marker | None = None
        self.refresh()

    def refresh(self) -> State:
        """Read the entries that were added since the last call."""
        while (data := self.storage.read(name := entry_name(self.state.number + 1))) is not None:
            with self.storage.damage_errors(name, "an entry of the ledger"):
                entry = json.loads(data)
                if entry["number"] != self.state.number + 1:  # later entries would be skipped
                    raise ValueError(f"its number is {entry['number']!r:.80}")
                self._apply(entry)
        return self.state

    def commit(
        self,
        *batches: Batch,
        remove: tuple[str, ...] = (),
        clear: Set[str] = frozenset(),
        rewrite: Callable[[Batch, Set[str]], Batch | None] = lambda batch, dumps: None,
        may_fail: Set[str] = frozenset(),
        also: Callable[[State], Iterable[Batch]] = lambda state: (),
    ) -> set[str]:
        """Add batches and remove others in one entry, unless another run has claimed one of their dumps.

        Parameters
        ----------
        batches, remove
            The new batches, and the names of the batches that they replace.
        clear
            Dumps to be removed from quarantine. Each batch that contains one of them is replaced by the result of
            ``rewrite(batch, clear)``, or removed if that is None. Batches of version 1 stay; their rows are hidden.
        may_fail
            Stored dumps that may also be quarantined, because reading them again failed.
        also
            Further batches that the state requires, which this entry follows.

        Returns
        -------
        The ids that another run has claimed. If there are any, nothing is committed.
        """
        new, removed = batches, remove
        while True:
            state = self.refresh()
            stale = sorted({state.quarantined[i] for i in clear if i in state.quarantined}.difference(remove))
            rewritten = [rewrite(state.batches[name], clear) for name in stale]
            new, removed = (*batches, *(b for b in rewritten if b), *also(state)), (*remove, *stale)
            hidden = (clear & state.old_ids) - state.hidden
            if not new and not removed and not hidden:
                return set()
            if claimed := self._claimed(new, removed, may_fail):
                return claimed
            if self._append(new, removed, hidden):
                return set()

    def commit_occurrences(self, *batches: Batch, labels: Mapping[str, str], known: Set[str]) -> bool:
        """Add batches, unless another run has recorded or dropped occurrences with the same labels meanwhile.

        `known` names the batches with these labels whose occurrences the new batches do not repeat.
        """
        while True:
            if {batch.name for batch in self.refresh().occurrences(labels)} != known:
                return False
            if self._append(batches):
                return True

    def commit_merged(self, batch: Batch, ordinals: Mapping[str, int]) -> bool:
        """Replace the batches that a batch merges, unless one of them, with these ordinals, is no longer there."""
        while True:
            state = self.refresh()
            if any(state.ordinal(name) != ordinal for name, ordinal in ordinals.items()):
                return False
            if self._append((batch,)):
                return True

    def commit_if_current(self, new: Iterable[Batch], removed: tuple[str, ...]) -> bool:
        """Add and remove batches, unless there is another entry after the last one that was read."""
        return self._append(tuple(new), removed)

    def _append(self, new: tuple[Batch, ...], removed: tuple[str, ...] = (), hidden: Set[str] = frozenset()) -> bool:
        """Publish the files and create the next entry; return whether no other run was faster."""
        self._require_files(new)
        published = self.storage.publish(file.path for batch in new for file in batch.files)
        added = [batch.renamed(published) for batch in new]
        entry = {
            "format": 2, "number": self.state.number + 1, "at": time.time(), "drop": list(removed),
            "hide": sorted(hidden), "add": [batch.to_json() for batch in added if not batch.merges],
        }  # fmt: skip
        if merging := [batch.to_json() for batch in added if batch.merges]:
            entry |= {"format": 3, "merge": merging}
            del entry["add"]  # version 0.2 would take its dumps for missing ones; so it fails
        if not self.storage.create(entry_name(self.state.number + 1), json.dumps(entry, indent=1).encode()):
            self.storage.delete(published.values())
            return False
        self.storage.delete(published.keys())
        self._apply(entry)
        return True

    def _require_files(self, new: tuple[Batch, ...]) -> None:
        """Raise OutputError if another run has taken this one for dead and deleted its files.

        The heartbeat is deleted before the files, which takes longer than writing an entry.
        """
        if self.storage.local or not new:
            return
        is_marked = self._active is None or self._active.exists()
        if not (is_marked and self.storage.exist({file.path for batch in new for file in batch.files})):
            raise OutputError(
                f"{self.storage.uri}: another run has deleted files of this one, which it took for dead: this run was "
                "paused, or the clocks of both hosts differ by minutes. What was committed is kept: repeat the command"
            )

    def _claimed(self, new: tuple[Batch, ...], removed: tuple[str, ...], may_fail: Set[str]) -> set[str]:
        """Return the dumps and runs of new batches that others contain; all dumps if a batch to remove is gone."""
        state = self.state
        # A dump can be stored by an older version and quarantined by a later one.
        failed = {i for batch in new for i in batch.quarantined if i not in may_fail}
        dumps = failed.union(*(batch.dumps for batch in new))
        runs = {run for batch in new for run in batch.runs}
        if gone := set(removed) - state.batches.keys():
            return dumps or gone
        found = state.stored.find(dumps), _select(state.quarantined, failed), _select(state.runs, runs)
        return {key for batch_of in found for key, name in batch_of.items() if name not in removed}

    def _apply(self, entry: dict[str, Any]) -> None:
        for name in entry["drop"]:
            self.state.remove(name)
        for i, data in enumerate(entry.get("merge") or entry["add"]):
            if data["name"] in self.state.batches:
                self.state.remove(data["name"])
            add = self.state.merge if "merge" in entry else self.state.add
            add(Batch.from_json(data), entry["number"] * ORDINALS_PER_ENTRY + i)
        self.state.hidden.update(entry.get("hide", ()))
        self.state.number = entry["number"]

    def checkpoint(self) -> None:
        """Write a checkpoint if CHECKPOINT_INTERVAL entries were added since the last one."""
        if self.state.number - self._last_checkpoint >= CHECKPOINT_INTERVAL:
            self.checkpoints.write(self.state)
            self._last_checkpoint, self._has_written_checkpoint = self.state.number, True

    # -- runs

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """Mark a run as active. Before and after it, update registered tables and delete files that no entry names.

        Raises OutputError if that fails after it.
        """
        with ExitStack() as stack:
            active = marker(self.storage, run_id)
            stack.callback(self._leave, active)
            with suppress(OutputError):  # a catalog that does not answer must not stop a run that commits to the ledger
                self._clean_up(active.is_only)
            active.enter()
            self._active = active
            try:
                yield
            except BaseException:
                with suppress(XlaMemError, OSError):  # the reason why the run fails matters more
                    self._clean_up(active.is_only)
                raise
            with self.storage.output_errors():
                self._clean_up(active.is_only)

    def _leave(self, active: Marker) -> None:
        with self.storage.output_errors():
            active.leave()

    def _clean_up(self, is_only: Callable[[], bool]) -> None:
        follow(self.storage, self.refresh)  # before files that the tables still name are deleted
        self.delete_uncommitted(is_only)

    def delete_uncommitted(self, is_only: Callable[[], bool]) -> list[str]:
        """Delete files that no entry names, unless another run is active; return their names.

        The order matters: files are listed before `is_only` is called, so they belong to runs that it detects or that
        have ended. The entries of runs that have ended are read afterwards.
        """
        names = [name for table in schema.WAREHOUSE for name, _ in self.storage.files(table)]
        names += [name for name, _ in self.storage.files("_ledger") if name.endswith(TEMPORARY)]
        names += [name for name, _ in self.storage.files(PROGRESS)]
        if not is_only():
            return []
        committed = set(self.refresh().files_table()["path"].to_pylist())
        stray = [n for n in names if n not in committed and _GENERATED_NAME.fullmatch(n.rpartition("/")[2])]
        self.storage.delete(stray)
        if self._has_written_checkpoint:
            self.checkpoints.delete_unused()
        return stray


def _select(batch_of: Mapping[str, str], keys: Set[str]) -> dict[str, str]:
    return {key: batch_of[key] for key in keys & batch_of.keys()}
