"""Where jobs run: workers that die, dumps that kill them, clusters, two converters at once, SIGKILL."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS, every
from kills import killed
from test_convert import SEEN, convert, counts, on_disk, state, stored

import xlamem
from xlamem import warehouse
from xlamem.warehouse import engines, plan, processes, run, worker
from xlamem.warehouse import pool as pools
from xlamem.warehouse.storage import Storage

POISON = "cpu-jaxlib-0.5.3-tuple3"
"""In the path of the dump that kills its worker."""
FEW = sorted(DUMPS.glob("cpu-*"))
"""Enough for several batches. Where jobs run does not depend on formats."""


TIMEOUT = 60
"""Seconds after which an executor hangs."""


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("clean")
    convert(*FEW, to=dest)
    return dest


def whole(dest: Path, clean: Path) -> None:
    """Every dump and every occurrence once, and nothing that the ledger does not know."""
    assert counts(dest) == counts(clean)
    found, wanted = (stored(d, "occurrences").drop_columns(SEEN).to_pylist() for d in (dest, clean))
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert state(dest).stored.keys() == state(clean).stored.keys()
    assert on_disk(dest) == {f.path for f in state(dest).files()}


# -- the calling process -------------------------------------------------------------------------


def process_state() -> dict[str, Any]:
    """Settings that are shared by everything in this process."""
    core = np._core if hasattr(np, "_core") else np.core
    return {
        "environment": dict(os.environ),
        "gc": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)),
        "allocator": (core.multiarray.get_handler_name(), pa.default_memory_pool().backend_name),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "temporary": tempfile.tempdir,
    }


@pytest.mark.parametrize("engine", ["here", "local"])
@pytest.mark.parametrize("fails", every(2, [True, False]))
@pytest.mark.parametrize("streamed", every(2, [False, True]))
def test_the_calling_process_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None, engine: str, fails: bool, streamed: bool
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    tempfile.gettempdir()  # cached on first use
    if streamed:
        monkeypatch.setattr(plan, "STREAMED_BYTES", 0)
        monkeypatch.setattr(worker, "STREAMED_BYTES", 0)
    before, during, frozen = process_state(), [], [gc.get_freeze_count()]

    def report(status: warehouse.Status) -> None:
        during.append(process_state())
        frozen.append(gc.get_freeze_count())
        if fails and status.phase == "convert" and status.dumps:
            raise ZeroDivisionError

    sources = sorted(DUMPS.glob("cpu-jaxlib-0.*"))[:3]
    options: Any = {"engine": engine, "workers": 2, "progress": report}
    if fails:
        with pytest.raises(ZeroDivisionError):
            xlamem.convert(*sources, to=tmp_path, **options)
    else:
        xlamem.convert(*sources, to=tmp_path, **options)
    assert len(during) > 2
    assert all(state == before for state in [*during, process_state()])
    assert max(frozen) == frozen[0]  # less if objects that the tests froze are freed


# -- processes of this machine -------------------------------------------------------------------


def worker_state() -> tuple[bool, int, str | None]:
    import gc
    import os

    return gc.isenabled(), len(gc.callbacks), os.environ.get("OPENBLAS_NUM_THREADS")


def test_workers_are_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """They collect garbage between dumps only, and start no threads for linear algebra."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with processes.local(1) as pool:
        pool.start(1)
        callbacks = 1 if sys.platform == "linux" else 0
        assert pool.submit(worker_state).result() == (False, callbacks, "1")


def blocked_signals() -> set[int]:
    import signal

    return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_interrupts_do_not_reach_workers() -> None:
    """Not even while they start: Ctrl-C in a terminal is sent to them too, and they would print a traceback."""
    before = blocked_signals()
    with processes.local(1) as pool:
        pool.start(1)
        assert signal.SIGINT in pool.submit(blocked_signals).result()
        assert blocked_signals() == before


