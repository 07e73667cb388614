"""Object stores: of two converters at once one commits, or the destination is refused."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import warehouse
from xlamem.errors import OutputError, UsageError
from xlamem.input.find import Member
from xlamem.warehouse.catalog import is_dataset
from xlamem.warehouse.storage import Storage

SMALL = DUMPS / "cpu-jaxlib-0.5.3-tuple3"
NOBODY = "endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
"""Where no server answers."""


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "library", "extra"),
    [
        (f"s3://bucket/x?{NOBODY}", "s3fs", "s3"),
        ("gs://anonymous@bucket/x", "gcsfs", "gcs"),
        ("abfs://container@account.dfs.core.windows.net/x", "adlfs", "azure"),
    ],
)
def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, uri: str, library: str, extra: str) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, library, None)
    storage = Storage(uri)
    for refused in (storage.check_conditional_create, lambda: storage.create("a", b"1")):
        with pytest.raises(UsageError, match=rf"needs {library} .*pip install 'xlamem\[{extra}\]'.*--single-writer"):
            refused()
    Storage(uri, single_writer=True).check_conditional_create()


@pytest.fixture
def look_first(monkeypatch: pytest.MonkeyPatch) -> str:
    """A filesystem as most of fsspec's are: to make a file exclusively, it looks and then writes."""
    fsspec = pytest.importorskip("fsspec")
    memory = type(fsspec.filesystem("memory"))

    class LookFirst(memory):  # type: ignore[misc,valid-type]
        protocol = "lookfirst"
        pipe_file = fsspec.AbstractFileSystem.pipe_file

        @classmethod
        def _strip_protocol(cls, path: str) -> Any:
            return memory._strip_protocol(path.replace("lookfirst://", "memory://"))

    fsspec.register_implementation("lookfirst", LookFirst, clobber=True)
    return "lookfirst"


def test_no_conditional_write_is_refused(tmp_path: Path, look_first: str) -> None:
    dest = f"{look_first}://{tmp_path.name}/out"
    with pytest.raises(UsageError, match=r"lookfirst:// has no conditional write.*--single-writer"):
        xlamem.convert(SMALL, to=dest, engine="here")
    assert not Storage(dest).files("")
    assert xlamem.convert(SMALL, to=dest, engine="here", single_writer=True).dumps == 1
    assert xlamem.convert(SMALL, to=dest, engine="here", single_writer=True, compact=True).already_stored == 1
    for change in (warehouse.compact, partial(warehouse.drop, where="total_bytes < 0")):
        with pytest.raises(UsageError, match=r"lookfirst:// has no conditional write.*--single-writer"):
            change(dest)
        change(dest, single_writer=True)


def test_a_server_that_ignores_the_condition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    pipe = type(memory).pipe_file
    monkeypatch.setattr(type(memory), "pipe_file", lambda *args, mode="": pipe(*args))
    with pytest.raises(UsageError, match="ignores conditional writes"):
        xlamem.convert(SMALL, to=f"memory://{tmp_path.name}/out")
    assert not Storage(f"memory://{tmp_path.name}/out").files("")


def test_answers_that_got_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library sends a request again whose answer it did not get: the file is there, and it is its own."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    pipe = type(memory).pipe_file
    storage = Storage(f"memory://{tmp_path.name}/out")

    def lost(self: Any, path: str, data: bytes, mode: str = "") -> None:
        pipe(self, path, data, mode="create")
        raise FileExistsError(path)

    monkeypatch.setattr(type(memory), "pipe_file", lost)
    assert storage.create("a", b"mine")
    assert not storage.create("a", b"another's")

    def refused(self: Any, path: str, data: bytes, mode: str = "") -> None:
        raise said

    monkeypatch.setattr(type(memory), "pipe_file", refused)
    said: Exception = OSError(5, "conflict")
    said.__cause__ = ValueError("An error occurred (ConditionalRequestConflict) when calling PutObject")
    assert not storage.create("b", b"1")  # a concurrent write: the caller retries
    said = LookupError("no such host")
    with pytest.raises(OutputError, match="LookupError: no such host"), storage.output_errors():
        storage.create("b", b"1")


