"""Failures of the system: what each ends in. docs/warehouse.md states the results."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from conftest import DUMPS, texts

import xlamem
from xlamem import DumpError, compute, warehouse
from xlamem.input import files
from xlamem.warehouse import activity, ledger, run
from xlamem.warehouse.storage import Storage

# JAX, which other tests may have imported, warns of forks.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
COMMAND = [sys.executable, "-c", "import sys; from xlamem.cli import main; sys.exit(main())"]


def xla(*arguments: Any, before: Callable[[], None] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=before, **options)


def limited(which: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (value, value))


class FailingFile(io.RawIOBase):
    """A file whose second read fails."""

    def __init__(self) -> None:
        self.reads = 0

    def readable(self) -> bool:
        return True

    def read(self, _size: int = -1) -> bytes:
        self.reads += 1
        if self.reads > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return b"BufferAssignment:\n"

    def readall(self) -> bytes:
        return self.read() + self.read()


def test_a_file_object_that_fails() -> None:
    file = FailingFile()
    file.reads = 1
    with pytest.raises(DumpError, match="Input/output error") as caught:
        xlamem.read(file)
    assert caught.value.system


def test_a_full_disk(tmp_path: Path) -> None:
    """Of standard output, and of a dataset (a limit on the size of files): exit code 4; the next run ends well."""
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([*COMMAND, "info", SMALL], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (4, "error: cannot write to standard output: No space left on device\n")
    arguments = ["convert", SMALL, "--to", tmp_path / "out", "--workers", "1"]
    ended = xla(*arguments, before=limited(resource.RLIMIT_FSIZE, 8192))
    assert ended.returncode == 4, ended.stderr
    assert "File too large" in ended.stderr
    assert xla(*arguments).returncode == 0
    assert len(xlamem.Dataset(tmp_path / "out").ids) == 1


def test_a_dump_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are converted, and the next run tries it again."""
    read = files._read_small

    def denied(path: str) -> bytes | None:
        if "cond_switch" in path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    monkeypatch.setattr(files, "_read_small", denied)
    both = [SMALL, DUMPS / "cpu-jaxlib-0.10.2-cond_switch"]
    made = xlamem.convert(*both, to=tmp_path / "out", engine="here")
    assert (made.dumps, len(made.failed)) == (1, 1)
    assert "Permission denied" in made.failed[0].error
    monkeypatch.setattr(files, "_read_small", read)
    assert xlamem.convert(*both, to=tmp_path / "out", engine="here").dumps == 1


def test_sigterm(tmp_path: Path) -> None:
    """What was committed stays; the next run completes the dataset."""
    arguments = [*COMMAND, "convert", DUMPS, "--to", tmp_path / "out"]
    with subprocess.Popen(list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < deadline:
            if list((tmp_path / "out").rglob("*.parquet")):
                break
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert running.returncode in (-signal.SIGTERM, 0)  # 0: it had ended
    made = xlamem.convert(DUMPS, to=tmp_path / "out")
    dataset = xlamem.Dataset(tmp_path / "out")
    assert made.dumps + made.already_stored == len(dataset.ids)
    assert {f.name for f in (tmp_path / "out").rglob("*.parquet")} >= {
        Path(p).name for p in dataset.files()["path"].to_pylist()
    }


@pytest.mark.parametrize("kept", ["/v2/", "_ledger/runs/"], ids=["a stray file", "the heartbeat"])
def test_files_that_may_not_be_deleted(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    delete, dest = Storage.delete, f"memory://{tmp_path.name}"

    def refuse(self: Storage, names: Iterable[str]) -> None:
        names = [*names]
        if any(kept in name for name in names):
            raise PermissionError("AWS Error ACCESS_DENIED during DeleteObject operation")
        delete(self, names)

    monkeypatch.setattr(Storage, "delete", refuse)
    with pytest.raises(xlamem.OutputError, match=f"cannot write to {dest}: AWS Error"):
        xlamem.convert(SMALL, to=dest, engine="here")
    assert len(xlamem.Dataset(dest).ids) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda dest: xlamem.convert(SMALL, to=dest, engine="here"),
        lambda dest: warehouse.compact(dest),
        lambda dest: warehouse.drop(dest, "platform = 'cpu'"),
    ],
    ids=["convert", "compact", "drop"],
)
def test_a_destination_that_does_not_answer(change: Callable[[str], object]) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(xlamem.OutputError, match=r"ftp://127.0.0.1:1/x: .*Connection refused"):
        change("ftp://127.0.0.1:1/x")


