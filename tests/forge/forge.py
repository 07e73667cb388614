"""Write dumps of any size and era from a seed, with the tables that they must give.

A small program is invented (parameters, fusions, copies, loops, a root), placed into allocations
and scheduled; from that follow the tables, and `render` turns the tables into files. What XLA
derives is derived here by its own rules: moment and list of the peak, the tree, the report.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from forge_program import Program, Value, index_text
from render import human, render

Row = dict[str, Any]


@dataclass(frozen=True)
class Era:
    """What one generation of releases prints."""

    name: str
    values: Literal["e0", "e1", "e2"] = "e2"
    address: bool = False
    human_total: bool = True
    from_instruction: bool = True
    blank: bool = True
    glued: bool = False
    operand_shapes: bool = False
    live: Literal["", "inline", "split"] = "inline"
    peak: Literal["a", "b", "c"] = "a"
    tree: bool = False
    report: Literal["", "a", "b"] = "a"
    stack_frames: bool = False
    uses_none: bool = False
    page: bool = False
    timestamp: bool = False
    named: bool = True

    @property
    def used_values(self) -> bool:
        return self.values == "e2"

    @property
    def split(self) -> bool:
        return self.live == "split"

    @property
    def cross_color(self) -> bool:
        return self.page


def _eras() -> dict[str, Era]:
    early = {"address": True, "human_total": False, "from_instruction": False, "live": "", "report": ""}
    tf_29 = {"address": True, "blank": False, "operand_shapes": True, "report": ""}
    jax_04 = {"glued": True, "operand_shapes": True}
    tree = {"peak": "c", "tree": True}
    eras = (
        Era("E0", values="e0", named=False, **early),
        Era("E1", values="e1", named=False, **early),
        Era("E2a", named=False, timestamp=True, **early),  # TF 2.3
        Era("E2b", timestamp=True, **{**early, "live": "inline"}),  # TF 2.6
        Era("E2c", **tf_29),  # TF 2.9
        Era("E3", **{**tf_29, "address": False}),  # TF 2.12, jaxlib 0.4.13
        Era("E4", report="", **jax_04),  # jaxlib 0.4.26, TF 2.18
        Era("E4r", **jax_04),  # jaxlib 0.4.35
        Era("E5a"),  # jaxlib 0.5.3
        Era("E5b", peak="b"),  # jaxlib 0.6.0
        Era("E5c", peak="c"),  # jaxlib 0.6.1
        Era("E5d", **tree),  # jaxlib 0.7.1
        Era("E5e", stack_frames=True, **tree),  # jaxlib 0.8.2
        Era("E5f", stack_frames=True, report="b", **tree),  # jaxlib 0.9.2
        Era("E6", live="split", stack_frames=True, report="b", **tree),  # jaxlib 0.10.0
        Era("E6b", live="split", stack_frames=True, report="b", uses_none=True, **tree),  # jaxlib 0.10.2
        Era("E7", live="split", stack_frames=True, report="b", uses_none=True, page=True, **tree),
    )
    named = {era.name: era for era in eras}
    return named | {"E2": named["E2c"], "E5": named["E5d"]}


ERAS = _eras()

SUFFIX = {"cpu": "cpu_after_optimizations", "gpu": "sm_9.0a_gpu_after_optimizations", "tpu": "after_optimizations"}
SPACE_LABELS = {0: "default", 1: "vmem", 2: "smem", 3: "hbm", 4: "host", 5: "cmem"}


@dataclass(frozen=True)
class Forged:
    """A forged dump: its tables, and its files written from them."""

    era: Era
    platform: str
    tables: dict[str, list[Row]]
    hlo: bytes

    @cached_property
    def files(self) -> dict[str, bytes]:
        """role -> bytes."""
        return {**render(self.tables), "hlo": self.hlo}

    def write(self, directory: Path, stem: str | None = None) -> list[Path]:
        """Write the files under the names that XLA gives them."""
        stem = stem or stem_of(self.era, self.platform)
        paths = []
        for role, content in self.files.items():
            path = Path(directory) / (f"{stem}.txt" if role == "hlo" else f"{stem}-{role}.txt")
            path.write_bytes(content)
            paths.append(path)
        return paths


def stem_of(era: Era, platform: str, module_id: int = 0) -> str:
    """File name without `-buffer-assignment.txt` and its siblings."""
    parts = ["1795176055098587"] * era.timestamp + [f"module_{module_id:04d}"] + ["jit_forged"] * era.named
    suffix = SUFFIX[platform] if era.used_values else "after_optimizations"
    return ".".join([*parts, *["cl_1004524046"] * (platform == "tpu"), suffix])


def forge(
    seed: int,
    *,
    era: str = "E7",
    values: int = 200,
    platform: Literal["cpu", "gpu", "tpu"] = "tpu",
    wide: int = 0,
    hostile: bool = False,
) -> Forged:
    """A consistent dump with about that many values; `wide` adds a tuple parameter of so many leaves."""
    program = Program(ERAS[era], platform, random.Random(f"{seed}/{era}/{platform}"), hostile)
    program.grow(values, wide)
    forged = Forged(program.era, platform, tables_of(program), _hlo(program))
    for row in forged.tables["files"]:
        row["bytes"] = len(forged.files[row["role"]])
    return forged


# ---------------------------------------------------------------- tables


def tables_of(p: Program, *, used_values: bool = True) -> dict[str, list[Row]]:
    """Every table of a program; without positions, uses and instructions where speed matters."""
    era: Era = p.era
    ranged = sorted((v for v in p.values if v.start is not None), key=lambda v: v.id) if era.live else []
    moment, peak = peak_of(ranged, era)
    tables: dict[str, list[Row]] = {
        "allocations": p.allocations,
        "values": [_value_row(p, v) for v in sorted(p.values, key=lambda v: (v.allocation, v.id))],
        "cross_color": p.cross_color,
        "positions": [],
        "uses": [],
        "instructions": [],
        "schedule": [],
        "live_ranges": [],
        "printed_peak": [],
        "printed_stack": tree_of(peak) if era.tree else [],
        "printed_report": [],
        "frames": p.frames,
        "aliases": p.aliases,
        "flags": [],
        "diagnostics": [],
    }
    if era.values != "e0" and used_values:
        ordered = p.values if era.used_values else sorted(p.values, key=lambda v: (v.allocation, v.id))
        for v in sorted(ordered, key=lambda v: v.id) if era.used_values else ordered:
            for i, (name, index) in enumerate(v.positions):
                row = {"value_id": v.id, "ordinal": i, "instruction": name, "shape_index": index}
                tables["positions"].append(row)
            for i, (name, operand, index) in enumerate(v.uses):
                row = {"value_id": v.id, "ordinal": i, "instruction": name, "operand": operand}
                tables["uses"].append(row | {"operand_shape_index": index})
    if era.from_instruction and used_values:
        seen = dict.fromkeys(v.instruction for v in sorted(p.values, key=lambda v: v.id))
        tables["instructions"] = [p.instructions[name] for name in seen]
    if era.live:
        tables["schedule"] = [{"time": t, "instruction": name} for t, name in enumerate(p.schedule)]
        for v in ranged:
            index = None if v.index is None else index_text(v.index)
            row = {"value_id": v.id, "instruction": v.instruction, "shape_index": index}
            tables["live_ranges"].append(row | {"start": v.start, "end": v.end, "attributes": None})
        running = 0
        for i, v in enumerate(peak):
            size = v.whole.bytes if era.peak == "a" else v.shape.bytes
            running += size
            row = {
                "ordinal": i,
                "instruction": v.instruction,
                "shape_index": None if era.peak == "a" or v.index is None else index_text(v.index),
                "bytes": size,
                "cumulative": running if era.peak == "c" else None,
            }
            tables["printed_peak"].append(row)
    if era.report:
        tables["printed_report"] = report_of(p)
    _modules(p, tables, moment)
    return tables


def _value_row(p: Program, v: Value) -> Row:
    return {
        "value_id": v.id,
        "instruction": v.instruction,
        # E0 always prints an index, later releases only where the shape is a tuple.
        "shape_index": None if v.index is None and p.era.values != "e0" else index_text(v.index or ()),
        "is_phi": v.is_phi and p.era.values != "e0",
        "color": v.color,
        "allocation": v.allocation,
        "offset": v.offset,
        "size": v.size,
        "shape": v.shape.text(),
        "element_type": v.shape.type,
        "unpadded_size": v.shape.bytes,
        "uses_known": True if p.era.values == "e1" else v.uses_known if p.era.used_values else None,
        "attributes": None,
    }


def peak_of(ranged: list[Value], era: Era) -> tuple[int, list[Value]]:
    """XLA's moment (all starts of a step before all ends; whole instruction shapes) and its list."""
    change: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for v in ranged:
        change[v.start][0] += v.whole.bytes
        change[v.end + 1][1] -= v.whole.bytes
    moment = best = now = 0
    for time in sorted(change):
        now += change[time][0]
        if now > best:
            moment, best = time, now
        now += change[time][1]
    peak = [v for v in ranged if v.start <= moment <= v.end]
    if era.peak == "c":
        peak = [v for v in peak if v.shape.bytes]
        peak.sort(key=lambda v: (-v.shape.bytes, v.instruction, v.index or ()))
    return moment, peak


