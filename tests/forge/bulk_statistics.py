"""What decides how fast a dump reads, measured on real ones, and how far a forged one is from them.

`MEASURED` is what `statistics` says of large training steps: one compiled for the CPU (4,904 values, 3.4 MB), and two
for a TPU v5e by `bench/program.py`, 48 layers unrolled and 24 sharded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

MEASURED = {
    "cpu": {
        "bytes_per_value": 697.3,
        "values_per_allocation": 2.631,
        "positions_per_value": 1.139,
        "uses_per_value": 3.321,
        "array_share": 0.9998,
        "instruction_bytes_per_value": 263.2,
        "instruction_share": 0.5599,
        "instructions_per_value": 1,
        "distinct_names_per_mention": 0.1868,
        "name_length": 18.15,
        "suffixed_share": 0.9932,
        "steps_per_value": 0.761,
        "ranges_per_value": 0.7408,
        "peak_lines_per_value": 0.2847,
        "tree_lines_per_value": 0.2331,
        "report_lines_per_value": 0.3128,
        "repeated_share": 0,
        "asynchronous_share": 0,
        "long_tuple_share": 0.03874,
        "operands_per_instruction": 3.836,
        "config_share": 0.4611,
        "config_length": 49.21,
        "op_name_share": 0.9592,
        "op_name_length": 54.87,
        "line_length_buffer-assignment": 77.02,
        "line_length_buffer-assignment-values": 54.98,
        "line_length_live-range": 49.7,
        "line_length_memory-usage-report": 66.01,
    },
    "tpu": {
        "bytes_per_value": 657.8,
        "values_per_allocation": 13.15,
        "positions_per_value": 1.768,
        "uses_per_value": 1.785,
        "array_share": 0.2599,
        "instruction_bytes_per_value": 305.9,
        "instruction_share": 0.655,
        "instructions_per_value": 0.5028,
        "distinct_names_per_mention": 0.1982,
        "name_length": 14.87,
        "suffixed_share": 0.9995,
        "steps_per_value": 0.8615,
        "ranges_per_value": 0.9593,
        "peak_lines_per_value": 0.06835,
        "tree_lines_per_value": 0.06786,
        "report_lines_per_value": 0.13,
        "repeated_share": 0.4954,
        "asynchronous_share": 0.4289,
        "long_tuple_share": 0.02316,
        "operands_per_instruction": 1.589,
        "config_share": 0.8761,
        "config_length": 137.4,
        "op_name_share": 0.2781,
        "op_name_length": 44.99,
        "line_length_buffer-assignment": 107.5,
        "line_length_buffer-assignment-values": 61.72,
        "line_length_live-range": 34.38,
        "line_length_memory-usage-report": 59.71,
    },
    "sharded": {
        "bytes_per_value": 1038,
        "values_per_allocation": 12.16,
        "positions_per_value": 1.711,
        "uses_per_value": 1.655,
        "array_share": 0.1496,
        "instruction_bytes_per_value": 697.8,
        "instruction_share": 0.8124,
        "instructions_per_value": 0.3091,
        "distinct_names_per_mention": 0.2019,
        "name_length": 18.25,
        "suffixed_share": 0.999,
        "steps_per_value": 0.8206,
        "ranges_per_value": 0.9391,
        "peak_lines_per_value": 0.03502,
        "tree_lines_per_value": 0.03487,
        "report_lines_per_value": 0.08407,
        "repeated_share": 0.8137,
        "asynchronous_share": 0.3397,
        "long_tuple_share": 0.1977,
        "operands_per_instruction": 2.794,
        "config_share": 0.8003,
        "config_length": 186.8,
        "op_name_share": 0.4786,
        "op_name_length": 52.44,
        "line_length_buffer-assignment": 102.5,
        "line_length_buffer-assignment-values": 115.9,
        "line_length_live-range": 33.99,
        "line_length_memory-usage-report": 68.17,
    },
}
"""`statistics` of the three real dumps: what a forged one comes near (within 15 %), whatever its size."""
MEASURED["small"] = {
    "bytes_per_value": 697.7,
    "values_per_allocation": 1.745,
    "positions_per_value": 1.429,
    "uses_per_value": 1.364,
    "array_share": 0.5455,
    "instruction_bytes_per_value": 227.7,
    "instructions_per_value": 0.7273,
    "distinct_names_per_mention": 0.253,
    "name_length": 11.67,
    "steps_per_value": 0.7574,
    "ranges_per_value": 0.8762,
    "peak_lines_per_value": 0.2381,
    "report_lines_per_value": 2.654,
    "asynchronous_share": 0.1,
    "operands_per_instruction": 1.404,
    "config_share": 0.5544,
    "config_length": 116.1,
    "op_name_share": 0.6154,
    "op_name_length": 21.3,
    "line_length_buffer-assignment": 74.02,
    "line_length_buffer-assignment-values": 50.1,
    "line_length_live-range": 38.43,
    "line_length_memory-usage-report": 52.76,
}
"""Medians of 50 small TPU dumps (15 to 60 KB in four files); they differ among each other, so 40 % is near enough."""
MEASURED["wide"] = {"bytes_per_leaf": 56.4, "repeated_share": 0.92}
"""The text of a real tuple parameter of 2,500 leaves; its share of the 395 MB values file of another."""
TOLERANCE = {"small": 0.4}
"""How far, as a share, a statistic of a forged dump may be from the measured one; 15 % if not named here."""


def misfits(found: Mapping[str, float], kind: str) -> dict[str, tuple[float, float]]:
    """The statistics that are too far from those of real dumps: (found, measured). Empty if all is well."""
    near = TOLERANCE.get(kind, 0.15)
    return {
        name: (found[name], wanted)
        for name, wanted in MEASURED[kind].items()
        if abs(found[name] - wanted) > max(near * wanted, 0.02)
    }


RECORD = re.compile(
    r"^<\d+ ([\w.-]+)(\{[\d,]*\})?(?: \(phi\))?(?: @-?\d+)?>\n positions:\n((?:  .+\n)+)"
    r"(?: uses:\n((?:  .+\n)*)| uses are not initialized yet\.\n)(?: from instruction: ?(.+)\n)?",
    re.MULTILINE,
)


def statistics(paths: Iterable[Path]) -> dict[str, float]:
    """What decides how fast a split dump (E6, E7) reads: texture, not content."""
    text = {}
    for path in paths:
        for role in ("buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report"):
            if str(path).endswith(f"-{role}.txt"):
                text[role] = Path(path).read_text("utf-8")
    allocations, values = text["buffer-assignment"], text["buffer-assignment-values"]
    live, report = text["live-range"], text["memory-usage-report"]
    n = positions = uses = indexed = printed = suffixed = 0
    names: Counter[str] = Counter()
    texts: dict[str, str] = {}  # by defining instruction
    for name, index, position_lines, use_lines, instruction in RECORD.findall(values):
        n += 1
        indexed += bool(index)
        printed += len(instruction)
        texts.setdefault(name, instruction)
        names[name] += 1
        where = position_lines.split("\n")[:-1]
        positions += len(where)
        names.update(line.split(" ", 3)[2] for line in where)
        readers = use_lines.split("\n")[:-1] if use_lines != "  (none)\n" else []
        uses += len(readers)
        names.update(line[2 : line.index(",")] for line in readers)
    suffixed = sum(1 for name in names if name.rpartition(".")[2].isdigit())
    at = [live.index(f"  {head}") for head in ("BufferLiveRange:", "Live ranges at", "Stack trace breakdown")]
    schedule, ranges, peak, tree = (live[a:b] for a, b in zip([0, *at], [*at, None], strict=True))
    result = {
        "bytes_per_value": sum(map(len, text.values())) / n,
        "values_per_allocation": n / allocations.count("\nallocation "),
        "positions_per_value": positions / n,
        "uses_per_value": uses / n,
        "array_share": 1 - indexed / n,
        "instruction_bytes_per_value": printed / n,
        "instruction_share": printed / len(values),
        "instructions_per_value": len(texts) / n,
        "distinct_names_per_mention": len(names) / names.total(),
        "name_length": sum(map(len, names)) / len(names),
        "suffixed_share": suffixed / len(names),
        "steps_per_value": schedule.count("\n") / n,
        "ranges_per_value": ranges.count("\n") / n,
        "peak_lines_per_value": peak.count("\n") / n,
        "tree_lines_per_value": tree.count("\n") / n,
        "report_lines_per_value": report.count("\n") / n,
    }
    result |= _instruction_statistics(list(texts.values()), printed)
    return result | {f"line_length_{role}": len(body) / body.count("\n") for role, body in text.items()}


def _instruction_statistics(texts: list[str], printed: int) -> dict[str, float]:
    """The same for instructions, each counted once; `printed` counts their bytes as often as they are repeated."""
    configs, op_names = (
        [found[1] for text in texts if (found := re.search(pattern, text))]
        for pattern in (r"backend_config=(.+)", r'op_name="((?:[^"\\]|\\.)*)"')
    )
    n = len(texts)
    return {
        "repeated_share": 1 - sum(map(len, texts)) / printed,
        "asynchronous_share": sum("-start(" in text for text in texts) / n,
        "long_tuple_share": sum("/*index=" in text for text in texts) / n,
        "operands_per_instruction": sum(text.count("%") - 1 for text in texts) / n,
        "config_share": len(configs) / n,
        "config_length": sum(map(len, configs)) / max(1, len(configs)),
        "op_name_share": len(op_names) / n,
        "op_name_length": sum(map(len, op_names)) / max(1, len(op_names)),
    }


def wide_statistics(paths: Iterable[Path]) -> dict[str, float]:
    """What decides how fast a dump with a huge tuple parameter reads; needs no more memory than its longest line."""
    total = 0
    long: Counter[tuple[int, int]] = Counter()  # (bytes, leaves) of a line
    for path in paths:
        if str(path).endswith("-buffer-assignment-values.txt"):
            with open(path, "rb") as file:
                for line in file:
                    total += len(line)
                    if len(line) > 10_000:
                        long[len(line), line.count(b"[8,128]")] += 1
    (length, leaves), _ = long.most_common(1)[0]
    repeated = sum(n * size for (size, k), n in long.items() if abs(k - leaves) < 2)
    return {"bytes_per_leaf": length / leaves, "repeated_share": repeated / total}