def test_a_ledger_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run cannot tell which dumps are stored; a reader is told which file it is."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 1)
    xlamem.convert(SMALL, to=tmp_path, engine="here")

    parquet_file = pyarrow.parquet.ParquetFile

    def fail(path: Any, **options: Any) -> Any:
        if "-ids-" not in str(path):  # the list of files, in memory
            return parquet_file(path, **options)
        raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", fail)
    for source in (SMALL, DUMPS / "cpu-jaxlib-0.10.2-cond_switch"):
        with pytest.raises(xlamem.OutputError, match=r"-ids-\w+.pq: expected a readable checkpoint.*NETWORK_CONN"):
            xlamem.convert(source, to=tmp_path, engine="here")
    with pytest.raises(DumpError, match="readable checkpoint"):
        xlamem.Dataset(tmp_path).ids  # noqa: B018


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_run_that_was_taken_for_dead(is_renewed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paused before it commits, and another run deletes its files. It may have time to renew its heartbeat."""
    pytest.importorskip("fsspec")
    dest, commit = f"memory://{tmp_path.name}", run.Run.commit
    other = DUMPS / "cpu-jaxlib-0.10.2-cond_switch"

    def pause(self: run.Run, *args: Any) -> Any:
        monkeypatch.undo()
        ((name, _),) = self.storage.files(activity.RUNS)
        heartbeat = self.storage.read(name) or b""
        self.storage.write(name, json.dumps({**json.loads(heartbeat), "at": 0}).encode())
        assert xlamem.convert(other, to=dest, engine="here").dumps == 1
        if is_renewed:
            self.storage.write(name, heartbeat)
        return commit(self, *args)

    monkeypatch.setattr(run.Run, "commit", pause)
    with pytest.raises(xlamem.OutputError, match="another run has deleted files of this one"):
        xlamem.convert(SMALL, to=dest, engine="here")
    assert xlamem.Dataset(dest)["modules"].count_rows() == 1
    assert xlamem.convert(SMALL, to=dest, engine="here").dumps == 1
    assert xlamem.Dataset(dest)["modules"].count_rows() == 2


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are ordered by their time stamps; nothing is lost or stored twice."""
    out, now = tmp_path / "out", time.time()
    for i, source in enumerate([SMALL, DUMPS / "cpu-jaxlib-0.10.2-cond_switch", SMALL]):
        monkeypatch.setattr(time, "time", lambda i=i: now - 86_400 * i)
        xlamem.convert(source, to=out, engine="here", labels={"n": str(i)})
    dataset = xlamem.Dataset(out)
    assert len(dataset.ids) == 2
    assert dataset["runs"].count_rows() == 3


@pytest.mark.parametrize("limit", [12, 24, 40])
def test_few_open_files(limit: int, tmp_path: Path) -> None:
    """An answer, or an error that names the reason."""
    for arguments in (["info", SMALL], ["convert", SMALL, "--to", tmp_path / str(limit), "--workers", "1"]):
        ended = xla(*arguments, before=limited(resource.RLIMIT_NOFILE, limit))
        assert ended.returncode in (0, 3, 4), ended.stderr
        named = "Too many open files" in ended.stderr and "cannot write" not in ended.stderr
        assert ended.returncode == 0 or named, ended.stderr
        assert "Traceback" not in ended.stderr


def test_no_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small content needs none; large content is an error that names it."""
    import gzip

    (role, data), *_ = texts(xlamem.find(SMALL)[0]).items()
    path = tmp_path / f"m.cpu_after_optimizations-{role}.txt.gz"
    path.write_bytes(gzip.compress(data))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert xlamem.read(path).allocations.num_rows
    monkeypatch.setattr(files, "MAX_IN_MEMORY", 100)
    files._CACHE.clear()
    with pytest.raises(DumpError, match=r"free space in .*none"):
        xlamem.read(path).allocations  # noqa: B018
    assert xla("info", SMALL, env=os.environ | {"TMPDIR": "/proc"}).returncode == 0


def test_a_fork_in_the_middle() -> None:
    """The child reads what the parent has not read yet."""
    dump = xlamem.read(SMALL, threads=2)
    expected = xlamem.read(SMALL)["uses"]
    assert dump.allocations.num_rows
    if (child := os.fork()) == 0:
        os._exit(0 if dump["uses"].equals(expected) and compute.peak(dump).spaces.num_rows else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert dump["uses"].equals(expected)


def test_ten_threads_on_one_dump() -> None:
    """Codes of names depend on which table is read first, so names are compared."""
    expected = xlamem.read(SMALL)
    peaks = compute.peak(expected).spaces.to_pylist()
    rows = {name: expected[name].to_pylist() for name in expected.tables}
    names = list(rows)
    for _ in range(5):
        dump = xlamem.read(SMALL, threads=2)

        def work(i: int, dump: xlamem.Dump = dump) -> bool:
            order = names[i:] + names[:i]
            is_same = compute.peak(dump).spaces.to_pylist() == peaks
            return is_same and all(dump[name].to_pylist() == rows[name] for name in order)

        with ThreadPoolExecutor(10) as pool:
            assert all(pool.map(work, range(10)))


def test_a_dataset_that_changes_after_it_is_opened(tmp_path: Path) -> None:
    """The files that it listed are read as long as they exist; then the error says to open it again."""
    out = tmp_path / "out"
    for source in (SMALL, DUMPS / "cpu-jaxlib-0.10.2-cond_switch"):
        xlamem.convert(source, to=out, engine="here")
    dataset = xlamem.Dataset(out)
    rows = dataset["values"].count_rows()
    for path in dataset.files("values")["path"].to_pylist():
        os.rename(path, f"{path}.moved")
    with pytest.raises(DumpError, match="open the dataset again"), dataset.damage_errors("values"):
        dataset["values"].to_table()
    for path in dataset.files("values")["path"].to_pylist():
        os.rename(f"{path}.moved", path)
    assert dataset["values"].count_rows() == rows