def tree_of(peak: list[Value]) -> list[Row]:
    """The tree of a peak list: labels nested, children by size, `remaining` running down to 0."""
    nodes: dict[tuple[str, ...], list[int]] = {}  # path -> [total, current]
    for v in peak:
        for depth in range(1, len(v.label) + 1):
            nodes.setdefault(v.label[:depth], [0, 0])[0] += v.shape.bytes
        nodes[v.label][1] += v.shape.bytes
    children = defaultdict(list)
    for path, (total, _) in nodes.items():
        if total:
            children[path[:-1]].append((-total, path))
    whole = sum(v.shape.bytes for v in peak)
    rows: list[Row] = []
    left = whole
    stack = sorted(children[()], reverse=True)
    while stack:
        _, path = stack.pop()
        total, current = nodes[path]
        left -= current
        row = {"ordinal": len(rows), "depth": len(path) - 1, "label": path[-1], "percent": f"{100 * total / whole:.1f}"}
        rows.append(row | {"total": total, "current": current, "remaining": left})
        stack.extend(sorted(children[path], reverse=True))
    return rows


# ---------------------------------------------------------------- report

REPORT_ROW = dict.fromkeys((
    "ordinal", "part", "color", "space_label", "total_bytes", "allocation", "cumulative", "percent", "size",
    "remaining", "offset", "n_values", "n_rest", "shapes",
))  # fmt: skip


