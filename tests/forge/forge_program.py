"""The program behind a forged dump: instructions, values, schedule and where each value lives."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge import Era

Row = dict[str, Any]
Index = tuple[int, ...]

ALIGNMENT = {"cpu": 64, "gpu": 256, "tpu": 512}
WIDTH = {"pred": 1, "s32": 4, "u32": 4, "f32": 4, "bf16": 2, "f64": 8, "c64": 8, "s64": 8, "s4": 1, "u2": 1, "s8": 1}
SPACES = {
    "tpu": {0: "hbm", 1: "vmem", 2: "sflag", 5: "host"},
    "gpu": {0: "device", 1: "collective", 2: "temp", 5: "host"},
    "cpu": {0: "memory", 5: "host"},
}
MAIN = "main.1"


@dataclass(frozen=True)
class Shape:
    """An array, tuple or other shape; prints itself and knows its bytes."""

    type: str
    dims: tuple[str, ...] = ()
    layout: str = ""
    parts: tuple[Shape, ...] = ()

    def text(self, layout: bool = True) -> str:
        if self.type == "tuple":
            return "(" + commas([part.text(layout) for part in self.parts]) + ")"
        if self.type == "buffer":
            return f"b({self.parts[0].text(layout)})"
        return f"{self.type}[{','.join(self.dims)}]{self.layout if layout else ''}"

    @property
    def bytes(self) -> int:
        if self.type == "tuple":
            return 8 * len(self.parts)
        if self.type == "buffer":
            return self.parts[0].bytes
        if self.type in ("token", "opaque"):
            return 8 * (self.type == "opaque")
        count = 1
        for dim in self.dims:
            count *= int(dim.removeprefix("<="))
        if "E(" in self.layout:
            bits = int(self.layout.split("E(")[1].split(")")[0])
            return (count * bits + 7) // 8
        return count * WIDTH[self.type]

    def at(self, index: Index) -> Shape:
        return self if not index else self.parts[index[0]].at(index[1:])


def commas(items: Iterable[str]) -> str:
    """Items with commas and the `/*index=5*/` that XLA puts before every fifth."""
    return ", ".join(f"/*index={i}*/{x}" if i and i % 5 == 0 else x for i, x in enumerate(items))


def escape(text: str) -> str:
    """C escapes as in metadata; other bytes in octal."""
    plain = {'"': '\\"', "'": "\\'", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        plain.get(c) or (c if 32 <= ord(c) < 127 else "".join(f"\\{b:03o}" for b in c.encode())) for c in text
    )


def index_text(index: Index) -> str:
    return "{" + ",".join(map(str, index)) + "}"


@dataclass(eq=False)
class Value:
    """One dataflow value and where it lives."""

    instruction: str
    index: Index | None
    shape: Shape
    whole: Shape  # of the instruction
    start: int | None = None
    end: int = 0
    is_phi: bool = False
    color: int | None = 0
    label: tuple[str, ...] = ()
    positions: list[tuple[str, str | None]] = field(default_factory=list)
    uses: list[tuple[str, int, str | None]] = field(default_factory=list)
    uses_known: bool = True
    id: int = 0
    allocation: int = -1
    offset: int = 0
    size: int = 0
    home: str = "temp"  # thread, parameter N, constant, output, root, temp


@dataclass(eq=False)
class Handle:
    """A name that later instructions can take as an operand, and the value behind it."""

    name: str
    value: Value
    shape: Shape


class Program:
    """Grows a program and places it; its attributes are what the tables are made from."""

    reducer_name = "jit(step)/reduce_sum"

    def __init__(self, era: Era, platform: str, rng: random.Random, hostile: bool):
        self.era, self.platform, self.rng, self.hostile = era, platform, rng, hostile
        self.values: list[Value] = []
        self.allocations: list[Row] = []
        self.cross_color: list[Row] = []
        self.instructions: dict[str, Row] = {}
        self.schedule: list[str] = []
        self.aliases: list[Row] = []
        self.frames: list[Row] = []
        self.frame_tables: list[str] = []
        self.operand_shapes_seen = False
        self._numbers: dict[str, int] = defaultdict(int)
        self._next_id = 0
        self._scope: tuple[str, ...] = (MAIN,)
        self._ready: list[Handle] = []
        self._outputs: list[Handle] = []

    # -------------------------------------------------------------- pieces

    def fresh(self, base: str) -> str:
        self._numbers[base] += 1
        number = self._numbers[base]
        return f"{base}.{number}" if number > 1 else base

    def number(self, n: int) -> str:
        """A number within a name, as it is printed."""
        return str(n)

    def array(self, *, color: int = 0, element: str | None = None, dims: Iterable[int] | None = None) -> Shape:
        """A random array shape with the layout of the platform."""
        rng = self.rng
        if dims is None:
            rank = rng.choice((0, 1, 2, 2, 2, 3, 4))
            dims = [rng.choice((1, 4, 8, 12, 64, 127, 128, 256, 512)) for _ in range(rank)]
        dims = [str(d) for d in dims]
        element = element or rng.choice(("f32", "f32", "f32", "bf16", "s32", "pred"))
        minor = ",".join(str(i) for i in reversed(range(len(dims))))
        tile = space = ""
        if self.platform == "tpu" and color != 2:
            tile = ("T(128)", "T(512)")[len(dims)] if len(dims) < 2 else "T(8,128)"
            if element == "bf16" and len(dims) > 1:
                tile += "(2,1)"
        if color:
            space = f"S({color})"
        parts = f":{tile}{space}" if tile or space else ""
        return Shape(element, tuple(dims), f"{{{minor}{parts}}}" if minor or parts else "")

    def define(
        self,
        name: str,
        shape: Shape,
        opcode: str,
        operands: list[Handle] | str = "",
        *,
        indices: Iterable[Index | None] = (None,),
        phi: bool = False,
        colors: dict[Index, int] | None = None,
        home: str = "temp",
        op_name: str | None = None,
        scheduled: bool = True,
        **attributes: Any,
    ) -> list[Value]:
        """Add an instruction and the values that it defines."""
        reads = [] if isinstance(operands, str) else operands
        self.instructions[name] = self._row(name, shape, opcode, operands, op_name, **attributes)
        start = self.step(name) if scheduled else None
        for number, handle in enumerate(reads):
            self.use(handle, name, number)
        made = []
        for index in indices:
            own = shape.at(index or ())
            color = (colors or {}).get(index or (), 0)
            label = _label(self._scope, op_name or name, index)
            value = Value(name, index, own, shape, start, start or 0, phi, color, label, id=self._id(), home=home)
            value.positions.append((name, None if index is None else index_text(index)))
            made.append(value)
        self.values += made
        return made

    def step(self, name: str) -> int:
        self.schedule.append(name)
        return len(self.schedule) - 1

    def use(self, handle: Handle, name: str, operand: int) -> None:
        value = handle.value
        index = index_text(value.index) if handle.name == value.instruction and value.index is not None else None
        value.uses.append((name, operand, index))
        if value.start is not None:
            value.end = max(value.end, len(self.schedule) - 1)

    def pick(self, most: int = 4) -> list[Handle]:
        """Some operands: mostly what was made last."""
        ready, rng = self._ready, self.rng
        count = min(len(ready), rng.choice((1, 1, 2, 2, 3, most)))
        return [ready[-1 - min(int(rng.expovariate(0.2)), len(ready) - 1)] for _ in range(count)]

    def take_out(self, values: list[Value], index: int) -> Handle:
        """A get-tuple-element of one leaf: another position of its value."""
        name = self.fresh("get-tuple-element")
        self.step(name)
        leaf = next(v for v in values if v.index == (index,))
        leaf.positions.append((name, None))
        values[0].uses.append((name, 0, index_text(values[0].index)))
        values[0].end = leaf.end = len(self.schedule) - 1
        return Handle(name, leaf, leaf.shape)

    def _id(self) -> int:
        self._next_id += self.rng.choice((1, 1, 1, 1, 2, 7))
        return self._next_id

    def _row(
        self,
        name: str,
        shape: Shape,
        opcode: str,
        operands: list[Handle] | str,
        op_name: str | None,
        *,
        attrs: Iterable[str] = (),
        calls: tuple[str, str] | None = None,
        kind: str | None = None,
        target: str | None = None,
        sharding: str | None = None,
        frontend: str | None = None,
        config: str | None = None,
        meta: str | None = None,
    ) -> Row:
        """The row of `instructions`, and in its `text` the instruction as XLA prints it."""
        era = self.era
        if not isinstance(operands, str):
            self.operand_shapes_seen |= era.operand_shapes and bool(operands)
            operands = commas([f"{h.shape.text()} %{h.name}" if era.operand_shapes else f"%{h.name}" for h in operands])
        printed = list(attrs)
        left = list(attrs)
        if kind:
            printed.append(f"kind={kind}")
        if calls:
            printed.append(f"{calls[0]}={calls[1]}")
        if target:
            printed.append(f'custom_call_target="{escape(target)}"')
        if sharding:
            printed.append(f"sharding={sharding}")
        if frontend:
            printed.append(f"frontend_attributes={frontend}")
            left.append(printed[-1])
        row: Row = dict.fromkeys(("op_type", "op_name", "source_file", "source_line", "stack_frame_id"))
        if op_name is not None:
            row["op_name"] = op_name
            if not era.blank:
                row["op_type"] = opcode.title()
            if era.stack_frames and self.frames:
                row["stack_frame_id"] = self.rng.randint(1, len(self.frames))
            elif not era.stack_frames:
                row |= {"source_file": "/home/user/model/train.py", "source_line": self.rng.randint(1, 900)}
            texts = [f"{k}={_quoted(v)}" for k, v in row.items() if v is not None]
            if meta:
                texts.append(meta)
                left.append(f"metadata={{{meta}}}")
            printed.append(f"metadata={{{' '.join(texts)}}}")
        if config is not None:
            quoted = not era.blank
            printed.append(f'backend_config="{escape(config)}"' if quoted else f"backend_config={config}")
        tail = "".join(f", {text}" for text in printed)
        return {
            "instruction": name,
            "shape": shape.text(),
            "opcode": opcode,
            "operands": operands,
            **row,
            "custom_call_target": target,
            "fusion_kind": kind,
            "called_computations": calls[1].strip("{}") if calls else None,
            "sharding": sharding,
            "backend_config": config,
            "attributes": ", ".join(left) or None,
            "text": f"%{name} = {shape.text()} {opcode}({operands}){tail}",
        }

    # -------------------------------------------------------------- growth

    def grow(self, count: int, wide: int) -> None:
        """Grow to about `count` values and place them."""
        if self.era.stack_frames:
            self._make_frames()
        if count:
            for _ in range(max(1, count // 12)):
                self._reducer()
            self._parameters(max(2, count // 8), wide)
            if self.era.values != "e0":
                self._constant()
            if self.hostile:
                self._hostile()
            self._loop()
            while len(self.values) < count - 2:
                self._operation()
            self._root()
        self._place()

    def _make_frames(self) -> None:
        files, functions = ("/home/user/model/train.py", 'C:\\odd "name".py'), ("<module>", "step.<locals>.fwd")
        self.frame_tables += ["FileNames", *(f'{i} "{escape(f)}"' for i, f in enumerate(files, 1)), ""]
        self.frame_tables += ["FunctionNames", *(f'{i} "{escape(f)}"' for i, f in enumerate(functions, 1)), ""]
        locations, frames = ["FileLocations"], ["StackFrames"]
        for i in range(1, 9):
            file, function, line = i % 2, (i + 1) % 2, 10 * i
            locations.append(
                f"{i} {{file_name_id={file + 1} function_name_id={function + 1} "
                f"line={line} end_line={line + 1} column=4 end_column=9}}"
            )
            parent = i - 1 if i % 4 != 1 else None
            # XLA prints the parent one too high: 1 stands for none.
            frames.append(f"{i} {{file_location_id={i} parent_frame_id={(parent or 0) + 1}}}")
            row = {"id": i, "parent": parent, "file": files[file], "function": functions[function], "line": line}
            self.frames.append(row | {"column": 4, "end_line": line + 1, "end_column": 9})
        self.frame_tables += [*locations, "", *frames, "", ""]

    def _reducer(self) -> None:
        """A sum of two scalars: thread-local, without a step in the schedule."""
        shape = self.array(dims=(), element="f32")
        scope = {"home": "thread", "scheduled": False}
        x, y = (
            Handle(v.instruction, v, shape)
            for i in range(2)
            for v in self.define(self.fresh("reduce_sum"), shape, "parameter", str(i), op_name="reduce_sum", **scope)
        )
        self.define(self.fresh("reduce_sum"), shape, "add", [x, y], op_name=self.reducer_name, **scope)

    def _parameters(self, count: int, wide: int) -> None:
        if wide:
            self._wide(wide)
        for i in range(count):
            number = i + bool(wide)
            shape = self.array(
                element="f32", dims=[self.rng.choice((64, 256, 1000)) for _ in range(self.rng.randint(1, 2))]
            )
            sharding = "{replicated}" if i % 7 == 0 else None
            name = self.fresh(f"params__layers___{i // 8}___w__")
            op_name = f"params['layers'][{i // 8}]['w{i % 8}']"
            extra = {"op_name": op_name, "sharding": sharding, "home": f"parameter {number}"}
            (value,) = self.define(name, shape, "parameter", str(number), **extra)
            self._ready.append(Handle(name, value, shape))

    def _wide(self, leaves: int) -> None:
        """One tuple parameter whose long text each leaf repeats."""
        leaf = self.array(element="f32", dims=(8, 128))
        shape = Shape("tuple", parts=(leaf,) * leaves)
        indices = ((), *((i,) for i in range(leaves)))
        own = "{mesh['x'=1], [{}, {}]}" if self.era.split else "{replicated}"
        sharding = "{" + commas([own] * leaves) + "}"
        name, more = f"arg_tuple.{self.number(1)}", {"home": "parameter 0", "sharding": sharding}
        values = self.define(name, shape, "parameter", "0", indices=indices, **more)
        for i in range(leaves):
            name = self.fresh("get-tuple-element")
            time = self.step(name)
            values[i + 1].positions.append((name, None))
            for value in (values[0], values[i + 1]):
                value.uses.append((name, 0, index_text(value.index)))
                value.end = time
        self._ready.append(Handle(name, values[-1], leaf))

    def _constant(self) -> None:
        shape = self.array(dims=(), element="f32")
        (value,) = self.define(self.fresh("constant"), shape, "constant", "1.5e-05", home="constant")
        self._ready.append(Handle(value.instruction, value, shape))

    def _operation(self) -> None:
        rng = self.rng
        kind = rng.random()
        layer, part = rng.randrange(12), rng.choice(("attn/dot_general", "mlp/tanh", "mlp/mul", "norm/add"))
        op_name = f"jit(step)/jvp(layer_{layer})/{part}"
        if kind < 0.2 and self.platform == "tpu":
            self._copy_start((0, 1, 1), op_name=op_name)
        elif kind < 0.3:
            self._sort(op_name)
        elif kind < 0.4 and self._ready:
            # A bitcast makes no value: the same bytes under another name.
            (handle,) = self.pick()[:1]
            name = self.fresh("bitcast")
            self.step(name)
            self.use(handle, name, 0)
            handle.value.positions.append((name, None))
            self._ready.append(Handle(name, handle.value, self.array()))
        elif kind < 0.5:
            self._array("copy", "copy", self.pick()[:1], op_name=op_name)
        elif kind < 0.6:
            dims = ("lhs_contracting_dims={1}", "rhs_contracting_dims={0}")
            self._array("dot_general", "dot", self.pick(), op_name=op_name, attrs=dims)
        else:
            base = rng.choice(("fusion", "multiply_add_fusion", "copy_bitcast_fusion", "broadcast_subtract_fusion"))
            calls = ("calls", "%" + self.fresh("fused_computation"))
            config = '{"outer_dimension_partitions":["2"],"fusion_config":{"kind":"__ynn_fusion"}}'
            config = config if rng.random() < 0.4 else None
            self._array(base, "fusion", self.pick(11), op_name=op_name, kind="kLoop", calls=calls, config=config)

    def _array(
        self, base: str, opcode: str, operands: list[Handle] | str, shape: Shape | None = None, **more: Any
    ) -> None:
        name, shape = self.fresh(base), shape or self.array()
        (value,) = self.define(name, shape, opcode, operands, **more)
        self._ready.append(Handle(name, value, shape))

    def _copy_start(self, colors: tuple[int, ...], **more: Any) -> None:
        """An asynchronous copy: a tuple of target, source and flag; the source is no new value."""
        operand = self.pick()[0]
        color = self.rng.choice(colors)
        target, flag = self.array(color=color), self.array(color=2, element="u32", dims=())
        shape = Shape("tuple", parts=(target, operand.shape, flag))
        name, done = self.fresh("copy-start"), self.fresh("copy-done")
        places = {(0,): color, (2,): 2}
        values = self.define(name, shape, "copy-start", [operand], indices=((), (0,), (2,)), colors=places, **more)
        operand.value.positions.append((name, "{1}"))
        operand.value.uses.append((done, 0, "{1}"))
        time = self.step(done)
        for value in values:
            value.uses.append((done, 0, index_text(value.index)))
            value.end = time
        values[1].positions.append((done, None))
        self._ready.append(Handle(done, values[1], target))

    def _sort(self, op_name: str) -> None:
        name, shape = self.fresh("sort"), Shape("tuple", parts=(self.array(), self.array()))
        more = {"attrs": ("dimensions={1}", "is_stable=true"), "calls": ("to_apply", "%region_0.1")}
        values = self.define(name, shape, "sort", self.pick(), indices=((), (0,), (1,)), op_name=op_name, **more)
        self._ready += [self.take_out(values, 0), self.take_out(values, 1)]

    def _loop(self) -> None:
        """A while: its body comes before it in the schedule, and its values are merge points."""
        carried = self.pick()[:1] * 2
        shape = Shape("tuple", parts=tuple(h.shape for h in carried))
        start = self.fresh("tuple")
        (init,) = self.define(start, shape, "tuple", carried, indices=((),))
        for i, handle in enumerate(carried):
            handle.value.positions.append((start, index_text((i,))))
        name, region, op_name = self.fresh("while"), self.fresh("region"), "jit(step)/while"
        indices = ((), (0,), (1,))
        outside, self._scope = self._scope, (*self._scope, op_name, region)
        argument = self.fresh("arg_tuple")
        inner = self.define(argument, shape, "parameter", "0", indices=indices, phi=True)
        before = len(self._ready)
        self._ready += [self.take_out(inner, 0), self.take_out(inner, 1)]
        for _ in range(2):
            self._array("fusion", "fusion", self._ready[before:], kind="kLoop", op_name="jit(step)/while/body/add")
        root = self.fresh("tuple")
        self.define(root, shape, "tuple", self._ready[-2:], indices=((),))
        self._scope = outside
        del self._ready[before:]
        self.use(Handle(start, init, shape), name, 0)
        calls = ("body", f"%{region}")
        values = self.define(name, shape, "while", f"%{start}", indices=indices, phi=True, op_name=op_name, calls=calls)
        init.end = len(self.schedule) - 1
        self._ready.append(self.take_out(values, 0))

    def _root(self) -> None:
        """The tuple of outputs; some of them share the bytes of a parameter."""
        temps = [h for h in self._ready if h.value.home == "temp" and h.value.color == 0 and h.value.index is None]
        temps = list({id(h.value): h for h in temps}.values())
        self._outputs = temps[-max(1, min(len(self.values) // 12, len(temps) // 2)) :]
        parameters = [v for v in self.values if v.home.startswith("parameter ") and v.index is None]
        shape = Shape("tuple", parts=tuple(h.shape for h in self._outputs))
        name = self.fresh("tuple")
        (root,) = self.define(name, shape, "tuple", self._outputs, indices=((),), home="root")
        root.end = len(self.schedule)
        for i, handle in enumerate(self._outputs):
            value = handle.value
            value.positions.append((name, index_text((i,))))
            value.end = len(self.schedule)
            fits = (v for v in parameters if v.shape.bytes >= value.shape.bytes and v.end <= value.start)
            value.home = "output"
            if i % 2 == 0 and (donated := next(fits, None)):
                parameters.remove(donated)
                value.home = donated.home
                number = int(donated.home.split()[1])
                row = {"output_index": index_text((i,)), "parameter": number, "parameter_index": "{}"}
                self.aliases.append(row | {"kind": "may-alias"})
                donated.start = 0
        for value in parameters:
            value.start, value.end = 0, len(self.schedule)
        if parameters and not self.aliases:
            row = {"output_index": None, "parameter": int(parameters[-1].home.split()[1]), "parameter_index": "{}"}
            self.aliases.append(row | {"kind": "donor"})

    # -------------------------------------------------------------- hostile content

    def _hostile(self) -> None:
        """Odd but legal: everything a careless reader stumbles over."""
        names = (
            "quo\"te's and \\back",
            "new\nline\ttab\rreturn",
            "├── tree │",
            "p\u00e4r\u202e (1.0%, total: 5 bytes, current: 5 bytes, remaining: 5 bytes)",
            'x"}, backend_config={"a":"',
            "ends with space ",
        )
        for name in names:
            self._array("fusion", "fusion", self.pick(11), kind="kInput", op_name=f"jit(step)/{name}/mul")
        shapes = (
            Shape("f32", ("0", "5"), "{1,0}"),
            Shape("s4", ("33",), "{0:E(4)}"),
            Shape("s4", ("33",), "{0}"),
            Shape("s64", ("<=50", "2"), "{1,0}"),
            Shape("buffer", parts=(Shape("f32", ("8",), "{0}"),)),
            Shape("token"),
            Shape("opaque"),
            Shape("f32", ("4", "6"), "{1,0:D(D,C~)T(8,*)L(4)#(u32)*(u32)S(5)SC(0:1,2)M(8)}"),
            Shape("f32", ("4", "6"), "{1,0:T(2,128)P((f32[2]{0}, s32[]))}"),
        )
        for shape in shapes:
            self._array("custom-call", "custom-call", self.pick(), shape, target='odd "target" {}', attrs=(
                "operand_layout_constraints={f32[8]{0}, f32[]}", "api_version=API_VERSION_STATUS_RETURNING"
            ))  # fmt: skip
        leaf = self.array()
        nested = Shape("tuple", parts=(Shape("tuple", parts=(leaf,) * 7), leaf, Shape("tuple")))
        indices = ((), (0,), *((0, i) for i in range(7)), (1,), (2,))
        self.define(
            self.fresh("nested"),
            nested,
            "call",
            self.pick(11),
            indices=indices,
            calls=("called_computations", "{%region_0.1, %region_0.1}"),
            frontend='{a="{}",xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {}]>"}',
            attrs=("control-predecessors={%fusion, %fusion.2}", 'statistics={visualizing_index=0,a="=, b="}'),
            sharding="{mesh['x'=4], [{'x'}, {}]}",
            config='{"a":"}, metadata={op_name=\\"no\\"}","b":[{}]}' if self.era.blank else '{"a":"\\n}"}',
            op_name="jit(step)/a=b, c=d",
            meta=("source_end_line=7 source_column=3 " if self.era.tree else "") + "preserve_layout=true",
        )
        odd = self.array(element="s32", dims=(2, 2))
        self._array("constant-odd_name.-x", "constant", "{ { 1, -2 }, { 3, 4 } }", odd)
        self._array("fusion", "fusion", self.pick(), kind="kCustom")
        self.values[-1].color = None
        if self.era.used_values:
            self._array("fusion", "fusion", self.pick(), kind="kLoop")
            self.values[-1].uses_known = False

    # -------------------------------------------------------------- places

    def _size(self, value: Value) -> int:
        size = value.shape.bytes + 8 * any(d.startswith("<=") for d in value.shape.dims)
        if self.platform == "tpu" and value.color != 2:
            size = -(-size // 512) * 512
        return size

    def _allocate(self, size: int, values: list[Value], **columns: Any) -> None:
        era = self.era
        number = len(self.allocations)
        color, page = columns.pop("color", 0), columns.pop("page", 0)
        flags = dict.fromkeys(
            ("is_parameter", "is_entry_root", "is_constant", "is_thread_local", "is_live_out", "is_temp"), False
        )
        row: Row = {
            "allocation": number,
            "size": size,
            "color": color,
            "memory_space": SPACES[self.platform].get(color, f"color_{color}"),
            "page": page if era.page else None,
            "address": f"0x{0x55DD79FD47C0 + 0xB0 * number:x}" if era.address else None,
        }
        empty = dict.fromkeys(("parameter_number", "parameter_shape_index", "parameter_shape", "output_shape"))
        self.allocations.append(row | empty | flags | columns | {"attributes": None})
        for value in values:
            value.allocation = number

    def _place(self) -> None:
        """Give every value its allocation, offset and size."""
        homes = defaultdict(list)
        for value in self.values:
            value.size = self._size(value)
            if not value.uses_known:
                value.uses.clear()
            homes[value.home].append(value)
        for value in homes["thread"]:
            self._allocate(value.size, [value], is_thread_local=True)
        for home, values in homes.items():
            if home.startswith("parameter "):
                self._place_parameter(int(home.split()[1]), values)
        for value in homes["output"]:
            self._allocate(value.size, [value], is_live_out=True)
        for value in homes["root"]:
            e2 = self.era.values == "e2"
            shape = value.shape.text(layout=False) if e2 else None
            self._allocate(value.size, [value], output_shape=shape, is_entry_root=e2, is_live_out=True)
        for value in homes["constant"]:
            self._allocate(value.size, [value], is_constant=True)
        by_color = defaultdict(list, {0: []} if homes["temp"] else {})
        for value in homes["temp"]:
            # A value may live in a space of another color than its own.
            color = 0 if self.platform != "tpu" else value.color or 0
            by_color[color].append(value)
        if self.platform == "tpu" or not self.values:
            by_color.setdefault(1, [])
        for color, values in sorted(by_color.items()):
            page = 3 if self.hostile and color == 1 else 0
            self._allocate(self._pack(values), values, color=color, page=page, is_temp=True)
        if self.hostile and self.era.cross_color and by_color.get(2):
            for i, v in enumerate(by_color[2][:2]):
                row = {"allocation": len(self.allocations) - 1, "ordinal": i, "value_id": v.id}
                row |= {"instruction": v.instruction, "shape_index": index_text(v.index), "is_phi": v.is_phi}
                self.cross_color.append(row | {"value_color": v.color, "printed_color": v.color})

    def _place_parameter(self, number: int, values: list[Value]) -> None:
        leaves: dict[Index | None, list[Value]] = defaultdict(list)
        own = [v for v in values if self.instructions[v.instruction]["opcode"] == "parameter"]
        for value in own:
            leaves[value.index].append(value)
        leaves[own[0].index] += [v for v in values if v not in own] if len(own) == 1 else []
        e2, sub = self.era.values == "e2", self.era.split
        for index, group in leaves.items():
            shape = group[0].shape if sub else group[0].whole
            self._allocate(
                max(v.size for v in group),
                group,
                parameter_number=number,
                parameter_shape_index=index_text(index or ()) if self.era.values != "e0" else None,
                parameter_shape=shape.text(layout=False) if e2 else None,
                is_parameter=True,
                is_live_out=len(group) > 1,
            )

    def _pack(self, values: list[Value]) -> int:
        """Offsets: bytes of a dead value of the same size are taken again, else the end grows."""
        step = ALIGNMENT[self.platform]
        free: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # magnitude -> (last step, offset, room)
        top = end = 0
        for value in sorted(values, key=lambda v: (v.start or 0, v.id)):
            # On TPUs the pointers of tuples lie 16 KiB apart and keep their place for good.
            pointers = self.platform == "tpu" and value.shape.type == "tuple"
            spots = [] if pointers else free[value.size.bit_length()]
            room = 1 << 14 if pointers and value.size <= 1 << 14 else -(-value.size // step) * step
            if spots and spots[0][0] < (value.start or 0) and spots[0][2] >= value.size:
                _, value.offset, room = heapq.heappop(spots)
            else:
                value.offset, top = top, top + room
            heapq.heappush(spots, (value.end, value.offset, room))
            end = max(end, value.offset + value.size)
        return end


def _quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f'"{escape(value)}"'


def _label(scope: tuple[str, ...], name: str, index: Index | None) -> tuple[str, ...]:
    """The path in XLA's tree: keyed op names split, a tuple element's index at the leaf."""
    keys = name.replace("]", "").replace("'", "").split("[") if name.endswith("]") else [name]
    keys[-1] += index_text(index) if index else ""
    return (*scope, *keys)
