"""Dumps that are made to take time or memory. Each function takes the size n, on which the length of the text depends.

`ATTACKS` lists them. Most have the smallest text that reaches what is attacked; `dump` adds what a dump needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Members = dict[str, bytes]
Attack = Callable[[int], Members]

ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def value(i: int, name: str, size: int = 8, offset: int = 0, shape: str = "f32[2]{0}", color: int = 0) -> str:
    return f" value: <{i} {name} @{color}> (size={size},offset={offset}): {shape}\n"


def record(i: int, name: str, instruction: str = "", positions: str = "", uses: str = "") -> str:
    """A record of the used values; the instruction begins at its opcode."""
    text = f"<{i} {name} @0>\n positions:\n{positions or f'  {name}'}\n uses:\n{uses or '  (none)'}\n"
    return text + f" from instruction: %{name.partition('{')[0]} = {instruction or 'f32[2]{0} add(%x, %y)'}\n"


def op_name(text: str) -> str:
    return f'f32[2]{{0}} add(%x, %y), metadata={{op_name="{text}"}}'


def dump(
    values: Iterable[str],
    *,
    size: int = 1 << 40,
    allocations: str | None = None,
    records: Iterable[str] = (),
    steps: int = 4,
    schedule: Sequence[str] = (),
    ranges: Iterable[str] = (),
    tail: str = "",
    **others: str,
) -> Members:
    """A dump with these values in one temporary allocation, or with these allocations."""
    assignment = f"allocation 0: size {size}, page 0, preallocated-temp:\n" if allocations is None else allocations
    schedule = schedule or [f"s.{i}" for i in range(steps)]
    live = f"HloLiveRange (max {len(schedule)}):\n  InstructionSequence:\n"
    live += "".join(f"    {i}:{name}\n" for i, name in enumerate(schedule))
    live += "  BufferLiveRange:\n" + "".join(f"    {r}\n" for r in ranges)
    live += f"  Live ranges at 0 (peak):\n{tail}"
    used = "".join(records)
    members = {
        "buffer-assignment": "BufferAssignment:\n" + assignment + "".join(values),
        "live-range": live,
        **others,
    }
    if used:
        members["buffer-assignment-values"] = f"\nTotal bytes used: 8 (8B)\n\nUsed values:\n{used}"
    return {role: text.encode() for role, text in members.items()}


def hlo(*computations: str, header: str = "") -> str:
    return f"HloModule m, is_scheduled=true\n{header}\n" + "\n".join(computations)


def named(n: int) -> list[str]:
    return [f"a.{i}" for i in range(n)]


# -- names -----------------------------------------------------------------------------------------


@attack
def texts_of_one_name(n: int) -> Members:
    """An instruction has one text in a valid dump."""
    records = (record(i, "a", f"f32[2]{{0}} add(%x.{i}, %y)") for i in range(n))
    return dump((value(i, "a", offset=8 * i) for i in range(n)), records=records, ranges=["a{}:0-1"])


@attack
def values_of_one_name(n: int) -> Members:
    return dump((value(i, "a", offset=8 * i) for i in range(n)), ranges=("a{}:0-1" for _ in range(n)))


@attack
def values_of_one_name_backwards(n: int) -> Members:
    """Live ranges in another order than that of the values are looked up in a hash table."""
    names = [*named(n // 2), *("a" for _ in range(n // 2))]
    ranges = (f"{name}{{}}:0-1" for name in reversed(names))
    return dump((value(i, name, offset=8 * i) for i, name in enumerate(names)), ranges=ranges)


@attack
def values_of_one_id(n: int) -> Members:
    records = (record(7, name) for name in named(n))
    ranges = (f"{name}{{}}:0-1" for name in named(n))
    return dump((value(7, name, offset=8 * i) for i, name in enumerate(named(n))), records=records, ranges=ranges)


@attack
def positions_and_uses_of_one_value(n: int) -> Members:
    positions = "\n".join(f"  {a}" for a in named(n))
    uses = "\n".join(f"  {a}, operand {i}" for i, a in enumerate(named(n)))
    return dump([value(0, "a.0")], records=[record(0, "a.0", positions=positions, uses=uses)], ranges=["a.0{}:0-1"])


@attack
def one_long_name(n: int) -> Members:
    name = "a" * (20 * n)
    return dump([value(0, name)], records=[record(0, name, op_name(name))], ranges=[f"{name}{{}}:0-1"])


@attack
def unknown_fields(n: int) -> Members:
    """Each of another kind."""
    return dump(value(i, f"a.{i}", offset=8 * i).replace(" @0", f" key{i}=1 @0") for i in range(n))


@attack
def unknown_lines(n: int) -> Members:
    return dump([value(0, "a.0"), *(f" what is {i}?\n" for i in range(n))], ranges=[f"? {i}" for i in range(n)])


@attack
def empty_lines(n: int) -> Members:
    return dump([value(0, "a.0"), "\n" * (20 * n), value(1, "a.1", offset=8)], ranges=["a.0{}:0-1", *[""] * n])


@attack
def one_long_line(n: int) -> Members:
    return dump([value(0, "a.0"), " x" * (20 * n) + "\n"], ranges=["a.0{}:0-1", "x " * n])


# -- values that share memory ----------------------------------------------------------------------


@attack
def one_address(n: int) -> Members:
    """All values at one address, live at all steps."""
    return dump((value(i, a) for i, a in enumerate(named(n))), ranges=(f"{a}{{}}:0-3" for a in named(n)))


@attack
def one_address_in_turn(n: int) -> Members:
    """All values at one address, begun and ended at different steps."""
    ranges = (f"{a}{{}}:{i}-{2 * n - i}" for i, a in enumerate(named(n)))
    return dump((value(i, a) for i, a in enumerate(named(n))), steps=2 * n + 1, ranges=ranges)


@attack
def nested_values(n: int) -> Members:
    """Each covers all later ones, and begins earlier."""
    values = (value(i, a, size=8 * (n - i)) for i, a in enumerate(named(n)))
    ranges = (f"{a}{{}}:{i}-{2 * n - i}" for i, a in enumerate(named(n)))
    return dump(values, steps=2 * n + 1, ranges=ranges)


@attack
def staircase(n: int) -> Members:
    """Each begins 8 bytes and one step after the one before; half of all are live at each step."""
    values = (value(i, a, size=8 * (n // 2), offset=8 * i) for i, a in enumerate(named(n)))
    ranges = (f"{a}{{}}:{i}-{i + n // 2}" for i, a in enumerate(named(n)))
    return dump(values, steps=2 * n, ranges=ranges)


@attack
def one_wide_value(n: int) -> Members:
    """A value over all others, which come and go."""
    values = [value(i, a, offset=8 * i) for i, a in enumerate(named(n))]
    ranges = [f"{a}{{}}:{i}-{i + 1}" for i, a in enumerate(named(n))]
    return dump([value(n, "w", size=8 * n), *values], steps=n + 1, ranges=[f"w{{}}:0-{n}", *ranges])


@attack
def wide_values(n: int) -> Members:
    """Half of the values cover all bytes, the other half come and go."""
    wide = [value(n + i, f"w.{i}", size=8 * n) for i in range(n // 2)]
    values = [value(i, a, offset=16 * i) for i, a in enumerate(named(n // 2))]
    ranges = [f"w.{i}{{}}:{i}-{n - i}" for i in range(n // 2)]
    ranges += [f"{a}{{}}:{2 * i}-{2 * i + 1}" for i, a in enumerate(named(n // 2))]
    return dump(wide + values, steps=n + 1, ranges=ranges)


@attack
def all_at_once(n: int) -> Members:
    """Disjoint values, all of which are live at all steps."""
    records = (record(i, a, op_name(f"jit(f)/layer_{i}/add")) for i, a in enumerate(named(n)))
    values = (value(i, a, offset=8 * i) for i, a in enumerate(named(n)))
    return dump(values, size=8 * n, records=records, ranges=(f"{a}{{}}:0-3" for a in named(n)))


@attack
def plateaus(n: int) -> Members:
    """One value after another with as many bytes: a peak at every other step."""
    values = (value(i, a) for i, a in enumerate(named(n)))
    return dump(values, size=8, steps=2 * n, ranges=(f"{a}{{}}:{2 * i}-{2 * i}" for i, a in enumerate(named(n))))


# -- allocations -----------------------------------------------------------------------------------


@attack
def spaces(n: int) -> Members:
    """Each allocation in a memory space of its own."""
    text = "".join(
        f"allocation {i}: size 64, color {i}, page {i}, preallocated-temp:\n" + value(i, f"a.{i}", color=i)
        for i in range(n)
    )
    return dump([], allocations=text, steps=n, ranges=(f"a.{i}{{}}:{i}-{i + 1}" for i in range(n)))


@attack
def allocations(n: int) -> Members:
    text = "".join(f"allocation {i}: size 64, preallocated-temp:\n" + value(i, f"a.{i}") for i in range(n))
    return dump([], allocations=text, steps=n, ranges=(f"a.{i}{{}}:{i}-{i + 1}" for i in range(n)))


@attack
def allocations_of_one_number(n: int) -> Members:
    text = "".join("allocation 3: size 64, preallocated-temp:\n" + value(i, f"a.{i}") for i in range(n))
    return dump([], allocations=text, ranges=(f"a.{i}{{}}:0-1" for i in range(n)))


@attack
def parameters(n: int) -> Members:
    """Parameters and outputs of one shape, none of them aliased."""
    text = "".join(
        f"allocation {2 * i}: size 64, parameter {i}, shape |f32[16]| at ShapeIndex {{}}:\n{value(2 * i, f'p.{i}', 64)}"
        f"allocation {2 * i + 1}: size 64, maybe-live-out:\n{value(2 * i + 1, f'a.{i}', 64)}"
        for i in range(n)
    )
    ranges = [f"p.{i}{{}}:0-3" for i in range(n)] + [f"a.{i}{{}}:1-3" for i in range(n)]
    return dump([], allocations=text, ranges=ranges)


@attack
def aliases(n: int) -> Members:
    """All outputs alias one parameter."""
    entries = ", ".join(f"{{{i}}}: (0, {{}}, may-alias)" for i in range(n))
    text = f"HloModule m, input_output_alias={{ {entries} }}\n\nENTRY %main (p: f32[2]) -> f32[2] {{\n}}\n"
    made = parameters(max(1, n // 8))
    return made | {"hlo": text.encode()}


@attack
def cross_colors(n: int) -> Members:
    text = f"allocation 0: size 64, preallocated-temp:\n{value(0, 'a.0')} reused by buffers of a different color:\n"
    text += "".join(f"  value: <{i} a.{i} @{i}> (color={i})\n" for i in range(n))
    return dump([], allocations=text, ranges=["a.0{}:0-1"])


# -- shapes ----------------------------------------------------------------------------------------


@attack
def nested_tuple(n: int) -> Members:
    shape = "(" * n + "f32[2]{0}" + ")" * n
    return dump([value(0, "a.0", shape=shape)], records=[record(0, "a.0", f"{shape} tuple(%x)")], ranges=["a.0{}:0-1"])


@attack
def nested_buffers(n: int) -> Members:
    shape = "b(" * n + "f32[2]{0}" + ")" * n
    return dump([value(0, "a.0", shape=shape)], records=[record(0, "a.0", f"{shape} custom-call(%x)")])


@attack
def wide_tuple(n: int) -> Members:
    shape = "(" + ", ".join("f32[2]{0}" for _ in range(n)) + ")"
    return dump([value(0, "a.0", shape=shape)], records=[record(0, "a.0", f"{shape} tuple(%x)")], ranges=["a.0{}:0-1"])


@attack
def many_dimensions(n: int) -> Members:
    shape = f"f32[{','.join('1' * n)}]{{{','.join(map(str, range(n)))}}}"
    return dump([value(0, "a.0", shape=shape)], records=[record(0, "a.0", f"{shape} add(%x)")], ranges=["a.0{}:0-1"])


@attack
def many_shapes(n: int) -> Members:
    values = (value(i, a, offset=8 * i, shape=f"f32[{i}]{{0}}") for i, a in enumerate(named(n)))
    return dump(values, ranges=(f"{a}{{}}:0-3" for a in named(n)))


# -- op_names and source lines ---------------------------------------------------------------------


@attack
def deep_scope(n: int) -> Members:
    records = [record(0, "a.0", op_name("jit(f)/" + "s/" * n + "add"))]
    return dump([value(0, "a.0")], records=records, ranges=["a.0{}:0-1"])


@attack
def deep_scopes(n: int) -> Members:
    """The root of n scopes, as deep as there are many."""
    k = int(n**0.5)
    records = [record(i, a, op_name(f"jit(f)/r{i}/" + "s/" * k + "add")) for i, a in enumerate(named(k))]
    values = [value(i, a, offset=8 * i) for i, a in enumerate(named(k))]
    return dump(values, records=records, ranges=(f"{a}{{}}:0-3" for a in named(k)))


@attack
def brackets_in_scope(n: int) -> Members:
    text = "jvp(" * n + "f" + ")" * n + "/add"
    return dump([value(0, "a.0")], records=[record(0, "a.0", op_name(text))], ranges=["a.0{}:0-1"])


@attack
def open_brackets_in_scope(n: int) -> Members:
    records = [record(0, "a.0", op_name("f(" * n)), record(1, "a.1", op_name("a[0" * n))]
    return dump([value(0, "a.0"), value(1, "a.1", offset=8)], records=records, ranges=["a.0{}:0-3", "a.1{}:0-3"])


def _kept(n: int, name: Callable[[int], str], opcode: str = "add", arenas: int = 1) -> Members:
    """Activations that the backward pass reads, which lies in the second half of the schedule."""
    text = [f"%a.{i} = f32[2]{{0}} {opcode}(%x, %y), metadata={{op_name=\"{name(i)}\"}}" for i in range(n)]
    text += [f"%b.{i} = f32[2]{{0}} add(%x), metadata={{op_name=\"jit(f)/transpose(jvp(M))/add\"}}" for i in range(n)]
    names = [line.partition(" ")[0][1:] for line in text]
    records = (record(i, a, line.partition(" = ")[2]) for i, (a, line) in enumerate(zip(names, text, strict=True)))
    values = [value(i, a, offset=16384 * (i // arenas)) for i, a in enumerate(names)]
    heads = (f"allocation {k}: size {16384 * 2 * n}, preallocated-temp:\n" for k in range(arenas))
    allocations = "".join(head + "".join(values[k::arenas]) for k, head in enumerate(heads))
    ranges = [f"a.{i}{{}}:{i}-{2 * n - 1 - i}" for i in range(n)] + [f"b.{i}{{}}:{n + i}-{n + i}" for i in range(n)]
    return dump([], allocations=allocations, records=records, ranges=ranges, schedule=names)


@attack
def families_of_layers(n: int) -> Members:
    """Each scope has two layers."""
    return _kept(n, lambda i: f"jit(f)/jvp(M)/s{i // 2}s/layers_{i % 2}/dot_general")


@attack
def loops_of_a_step(n: int) -> Members:
    return _kept(n, lambda i: f"jit(f)/jvp(M)/s{i}s/dot_general", "while")


@attack
def arenas(n: int) -> Members:
    """As many temp allocations as values."""
    return _kept(n, lambda i: "jit(f)/jvp(M)/dot_general", arenas=2 * n)


@attack
def named_arguments(n: int) -> Members:
    """Each parameter belongs to an argument of its own, and could be donated."""
    made = parameters(n)
    names = (f"f32[16]{{0}} parameter({i}), metadata={{op_name=\"arg{i}x['w']\"}}" for i in range(n))
    records = "".join(record(2 * i, f"p.{i}", name) for i, name in enumerate(names))
    return made | {"buffer-assignment-values": f"\nTotal bytes used: 8 (8B)\n\nUsed values:\n{records}".encode()}


@attack
def deep_argument(n: int) -> Members:
    text = "args" + "[0]" * n
    shape = f'f32[2]{{0}} parameter(0), metadata={{op_name="{text}"}}'
    header = "allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
    return dump([value(0, "p.0")], allocations=header, records=[record(0, "p.0", shape)], ranges=["p.0{}:0-3"])


def _of_ring(frames: str, n: int) -> Members:
    tables = 'FileNames\n1 "f"\n\nFunctionNames\n1 "g"\n\nFileLocations\n'
    tables += "1 {file_name_id=1 function_name_id=1 line=1}\n\nStackFrames\n"
    names = (op_name(f"x{i}").replace("}}", f" stack_frame_id={i + 1}}}") for i in range(n))
    records = (record(i, a, text) for i, (a, text) in enumerate(zip(named(n), names, strict=True)))
    values = (value(i, a, offset=8 * i) for i, a in enumerate(named(n)))
    text = hlo("ENTRY %main () -> f32[2] {\n}\n", header=f"\n{tables}{frames}\n")
    return dump(values, records=records, ranges=(f"{a}{{}}:0-3" for a in named(n)), hlo=text)


@attack
def stack_frames_in_a_ring(n: int) -> Members:
    return _of_ring("".join(f"{i} {{file_location_id=1 parent_frame_id={i % n + 2}}}\n" for i in range(1, n + 1)), n)


@attack
def deep_stack_frames(n: int) -> Members:
    return _of_ring("".join(f"{i} {{file_location_id=1 parent_frame_id={i}}}\n" for i in range(1, n + 1)), n)


# -- lists of live ranges and reports --------------------------------------------------------------

_TREE = "\n  Stack trace breakdown for peak usage: 8 bytes\n"
_TAIL = " (100.0%, total: 8 bytes, current: 8 bytes, remaining: 8 bytes)\n"
_LAST = f"      └── last{_TAIL.replace('g: 8', 'g: 0')}"


@attack
def tree_nodes(n: int) -> Members:
    tail = _TREE + f"    root{_TAIL}" + "".join(f"      ├── s{i}{_TAIL}" for i in range(n))
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], tail=tail + _LAST)


@attack
def deep_tree(n: int) -> Members:
    k = int(n**0.5)
    tail = _TREE + f"    root{_TAIL}" + "".join("      " + "    " * i + f"└── s{i}{_TAIL}" for i in range(k))
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], tail=tail + _LAST)


@attack
def unfinished_labels(n: int) -> Members:
    """Labels that go on over all following lines."""
    tail = _TREE + "    root\n" + "".join(f"      ├── s{i}\n" for i in range(n))
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], tail=tail + _LAST)


@attack
def one_unfinished_label(n: int) -> Members:
    tail = _TREE + f"    root{_TAIL}      ├── s\n" + "text, total: \n" * n + f"end{_TAIL}"
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], tail=tail + _LAST)


@attack
def peak_lines(n: int) -> Members:
    tail = "".join(f"    {a}{{}}: 8 bytes (cumulative: {8 * i} bytes)\n" for i, a in enumerate(named(n)))
    values = (value(i, a, offset=8 * i) for i, a in enumerate(named(n)))
    return dump(values, ranges=(f"{a}{{}}:0-3" for a in named(n)), tail=tail)


@attack
def report_tables(n: int) -> Members:
    head = "\n  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n  " + "-" * 60 + "\n"
    rows = f"{head}        8B(100%);         8B;            0;                1; f32[2]\n" * n
    text = f"Memory Space: default (color=0)\nTotal bytes: {8 * n} ({8 * n}B)\n{rows}"
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], **{"memory-usage-report": text})


@attack
def report_spaces(n: int) -> Members:
    text = "".join(f"Memory Space: color_{i} (color={i})\nTotal bytes: 8 (8B)\n\n" for i in range(n))
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], **{"memory-usage-report": text})


@attack
def report_counts(n: int) -> Members:
    """Counts of shapes in the text decide nothing."""
    head = "\n  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n  " + "-" * 60 + "\n"
    shapes = ", ".join(f"1000000000000000000×f32[{i}]" for i in range(n))
    row = f"        8B(100%);         8B;            0;1000000000000000000; {shapes}\n"
    text = f"Memory Space: default (color=0)\nTotal bytes: 8 (8B)\n{head}{row}"
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], **{"memory-usage-report": text})


@attack
def flags(n: int) -> Members:
    text = "".join(f'xla_flag_{i}: "x"\n' for i in range(n)) + "a {\n" * n + "}\n" * n
    return dump([value(0, "a.0")], ranges=["a.0{}:0-1"], **{"debug-options": text})


# -- large numbers ---------------------------------------------------------------------------------


@attack
def far_numbers(n: int) -> Members:
    """Ids, steps, frames, parameters and operands near 2^62."""
    far = (1 << 62) - 1 - n
    texts, records, ranges = [], [], []
    for k in range(far, far + n):
        name = f"a.{k - far}{{{k}}}"
        texts.append(f"allocation {k}: size 64, color {k % 9}, parameter {k}, shape |f32[2]| at ShapeIndex {{{k}}}:\n")
        texts.append(value(k, name, offset=far - 100))
        metadata = f" stack_frame_id={far} source_line={far}}}"
        records.append(record(k, name, op_name("x").removesuffix("}") + metadata))
        ranges.append(f"{name}:{far}-{k}")
    made = dump([], allocations="".join(texts), records=records, ranges=ranges)
    made["live-range"] = made["live-range"].replace(b"    0:s.0", f"    {far}:s.0".encode())
    return made