def stop_while_sending(flag: Path | None) -> bytes:
    """In a worker: begin to send a result, and then die, or write a file and wait."""
    from multiprocessing.connection import Connection

    def send_half(self: Any, text: Any) -> None:
        self._send(struct.pack("!i", len(text)) + bytes(text[: len(text) // 2]))
        if flag is None:
            os.kill(os.getpid(), signal.SIGKILL)
        flag.touch()
        time.sleep(1000)

    Connection._send_bytes = send_half  # type: ignore[attr-defined]
    return bytes(1000)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are other connections there")
def test_a_worker_that_dies_while_it_sends_a_result() -> None:
    """The executor, which waits for the rest of the result, is stopped; and it can be started again."""
    with processes.local(2) as pool:
        pool.start(1)
        waiting, sending = pool.submit(time.sleep, 1000), pool.submit(stop_while_sending, None)
        assert isinstance(sending.exception(TIMEOUT), pool.death_errors)
        assert isinstance(waiting.exception(TIMEOUT), pool.death_errors)
        pool.restart()
        assert pool.submit(os.getpid).result(TIMEOUT)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are other connections there")
def test_workers_that_are_stopped_while_they_send_a_result(tmp_path: Path) -> None:
    with processes.local(1) as pool:
        pool.start(1)
        sending = pool.submit(stop_while_sending, tmp_path / "sending")
        while not (tmp_path / "sending").exists():
            time.sleep(0.01)
        pool.kill()
        assert isinstance(sending.exception(TIMEOUT), pool.death_errors)


class KilledAtStart(processes.Cores):
    """Kills the first workers that start, as a system short of memory does."""

    flags: Path
    kills: int

    def start_worker(self) -> None:
        number = len(list(self.flags.iterdir()))
        (self.flags / f"{number}-{os.getpid()}").touch()
        if number < self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        super().start_worker()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
@pytest.mark.parametrize("kills", every(3, [2, 1, 1000]))
def test_workers_that_are_killed_while_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, kills: int
) -> None:
    """They are started again; without any, this process does the work."""
    (tmp_path / "flags").mkdir()

    def cores(*args: Any) -> KilledAtStart:
        found = KilledAtStart(*args)
        found.flags, found.kills = tmp_path / "flags", kills
        return found

    monkeypatch.setattr(processes, "Cores", cores)
    made = xlamem.convert(*FEW, to=tmp_path / "out", workers=1)
    assert not made.failed
    # They are started once more for the second phase, in which dumps are converted.
    assert len(list((tmp_path / "flags").iterdir())) == min(kills + 1, 2 * processes.MAX_STARTS)
    whole(tmp_path / "out", clean)


class FirstAlone(processes.Cores):
    """Lets only the first worker start; the others are killed, or fail."""

    flags: Path
    fails: bool

    def start_worker(self) -> None:
        (self.flags / str(os.getpid())).touch()
        if len(list(self.flags.iterdir())) > 1:
            if self.fails:
                raise MemoryError
            os.kill(os.getpid(), signal.SIGKILL)
        super().start_worker()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
@pytest.mark.parametrize("fails", every(2, [False, True]))
def test_workers_that_cannot_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, fails: bool
) -> None:
    """One is killed, and then all that replace it: this process does the work, and blames no dump."""
    (tmp_path / "flags").mkdir()
    submit, killed = pools.Pool.submit, []

    def cores(*args: Any) -> FirstAlone:
        found = FirstAlone(*args)
        found.flags, found.fails = tmp_path / "flags", fails
        return found

    def submit_and_kill(self: pools.Pool, function: Any, *args: Any) -> Any:
        future = submit(self, function, *args)
        if function is worker.process and not killed:
            killed.extend(multiprocessing.active_children())
            for process in killed:
                process.kill()
        return future

    monkeypatch.setattr(processes, "Cores", cores)
    monkeypatch.setattr(pools.Pool, "submit", submit_and_kill)
    made = xlamem.convert(*FEW, to=tmp_path / "out", workers=1)
    assert len(killed) == 1
    assert len(list((tmp_path / "flags").iterdir())) == 1 + processes.MAX_STARTS
    assert not made.failed
    whole(tmp_path / "out", clean)


def poisoned(flag: str) -> None:
    """In a worker: the dump kills it, always or (with the path of a flag) once."""
    read = worker.ReadDump

    def deadly(source: Any, **options: Any) -> xlamem.Dump:
        if POISON in source.members[0].uri and not (flag and Path(flag).exists()):
            if flag:
                Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(source, **options)

    worker.ReadDump = deadly  # type: ignore[assignment]


def deadly_engine(flag: str = "") -> engines.Engine:
    """As `local`, with workers that the dump kills."""

    @contextmanager
    def engine(workers: int | None = None, scheduler: str | None = None) -> Iterator[engines.Pool]:
        def start() -> ProcessPoolExecutor:
            context = multiprocessing.get_context("spawn")
            return ProcessPoolExecutor(2, mp_context=context, initializer=poisoned, initargs=(flag,))

        def renew() -> None:
            pool.executor = start()

        pool = engines.Pool(start(), 2, restart=renew)
        try:
            yield pool
        finally:
            pool.executor.shutdown()

    return engine


def test_a_dump_that_kills_its_worker_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, small_batches: None
) -> None:
    monkeypatch.setitem(engines.ENGINES, "deadly", deadly_engine())
    made = xlamem.convert(*FEW, to=tmp_path, engine="deadly")
    assert [POISON in f.uri for f in made.failed] == [True]
    assert "each of 2 workers that read only this dump died" in made.failed[0].error
    assert made.dumps == len(state(clean).stored) - 1
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}
    assert not Storage(tmp_path).files("_ledger/careful")
    Storage(tmp_path).write(run.progress_marker("0" * 32), b"")  # of a driver that was killed
    # What kills workers may be the system: the next run tries it again, and counts.
    again = xlamem.convert(*FEW, to=tmp_path, engine="deadly")
    assert (again.dumps, again.known, [f.attempts for f in again.failed]) == (0, 0, [2])
    (row,) = stored(tmp_path, "quarantine").to_pylist()
    assert (row["kind"], row["attempts"], row["run_id"]) == ("system", 2, again.run_id)
    assert not Storage(tmp_path).files("_ledger/careful")
    healed = convert(*FEW, to=tmp_path)
    assert (healed.dumps, healed.unreadable) == (1, 0)
    whole(tmp_path, clean)


