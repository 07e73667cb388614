"""The command line: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli, compute, schema
from xlamem.cli.reporters import convert as convert_reporter
from xlamem.cli.reporters import info as info_reporter
from xlamem.cli.verbs import info
from xlamem.compute.wording import NO_ALLOCATIONS
from xlamem.warehouse.result import Status

SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"
DATA = DUMPS.parent / "data"
FOLDER = str(DUMPS)


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*args: str | Path) -> Result:
        code = cli.main([str(a) for a in args])
        return Result(code, *capsys.readouterr())

    return call


def process(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xlamem", *map(str, args)]
    return subprocess.run(command, text=True, capture_output=True, timeout=600, **options)


# ---- info


def test_info_of_one_dump(run: Any) -> None:
    r = run("info", SMALL)
    assert (r.code, r.err) == (0, "")
    for text in (
        "jit_m_scan_while",
        "cpu",
        "buffer-assignment-values",
        "15,635",
        "used values in a file of their own",
        "live_ranges 51",
        "472.34 KiB (483,680 bytes), as printed by XLA",
        "XLA's peak      408.04 KiB (417,832 bytes), as printed",
        "11 passed",
        "complete, understood, consistent; no diagnostics",
    ):
        assert text in r.out
    assert max(map(len, r.out.replace(FOLDER, "").splitlines())) <= 80
    assert "\x1b" not in r.out


def test_info_of_a_file_name_with_a_large_timestamp(run: Any, tmp_path: Path) -> None:
    """A name may have any number of up to 18 digits: that is a time beyond the year 9999."""
    (dump,) = xlamem.find(SMALL)
    (path,) = (m.location for m in dump.members if m.role == "buffer-assignment")
    name = f"{'9' * 18}.{Path(path).name}"
    shutil.copy(path, tmp_path / name)
    r = run("info", tmp_path / name)
    assert r.code == 0, r.err
    assert "999,999,999,999,999,999 microseconds after 1970" in r.out


def test_info_json(run: Any) -> None:
    (dump,) = run("info", "--json", SMALL).json["dumps"]
    assert dump["module"] == xlamem.read(SMALL, hashes=True).modules.to_pylist()[0]
    assert dump["files"] == xlamem.read(SMALL, hashes=True).files.to_pylist()
    assert dump["allocated_bytes"] == 483680
    assert set(dump["checks"]) == set(compute.CROSS_CHECKS)
    assert set(dump["checks"].values()) == {"passed"}
    assert dump["diagnostics"] == []


def test_info_of_several(run: Any, tmp_path: Path) -> None:
    shutil.copytree(SMALL, tmp_path / "again")
    r = run("info", DUMPS / "seeds", SMALL, tmp_path)
    assert r.code == 0
    first = r.out.splitlines()[1]
    assert "286.05 MiB" in first
    assert first.endswith("4_a3085531593bac68.txt")  # the path may be shortened
    assert "7 dumps," in r.out
    same = r.out[r.out.index("same content:") :].splitlines()
    assert {line.rpartition("/")[0].strip() for line in same[1:]} == {str(SMALL), str(tmp_path / "again")}
    assert len(run("info", "--json", SMALL, tmp_path).json["duplicates"]) == 1
    assert "state" not in r.out.splitlines()[0].split()
    r = run("info", SMALL, DUMPS / "cpu-killed-at-buffer-assignment")  # one of them is not whole
    assert "state" in r.out.splitlines()[0].split()
    assert [{"ok", "truncated"} & {*line.split()} for line in r.out.splitlines()[1:3]] == [{"ok"}, {"truncated"}]


def test_every_cross_check_is_listed() -> None:
    lines = {"truncated", "unknown_line", "unknown_field", "more_diagnostics", "not_utf8", "mixed_newlines"}
    lines |= {"instruction_differs", "size_too_large"}
    assert set(compute.CROSS_CHECKS) | lines == set(schema.CODES)


def test_info_on_every_real_dump(run: Any) -> None:
    data = run("info", "--json", DUMPS).json
    assert len(data["dumps"]) == len(xlamem.find(DUMPS))
    assert data["failed"] == []
    assert all("failed" not in d["checks"].values() for d in data["dumps"])


def test_a_truncated_dump_is_a_note_and_3_with_strict(run: Any) -> None:
    r = run("info", TRUNCATED)
    assert r.code == 0
    assert r.out.startswith("truncated: …-buffer-assignment.txt:1 (byte 0) and 1 more: ")
    assert "truncated, understood, consistent; 2 diagnostics" in r.out
    assert run("info", "--strict", TRUNCATED).code == 3
    assert run("info", "--strict", SMALL).code == 0


def test_unknown_line_shows_where(run: Any, make: Any) -> None:
    text = next(SMALL.glob("*-buffer-assignment.txt")).read_bytes()
    folder = make({"buffer-assignment": text.replace(b"allocation 3:", b"allocation \x1b[31m3:")})
    r = run("info", folder)
    assert r.code == 0
    assert r.out.startswith("not understood: …-buffer-assignment.txt:")
    assert "complete, not understood, consistent" in r.out
    assert "unknown_line in allocations" in r.out
    assert "allocation \\x1b[31m3: size" in r.out
    assert "\x1b" not in r.out
    assert run("info", "--strict", folder).code == 3


def test_failed_check_is_1(run: Any, make: Any) -> None:
    text = next(SMALL.glob("*-buffer-assignment.txt")).read_bytes()
    folder = make({"buffer-assignment": text.replace(b",offset=0)", b",offset=9999999)", 1)})
    r = run("info", folder)
    assert r.code == 1
    assert r.out.startswith("not consistent: …-buffer-assignment.txt:")
    assert "1 failed" in r.out
    assert "value_outside" in r.out


def test_a_failed_check_of_a_truncated_dump_is_0(run: Any, make: Any) -> None:
    """What is missing may be the cause, as the help says."""
    text = next(SMALL.glob("*-buffer-assignment.txt")).read_bytes()
    folder = make({"buffer-assignment": text.replace(b",offset=0)", b",offset=9999999)", 1)[:-1]})
    r = run("info", folder)
    assert "1 failed" in r.out
    assert "truncated" in r.out
    assert r.code == 0
    assert run("info", "--strict", folder).code == 3
    assert "of a complete dump" in " ".join(run("info", "--help").out.split())


def test_many_diagnostics_are_not_all_shown(run: Any, make: Any) -> None:
    text = next(SMALL.glob("*-buffer-assignment.txt")).read_bytes()
    folder = make({"buffer-assignment": text + b"what is this\n" * 30})
    r = run("info", folder)
    assert r.out.count("unknown_line") == info_reporter.MAX_DIAGNOSTICS
    assert "20 more" in r.out
    assert len(run("info", "--json", folder).json["dumps"][0]["diagnostics"]) == 30


def test_unreadable_dump_is_3_and_the_others_are_shown(run: Any, tmp_path: Path) -> None:
    (tmp_path / "module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b\x08 nope")
    r = run("info", tmp_path)
    assert (r.code, r.out) == (3, "")
    assert r.err.startswith("error: ")
    assert "expected gzip data" in r.err
    r = run("info", tmp_path, SMALL)
    assert r.code == 3
    assert "1 unreadable" in r.out
    assert len(run("info", "--json", tmp_path, SMALL).json["failed"]) == 1


@pytest.mark.parametrize("data", [b"", b"\n", random.Random(1).randbytes(5000), b"not a dump\n" * 9])
def test_a_file_without_sections_is_unreadable(run: Any, make: Any, tmp_path: Path, data: bytes) -> None:
    folder = make({"buffer-assignment": data})
    for verb in (["info"], ["peak"], ["top"], ["top", "--by", "buffer"], ["explain"], ["show", "values"]):
        r = run(*verb, folder)
        assert (r.code, r.out) == (3, "")
        assert "expected a section of a memory dump" in r.err
    assert run("peak", folder, "--capacity", "1TiB").code == 3
    r = run("convert", folder, "--to", tmp_path / "out", "--json", *HERE)
    assert (r.code, r.json["dumps"], len(r.json["failed"])) == (3, 0, 1)
    # The HLO text, or another file of the same dump, can be read.
    text = next(SMALL.glob("*after_optimizations.txt")).read_bytes()
    assert run("info", make({"buffer-assignment": data, "hlo": text})).code == 0
    live = next(SMALL.glob("*live-range.txt")).read_bytes()
    assert run("info", make({"buffer-assignment": data, "live-range": live})).code == 0


def test_an_empty_dump_is_unreadable(run: Any) -> None:
    assert run("info", DATA / "killed").code == 3


@pytest.mark.parametrize(
    "args",
    [
        ["info"],
        ["info", "/nowhere/at/all"],
        ["info", "--nope", FOLDER],
        ["nope"],
        ["live", FOLDER],
        ["files", FOLDER],
        ["dataset", "nope", FOLDER],
        ["show", "nope", str(SMALL)],
        ["schema", "nope"],
        ["convert", FOLDER],
        ["convert", FOLDER, "--to", "never-made", "--tables", "nope"],
    ],
)
def test_wrong_usage_is_2(run: Any, args: list[str]) -> None:
    r = run(*args)
    assert (r.code, r.out) == (2, "")
    assert "rror: " in r.err
    assert "Traceback" not in r.err


def test_a_replaced_command_names_its_successor(run: Any) -> None:
    assert "No such command 'live'. Did you mean 'top --by buffer'?" in run("live", FOLDER).err
    assert "No such command 'files'. Did you mean 'dataset files'?" in run("files", FOLDER).err


def test_empty_directory(run: Any, tmp_path: Path) -> None:
    r = run("info", tmp_path)
    assert r.code == 2
    assert f"no dump in {tmp_path}" in r.err


def test_standard_input() -> None:
    with (DUMPS / "tpu-libtpu-0.0.50.1-v5e-stdout" / "stdout.txt").open() as file:
        r = process("info", "-", stdin=file)
    assert r.returncode == 0, r.stderr
    assert "jit_m_donate_adam" in r.stdout


# ---- schema


def test_schema_for_people(run: Any) -> None:
    r = run("schema")
    assert r.code == 0
    for table in schema.TABLES.values():
        assert f"{table.name}  one row per" in r.out
        for column in table.columns:
            assert f"  {column.name} " in r.out
    for word in (*schema.FEATURES, *schema.CODES, *schema.ROLES):
        assert f"  {word} " in r.out
    assert max(map(len, r.out.splitlines())) <= 80
    one = run("schema", "values", "uses").out
    assert "values  one row" in one
    assert "allocations  one row" not in one


def test_schema_json(run: Any) -> None:
    assert run("schema", "--json").json == schema.envelope("schema") | schema.as_json()
    assert [t["name"] for t in run("schema", "--json", "values").json["tables"]] == ["values"]


# ---- convert

HERE = ["--engine", "here"]


def test_convert(run: Any, tmp_path: Path) -> None:
    r = run("convert", SMALL, "--to", tmp_path / "out")
    assert (r.code, r.err) == (0, "")
    assert re.match(r"1 dump to \S+/out: [0-9,]+ rows in [0-9]+ files, .* bytes\); [0-9.]+ s \(", r.out)
    r = run("convert", SMALL, "--to", tmp_path / "out", *HERE)
    assert r.out.endswith("0 bytes; 1 already stored\n")
    r = run("convert", SMALL, "--to", tmp_path / "out", "--label", "night=2", *HERE)
    assert r.out.endswith("0 bytes; 1 already stored; 1 occurrence\n")
    r = run("convert", SMALL, TRUNCATED, "--to", tmp_path / "out2", "--tables", "values, uses", "--json", *HERE)
    assert r.code == 0
    assert r.err.startswith("note: truncated,")
    assert (r.json["dumps"], r.json["files"], len(r.json["cut"])) == (2, 2, 1)
    assert run("convert", TRUNCATED, "--to", tmp_path / "out3", "--strict", *HERE).code == 3
    r = run("convert", TRUNCATED, "--to", tmp_path / "out3", "--quiet", *HERE)
    assert (r.code, r.out, r.err) == (0, "", "")


def test_convert_goes_on_without_a_dump_in_one_path(run: Any, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    out = run("convert", str(tmp_path / "none"), FOLDER, "--to", str(tmp_path / "out"), "--engine", "here")
    assert out.code == 0
    assert f"no dump in {tmp_path / 'none'}" in out.err
    both = (str(tmp_path / "none"), str(TRUNCATED))
    out = run("convert", *both, "--to", str(tmp_path / "2"), "--engine", "here", "--strict", "--quiet")
    assert (out.code, out.out) == (3, "")  # and the reasons
    assert f"no dump in {tmp_path / 'none'}" in out.err
    assert "note: truncated" in out.err
    assert run("convert", str(tmp_path / "none"), "--to", str(tmp_path / "out")).code == 2


@pytest.mark.parametrize("engine", [[], ["--engine", "here"]])
def test_convert_with_a_scheduler_but_no_cluster(run: Any, tmp_path: Path, engine: list[str]) -> None:
    r = run("convert", SMALL, "--to", tmp_path / "to", "--scheduler", "tcp://127.0.0.1:8786", *engine)
    assert (r.code, "--engine dask or ray" in r.err) == (2, True)
    assert not (tmp_path / "to").exists()


def test_convert_labels(run: Any, tmp_path: Path) -> None:
    labels = ["--label", "night=monday", "--label", "note=a=b"]
    assert run("convert", SMALL, "--to", tmp_path, *labels, "--partition-by", "night", *HERE).code == 0
    assert [p.name for p in (tmp_path / "labels" / "v2").iterdir()] == ["night=monday"]
    for bad in (["--label", "night"], ["--label", "=x"], ["--label", "a=1", "--label", "a=2"]):
        assert run("convert", SMALL, "--to", tmp_path, *bad, *HERE).code == 2
    assert run("convert", SMALL, "--to", tmp_path, "--partition-by", "night", *HERE).code == 2


@pytest.mark.parametrize("part", ["live-range", "memory-usage-report"])
def test_a_dump_without_allocations(run: Any, part: str, tmp_path: Path) -> None:
    """Nothing is known of its memory, least of all that it is 0 bytes."""
    (path,) = SMALL.glob(f"*-{part}.txt")
    shutil.copy(path, tmp_path)
    for command in (["peak"], ["bill"], ["advise"], ["advise", "--budget", "1MiB"]):
        r = run(*command, tmp_path)
        assert r.code == 0
        assert " ".join(r.out.split()).endswith(NO_ALLOCATIONS)
        assert "0 bytes" not in r.out
        assert "0 B" not in r.out
    for command in (["top"], ["top", "--by", "scope"], ["top", "--at", "1"]):
        r = run(*command, tmp_path)
        assert (r.code, r.out) == (2, "")
        assert r.err.rstrip().endswith("has no allocations: its memory use is unknown")
    assert run("buffer", tmp_path, "1").code == 2


def test_the_time_that_is_left() -> None:
    status = Status("convert", 1, 4, 25 << 20, 100 << 20, failed=2, seconds=100.0)
    line = convert_reporter._line(status)
    assert line == "convert: 1 of 4 dumps, 25.00 MiB of 100.00 MiB, 256.00 KiB/s, 5 min left, 2 unreadable"


def test_convert_logs_its_progress(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlamem.cli.reporters.convert.LOG_INTERVAL", 0.0)
    r = run("convert", SMALL, "--to", tmp_path, *HERE)
    assert "note: identify: 1 of 1 dumps" in r.err or "note: convert: 0 of 1 dumps" in r.err
    assert re.search(r"note: convert: 1 of 1 dumps, .* of .*/s, 0 min left", r.err)


def test_convert_interrupted_is_130(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xlamem.warehouse.run import Run

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "commit", interrupt)
    r = run("convert", SMALL, "--to", tmp_path, *HERE)
    assert r.code == 130
    assert "repeat the command to resume" in r.err


def test_convert_reports_failures_and_continues(run: Any, tmp_path: Path) -> None:
    bad = tmp_path / "module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz"
    bad.write_bytes(b"\x1f\x8b\x08 nope")
    r = run("convert", tmp_path, SMALL, "--to", tmp_path / "out", "--quiet", *HERE)
    assert (r.code, r.out) == (3, "")
    assert str(bad) in r.err
    assert len(list((tmp_path / "out" / "values").rglob("*.parquet"))) == 1
    r = run("convert", tmp_path / "x", SMALL, "--to", tmp_path / "out", *HERE)
    assert r.code == 2
    r = run("convert", bad, "--to", tmp_path / "out", *HERE)  # known by now
    assert r.code == 3
    assert "in quarantine since an earlier run" in r.err


def test_output_that_cannot_be_written_is_4(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    r = run("convert", SMALL, "--to", tmp_path / "file")
    assert (r.code, r.out) == (4, "")
    assert r.err.startswith("error: cannot write to ")
    assert r.err.count("\n") == 1


# ---- the process


def test_our_bug_is_70(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(info, "find", fail)
    monkeypatch.delenv("XLAMEM_DEBUG", raising=False)
    r = run("info", SMALL)
    assert r.code == 70
    assert "bug in xlamem" in r.err
    assert "ZeroDivisionError: oh" in r.err
    assert "Traceback" not in r.err
    monkeypatch.setenv("XLAMEM_DEBUG", "1")
    assert "Traceback" in run("info", SMALL).err


def test_native_bug_is_70(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise xlamem.NativeError("broken")

    monkeypatch.setattr(info, "find", fail)
    assert run("info", SMALL).code == 70


def test_interrupted_is_130(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "find", interrupt)
    assert run("info", SMALL).code == 130


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")
def test_interrupt_leaves_nothing_half_written(tmp_path: Path) -> None:
    code = "import sys; from xlamem.cli import main; sys.exit(main())"
    for _ in range(3):
        p = subprocess.Popen(
            [sys.executable, "-c", code, "convert", FOLDER, "--to", str(tmp_path)], stderr=subprocess.DEVNULL
        )
        while not list(tmp_path.glob("modules/*.parquet")) and p.poll() is None:
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=600) in (130, 0)
        assert not list(tmp_path.rglob("*.tmp"))
        shutil.rmtree(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")
def test_closed_pipe_is_quiet() -> None:
    code = "import sys; from xlamem.cli import main; sys.exit(main())"
    read, write = os.pipe()
    os.close(read)
    r = subprocess.run([sys.executable, "-c", code, "schema"], stdout=write, stderr=subprocess.PIPE, timeout=600)
    os.close(write)
    assert (r.returncode, r.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("args", [["schema"], ["--help"], ["diff", "--help"], ["info", "--json", str(SMALL)]])
def test_full_disk_is_4(args: list[str]) -> None:
    code = "import sys; from xlamem.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        r = subprocess.run([sys.executable, "-c", code, *args], stdout=full, stderr=subprocess.PIPE, timeout=600)
    assert r.returncode == 4
    assert r.stderr.count(b"\n") == 1


def test_colors_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import pty

    code = "import sys; from xlamem.cli import main; sys.exit(main())"

    def shown(**env: str) -> bytes:
        parent, child = pty.openpty()
        p = subprocess.Popen(
            [sys.executable, "-c", code, "schema", "frames"], stdout=child, env={**os.environ, "TERM": "xterm", **env}
        )
        os.close(child)
        data = b""
        while True:
            try:
                more = os.read(parent, 4096)
            except OSError:
                break
            if not more:
                break
            data += more
        os.close(parent)
        assert p.wait(timeout=600) == 0
        return data

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[" in shown()
    assert b"\x1b[" not in shown(NO_COLOR="1")


def test_import_does_not_load_the_command_line() -> None:
    code = (
        "import sys, xlamem;print([m for m in ('click', 'rich', 'pyarrow.parquet', 'xlamem.cli') if m in sys.modules])"
    )
    r = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=600, check=True)
    assert r.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_load_only_click(option: str) -> None:
    code = (
        "import sys; from xlamem.cli import main; main(sys.argv[1:]);"
        "print(sorted({'numpy', 'pyarrow', 'rich', 'dataclasses', 'json', 'xlamem.dump', 'xlamem.schema'}"
        " & set(sys.modules)))"
    )
    r = subprocess.run([sys.executable, "-c", code, option], text=True, capture_output=True, timeout=600)
    assert r.stdout.endswith("[]\n"), r.stderr


@pytest.mark.parametrize("option", ["--json", "--wide"])
def test_peak_loads_nothing_that_it_does_not_use(option: str) -> None:
    code = (
        "import sys; from xlamem.cli import main; main(['peak', *sys.argv[1:]]);"
        "print(sorted({'numpy.ma', 'pandas', 'pyarrow.acero', 'pyarrow.dataset', 'pyarrow.parquet', 'xlamem.warehouse'}"
        " & set(sys.modules)))"
    )
    dump = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
    r = subprocess.run([sys.executable, "-c", code, str(dump), option], text=True, capture_output=True, timeout=600)
    assert r.stdout.endswith("[]\n"), r.stdout[-200:] + r.stderr


@pytest.mark.parametrize(("args", "code"), [(["--version"], 0), (["--nothing"], 2), (["peak", "/nowhere"], 2)])
def test_the_process_ends_with_the_exit_code_of_the_command(args: list[str], code: int) -> None:
    script = "import atexit; from xlamem.cli import run; atexit.register(print, 'the end'); run()"
    r = subprocess.run([sys.executable, "-c", script, *args], text=True, capture_output=True, timeout=600)
    assert r.returncode == code
    assert r.stdout.endswith("the end\n")
    assert "Traceback" not in r.stderr


def test_the_process_ends_without_standard_output() -> None:
    script = "from xlamem.cli import run; run()"
    command = f'exec "{sys.executable}" -c "{script}" --version >&-'
    r = subprocess.run(["sh", "-c", command], text=True, capture_output=True, timeout=600)
    assert "Traceback" not in r.stderr


def test_info_does_not_load_what_it_does_not_need() -> None:
    code = (
        "import sys; from xlamem.cli import main; main(sys.argv[1:]);"
        "print([m for m in ('rich', 'pyarrow.parquet') if m in sys.modules])"
    )
    r = subprocess.run([sys.executable, "-c", code, "info", str(SMALL)], text=True, capture_output=True, timeout=600)
    assert r.stdout.endswith("[]\n"), r.stderr


def test_version(run: Any) -> None:
    assert run("--version").out == f"xlamem {xlamem.__version__}\n"


def test_the_command_starts_no_threads_for_linear_algebra() -> None:
    code = (
        "import os, sys; from xlamem.cli import main; early = 'numpy' in sys.modules; main(['--version']);"
        "print(early, os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False 1"


def test_a_value_that_borrows_the_bytes_of_an_output(run: Any) -> None:
    """It is a temporary, for `top` and in the list of buffers; the parts add up to what is in use."""
    name = "temporary in an output's space"
    assert name in run("top", SMALL, "--by", "category").out
    assert name in run("top", SMALL, "--by", "buffer", "--limit", "50").out
    rows = run("top", SMALL, "--by", "category", "--json").json["rows"]
    assert "temp_in_output" in {r["category"] for r in rows}
    assert sum(r["bytes"] for r in rows) == sum(r["peak"] for r in xlamem.peak(xlamem.read(SMALL)).spaces.to_pylist())
