"""Engines on clusters (Dask, Ray) and of other packages: workers and drivers that are killed lose nothing."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, HERE, every_row
from test_convert import contents, convert, state
from test_engines import FEW, POISON, whole

import xlamem
from xlamem import warehouse
from xlamem.cli import main
from xlamem.warehouse import clusters, engines, plan, pool

DOC = (HERE.parent / "docs" / "warehouse.md").read_text()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("clean")
    convert(*FEW, to=dest)
    return dest


# -- engines of other packages -------------------------------------------------------------------


def install(folder: Path, entry_points: dict[str, str]) -> None:
    """What pip leaves of a package that registers engines."""
    metadata = folder / "fleet-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet\nVersion: 1.0\n")
    lines = [f"[{engines.GROUP}]", *(f"{name} = {value}" for name, value in entry_points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def test_the_engine_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    (code,) = re.findall(r"```python\n(# fleet/engines.py\n.*?)```", DOC, re.S)
    (project,) = re.findall(r'```toml\n(\[project.entry-points."xlamem.engines"\]\n.*?)```', DOC, re.S)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "engines.py").write_text(code)
    install(tmp_path, tomllib.loads(project)["project"]["entry-points"][engines.GROUP])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (name,) = tomllib.loads(project)["project"]["entry-points"][engines.GROUP]
    options = ["--to", str(tmp_path / "out"), "--engine", name, "--workers", "2", "--quiet"]
    assert main(["convert", *map(str, FEW), *options]) == 0
    whole(tmp_path / "out", clean)


def test_an_engine_that_cannot_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {"lost": "fleet_that_is_not_there:engine", "other": "fleet:x", "old": "math:engine"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(xlamem.UsageError, match=r"no engine 'abacus'; there are local, here, .*lost, old, other"):
        convert(*FEW, to=tmp_path / "out", engine="abacus")
    with pytest.raises(xlamem.UsageError, match="lost cannot be loaded from fleet_that_is_not_there:engine"):
        convert(*FEW, to=tmp_path / "out", engine="lost")
    with pytest.raises(xlamem.UsageError, match=r"old cannot be loaded from math:engine: .*no attribute 'engine'"):
        convert(*FEW, to=tmp_path / "out", engine="old")
    assert not (tmp_path / "out").exists()


def test_an_engine_that_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result is all that is on standard output."""
    install(tmp_path, {"loud": "loud:engine"})
    code = "from xlamem.warehouse.pool import in_process\n\ndef engine(*_):\n  print('hello')\n  return in_process()"
    (tmp_path / "loud.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["convert", str(DUMPS / POISON), "--to", str(tmp_path / "out"), "--engine", "loud", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["dumps"] == 1
    assert err == "hello\n"


@pytest.mark.parametrize(("engine", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(xlamem.UsageError, match=rf"pip install 'xlamem\[{engine}\]'"):
        convert(*FEW, to=tmp_path / "out", engine=engine)


class Never(Executor):
    """Waits for a worker."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


def test_a_cluster_that_never_has_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor while one of the dumps is read alone."""
    monkeypatch.setattr(pool, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(pool, "NO_WORKER_SECONDS", 0.05)
    counts = iter([1, 1] + [0] * 10**6)
    with pytest.raises(xlamem.UsageError, match="the cluster has had no worker for 0 seconds"):
        pool.Pool(Never(), 2, count_workers=counts.__next__).ended(Future())
    assert next(counts) == 0
    monkeypatch.setitem(
        engines.ENGINES, "never", lambda *_: nullcontext(pool.Pool(Never(), 2, count_workers=lambda: 0))
    )
    assert main(["convert", *map(str, FEW), "--to", str(tmp_path / "out"), "--engine", "never", "--quiet"]) == 2


# -- drivers that are killed ---------------------------------------------------------------------

DRIVER = """
import sys, time
from xlamem.cli import main
from xlamem.warehouse import plan
plan.MIN_BATCH_BYTES = 100_000
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def kill_drivers(folder: Path, *options: str, times: int) -> Path:
    """Start converters, and kill each of them once it has committed more; return the dataset."""
    chance = random.Random(11)
    script, dest = folder / "driver.py", folder / "out"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), "convert", *map(str, FEW), "--to", str(dest), "--quiet", *options]
    entries, killed = dest / "_ledger" / "entries", 0
    while killed < times:
        before = len(list(entries.glob("*")))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while driver.poll() is None and len(list(entries.glob("*"))) < before + 3:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
            driver.kill()
        killed += 1
        committed = state(dest)
        assert all((dest / file.path).stat().st_size == file.bytes for file in committed.files())
        assert sum(file.rows for file in committed.files("modules")) == len(committed.stored)
    return dest


def quiet(dest: Path) -> bool:
    """Whether no worker has written to a dataset for a while."""
    newest = max((p.stat().st_mtime for p in dest.rglob("*") if p.is_file()), default=0.0)
    return time.time() - newest > 3


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


# -- Dask ----------------------------------------------------------------------------------------


@contextmanager
def cluster(tmp_path: Path, preload: str = "", n_workers: int = 3) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    script = tmp_path / "preload.py"
    script.write_text(f"from xlamem.warehouse import plan, worker\nplan.MIN_BATCH_BYTES = 100_000\n{preload}\n")
    with distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=None, preload=[str(script)],
        local_directory=str(tmp_path),
    ) as found:  # fmt: skip
        yield found


@contextmanager
def threads_of_dask() -> Iterator[Any]:
    """A cluster with one worker in this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as found:  # fmt: skip
        yield found


@pytest.mark.filterwarnings("ignore")
def test_dask_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "NO_WORKER_SECONDS", 0.1)
    with threads_of_dask() as found:
        found.scale(0)
        wait_for(lambda: not found.scheduler.workers)
        with pytest.raises(xlamem.UsageError, match=r"no worker for 0 seconds; what was committed is kept: start work"):
            xlamem.convert(*FEW, to=tmp_path / "out", engine="dask", scheduler=found.scheduler_address)


@pytest.mark.filterwarnings("ignore")
def test_dask_with_a_worker_that_starts_late(tmp_path: Path) -> None:
    with threads_of_dask() as found:
        found.scale(0)
        wait_for(lambda: not found.scheduler.workers)
        late = threading.Timer(1.5, found.scale, [1])
        late.start()
        made = xlamem.convert(DUMPS / POISON, to=tmp_path / "out", engine="dask", scheduler=found.scheduler_address)
        late.join()
    assert made.dumps == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("lost", "message"), every_row(2, [("workers", "no worker for"), ("scheduler", "does not answer any more")])
)
def test_dask_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None, lost: str, message: str
) -> None:
    """What was committed before is kept, and the next run goes on."""
    monkeypatch.setattr(pool, "NO_WORKER_SECONDS", 0.1 if lost == "workers" else 60)
    monkeypatch.setattr(clusters, "DASK_TIMEOUT_SECONDS", 2)
    gone = threading.Event()

    with threads_of_dask() as found:

        def lose(status: warehouse.Status) -> None:
            if status.phase == "convert" and status.dumps and not gone.is_set():
                gone.set()
                found.scale(0) if lost == "workers" else found.close()

        with pytest.raises(xlamem.UsageError, match=message):
            xlamem.convert(
                *FEW, to=tmp_path / "out", engine="dask", scheduler=found.scheduler_address, progress=lose
            )
    n_stored = len(state(tmp_path / "out").stored)
    assert n_stored
    assert convert(*FEW, to=tmp_path / "out").already_stored >= n_stored


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_with_a_worker_killed_midway(tmp_path: Path, clean: Path, small_batches: None) -> None:
    slow = "import time\nworker.ReadDump = lambda *a, read=worker.ReadDump, **k: (time.sleep(0.05), read(*a, **k))[1]"
    with cluster(tmp_path, slow) as found:
        pids = [w.process.process.pid for w in found.workers.values()]
        killed = threading.Event()

        def kill(status: warehouse.Status) -> None:
            if status.phase == "convert" and status.dumps and not killed.is_set():
                killed.set()
                os.kill(pids[0], signal.SIGKILL)

        made = xlamem.convert(
            *FEW, to=tmp_path / "out", engine="dask", scheduler=found.scheduler_address, progress=kill
        )
    assert killed.is_set()
    assert not made.failed
    whole(tmp_path / "out", clean)
    convert(*FEW, to=tmp_path / "here")
    assert contents(tmp_path / "here") == contents(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_with_a_dump_that_kills_workers(tmp_path: Path, clean: Path) -> None:
    deadly = (
        "import os\nworker.ReadDump = lambda s, read=worker.ReadDump, **k: "
        f"os.kill(os.getpid(), 9) if {POISON!r} in s.members[0].uri else read(s, **k)"
    )
    dask = pytest.importorskip("dask")
    # The dump kills four: none need be restarted, which Dask does not always do (see `clusters.dask`).
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster(tmp_path, deadly, 5) as found:
        made = xlamem.convert(*FEW, to=tmp_path / "out", engine="dask", scheduler=found.scheduler_address)
    assert [POISON in f.uri for f in made.failed] == [True]
    assert made.dumps == len(state(clean).stored) - 1


def test_no_scheduler_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "DASK_TIMEOUT_SECONDS", 1)
    with pytest.raises(xlamem.UsageError, match="no Dask scheduler"):
        xlamem.convert(*FEW, to=tmp_path, engine="dask", scheduler="tcp://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_with_drivers_that_are_killed(tmp_path: Path, clean: Path) -> None:
    """Their workers are those of the cluster: they write on, and nobody commits it."""
    slow = "import time\nworker.ReadDump = lambda *a, read=worker.ReadDump, **k: (time.sleep(0.05), read(*a, **k))[1]"
    with cluster(tmp_path, slow) as found:
        options = ("--engine", "dask", "--scheduler", found.scheduler_address)
        dest = kill_drivers(tmp_path, *options, times=3)
        made = xlamem.convert(*FEW, to=dest, engine="dask", scheduler=found.scheduler_address)
        assert made.dumps > 0
        wait_for(lambda: quiet(dest))
    convert(*FEW, to=dest)
    whole(dest, clean)


# -- Ray -----------------------------------------------------------------------------------------


@pytest.fixture
def ray() -> Iterator[Any]:
    library = pytest.importorskip("ray", reason="pip install 'xlamem[test-ray]'")
    assert not library.is_initialized()
    yield library
    library.shutdown()


def slow_worker(flags: Path) -> Callable[[], None]:
    """Return what makes a worker slow, once it has left its number in a folder."""
    flags.mkdir()

    def set_up() -> None:
        import os
        import time

        from xlamem.warehouse import worker

        (flags / str(os.getpid())).touch()
        read = worker.ReadDump
        worker.ReadDump = lambda *a, **k: (time.sleep(0.05), read(*a, **k))[1]  # type: ignore[assignment,misc]

    return set_up


def deadly_worker() -> Callable[[], None]:
    """Return what makes a worker one that a dump kills. (Ray sends functions of modules by name only.)"""

    def set_up() -> None:
        import os

        from xlamem.warehouse import worker

        read = worker.ReadDump

        def deadly(source: Any, **options: Any) -> Any:
            if "cpu-jaxlib-0.5.3-tuple3" in source.members[0].uri:
                os.kill(os.getpid(), 9)
            return read(source, **options)

        worker.ReadDump = deadly  # type: ignore[assignment,misc]

    return set_up


def broken_worker() -> Callable[[], None]:
    """Return what prevents workers from starting."""

    def set_up() -> None:
        raise LookupError("no such environment")

    return set_up


def start_ray(ray: Any, set_up: Callable[[], None]) -> None:
    """Connect to a new cluster, whose workers are set up by a function."""
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init("local", num_cpus=2, runtime_env={"worker_process_setup_hook": set_up}, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_on_a_cluster_of_its_own(tmp_path: Path, ray: Any, clean: Path) -> None:
    made = xlamem.convert(*FEW, to=tmp_path / "out", engine="ray", workers=2)
    assert not made.failed
    assert not ray.is_initialized()
    whole(tmp_path / "out", clean)
    convert(*FEW, to=tmp_path / "here")
    assert contents(tmp_path / "here") == contents(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_a_worker_killed_midway(
    tmp_path: Path, ray: Any, clean: Path, small_batches: None
) -> None:
    start_ray(ray, slow_worker(tmp_path / "flags"))
    killed = []

    def kill(status: warehouse.Status) -> None:
        for path in sorted((tmp_path / "flags").iterdir()) if status.phase == "convert" and status.dumps else ():
            path.unlink()
            if len(killed) < 2 and Path(f"/proc/{path.name}").exists():
                killed.append(path.name)
                os.kill(int(path.name), signal.SIGKILL)
                break

    made = xlamem.convert(*FEW, to=tmp_path / "out", engine="ray", progress=kill)
    assert len(killed) == 2
    assert not made.failed
    assert ray.is_initialized()  # as before
    whole(tmp_path / "out", clean)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_a_dump_that_kills_workers(tmp_path: Path, ray: Any, clean: Path) -> None:
    start_ray(ray, deadly_worker())
    made = xlamem.convert(*FEW, to=tmp_path / "out", engine="ray")
    assert [POISON in f.uri for f in made.failed] == [True]
    assert "each of 2 workers that read only this dump died" in made.failed[0].error
    assert made.dumps == len(state(clean).stored) - 1
    assert convert(*FEW, to=tmp_path / "out").dumps == 1
    whole(tmp_path / "out", clean)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_drivers_that_are_killed(tmp_path: Path, ray: Any, clean: Path) -> None:
    """On a cluster that goes on without them."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        options = ("--engine", "ray", "--scheduler", cluster.address)
        dest = kill_drivers(tmp_path, *options, times=2)
        made = xlamem.convert(*FEW, to=dest, engine="ray", scheduler=cluster.address)
        assert made.dumps > 0
    finally:
        cluster.shutdown()
    convert(*FEW, to=dest)
    whole(dest, clean)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_an_output_error(tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the error of the worker, as with other engines."""
    (tmp_path / "out" / "values").mkdir(parents=True)
    (tmp_path / "out" / "values" / "v2").touch()
    with pytest.raises(warehouse.OutputError, match=r"^cannot write to .*/v2: (Not a directory|File exists)$"):
        xlamem.convert(*FEW, to=tmp_path / "out", engine="ray", workers=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_workers_that_cannot_start(tmp_path: Path, ray: Any) -> None:
    start_ray(ray, broken_worker())
    with pytest.raises(xlamem.UsageError, match="the Ray cluster cannot start workers: "):
        xlamem.convert(*FEW, to=tmp_path / "out", engine="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_ray_cluster_there(tmp_path: Path, ray: Any) -> None:
    with pytest.raises(xlamem.UsageError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        xlamem.convert(*FEW, to=tmp_path / "out", engine="ray", scheduler="127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_without_workers(tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "NO_WORKER_SECONDS", 3)
    ray.init("local", num_cpus=0, include_dashboard=False, log_to_driver=False, logging_level="error")
    with pytest.raises(xlamem.UsageError, match="the cluster has had no worker for 3 seconds"):
        xlamem.convert(*FEW, to=tmp_path / "out", engine="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_that_loses_its_workers(
    tmp_path: Path, ray: Any, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that have cores end; that of the driver has none."""
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(pool, "NO_WORKER_SECONDS", 3)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    gone = threading.Event()

    def lose(status: warehouse.Status) -> None:
        if status.phase == "convert" and status.dumps and not gone.is_set():
            gone.set()
            cluster.remove_node(node, allow_graceful=False)

    try:
        with pytest.raises(xlamem.UsageError, match="the cluster has had no worker for 3 seconds"):
            xlamem.convert(*FEW, to=tmp_path / "out", engine="ray", scheduler=cluster.address, progress=lose)
    finally:
        ray.shutdown()
        cluster.shutdown()
    n_stored = len(state(tmp_path / "out").stored)
    assert n_stored
    assert convert(*FEW, to=tmp_path / "out").already_stored >= n_stored