def report_of(p: Program) -> list[Row]:
    """The rows of the memory-usage report, in the layout of the era."""
    held = defaultdict(list)
    for v in p.values:
        held[v.allocation].append(v)
    ordered = sorted(p.allocations, key=lambda a: (-a["size"], a["allocation"]))
    rows: list[Row] = []
    if p.era.report == "a":
        total = sum(a["size"] for a in ordered)
        base = REPORT_ROW | {"total_bytes": total}
        running = 0
        for i, a in enumerate(ordered, 1):
            running += a["size"]
            row = base | {"part": "list", "allocation": a["allocation"], "cumulative": human(running)}
            row |= {"percent": percent(running, total), "size": human(a["size"]), "remaining": human(total - running)}
            rows.append(row)
            if _cut(i, running, total):
                rows.append(base | {"part": "rest", "n_rest": len(ordered) - i})
                break
        for a in ordered:
            here = base | {"allocation": a["allocation"]}
            values = held[a["allocation"]]
            head = {"part": "table", "size": human(a["size"]), "n_values": 1 if len(values) == 1 else None}
            rows.append(here | head)
            if len(values) != 1:
                rows.extend(_table_rows(here, values))
    else:
        for color in sorted({a["color"] for a in ordered}):
            space = [a for a in ordered if a["color"] == color]
            total = sum(a["size"] for a in space)
            base = REPORT_ROW | {"color": color, "space_label": SPACE_LABELS.get(color, f"color_{color}")}
            base |= {"total_bytes": total}
            running = 0
            for i, a in enumerate(space, 1):
                running += a["size"]
                rows.append(base | {"part": "table"})
                rows.extend(_table_rows(base, held[a["allocation"]]))
                if _cut(i, running, total):
                    break
    return [row | {"ordinal": i} for i, row in enumerate(rows)]


def _cut(shown: int, running: int, total: int) -> bool:
    return shown > 50 and (total - running) * 20 < total


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else "-nan"


def _table_rows(base: Row, values: list[Value]) -> Iterable[Row]:
    by_offset = defaultdict(list)
    for v in values:
        by_offset[v.offset].append(v)
    ordered = sorted(by_offset.items(), key=lambda item: -max(v.size for v in item[1]))
    total = sum(max(v.size for v in group) for _, group in ordered)
    running = 0
    for i, (offset, group) in enumerate(ordered, 1):
        size = max(v.size for v in group)
        running += size
        counts: dict[str, int] = defaultdict(int)
        for v in group:
            counts[v.shape.text(layout=False)] += 1
        shapes = sorted(counts.items(), key=lambda item: (item[1], item[0]))
        row = base | {"part": "row", "cumulative": human(running), "percent": percent(running, total)}
        row |= {"size": human(size), "offset": offset, "n_values": len(group)}
        yield row | {"shapes": ", ".join(f"{n}×{text}" if n > 1 else text for text, n in shapes)}
        if _cut(i, running, total):
            yield base | {"part": "rest", "n_rest": len(ordered) - i}
            return


