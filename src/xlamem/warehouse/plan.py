"""Decide which dumps to convert, and group them into tasks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import xxhash

from .. import schema
from ..input.access import URI, WILDCARD
from ..input.filesystems import glob_pattern
from .batch import Batch
from .identity import display_name
from .state import State
from .task import STREAMED_BYTES, DumpInput, Failure, Options, Task

MIN_BATCH_BYTES, MAX_BATCH_BYTES, TARGET_BATCHES = 16 << 20, 128 << 20, 16
"""A run is divided into TARGET_BATCHES batches, within these limits on the text of a batch."""
MAX_BATCH_DUMPS = 8192
DUMPS_PER_IDENTIFY = 256
"""Number of dumps that a worker identifies per call."""


@dataclass
class Plan:
    """The tasks of a run, and counts of the dumps that need no task."""

    tasks: list[Task] = field(default_factory=list)
    """Largest first."""
    stored: int = 0
    """Dumps that this version has already stored."""
    quarantined: int = 0
    """Dumps that this version has already quarantined and does not retry."""
    duplicates: int = 0
    """Dumps that occur more than once in the input."""
    recovered: frozenset[str] = frozenset()
    """Quarantined content_ids that no longer fail, and need no task."""


def identify_chunks(sources: Sequence[int]) -> list[Sequence[int]]:
    """Split the numbers of sources into chunks that are identified together."""
    return [sources[i : i + DUMPS_PER_IDENTIFY] for i in range(0, len(sources), DUMPS_PER_IDENTIFY)]


def plan(
    identified: Sequence[DumpInput | Failure],
    state: State,
    options: Options,
    *,
    searched: Sequence[str] = (),
    skipped: Sequence[str] = (),
    old_ids: Mapping[str, Set[str]] | None = None,
    reprocess: bool = False,
    retry_quarantine: bool = False,
) -> Plan:
    """Return the tasks for the dumps that are not stored yet.

    The tasks depend only on the dumps, not on their order or on the workers. `searched` lists the paths under which
    all dumps were identified, except those with the names `skipped`; `old_ids` the dump_ids of version 1 of a content.
    """
    planner = _Planner(state, options, old_ids or {}, retry=reprocess or retry_quarantine, reprocess=reprocess)
    return planner.plan(identified, searched, skipped)


class _Planner:
    def __init__(
        self, state: State, options: Options, old_ids: Mapping[str, Set[str]], *, retry: bool, reprocess: bool
    ) -> None:
        self.state, self.options, self.old_ids, self.retry, self.reprocess = state, options, old_ids, retry, reprocess
        self.result = Plan()

    def plan(
        self, identified: Sequence[DumpInput | Failure], searched: Sequence[str], skipped: Sequence[str]
    ) -> Plan:
        recovered = _recovered(identified, self.state, self.options.host, searched, skipped)
        new: list[DumpInput] = []
        replaced: dict[str, list[DumpInput]] = defaultdict(list)
        for dump in self._distinct(identified):
            batch = self._replaced_batch(dump.content_id)
            if self._is_stored(dump.content_id):
                self.result.stored += 1
                if self._failed_by_system(dump.content_id):
                    recovered.add(dump.content_id)
                recovered |= self.old_ids.get(dump.content_id, set())
            elif self._is_settled(dump.content_id):
                self.result.quarantined += 1  # an older version may have read it; its rows are kept
            elif batch:
                replaced[batch].append(dump)
            else:
                new.append(dump)
        tasks = [make_task(batch, self.options) for batch in _batches(new)]
        tasks += self._failure_tasks({f.content_id: f for f in identified if isinstance(f, Failure)})
        for name, dumps in replaced.items():
            tasks.append(replace(make_task(tuple(dumps), self.options), replaces=self.state.batches[name]))
        self.result.tasks = sorted(tasks, key=lambda task: (-task.bytes, task.batch))
        self.result.recovered = frozenset(recovered)
        return self.result

    def _distinct(self, identified: Sequence[DumpInput | Failure]) -> list[DumpInput]:
        """Return one dump per content_id, sorted by content_id. Of duplicates, keep the one with the first path."""
        dumps: dict[str, DumpInput] = {}
        for dump in identified:
            if isinstance(dump, DumpInput):
                other = dumps.get(dump.content_id)
                self.result.duplicates += other is not None
                if other is None or _is_before(dump, other):
                    dumps[dump.content_id] = dump
        failed = self.state.quarantined.keys() & dumps.keys()
        dumps |= {i: replace(dumps[i], attempts=self.state.attempts(i)) for i in failed}
        return [dump for _, dump in sorted(dumps.items())]

    def _failure_tasks(self, failures: dict[str, Failure]) -> list[Task]:
        """Return a task that quarantines the dumps that could not be identified, unless they already are."""
        new = [failure for content_id, failure in sorted(failures.items()) if not self._is_settled(content_id)]
        self.result.quarantined += len(failures) - len(new)
        if not new:
            return []
        counted = (replace(failure, attempts=self.state.attempts(failure.content_id) + 1) for failure in new)
        return [make_task((), self.options, tuple(counted))]

    def _replaced_batch(self, content_id: str) -> str | None:
        """Return the batch that must be rewritten if this dump is converted again, if any."""
        if name := self.state.stored.get(content_id):
            return name
        quarantine = self.state.quarantine_batch(content_id)
        return quarantine.name if quarantine and quarantine.dumps else None

    def _is_stored(self, content_id: str) -> bool:
        name = self.state.stored.get(content_id)
        return name is not None and self._is_current(self.state.batches[name]) and not self.reprocess

    def _is_settled(self, content_id: str) -> bool:
        """Return whether the dump is quarantined and must not be retried."""
        batch = self.state.quarantine_batch(content_id)
        return batch is not None and self._is_current(batch) and not (content_id in batch.system or self.retry)

    def _failed_by_system(self, content_id: str) -> bool:
        batch = self.state.quarantine_batch(content_id)
        return batch is not None and content_id in batch.system

    def _is_current(self, batch: Batch) -> bool:
        """Return whether the batch was written by this version."""
        return batch.tool_version == self.options.tool_version and batch.schema_version == schema.VERSION


def _recovered(
    identified: Sequence[DumpInput | Failure], state: State, host: str, searched: Sequence[str], skipped: Sequence[str]
) -> set[str]:
    """Return the dumps quarantined by path that were searched for again, and no longer fail or are gone."""
    unknown = {f.content_id for f in identified if isinstance(f, Failure)}
    for batch in state.batches.values():
        unknown |= {i for i, name in batch.hosts.items() if name != host}
    left = {*skipped}
    paths = {
        i: path
        for batch in state.batches.values()
        for i, path in batch.places.items()
        if i not in unknown and path not in left
    }
    if not paths:
        return set()
    existing: set[str] = set()
    for dump in identified:
        for path in _with_parents(dump.name if isinstance(dump, Failure) else display_name(dump.source)):
            if path in existing:
                break
            existing.add(path)
    was_searched = search_of(searched)
    return {i for i, path in paths.items() if path in existing or was_searched(path)}


def search_of(searched: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a search of these paths, URIs and globs would have found a path."""
    prefixes: list[str] = []
    globs: list[tuple[re.Pattern[str], Callable[[str], str]]] = []
    for text in searched:
        is_uri = URI.match(text)
        path = (text.partition("?")[0] if is_uri else text).rstrip("/")
        prefixes += f"{path}/", f"{path}::"
        if WILDCARD.search(path):
            decode = unquote if is_uri else str  # on both sides, whether the filesystem quotes paths or not
            globs.append((glob_pattern(path if is_uri else path.replace("?", "[!/]"), decode), decode))

    def was_searched(path: str) -> bool:
        parents = _with_parents(path) if globs else ()
        return f"{path}/".startswith(tuple(prefixes)) or any(
            glob.match(decode(p)) for p in parents for glob, decode in globs
        )

    return was_searched


