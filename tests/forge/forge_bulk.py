"""Write record-dense dumps of tens of megabytes, wide and small ones, whose statistics match real ones.

A forged dump is a long program of the texture that a profile describes (`bulk_profiles`): a forward half whose values
are partly kept for the backward half, reducers, donated parameters, asynchronous copies. The profiles are tuned to what
real dumps measure (`bulk_statistics`). `forge_large` makes dumps of any size from it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from bulk_profiles import BARE, COLLECTIVE_CONFIG, COPY_CONFIG, PARTS, PROFILES, SHARDING
from forge import ERAS, Era, Row, stem_of, tables_of
from forge_program import Handle, Program, Shape, Value, commas, escape, index_text
from render import Dump, render_dump


class BulkProgram(Program):
    """A long program of a given texture; texts are made at once, not as rows."""

    def __init__(self, era: Era, platform: str, rng: random.Random, profile: str | None = None):
        super().__init__(era, platform, rng, hostile=False)
        self.profile, self._backward = PROFILES[profile or platform], False
        self.reducer_name = self._op_name(10, "self_attention/reduce_sum")
        self._kept: list[Handle] = []
        self._hot: list[Handle] = []
        self._tuples: dict[tuple[Shape, ...], Shape] = {}
        self._names = list(self.profile.names), list(self.profile.names.values())
        self._operands = list(self.profile.operands), list(self.profile.operands.values())
        p = self.profile
        plain = 1 - p.reducers - 2 * p.parameters - p.copies - p.slices - p.tuples - p.collectives
        self._kinds = {
            "plain": plain,
            "copy": p.copies / 3,
            "slice": p.slices / 4,
            "tuple": p.tuples / 3,
            "collective": p.collectives / 12,
        }
        self._configs = list(p.configs), list(p.configs.values())
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
            tail += f', metadata={{op_name="{escape(op_name)}"{self._origin(opcode)}}}'
        if config := more.get("config", self._config(opcode)):
            tail += f", backend_config={config}" if self.era.blank else f', backend_config="{escape(config)}"'
        return {"opcode": opcode, "text": f"%{name} = {shape.text()} {opcode}({operands}){tail}"}

    def _origin(self, opcode: str) -> str:
        if opcode == "parameter":
            return ""
        if self.era.stack_frames:
            return f" stack_frame_id={1 + len(self.instructions) % 8}"
        return f' source_file="/home/user/model/train.py" source_line={len(self.instructions) % 900}'

    def _config(self, opcode: str) -> str:
        if opcode in ("parameter", "tuple") or self.rng.random() >= self.profile.configured:
            return ""
        return self.rng.choices(*self._configs)[0]

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
            more = {"op_name": op_name, "home": home, "tail": SHARDING}
            (value,) = self.define(name, shape, "parameter", home.split()[1], **more)
            donated.append(Handle(name, value, shape))
        self._ready += donated[-20:]
        self._hot = donated[-150:]
        return donated

    def _body_step(self, depth: int) -> None:
        """One operation; `depth` counts up to the middle of the program and down again."""
        rng, profile = self.rng, self.profile
        op_name = self._op_name(depth // profile.layer, PARTS[rng.randrange(len(PARTS))])
        kind = rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        if kind == "copy":  # out of VMEM in the forward half, back in the backward half
            self._copy_start((int(self._backward),), config=COPY_CONFIG)
            made = [self._ready.pop()]
        elif kind == "slice":
            made = [self._slice_start()]
        elif kind == "collective":
            made = self._collective(op_name)
        else:
            made = self._fusion(op_name, several=kind == "tuple")
        self._ready += made
        if len(self._ready) > 4000:
            del self._ready[:3000]
        if not self._backward and kind != "slice" and rng.random() < profile.kept:
            self._kept.append(made[0])
        if rng.random() < 0.05:
            self._hot = [*self._hot[-150:], made[0]]

    def _op_name(self, layer: int, part: str) -> str:
        if not self.profile.scoped:
            return f"jit(f)/{part.rpartition('/')[2]}"
        scope = f"jvp(decoder/layers_{self.number(layer)})"
        return f"jit(train_step)/{f'transpose({scope})' if self._backward else scope}/{part}"

    def _fusion(self, op_name: str, several: bool) -> list[Handle]:
        rng, color = self.rng, int(self.platform == "tpu")  # VMEM
        base = "fusion" if several else rng.choices(*self._names)[0]
        name, operands = self.fresh(base), self.pick()
        calls = f", kind=kLoop, calls=%fused_computation.{self.number(len(self.instructions))}"
        more = {"tail": calls, "op_name": None if base in BARE else op_name}
        if several:
            shape = self._tuple(*(self.array(color=color) for _ in range(2)))
            places = {(i,): color for i in range(2)}
            values = self.define(name, shape, "fusion", operands, indices=((), *places), colors=places, **more)
            return [self.take_out(values, i) for i in range(2)]
        shape = self.array(color=color)
        (value,) = self.define(name, shape, "fusion", operands, colors={(): color}, **more)
        if rng.random() >= self.profile.bitcasts:
            return [Handle(name, value, shape)]
        other = self.fresh("bitcast")
        self.step(other)
        self.use(Handle(name, value, shape), other, 0)
        value.positions.append((other, None))
        return [Handle(other, value, shape)]

    def _slice_start(self) -> Handle:
        """An asynchronous copy of a slice: the target is a value of the slice, the source is no new value."""
        (operand, *_), target = self.pick(), self.array(color=1)
        flag = self.array(color=2, element="s32", dims=())
        ranges = f", slice={{{', '.join(f'[0:{d}]' for d in target.dims)}}}"
        inner, name, done = self.fresh("slice"), self.fresh("slice-start"), self.fresh("slice-done")
        argument = f"%param_0.{self.number(len(self.instructions))}"
        (piece,) = self.define(inner, target, "slice", argument, colors={(): 1}, tail=ranges)
        shape = Shape("tuple", parts=(Shape("tuple", parts=(operand.shape,)), target, flag))
        more = {"colors": {(2,): 2}, "tail": ranges, "config": COPY_CONFIG}
        values = self.define(name, shape, "slice-start", [operand], indices=((), (0,), (2,)), **more)
        time = self.step(done)
        for value in (*values, piece):
            value.uses.append((done, 0, "{1}" if value is piece else index_text(value.index)))
            value.end = time
        operand.value.positions.append((name, "{0,0}"))
        operand.value.uses.append((done, 0, "{0,0}"))
        piece.positions += [(name, "{1}"), (done, None)]
        return Handle(done, piece, target)

    def _collective(self, op_name: str) -> list[Handle]:
        """A fusion that carries an asynchronous collective along: a long tuple, repeated for each element."""
        rng, arrays = self.rng, [self.array(color=1) for _ in range(4)]
        state = [Shape("s32", ("2",), "{0:S(4)}"), *[self.array(color=2, element="u32", dims=())] * 6]
        shape = self._tuple(*arrays, *state)
        places = {(i,): 1 if i < 4 else 4 if i == 4 else 2 for i in range(11)}
        aliases = ", ".join(f"{{{i + 1}}}: ({i}, {{}})" for i in range(10))
        calls = f"calls=%async_collective_fusion.{self.number(len(self.instructions))}"
        more = {
            "tail": f", kind=kOutput, output_to_operand_aliasing={{{aliases}}}, {calls}",
            "config": COLLECTIVE_CONFIG,
            "op_name": op_name if rng.random() < 0.25 else None,
        }
        name, operands = self.fresh("fusion"), self._ready[-11:]
        values = self.define(name, shape, "fusion", operands, indices=((), *places), colors=places, **more)
        return [self.take_out(values, i) for i in range(11)]

    def _tuple(self, *parts: Shape) -> Shape:
        return self._tuples.setdefault(parts, Shape("tuple", parts=parts))

    def _root_of(self, donated: list[Handle]) -> None:
        """Every parameter is updated in place; the root holds all of them."""
        outputs = []
        for i, handle in enumerate(donated):
            name = self.fresh("multiply_add_fusion")
            more = {
                "tail": f", kind=kLoop, calls=%fused_computation.{self.number(len(self.instructions))}",
                "op_name": self._op_name(i // 18, "mlp/dot_general"),
            }
            (value,) = self.define(name, handle.shape, "fusion", [handle, self._ready[-1]], **more)
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
