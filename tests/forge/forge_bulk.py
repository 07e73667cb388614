"""Write record-dense dumps of tens of megabytes, wide and small ones, whose statistics match real ones.

`MEASURED` is what `statistics` says of two large unrolled training steps, one compiled for the
CPU (4,904 values, 3.4 MB) and one for a TPU v5e (3,369 values, 2.3 MB); `PROFILES` are tuned to
it. A forged dump is a longer program of the same texture: a forward half whose values are partly kept
for the backward half, reducers, donated parameters, asynchronous copies. `forge_large` makes dumps of any size
from it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from forge import ERAS, Era, Row, stem_of, tables_of
from forge_program import Handle, Program, Shape, Value, commas, escape, index_text
from render import Dump, render_dump


@dataclass(frozen=True)
class Profile:
    """The mix of one kind of program, as shares of its values unless said otherwise."""

    bytes_per_value: float  # over all four files
    reducers: float  # thread-local
    parameters: float  # each donated to an output
    copies: float  # in asynchronous copies: three values, two steps
    tuples: float  # in fusions of several outputs: four values, four steps
    kept: float  # of the forward values: needed by the backward half
    copy_config: str
    configured: float  # of the array values: carry a backend_config
    bitcasts: float  # of the array values: have a second name
    big_parameters: float  # of the parameters: make up nearly all of the bytes
    big_arrays: float  # of the array values: likewise
    names: dict[str, int]  # base -> weight
    operands: dict[int, int]  # number of operands of a fusion -> weight
    layer: int  # array values per layer
    config: str


PROFILES = {
    "cpu": Profile(
        bytes_per_value=697,
        reducers=0.26,
        parameters=0.119,
        copies=0.0,
        tuples=0.0,
        kept=0.6,
        copy_config="",
        configured=0.75,
        bitcasts=0.03,
        big_parameters=0.6,
        big_arrays=0.3,
        names={
            "ynn_fusion": 27, "multiply_add_fusion": 13, "copy_bitcast_fusion": 9, "divide_subtract_fusion": 7,
            "copy": 6, "transpose_copy_fusion": 4, "dot": 4, "multiply_bitcast_fusion": 3, "reduce_max": 3,
        },
        operands={1: 25, 2: 35, 3: 20, 4: 12, 7: 5, 95: 4},
        layer=80,
        config='{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}',
    ),
    "tpu": Profile(
        bytes_per_value=685,
        reducers=0.144,
        parameters=0.066,
        copies=0.426,
        tuples=0.19,
        kept=0.65,
        copy_config='{"flag_configs":[],"scoped_memory_configs":[],"used_scoped_memory_configs":[],"dma_priority":1}',
        configured=0.8,
        bitcasts=0.5,
        big_parameters=0.75,
        big_arrays=0.5,
        names={"fusion": 40, "subtract_convert_fusion": 7, "convert_reduce_fusion": 5, "copy": 10, "reduce_sum": 9},
        operands={1: 15, 2: 35, 3: 25, 4: 15, 7: 10},
        layer=80,
        config='{"flag_configs":[],"scoped_memory_configs":[],"used_scoped_memory_configs":[],'
        '"output_memory_space_colors":[],"aliasing_operands":{"lists":[]}}',
    ),
}  # fmt: skip
PARTS = [
    f"{block}/{op}"
    for block in ("attn", "mlp", "norm", "jit(gelu)")
    for op in (
        "dot_general", "mul", "add", "tanh", "reduce_sum", "sub", "div", "transpose", "broadcast_in_dim",
        "convert_element_type",
    )
]  # fmt: skip
PROFILES["gpu"] = PROFILES["cpu"]
PROFILES["small"] = replace(
    PROFILES["tpu"],
    reducers=0.12,
    parameters=0.22,
    copies=0.3,
    tuples=0.1,
    kept=1.0,
    configured=0.5,
    names={"fusion": 40, "subtract_fusion": 7, "add_fusion": 5, "copy": 10, "reduce_sum": 9},
    operands={1: 50, 2: 40, 3: 10},
)
"""Of TPU programs of some fifty values."""


class BulkProgram(Program):
    """A long program of a given texture; texts are made at once, not as rows."""

    def __init__(self, era: Era, platform: str, rng: random.Random, profile: str | None = None):
        super().__init__(era, platform, rng, hostile=False)
        self.profile = PROFILES[profile or platform]
        self._backward = False
        self._kept: list[Handle] = []
        self._hot: list[Handle] = []
        self._tuples: dict[tuple[Shape, ...], Shape] = {}
        self._names = list(self.profile.names), list(self.profile.names.values())
        self._operands = list(self.profile.operands), list(self.profile.operands.values())
        plain = 1 - self.profile.reducers - 2 * self.profile.parameters - self.profile.copies - self.profile.tuples
        self._kinds = (plain, self.profile.copies / 3, self.profile.tuples / 4)
        big, small = ((512, 2304), (4, 128, 1024), (512, 512), (1024, 768)), ((512,), (4, 128), (128, 3), (64,))
        types = ("f32", "bf16") if platform == "tpu" else ("f32",)
        every = [(t, d) for group in (big, small) for d in group for t in types]
        self._shapes = {c: [self.array(element=t, dims=d, color=c) for t, d in every] for c in (0, 1)}
        share = self.profile.big_arrays
        self._weights = [share] * (len(every) // 2) + [1 - share] * (len(every) // 2)

    def array(self, *, color: int = 0, element: str | None = None, dims: Iterable[int] | None = None) -> Shape:
        if dims is not None:
            return super().array(color=color, element=element, dims=dims)
        return self.rng.choices(self._shapes[color], self._weights)[0]

    def _row(
        self, name: str, shape: Shape, opcode: str, operands: list[Handle] | str, op_name: str | None, **more: str
    ) -> Row:
        if not isinstance(operands, str):
            shapes = self.era.operand_shapes
            self.operand_shapes_seen |= shapes and bool(operands)
            operands = commas([f"{h.shape.text()} %{h.name}" if shapes else f"%{h.name}" for h in operands])
        tail = more.get("tail", "")
        if sharding := more.get("sharding"):
            tail += f", sharding={sharding}"
        if op_name is not None:
            if self.era.stack_frames:
                origin = f"stack_frame_id={1 + len(self.instructions) % 8}"
            else:
                origin = f'source_file="/home/user/model/train.py" source_line={len(self.instructions) % 900}'
            tail += f', metadata={{op_name="{op_name}" {origin}}}'
        if config := more.get("config"):
            tail += f", backend_config={config}" if self.era.blank else f', backend_config="{escape(config)}"'
        return {"opcode": opcode, "text": f"%{name} = {shape.text()} {opcode}({operands}){tail}"}

    def pick(self, most: int = 4) -> list[Handle]:
        """Operands: the last results, in the backward half also what the forward half kept."""
        rng, ready = self.rng, self._ready
        count = rng.choices(*self._operands)[0]
        if count > 50:
            # A few wide fusions read what everything reads.
            return rng.sample(self._hot, min(len(self._hot), rng.randint(count // 2, 3 * count // 2)))
        picked = [ready[-1 - min(int(rng.expovariate(0.2)), len(ready) - 1)] for _ in range(count)]
        if self._backward and self._kept:
            picked[0] = self._kept.pop()
        return picked

    def grow(self, count: int, wide: int) -> None:
        donated = self._begin(count, wide)
        body = count - len(self.values) - len(donated) - 1
        first, done = len(self.values), 0
        while done < body:
            self._backward = done > body // 2
            self._body_step(min(done, body - done))
            done = len(self.values) - first
        self._root_of(donated)
        self._place()

    def _begin(self, count: int, wide: int) -> list[Handle]:
        """Reducers and parameters of a program of `count` values; the parameters."""
        profile, rng = self.profile, self.rng
        if self.era.stack_frames:
            self._make_frames()
        for _ in range(round(count * profile.reducers / 3)):
            self._reducer()
        if wide:
            self._wide(wide)
        donated = []
        for i in range(round(count * profile.parameters)):
            layer, number = divmod(i, 18)
            big = rng.random() < profile.big_parameters
            shape = self.array(element="f32", dims=(512, 2048) if big else (256,))
            which, key, at = "pmv"[number % 3], f"w{number // 3}", self.number(layer)
            op_name = f"{which}['layers'][{at}]['{key}']"
            name, home = f"{which}__layers___{at}___{key}__.1", f"parameter {i + bool(wide)}"
            (value,) = self.define(name, shape, "parameter", home.split()[1], op_name=op_name, home=home)
            donated.append(Handle(name, value, shape))
        self._ready += donated[-20:]
        self._hot = donated[-150:]
        return donated

    def _body_step(self, depth: int) -> None:
        """One operation; `depth` counts up to the middle of the program and down again."""
        rng, profile = self.rng, self.profile
        scope = "transpose(jvp(layer_{}))" if self._backward else "jvp(layer_{})"
        layer = scope.format(self.number(depth // profile.layer))
        part = PARTS[rng.randrange(len(PARTS))]
        op_name = f"jit(train_step_single_l12_d256_t128)/{layer}/{part}"
        kind = rng.choices(range(3), self._kinds)[0]
        if kind == 1:
            self._copy_start((1,), config=profile.copy_config)
            return
        base = rng.choices(*self._names)[0]
        name, operands = self.fresh(base), self.pick()
        calls = f", kind=kLoop, calls=%fused_computation.{self.number(len(self.instructions))}"
        config = profile.config if rng.random() < profile.configured else ""
        color = int(self.platform == "tpu")  # VMEM
        more = {"tail": calls, "config": config, "op_name": op_name}
        if kind == 2:
            shape = self._tuple(*(self.array(color=color) for _ in range(3)))
            places = {(i,): color for i in range(3)}
            values = self.define(name, shape, "fusion", operands, indices=((), *places), colors=places, **more)
            made = [self.take_out(values, i) for i in range(3)]
        else:
            shape = self.array(color=color)
            (value,) = self.define(name, shape, "fusion", operands, colors={(): color}, **more)
            made = [Handle(name, value, shape)]
            if rng.random() < profile.bitcasts:
                other = self.fresh("bitcast")
                self.step(other)
                self.use(made[0], other, 0)
                value.positions.append((other, None))
                made = [Handle(other, value, shape)]
        self._ready += made
        if len(self._ready) > 4000:
            del self._ready[:3000]
        if not self._backward and rng.random() < profile.kept:
            self._kept.append(made[0])
        if rng.random() < 0.05:
            self._hot = [*self._hot[-150:], made[0]]

    def _tuple(self, *parts: Shape) -> Shape:
        return self._tuples.setdefault(parts, Shape("tuple", parts=parts))

    def _root_of(self, donated: list[Handle]) -> None:
        """Every parameter is updated in place; the root holds all of them."""
        outputs = []
        for handle in donated:
            name = self.fresh("multiply_add_fusion")
            operands = [handle, self._ready[-1]]
            more = {"tail": f", kind=kLoop, calls=%fused_computation.{self.number(len(self.instructions))}"}
            (value,) = self.define(
                name, handle.shape, "fusion", operands, op_name="jit(train_step_single_l12_d256_t128)/add", **more
            )
            value.home = handle.value.home
            handle.value.start = 0
            outputs.append(Handle(name, value, handle.shape))
            self._ready.append(outputs[-1])
        shape = Shape("tuple", parts=tuple(h.shape for h in outputs))
        name = f"tuple.{self.number(1)}"
        (root,) = self.define(name, shape, "tuple", outputs, indices=((),), home="root")
        root.end = len(self.schedule)
        for i, handle in enumerate(outputs):
            handle.value.positions.append((name, index_text((i,))))
            handle.value.end = len(self.schedule)
            row = {"output_index": index_text((i,)), "parameter": int(handle.value.home.split()[1])}
            self.aliases.append(row | {"parameter_index": "{}", "kind": "may-alias"})


class BulkDump(Dump):
    """Positions, uses and texts straight from the program."""

    def __init__(self, program: BulkProgram):
        super().__init__(tables_of(program, used_values=False))
        self._program = program
        self._by_id = {v.id: v for v in program.values}

    def positions(self, value: Row) -> str:
        found: Value = self._by_id[value["value_id"]]
        return "".join(f"  {name}\n" if i is None else f"  {name} {i}\n" for name, i in found.positions)

    def uses(self, value: Row) -> str:
        found: Value = self._by_id[value["value_id"]]
        return "".join(f"  {n}, operand {k}{'' if i is None else ' ' + i}\n" for n, k, i in found.uses)

    def instruction(self, value: Row) -> str:
        return self._program.instructions[value["instruction"]]["text"]


def leaf_bytes(era: Era, platform: str) -> int:
    """What one leaf of the tuple parameter adds to the text that all of them repeat: shape, sharding, two commas."""
    return 17 + 9 * (platform == "tpu") + (23 if era.split else 12) + 8


def forge_files(
    directory: Path,
    *,
    seed: int,
    megabytes: float,
    era: str = "E7",
    platform: Literal["cpu", "gpu", "tpu"] = "tpu",
    wide: int = 0,
    profile: str | None = None,
) -> list[Path]:
    """Write the memory files of one dump of about that size; their paths. `profile` is by default the platform's.

    With `wide` the leaves of a tuple parameter repeat its text; those bytes are part of
    `megabytes`, and the rest of the program shrinks accordingly.
    """
    features = ERAS[era]
    if not features.used_values:
        raise ValueError(f"{era} has no used values")
    program = BulkProgram(features, platform, random.Random(f"bulk/{seed}/{platform}"), profile)
    left = megabytes * 1e6 - wide * wide * leaf_bytes(features, platform) * features.from_instruction
    program.grow(max(20, round(left / program.profile.bytes_per_value)), wide)
    paths = []
    for role, content in render_dump(BulkDump(program)).items():
        path = Path(directory) / f"{stem_of(features, platform)}-{role}.txt"
        path.write_bytes(content)
        paths.append(path)
    return paths


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
        "line_length_live-range": 49.7,
        "line_length_buffer-assignment-values": 54.98,
        "line_length_buffer-assignment": 77.02,
        "line_length_memory-usage-report": 66.01,
    },
    "tpu": {
        "bytes_per_value": 685.1,
        "values_per_allocation": 4.692,
        "positions_per_value": 1.63,
        "uses_per_value": 1.722,
        "array_share": 0.3829,
        "instruction_bytes_per_value": 302.7,
        "instruction_share": 0.6608,
        "instructions_per_value": 0.5803,
        "distinct_names_per_mention": 0.2191,
        "name_length": 15.43,
        "suffixed_share": 0.9947,
        "steps_per_value": 0.81,
        "ranges_per_value": 0.856,
        "peak_lines_per_value": 0.1238,
        "tree_lines_per_value": 0.1196,
        "report_lines_per_value": 0.4598,
        "line_length_memory-usage-report": 81.05,
        "line_length_buffer-assignment-values": 61.89,
        "line_length_buffer-assignment": 96.61,
        "line_length_live-range": 37.92,
    },
}
"""`statistics` of the two real dumps: what a forged one comes near (within 15 %), whatever its size."""
MEASURED["small"] = {
    "bytes_per_value": 697.7,
    "positions_per_value": 1.429,
    "uses_per_value": 1.364,
    "array_share": 0.545,
    "values_per_allocation": 1.745,
    "instruction_bytes_per_value": 227.7,
    "instructions_per_value": 0.727,
    "distinct_names_per_mention": 0.253,
    "name_length": 11.67,
    "steps_per_value": 0.757,
    "ranges_per_value": 0.876,
    "peak_lines_per_value": 0.238,
    "report_lines_per_value": 2.654,
    "line_length_buffer-assignment": 74.02,
    "line_length_buffer-assignment-values": 50.11,
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
    defining = set()
    for name, index, position_lines, use_lines, instruction in RECORD.findall(values):
        n += 1
        indexed += bool(index)
        printed += len(instruction)
        defining.add(name)
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
        "instructions_per_value": len(defining) / n,
        "distinct_names_per_mention": len(names) / names.total(),
        "name_length": sum(map(len, names)) / len(names),
        "suffixed_share": suffixed / len(names),
        "steps_per_value": schedule.count("\n") / n,
        "ranges_per_value": ranges.count("\n") / n,
        "peak_lines_per_value": peak.count("\n") / n,
        "tree_lines_per_value": tree.count("\n") / n,
        "report_lines_per_value": report.count("\n") / n,
    }
    return result | {f"line_length_{role}": len(body) / body.count("\n") for role, body in text.items()}


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
