"""Reports and pictures of programs that no shipped dump shows, compared with what they were before.

Forged dumps have the forms of every release; hostile ones several arenas and memory spaces in which buffers share
bytes; and the pictures have more of everything than small programs do. The results are digests: a difference says
which part of which report changed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brute import hostile
from conftest import DUMPS
from forge import ERAS, forge
from render import render
from stored import check, described, digest

import xlamem
from xlamem.page.model import Account, BillLine, Device, Phases, Program, as_json
from xlamem.page.pictures import address_map, picture
from xlamem.page.program_model import program_model

RELEASES = [*zip(sorted(ERAS.keys() - {"E2", "E5"}), cycle(("cpu", "gpu", "tpu")))]  # these are other names
LAYOUTS = [{}, {"beyond": 3}, {"arenas": 3, "values": 30, "steps": 40, "size": 400}]
"""Options of `brute.hostile`."""
IN_USE = ("parameter", "constant", "temp")
"""Lines of a bill."""


def parts(dump: xlamem.Dump, *folders: Path, **device: Any) -> list[tuple[str, Any]]:
    """Return digests of each part of the model of a program, and of its picture."""
    program = program_model(dump, device)
    found = [*as_json(program).items(), ("svg", picture([program]))]
    return [(name, digest(described(value, *folders))) for name, value in found]


@pytest.mark.parametrize(("era", "platform"), RELEASES[::4])
def test_of_releases(era: str, platform: Any, tmp_path: Path) -> None:
    forge(8, era=era, platform=platform, values=60, hostile=platform == "cpu").write(tmp_path)
    check(f"page/forged-{era}-{platform}", parts(xlamem.read(tmp_path), tmp_path, capacity="1MiB"))


@pytest.mark.parametrize("kind", range(len(LAYOUTS)))
def test_of_layouts_that_no_compiler_makes(kind: int) -> None:
    found = []
    for seed in range(4):
        dump = xlamem.read(render(hostile(seed, **LAYOUTS[kind]))["buffer-assignment"])
        found += [(f"{seed} {name}", value) for name, value in parts(dump, capacity=100 << 6 * seed)]
    check(f"page/hostile-{kind}", found)


# -- pictures of programs that are larger or otherwise than shipped ones


@cache
def shipped() -> Program:
    return program_model(xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-multiheap"))


def made_up(seed: int) -> Program:
    """Return a program with random buffers, memory spaces, phases and lines of text."""
    draw, p = random.Random(seed), shipped()
    b, a = p.buffers, p.allocations
    steps, n = draw.choice([1, 40, 700, 3000]), draw.choice([30, 300, 1200])
    space = p.spaces[0]
    spaces = [replace(space, **_usage(draw, steps, space.peak or 0))]
    for page in range(6):
        usage = _usage(draw, steps, (space.peak or 0) // 10**page)
        spaces.append(replace(space, memory_space="vmem" * (page + 1), page=page, **usage))
    first = np.unique([draw.randrange(steps) for _ in range(30)])
    last = np.append(first[1:], steps) - [draw.randint(1, 2) for _ in first]
    phase = np.array([draw.randrange(len(p.phases.names)) for _ in first])
    available = (space.peak or 0) * (9 + seed) // 10
    device = draw.choice([None, Device("capacity", 2 * available, 0, 1.0, available, "")])
    temps = np.flatnonzero((a.space == 0) & (a.category == a.category_names.index("temp")))
    columns: dict[str, Any] = {k: np.resize(v, n) for k, v in vars(b).items() if isinstance(v, np.ndarray)}
    columns |= _places(draw, n, steps, a.size, temps.tolist())
    unknown = draw.randrange(3)  # phases, kinds, or neither
    for i, (name, names) in enumerate((("phase", b.phase_names), ("kind", b.kind_names))):
        columns[name] = np.array([-1 if i == unknown else draw.randrange(-1, len(names)) for _ in range(n)])
    return replace(
        p,
        steps=steps,
        buffers=replace(b, **columns),
        phases=Phases(p.phases.names, phase, first, np.maximum(first, last)),
        spaces=spaces,
        bill=[_bill(draw, p.bill[0])],
        verdict=replace(p.verdict, device=device),
        folded=["Some buffers are left out. " * seed],
        problems=["The dump is damaged. " * 12] * (seed % 2),
    )


def _bill(draw: random.Random, account: Account) -> Account:
    """Return an account with random bytes, also of lines and parts that a program on a CPU does not have."""
    lines = []
    for name in (*IN_USE, "alignment", "another_step", "packing", "new"):
        sizes = [draw.choice([0, 1, 900, 40_000]) for _ in range(draw.randrange(4))]
        labels = [f"a kind {i} of {name}" * draw.randrange(1, 6) for i in range(len(sizes))]
        notes = [draw.choice(["", "a note"]) for _ in sizes]
        parts = [{"label": a, "bytes": n, "note": b} for a, n, b in zip(labels, sizes, notes, strict=True)]
        lines.append(BillLine(name, f"the {name}", sum(sizes), name in IN_USE, "why", parts))
    total, in_use = (sum(line.bytes for line in lines if line.in_use >= least) for least in (False, True))
    name = draw.choice(["device_total", "hbm"])
    return replace(account, account=name, page=draw.randrange(2), total=total, in_use=in_use, lines=lines)


def _usage(draw: random.Random, steps: int, most: int) -> dict[str, Any]:
    usage = np.array([draw.randint(most // 2, most) for _ in range(steps)])
    return {"usage": usage, "peak": int(usage.max()), "first_step": int(usage.argmax())}


def _places(draw: random.Random, n: int, steps: int, sizes: Any, arenas: list[int]) -> dict[str, Any]:
    """Return where random buffers are: most are small, and some as large as their arenas."""
    arena = np.array([draw.choice(arenas) for _ in range(n)])
    offset = np.array([draw.randrange(size) for size in sizes[arena].tolist()])
    start = np.array([draw.randrange(steps) for _ in range(n)])
    size = np.array([draw.randint(1, max(1, size >> draw.randrange(12))) for size in (sizes[arena] - offset).tolist()])
    end = np.minimum(start + [draw.randrange(max(1, steps >> draw.randrange(10))) for _ in range(n)], steps - 1)
    return {"allocation": arena, "offset": offset, "start": start, "end": end, "size": size}


def test_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_map, "N_BOXES", 20)
    found = []
    for seed in range(8):
        program = made_up(seed)
        found += [(f"{seed} {part}", picture([program], parts=[part])) for part in ("bill", "timeline", "map")]
        found.append((f"{seed} twice", picture([program, program], parts=[], summary="B needs less. " * seed)))
    check("page/pictures", found)
