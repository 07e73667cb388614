"""The gate: is reading slower than the stored baseline? Exit code 1 if it is.

Two measures. *Ratios*: CPU seconds over those of `wc -l` of the same files in the same run, medians; the same
code is measured twice, A and B, turn by turn, and how far the two differ is the noise that is allowed for.
*Instructions*: counted by callgrind where valgrind is installed, and nearly free of noise.

    python bench/compare.py                 # both
    python bench/compare.py --only counts
    python bench/compare.py --store         # what is found becomes the baseline: with the change that explains it
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BASELINE = HERE / "baseline"
SIZE = 20
"""MB of the inputs for ratios, of the small dumps a fifth."""
ROUNDS = 15
RATIO_TOLERANCE = 0.2
"""A ratio may grow so far, and by the noise of the run on top."""
LEAST_NOISE = 0.02
COUNT_TOLERANCE = 0.03
ELSEWHERE = {"ratios": 0.5, "counts": 0.25}
"""Tolerance where the baseline comes from another machine, compiler or version."""


@dataclass(frozen=True)
class Verdict:
    """One number against its baseline (None: it has none yet)."""

    name: str
    baseline: float | None
    found: float
    allowed: float

    @property
    def change(self) -> float:
        return self.found / self.baseline - 1 if self.baseline else 0.0

    @property
    def worse(self) -> bool:
        return self.change > self.allowed

    @property
    def word(self) -> str:
        if self.baseline is None:
            return "new"
        return "WORSE" if self.worse else "better" if self.change < -self.allowed else "ok"


def noise(a: Sequence[float], b: Sequence[float]) -> float:
    """By how much, as a share, two medians of the same code differ: what was seen, and what its spread lets expect."""
    both = [*a, *b]
    middle = statistics.median(both)
    spread = statistics.median(abs(x - middle) for x in both) / middle
    return max(LEAST_NOISE, abs(statistics.median(a) / statistics.median(b) - 1), 3 * spread / len(both) ** 0.5)


def judge_ratios(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], baseline: Mapping[str, float], tolerance: float
) -> list[Verdict]:
    """`runs`: by name the ratios of A and of B."""
    return [
        Verdict(name, baseline.get(name), statistics.median([*a, *b]), tolerance + noise(a, b))
        for name, (a, b) in runs.items()
    ]


def judge_counts(counts: Mapping[str, int], baseline: Mapping[str, int], tolerance: float) -> list[Verdict]:
    return [Verdict(name, baseline.get(name), found, tolerance) for name, found in counts.items()]


def missing(found: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Names of the baseline that were not measured: a gate that looks at less is no gate."""
    return [name for name in baseline if name not in found]


# ------------------------------------------------------------------------------- measuring


def measure_ratios() -> tuple[dict[str, tuple[list[float], list[float]]], dict[str, str]]:
    import inputs
    import measure
    import readers

    found = {}
    works = {"all tables": readers.xlamem_tables, "peak tables": readers.for_a_peak}
    with tempfile.TemporaryDirectory() as place:
        for shape in (inputs.shape(name, SIZE) for name in ("dense", "wide", "small")):
            # Copied: `wc -l` takes up to twice as long where the page cache has read a file back piece by piece.
            copies = {f: shutil.copytree(f, Path(place, shape.name, str(i))) for i, f in enumerate(shape.folders)}
            files = [copies[path.parent] / path.name for path in shape.files]
            for label, read in works.items():
                read(list(copies.values()))
                ratios: tuple[list[float], list[float]] = ([], [])
                for turn in range(2 * ROUNDS):
                    yardstick = measure.wc(files)
                    start = measure.cpu_seconds()
                    read(list(copies.values()))
                    ratios[turn % 2].append((measure.cpu_seconds() - start) / yardstick)
                found[f"{shape.name}, {label}"] = ratios
    return found, {"machine": measure.machine().split(";")[0]}


def measure_counts() -> tuple[dict[str, int], dict[str, str]]:
    import counts
    import inputs

    folders = {name: inputs.shape(name, 2).folders for name in ("dense", "wide")}
    folders["small"] = inputs.shape("small", 5).folders[:20]
    return counts.count(folders), counts.environment()


# ------------------------------------------------------------------------------- the gate


def gate(kind: str, baseline: Mapping[str, Any] | None) -> tuple[bool, list[str], dict[str, Any]]:
    """Measure and judge; (good, table, what would be stored)."""
    import tabular

    numbers, environment = measure_ratios() if kind == "ratios" else measure_counts()
    stored = baseline or {"environment": environment, kind: {}}
    same = stored["environment"] == environment
    tolerance = (RATIO_TOLERANCE if kind == "ratios" else COUNT_TOLERANCE) if same else ELSEWHERE[kind]
    verdicts = (judge_ratios if kind == "ratios" else judge_counts)(numbers, stored[kind], tolerance)
    title = {"ratios": "CPU over that of `wc -l`", "counts": "millions of instructions"}[kind]
    if not same:
        title += "; the baseline comes from elsewhere: " + "; ".join(stored["environment"].values())
    rows = [tabular.Row(title, v.name, cells(v, 1e6 if kind == "counts" else 1)) for v in verdicts]
    lines = tabular.render(rows)
    lost = missing(numbers, stored[kind])
    lines += [f"{name}: in the baseline, but not measured" for name in lost]
    good = not lost and not any(v.worse for v in verdicts)
    values = {v.name: round(v.found, 3) for v in verdicts}
    return good, lines, {"environment": environment, kind: values}


def cells(v: Verdict, unit: float) -> dict[str, str]:
    known = v.baseline is not None
    return {
        "baseline": f"{v.baseline / unit:.2f}" if v.baseline is not None else "",
        "found": f"{v.found / unit:.2f}",
        "change": f"{v.change:+.1%}" if known else "",
        "allowed": f"{v.allowed:+.1%}" if known else "",
        "": v.word,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("ratios", "counts"), help="one of the two measures")
    parser.add_argument("--store", action="store_true", help="keep what is found as the new baseline")
    options = parser.parse_args(arguments)
    sys.path += [str(HERE), str(HERE.parent / "tests")]
    import counts

    failed = False
    for kind in [options.only] if options.only else ["ratios", "counts"]:
        if kind == "counts" and not counts.available():
            print("instructions: valgrind is not installed, not counted")
            continue
        place = BASELINE / f"{kind}.json"
        good, lines, found = gate(kind, json.loads(place.read_text()) if place.exists() else None)
        print(*lines, "", sep="\n")
        if options.store:
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(found, indent=2) + "\n")
        elif not good:
            failed = True
    if failed:
        print("Slower than the baseline. If that is meant: python bench/compare.py --store, and say why.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