# ---------------------------------------------------------------- modules, files, HLO head


def _modules(p: Program, tables: dict[str, list[Row]], moment: int) -> None:
    era: Era = p.era
    main, values, live, report = set(), set(), set(), set()
    main |= {"address"} if any(a["address"] for a in p.allocations) else set()
    main |= {"page"} if any(a["page"] is not None for a in p.allocations) else set()
    main |= {"cross_color"} if p.cross_color else set()
    if p.values:
        main |= {f"{era.values}_values"} & {"e0_values", "e1_values"}
    if era.used_values:
        values |= {"values_split" if era.split else "values_inline"}
        values |= {"human_total"} if era.human_total else set()
        if p.values and era.from_instruction:
            values |= {"from_instruction"}
            values |= {"from_instruction_blank"} if era.blank else set()
            values |= {"glued"} if era.glued else set()
            values |= {"operand_shapes"} if p.operand_shapes_seen else set()
        values |= {"uses_unknown"} if any(not v.uses_known for v in p.values) else set()
        values |= {"uses_none"} if era.uses_none and any(v.uses_known and not v.uses for v in p.values) else set()
    if era.live:
        live |= {f"live_{era.live}"}
        live |= {f"peak_{era.peak}"} if tables["printed_peak"] else set()
        live |= {"tree"} if era.tree else set()
        nodes = tables["printed_stack"]
        live |= {"tree_spaced"} if any(n["total"] >= 1000 for n in nodes) else set()
    if era.report:
        report |= {f"report_{era.report}"}
    if era.split:
        roles = {"buffer-assignment": main, "buffer-assignment-values": values, "live-range": live}
    else:
        roles = {"buffer-assignment": main | values | live}
    roles |= {"memory-usage-report": report} if era.report else {}
    roles |= {"hlo": {"frames"} if p.frames else set()}
    peak = tables["printed_peak"]
    tables["files"] = [
        {
            "ordinal": i,
            "role": role,
            "uri": f"{stem_of(era, p.platform)}{'' if role == 'hlo' else '-' + role}.txt",
            "bytes": None,
            "content_hash": None,
            "features": ",".join(sorted(features)),
            "complete": True,
        }
        for i, (role, features) in enumerate(roles.items())
    ]
    module = {
        "module_name": "jit_forged",
        "module_id": 0,
        "platform": p.platform,
        "target": "sm_9.0a" if p.platform == "gpu" and era.used_values else None,
        "changelist": 1004524046 if p.platform == "tpu" else None,
        "timestamp_us": 1795176055098587 if era.timestamp else None,
        "features": ",".join(sorted(set().union(*roles.values()))),
        "complete": True,
        "total_bytes": sum(a["size"] for a in p.allocations) if era.used_values else None,
        "schedule_length": len(p.schedule) if era.live else None,
        "printed_peak_time": moment if era.live else None,
        "printed_peak_bytes": sum(row["bytes"] for row in peak) if era.live else None,
    }
    module |= {f"n_{name}": len(rows) for name, rows in tables.items() if name not in ("files", "diagnostics")}
    tables["modules"] = [
        module | {"n_diagnostics": 0, "content_hash": None, "program_fp": None, "interface_fp": None}
    ]


def _hlo(p: Program) -> bytes:
    """The head of the HLO text, and one computation."""
    head = ["HloModule jit_forged", "is_scheduled=true"]
    aliases = [a for a in p.aliases if a["kind"] != "donor"]
    donors = [a for a in p.aliases if a["kind"] == "donor"]
    if aliases:
        texts = (f"{a['output_index']}: ({a['parameter']}, {a['parameter_index']}, {a['kind']})" for a in aliases)
        head.append(f"input_output_alias={{ {', '.join(texts)} }}")
    if donors:
        texts = (f"({d['parameter']}, {d['parameter_index']})" for d in donors)
        head.append(f"buffer_donor={{ {', '.join(texts)} }}")
    lines = [", ".join(head), ""]
    if p.frames:
        lines += p.frame_tables
    lines += ["%region_0.1 (x.9: f32[], y.10: f32[]) -> f32[] {", "}", "", "ENTRY %main.1 () -> () {", "}", ""]
    return "\n".join(lines).encode()