def test_one_death_alone_is_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, small_batches: None
) -> None:
    """Workers are killed by something else whenever that dump is read, but the last time."""
    deaths = []

    class Dying(pools.InProcessExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = super().submit(fn, *args, **kwargs)
            job = args[0]
            if fn is worker.process and len(deaths) < 3 and any(POISON in i.source.members[0].uri for i in job.inputs):
                deaths.append(len(job.inputs))
                if job.write_progress:
                    Storage(tmp_path).write(run.progress_marker(job.batch), poison.encode())
                future = pools.Future()
                future.set_exception(pools.BrokenExecutor("killed"))
            return future

    (poison,) = {r["content_id"] for r in stored(clean, "files").to_pylist() if POISON in r["uri"]}
    monkeypatch.setattr(pools, "InProcessExecutor", Dying)
    made = convert(*FEW, to=tmp_path)
    assert deaths[0] == deaths[1] > 1 == deaths[2]  # with others, with others carefully, and once alone
    assert not made.failed
    whole(tmp_path, clean)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_killed_at_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, small_batches: None
) -> None:
    """From outside, as a system short of memory does: what is lost is tried again, at the latest by the next run."""
    chance = random.Random(3)
    started, ended = threading.Event(), threading.Event()

    def report(status: warehouse.Status) -> None:
        if status.phase != "find":  # the workers have started
            started.set()

    def killer() -> None:
        killed = 0
        started.wait()
        while killed < 6 and not ended.wait(chance.uniform(0.3, 1.2)):
            workers = [p for p in multiprocessing.active_children() if p.pid]
            if workers:
                killed += 1
                chance.choice(workers).kill()

    def slow(source: Any, read: Any = worker.ReadDump, **options: Any) -> Any:
        time.sleep(0.05)
        return read(source, **options)

    monkeypatch.setattr(worker, "ReadDump", slow)
    thread = threading.Thread(target=killer)
    thread.start()
    try:
        made = [xlamem.convert(*FEW, to=tmp_path, workers=2, progress=report)]
    finally:
        started.set()
        ended.set()
        thread.join()
    assert all(f.kind == "system" for f in made[0].failed)
    made.append(convert(*FEW, to=tmp_path))
    assert sum(m.dumps for m in made) == len(state(clean).stored)
    assert made[1].unreadable == 0
    whole(tmp_path, clean)


def test_a_worker_that_dies_once_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path, small_batches: None
) -> None:
    flag = tmp_path / "dead"
    monkeypatch.setitem(engines.ENGINES, "deadly", deadly_engine(str(flag)))
    made = xlamem.convert(*FEW, to=tmp_path / "out", engine="deadly")
    assert flag.exists()
    assert not made.failed
    whole(tmp_path / "out", clean)


def test_a_job_that_fails_as_a_whole_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path
) -> None:
    """Where nothing says which dump is at fault, it is looked for."""
    derive = worker.derive
    (poison,) = {
        r["content_id"] for r in stored(clean, "files").to_pylist() if POISON in r["uri"]
    }

    def trip(chunk: Any, top: int) -> Any:
        if poison in chunk.ids:
            raise ZeroDivisionError("oh")
        return derive(chunk, top)

    monkeypatch.setattr(worker, "derive", trip)
    made = convert(*FEW, to=tmp_path)
    assert [f.content_id for f in made.failed] == [poison]
    assert "ZeroDivisionError" in made.failed[0].error
    assert made.dumps == len(state(clean).stored) - 1
    ids = stored(tmp_path, "values")["content_id"].to_pylist()
    assert poison not in ids