def _with_parents(path: str) -> Iterator[str]:
    """Yield a path, and those of all directories and archives that contain it."""
    while path:
        yield path
        path = path[: max(path.rfind("/"), path.rfind("::"), 0)]


def _is_before(dump: DumpInput, other: DumpInput) -> bool:
    """Compare the paths of the members of two dumps; the first ones mostly differ."""
    for a, b in zip(dump.source.members, other.source.members, strict=False):
        if (path := a.location) != (other_path := b.location):
            return path < other_path
    return len(dump.source.members) < len(other.source.members)


def _batches(dumps: list[DumpInput]) -> list[tuple[DumpInput, ...]]:
    """Split sorted dumps into batches. Each streamed dump forms a batch of its own."""
    small = [dump for dump in dumps if dump.bytes <= STREAMED_BYTES]
    limit = min(max(sum(dump.bytes for dump in small) // TARGET_BATCHES, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
    batches: list[tuple[DumpInput, ...]] = [(dump,) for dump in dumps if dump.bytes > STREAMED_BYTES]
    batch: list[DumpInput] = []
    size = 0
    for dump in small:
        if batch and (size + dump.bytes > limit or len(batch) == MAX_BATCH_DUMPS):
            batches.append(tuple(batch))
            batch, size = [], 0
        batch.append(dump)
        size += dump.bytes
    return [*batches, tuple(batch)] if batch else batches


def make_task(dumps: tuple[DumpInput, ...], options: Options, failures: tuple[Failure, ...] = ()) -> Task:
    """Return a task. Its batch is named after a hash of the dumps, the versions and the settings."""
    # Failed attempts change the name, because files of the failed batch may still exist.
    attempts = {d.content_id: d.attempts for d in dumps} | {f.content_id: f.attempts - 1 for f in failures}
    ids = sorted(f"{i}~{n}" if n else i for i, n in attempts.items())
    settings = (str(schema.VERSION), options.tool_version, ",".join(options.tables), str(options.top), options.folder)
    name = xxhash.xxh3_128_hexdigest("\0".join((*settings, *ids)).encode())
    return Task(name, dumps, options, failures)
