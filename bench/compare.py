"""The regression gate: exit with 1 if reading is slower than the stored baseline.

Two measures. *Ratios*: median CPU seconds over those of `wc -l` on the same files in the same run. The same code is
measured twice in alternation, as A and B; the difference of the two is the noise, which is added to the tolerance.
*Instructions*: counted by callgrind if valgrind is installed, nearly free of noise.

    python bench/compare.py                 # both
    python bench/compare.py --only counts
    python bench/compare.py --store         # store the results as the new baseline
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
"""MB of the inputs for ratios; the small dumps have a fifth."""
ROUNDS = 15
RATIO_TOLERANCE = 0.2
"""How far a ratio may grow, in addition to the noise of the run."""
LEAST_NOISE = 0.02
COUNT_TOLERANCE = 0.03
TOLERANCE_ELSEWHERE = {"ratios": 0.5, "counts": 0.25}
"""Tolerance if the baseline comes from another machine, compiler or version."""


@dataclass(frozen=True)
class Verdict:
    """One number and its baseline, which is None for a new number."""

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
    """Return the relative difference of two medians of the same code, measured or predicted from the spread."""
    both = [*a, *b]
    middle = statistics.median(both)
    spread = statistics.median(abs(x - middle) for x in both) / middle
    return max(LEAST_NOISE, abs(statistics.median(a) / statistics.median(b) - 1), 3 * spread / len(both) ** 0.5)


def judge_ratios(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], baseline: Mapping[str, float], tolerance: float
) -> list[Verdict]:
    """Compare ratios with the baseline. `runs` has the ratios of A and B by name."""
    return [
        Verdict(name, baseline.get(name), statistics.median([*a, *b]), tolerance + noise(a, b))
        for name, (a, b) in runs.items()
    ]


def judge_counts(counts: Mapping[str, int], baseline: Mapping[str, int], tolerance: float) -> list[Verdict]:
    return [Verdict(name, baseline.get(name), found, tolerance) for name, found in counts.items()]


def missing(found: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Return the names in the baseline that were not measured, which fail the gate."""
    return [name for name in baseline if name not in found]


# ------------------------------------------------------------------------------- measuring


def measure_ratios() -> tuple[dict[str, tuple[list[float], list[float]]], dict[str, str]]:
    import inputs
    import measure
    import readers
    import touching

    found = {}
    works = {"all tables": touching.read, "peak tables": readers.for_a_peak}
    with tempfile.TemporaryDirectory() as folder:
        for shape in (inputs.shape(name, SIZE) for name in ("dense", "wide", "small")):
            # Copied, because `wc -l` takes up to twice as long if the page cache read the file back in small pieces.
            copies = {f: shutil.copytree(f, Path(folder, shape.name, str(i))) for i, f in enumerate(shape.folders)}
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
    """Measure, and return whether the gate passes, the table, and the baseline to store."""
    import tabular

    numbers, environment = measure_ratios() if kind == "ratios" else measure_counts()
    stored = baseline or {"environment": environment, kind: {}}
    same = stored["environment"] == environment
    tolerance = (RATIO_TOLERANCE if kind == "ratios" else COUNT_TOLERANCE) if same else TOLERANCE_ELSEWHERE[kind]
    verdicts = (judge_ratios if kind == "ratios" else judge_counts)(numbers, stored[kind], tolerance)
    title = {"ratios": "CPU over that of `wc -l`", "counts": "millions of instructions"}[kind]
    if not same:
        title += "; the baseline comes from elsewhere: " + "; ".join(stored["environment"].values())
    rows = [tabular.Row(title, v.name, cells(v, 1e6 if kind == "counts" else 1)) for v in verdicts]
    lines = tabular.render(rows)
    unmeasured = missing(numbers, stored[kind])
    lines += [f"{name}: in the baseline, but not measured" for name in unmeasured]
    good = not unmeasured and not any(v.worse for v in verdicts)
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
    parser.add_argument("--only", choices=("ratios", "counts"), help="measure only one of the two")
    parser.add_argument("--store", action="store_true", help="store the results as the new baseline")
    options = parser.parse_args(arguments)
    tests = HERE.parent / "tests"
    sys.path += [str(HERE), str(tests / "forge"), str(tests / "oracle")]
    import counts

    failed = False
    for kind in [options.only] if options.only else ["ratios", "counts"]:
        if kind == "counts" and not counts.available():
            print("instructions: not counted, because valgrind is not installed")
            continue
        path = BASELINE / f"{kind}.json"
        good, lines, found = gate(kind, json.loads(path.read_text()) if path.exists() else None)
        print(*lines, "", sep="\n")
        if options.store:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(found, indent=2) + "\n")
        elif not good:
            failed = True
    if failed:
        print("Slower than the baseline. If intended, run bench/compare.py --store and commit the new baseline.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
