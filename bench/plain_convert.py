"""The script that `xlamem convert` replaces: dumps to Parquet with `re` and pyarrow, each content once.

    python plain_convert.py DIR OUT [PROCESSES]
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import rivals

JOB = 8_000_000
"""Bytes of text per job, which writes one file per table."""


def find(folder: Path) -> Iterable[list[Path]]:
    """The memory files of each dump."""
    first, *others = rivals.ROLES
    for path in sorted(folder.rglob(f"*{first}")):
        stem = str(path).removesuffix(first)
        yield [path, *(p for role in others if (p := Path(stem + role)).exists())]


def distinct(dumps: Iterable[list[Path]]) -> Iterable[list[Path]]:
    seen = set()
    for paths in dumps:
        content = hashlib.blake2b(b"\0".join(path.read_bytes() for path in paths)).digest()
        if content not in seen:
            seen.add(content)
            yield paths


def jobs(dumps: Iterable[list[Path]]) -> Iterable[list[list[Path]]]:
    job: list[list[Path]] = []
    size = 0
    for paths in dumps:
        job.append(paths)
        size += sum(path.stat().st_size for path in paths)
        if size > JOB:
            yield job
            job, size = [], 0
    if job:
        yield job


def write(job: list[list[Path]], to: Path, number: int) -> None:
    made: dict[str, list[pa.Table]] = defaultdict(list)
    for paths in job:
        name = str(paths[0]).removesuffix(rivals.ROLES[0])
        for table_name, table in rivals.to_arrow(rivals.read(paths)).items():
            made[table_name].append(table.append_column("dump", pa.repeat(pa.scalar(name), table.num_rows)))
    for table_name, tables in made.items():
        (to / table_name).mkdir(parents=True, exist_ok=True)
        path = to / table_name / f"{number:06}.parquet"
        pq.write_table(pa.concat_tables(tables), path, compression="zstd", compression_level=3)


def main(folder: str, to: str, processes: int = 2) -> None:
    parts = list(jobs(distinct(find(Path(folder)))))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(write, parts, [Path(to)] * len(parts), range(len(parts))):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