def test_two_converters_at_once(tmp_path: Path, clean: Path, small_batches: None) -> None:
    """Whoever comes first has a dump; the other one's files are swept."""
    made: list[warehouse.Converted] = []
    dumps = FEW
    # Different halves overlap, so that batches of the two are never the same.
    inputs = [dumps, dumps[3:], dumps[::2], dumps]
    threads = [threading.Thread(target=lambda i=i: made.append(convert(*i, to=tmp_path))) for i in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(m.dumps for m in made) == len(state(clean).stored)
    ids = stored(tmp_path, "modules")["content_id"].to_pylist()
    assert len(ids) == len(set(ids))
    whole(tmp_path, clean)


@pytest.mark.parametrize("reprocess", every(2, [False, True]))
def test_a_glob_finds_committed_files(tmp_path: Path, reprocess: bool) -> None:
    """Wherever the converter is killed, but between the names of the files of a batch and its ledger entry."""
    sources = [DUMPS / POISON, DUMPS / "cpu-killed-at-buffer-assignment"]
    dest, write, between = tmp_path / "out", 0, 0
    while True:
        shutil.rmtree(dest, ignore_errors=True)
        if reprocess:
            convert(*sources, to=dest)
        before = {p: p.read_bytes() for p in dest.rglob("*.parquet")}
        last = killed(lambda: convert(*sources, to=dest, reprocess=reprocess), write, "after")
        found = {str(p.relative_to(dest)) for p in dest.rglob("*.parquet")}
        committed = {f.path for f in state(dest).files()} if (dest / "_ledger").exists() else set()
        assert all((dest / path).exists() for path in committed)
        assert all(path.read_bytes() == data for path, data in before.items() if path.exists())
        entries = [json.loads(path.read_text()) for path in dest.glob("_ledger/entries/*")]
        replaced = {file["path"] for entry in entries for batch in entry["add"] for file in batch["files"]} - committed
        assert found - committed - replaced == set() or last == "publish"
        between += last == "publish"
        if not last:
            break
        convert(*sources, to=dest)
        assert on_disk(dest) == {f.path for f in state(dest).files()}
        assert len(stored(dest, "modules")) == len(state(dest).stored) == 2
        write += 1
    assert between == 3
    assert write > 10


def command(dest: Path) -> list[str]:
    code = (
        "from xlamem.warehouse import plan; plan.MIN_BATCH_BYTES = 100_000; from xlamem.cli import main; import sys;"
        " sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-c", code, "convert", *map(str, FEW), "--to", str(dest), "--quiet", "--engine", "here"]


@pytest.mark.slow
def test_killed_at_random_instants(tmp_path: Path, clean: Path) -> None:
    chance = random.Random(7)
    for _ in range(10):
        with subprocess.Popen(command(tmp_path)) as run:
            until = time.monotonic() + chance.uniform(0.2, 1.5)
            while run.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            run.kill()
        if (tmp_path / "_ledger").exists():
            there = state(tmp_path)
            assert all((tmp_path / f.path).stat().st_size == f.bytes for f in there.files())
            rows = {t: sum(f.rows for f in there.files(t)) for t in ("modules",)}
            assert rows["modules"] == len(there.stored)
    assert subprocess.run(command(tmp_path), check=False).returncode == 0
    whole(tmp_path, clean)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_the_one_who_leads(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [*command(tmp_path)[:-2], "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def children() -> set[int]:
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if int(fields[1]) == run.pid:
                found.add(int(entry.name))
        return found

    deadline = time.monotonic() + 600
    workers: set[int] = set()
    while run.poll() is None and time.monotonic() < deadline and len(workers) < 2:
        workers = children()
        time.sleep(0.01)
    run.kill()
    run.wait()
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in workers):
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    """Its workers would run the script again; nothing may count as a dump that kills workers."""
    script = tmp_path / "script.py"
    call = f"xlamem.convert({str(DUMPS / POISON)!r}, to={str(tmp_path / 'out')!r}, workers=1)"
    script.write_text(f"import xlamem\n{call}\n")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "UsageError: worker processes cannot be started; in a script" in run.stderr
    assert not (tmp_path / "out").exists() or not state(tmp_path / "out").batches