def test_claims_of_many_threads_in_memory(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    won: list[str] = []

    def claim(who: int) -> None:
        storage = Storage(f"memory://{tmp_path.name}/out")
        won.extend(str(i) for i in range(50) if storage.create(str(i), b"%d" % who))

    threads = [threading.Thread(target=claim, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won, key=int) == [str(i) for i in range(50)]


def test_a_destination_that_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must be UTF-8: .*/caf\\xe9"):
        xlamem.convert(SMALL, to=os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"), engine="here")


# -- S3, as moto plays it ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, dict[str, str]]]:
    """The name of a bucket, and the environment in which it is found."""
    server = pytest.importorskip("moto.server", reason="pip install 'xlamem[test-s3]'")
    pytest.importorskip("s3fs", reason="pip install 'xlamem[test-s3]'")
    import boto3

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    env = {
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*moto.get_host_and_port()),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="warehouse")
        yield "s3://warehouse", env
    moto.stop()


CREATE = """
import sys
from xlamem.warehouse.storage import Storage
storage = Storage(sys.argv[1])
for name in sys.stdin:
    print(storage.create(name.strip(), sys.argv[2].encode()), flush=True)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_of_two_simultaneous_creates_one_wins(bucket: tuple[str, dict[str, str]]) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, bucket[0] + "/creates", who],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for who in "ab"
    ]  # fmt: skip
    won = []
    for i in range(25):
        for run in runs:
            assert run.stdin is not None
            run.stdin.write(f"{i}\n")
            run.stdin.flush()
        won.append(sorted(run.stdout.readline().strip() for run in runs if run.stdout is not None))
    for run in runs:
        run.communicate()
    assert won == [["False", "True"]] * 25


CONVERT = """
import sys
from xlamem.cli import main
from xlamem.warehouse import plan
plan.MIN_BATCH_BYTES = 100_000
sys.exit(main(["convert", *sys.argv[1:], "--engine", "here", "--json", "--quiet"]))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_converters_to_s3(bucket: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    dest = f"{bucket[0]}/night?region=us-east-1"
    command = [sys.executable, "-c", CONVERT, str(DUMPS), "--to", dest]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [json.loads(run.communicate()[0]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    wanted = xlamem.convert(DUMPS, to=tmp_path, engine="here")
    assert sum(m["dumps"] for m in made) == wanted.dumps
    found, local = xlamem.Dataset(dest), xlamem.Dataset(tmp_path)
    assert found.ids == local.ids
    for table in set(found.tables) - {"runs"}:
        assert found[table].count_rows() == local[table].count_rows()
    assert found["runs"].count_rows() == 2
    there = {name: size for table in found.tables for name, size in found.storage.files(table)}
    assert there == {f.path: f.bytes for f in found.state.files()}
    assert found.files("modules")["path"][0].as_py().startswith(f"{bucket[0]}/night/modules/")


KILLED = """
import os, signal, sys
from xlamem.cli import main
from xlamem.warehouse import ledger, plan
plan.MIN_BATCH_BYTES = 100_000
append, commits = ledger.Ledger._append, 0

def dying(*arguments):
    global commits
    commits += 1
    if sys.argv[1:3] == [str(commits), "before"]:
        os.kill(os.getpid(), signal.SIGKILL)
    done = append(*arguments)
    if sys.argv[1:3] == [str(commits), "after"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

ledger.Ledger._append = dying
if sys.argv[3] == "without":
    sys.modules["s3fs"] = None
sys.exit(main(sys.argv[4:]))
"""
"""A command that is killed before or after a commit, with or without the library for conditional writes."""


def repeat_killed(extra: str, *command: str) -> int:
    """Run a command again and again, killed before and after its first, second, … commit, until it ends."""
    for kills in range(100):
        commit, when = str(kills // 2 + 1), ("before", "after")[kills % 2]
        arguments = [sys.executable, "-c", KILLED, commit, when, extra, *command]
        ended = subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ended.returncode == 0:
            return kills
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        if is_dataset(dest := command[command.index("--to") + 1] if "--to" in command else command[2]):
            dataset = xlamem.Dataset(dest)
            assert dataset["modules"].count_rows() == len(dataset.ids)
    raise AssertionError("it never ended")


def same_rows(dest: str, wanted: Path) -> None:
    """The same contents and occurrences; and the store has the files of the ledger."""
    found, local = xlamem.Dataset(dest), xlamem.Dataset(wanted)
    assert found.ids == local.ids
    for table in ("values", "occurrences"):
        keys = ["content_id"]
        assert sorted(found[table].to_table(keys).to_pylist(), key=str) == sorted(
            local[table].to_table(keys).to_pylist(), key=str
        )
    there = {name: size for table in found.tables for name, size in found.storage.files(table)}
    assert there == {f.path: f.bytes for f in found.state.files()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("extra", ["with", "without"])
def test_killed_between_commits_to_s3(bucket: tuple[str, dict[str, str]], tmp_path: Path, extra: str) -> None:
    """While dumps are converted, merged and dropped."""
    pytest.importorskip("duckdb")
    dest, options = f"{bucket[0]}/{extra}?region=us-east-1", ["--single-writer"] * (extra == "without")
    names = sorted(path.name for path in DUMPS.glob("cpu-jaxlib-*"))
    for night, some in (("1", names[:2]), ("2", names[1:4])):
        sources = [str(DUMPS / name) for name in some]
        command = ["convert", *sources, "--to", dest, "--engine", "here", "--label", f"night={night}", *options]
        assert repeat_killed(extra, *command) > 3
        xlamem.convert(*sources, to=tmp_path, engine="here", labels={"night": night})
    same_rows(dest, tmp_path)
    assert repeat_killed(extra, "dataset", "compact", dest, *options) > 1
    same_rows(dest, tmp_path)
    assert repeat_killed(extra, "dataset", "drop", dest, "--where", "label.night = '1'", "--yes", *options) > 1
    warehouse.drop(tmp_path, "label.night = '1'")
    same_rows(dest, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_other_formats_on_s3(
    bucket: tuple[str, dict[str, str]], tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"iceberg": "pyiceberg", "delta": "deltalake"}[form])
    endpoint = bucket[1]["AWS_ENDPOINT_URL"]
    dest = f"{bucket[0]}/{form}?region=us-east-1&scheme=http&endpoint_override={endpoint.removeprefix('http://')}"
    if form == "iceberg":
        import pyiceberg.catalog as catalogs
        from pyiceberg.utils.config import Config

        with pytest.raises(UsageError, match="no place for a catalog"):
            xlamem.convert(SMALL, to=dest, engine="here", register=form)
        for key, value in {
            "URI": f"sqlite:///{tmp_path}/lake.db", "WAREHOUSE": f"{bucket[0]}/lake", "S3__ENDPOINT": endpoint,
        }.items():  # fmt: skip
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key}", value)
        monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    target = "iceberg:lake.xla" if form == "iceberg" else form
    for name in sorted(path.name for path in DUMPS.glob("cpu-jaxlib-*"))[:2]:
        xlamem.convert(DUMPS / name, to=dest, engine="here", register=target)
    assert warehouse.compact(dest).merged
    wanted = xlamem.Dataset(dest)["values"].to_table()
    if form == "iceberg":
        with closing(catalogs.load_catalog("lake")) as catalog:
            found = catalog.load_table("xla.values").scan().to_arrow()
    else:
        import deltalake

        options = {"aws_endpoint_url": endpoint, "aws_allow_http": "true"}
        found = deltalake.DeltaTable(f"{bucket[0]}/delta/values", storage_options=options).to_pyarrow_table()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist()))


# -- sources on object stores --------------------------------------------------------------------


@pytest.fixture
def etags(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A filesystem with the scheme etags:// whose listings have ETags, by name."""
    fsspec = pytest.importorskip("fsspec")
    memory = type(fsspec.filesystem("memory"))
    tags: dict[str, str] = {}

    class Tagged(memory):  # type: ignore[misc,valid-type]
        protocol = "etags"

        def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
            infos = super().ls(path, detail=True, **options)
            tagged = [{**info, "ETag": tags.get(info["name"].rpartition("/")[2])} for info in infos]
            return tagged if detail else [info["name"] for info in tagged]

        @classmethod
        def _strip_protocol(cls, path: str) -> Any:
            return memory._strip_protocol(path.replace("etags://", "memory://"))

    fsspec.register_implementation("etags", Tagged, clobber=True)
    return tags


def test_etags_tell_what_is_unchanged(
    tmp_path: Path, etags: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(str(SMALL), f"/{tmp_path.name}/in", recursive=True)
    source, reads = f"etags://{tmp_path.name}/in", []
    load = Member.load
    monkeypatch.setattr(Member, "load", lambda member: reads.append(member.role) or load(member))

    def read_again(**options: Any) -> int:
        reads.clear()
        assert xlamem.convert(source, to=tmp_path, engine="here", **options).found == 1
        return len(reads)

    assert read_again() > 0
    assert read_again() > 0  # without ETags, nothing is known
    etags.update({path.name: f"{i:x}" for i, path in enumerate(SMALL.iterdir())})
    assert read_again() > 0
    assert read_again() == 0
    assert read_again(check_content=True) > 0
    etags[next(path.name for path in SMALL.glob("*-buffer-assignment.txt"))] = "another"
    assert read_again() > 0
    assert read_again() == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_etags_of_s3(bucket: tuple[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    client, endpoint = boto3.client("s3"), bucket[1]["AWS_ENDPOINT_URL"].removeprefix("http://")

    def upload(text: bytes = b"") -> None:
        for path in SMALL.glob("module_0001.*"):
            client.put_object(Bucket="warehouse", Key=f"in/{path.name}", Body=path.read_bytes() + text)

    upload()
    source = f"{bucket[0]}/in?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    reads: list[str] = []
    load = Member.load
    monkeypatch.setattr(Member, "load", lambda member: reads.append(member.role) or load(member))
    assert xlamem.convert(source, to=tmp_path, engine="here").dumps == 1
    reads.clear()
    upload()  # the same content at another time
    assert xlamem.convert(source, to=tmp_path, engine="here").already_stored == 1
    assert not reads
    upload(b"\n")
    assert xlamem.convert(source, to=tmp_path, engine="here").dumps == 1
