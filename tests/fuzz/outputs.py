"""What is made of a changed dump beside a clean one: datasets, differences, pages and screens."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

from compare_diffs import assert_adds_up
from fuzz.computations import CheckError, errors_of_ours
from fuzz.mutate import Members, mutate_text

import xlamem
from xlamem import cli, schema
from xlamem.cli import console
from xlamem.compute import KEYS, REGISTRY
from xlamem.input.names import variants

CODES = {console.FINE, console.CHECK_FAILED, 2, console.UNREADABLE}
"""Exit codes that an input may cause."""

OOM_LOGS = sorted((Path(__file__).parents[1] / "data" / "oom").rglob("*.txt"))


def write(members: Members, folder: Path, module: int = 0) -> None:
    """Write the files of a dump as XLA names them."""
    folder.mkdir(exist_ok=True)
    for role, data in members.items():
        (folder / variants(f"module_{module:04}.jit_m.cpu_after_optimizations", role)[0]).write_bytes(data)


def outputs(rng: random.Random, members: Members, clean: Members, place: Path) -> None:
    """Convert and pair the dumps, and run some command: in `place` are the changed one, the clean one, and both."""
    for folder, dumps in {"a": {0: members}, "b": {1: clean}, "dumps": {0: members, 1: clean}}.items():
        for module, dump in dumps.items():
            write(dump, place / folder, module)
    converted(place)
    paired(place)
    _run(_command(rng, place))
    out_of_memory(rng, place)


def converted(place: Path) -> None:
    """A conversion ends well whatever the dump is, and leaves none out in silence."""
    try:
        made = xlamem.convert(place / "dumps", to=place / "out", engine="here")
    except xlamem.XlaMemError as e:
        raise CheckError(f"convert stops: {e}") from e
    for fault in made.failed:
        if "bug of xlamem" in fault.error:
            raise CheckError(f"convert: {fault.error}")
    if made.dumps + len(made.failed) + made.duplicates < made.found:
        raise CheckError(f"convert has lost a dump: {made}")


def differ(rng: random.Random, dump: xlamem.Dump, clean: xlamem.Dump) -> None:
    """The difference from a clean dump adds up, and from itself there is none."""
    with errors_of_ours():
        a, b = rng.sample((dump, clean), 2)
        assert_adds_up(xlamem.diff(a, b), a, b)
    with errors_of_ours():
        if not xlamem.diff(dump, xlamem.read(dump.source)).is_same:
            raise CheckError("a dump differs from itself")


def paired(place: Path) -> None:
    """Every program is paired, and with itself if it is on both sides."""
    with errors_of_ours():
        rows = xlamem.pair(place / "a", place / "dumps").to_pylist()
        if {row["how"] for row in rows} - schema.PAIRED.keys():
            raise CheckError(f"programs are paired in unknown ways: {rows}")
    with errors_of_ours():
        rows = xlamem.pair(place / "dumps", place / "dumps").to_pylist()
        if any(row["program_a"] != row["program_b"] for row in rows):
            raise CheckError(f"a program is not paired with itself: {rows}")


def _command(rng: random.Random, place: Path) -> Sequence[str]:
    """A command about the changed dump, both dumps, or a folder with several."""
    a, b, key = str(place / "a"), str(place / "b"), rng.choice(KEYS)
    page = str(place / f"page.{rng.choice(('html', 'json', 'svg', 'pb.gz'))}")
    table = rng.choice([*schema.TABLES, *REGISTRY])
    return rng.choice((
        ["info", a], ["info", a, "--json"], ["peak", a], ["peak", a, b, "--json"], ["peak", a, "--csv", "-v"],
        ["peak", a, "--device", "v5e"], ["top", a, "--by", "buffer"], ["top", a, "--tree", "--fold"],
        ["top", a, "--by", key, "--json"], ["advise", a], ["advise", a, "--budget", "1KiB", "--json"], ["bill", a],
        ["explain", a, "-v"], ["show", table, a], ["show", table, a, "--csv"], ["report", a, "-o", page],
        ["report", a, b, "-o", page], ["report", str(place / "dumps"), "-o", page], ["diff", a, b],
        ["diff", b, a, "--json"], ["diff", a, b, "--markdown"], ["check", a, "--baseline", b],
        ["check", a, "--max-device-total", "1KiB"],
    ))  # fmt: skip


def out_of_memory(rng: random.Random, place: Path) -> None:
    """Read the reports of a changed log."""
    log = place / "log.txt"
    logs = [{"log": path.read_bytes()} for path in rng.sample(OOM_LOGS, 2)]
    log.write_bytes(mutate_text(rng, logs[0]["log"], logs[1]))
    _run(["oom", str(log), *rng.choice(([], ["--json"], ["--wide"]))])


def _run(command: Sequence[str]) -> None:
    """A command gives an answer, or says why there is none."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*command])
    if code not in CODES:
        raise CheckError(f"xlamem {command[0]} ended with {code}: {command} {err.getvalue()}")
    if "--json" in command and out.getvalue():
        json.loads(out.getvalue(), parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise CheckError(f"{constant} is not JSON")
