"""Attacks on what follows the HLO text: calls, loops and chains of copies."""

from __future__ import annotations

from attacks import Members, attack, dump, hlo, named, record, value


def _unnamed(n: int, *computations: str) -> Members:
    """Values without op_names, so that the HLO text is read."""
    values = (value(i, a, offset=8 * i) for i, a in enumerate(named(n)))
    records = (record(i, a, "f32[2]{0} copy(%x)") for i, a in enumerate(named(n)))
    return dump(values, records=records, ranges=(f"{a}{{}}:0-3" for a in named(n)), hlo=hlo(*computations))


def _computation(name: str, *lines: str) -> str:
    return f"{name} (p: f32[2]) -> f32[2] {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _caller(i: int, target: str, opcode: str = "call", name: str = "") -> str:
    """A computation that passes its parameter to another one."""
    attribute = {"while": "condition=%c, body", "call": "to_apply"}.get(opcode, "calls")
    call = f"ROOT %a.{i} = f32[2]{{0}} {opcode}(%p.{i}), {attribute}=%{target}"
    return _computation(name or f"%c.{i}", f"%p.{i} = f32[2]{{0}} parameter(0)", call)


def _ring(n: int, opcode: str, last: str) -> Members:
    made = [_caller(i, f"c.{i + 1}" if i < n - 1 else last, opcode) for i in range(n)]
    return _unnamed(n, *made, _caller(n, "c.0", opcode, "ENTRY %main"))


@attack
def computation_that_calls_itself(n: int) -> Members:
    return _unnamed(n, *(_caller(i, f"c.{i}") for i in range(n)), _caller(n, "c.0", name="ENTRY %main"))


@attack
def ring_of_calls(n: int) -> Members:
    return _ring(n, "call", "c.0")


@attack
def nested_loops(n: int) -> Members:
    return _ring(n, "while", "none")


@attack
def nested_fusions(n: int) -> Members:
    return _ring(n, "fusion", "none")


@attack
def doubled_calls(n: int) -> Members:
    """Each computation calls the next one twice: there are 2^n ways through them."""
    made = [
        _computation(
            f"%c.{i}", f"%p.{i} = f32[2]{{0}} parameter(0)",
            f"%b.{i} = f32[2]{{0}} call(%p.{i}), to_apply=%c.{i + 1}",
            f"ROOT %a.{i} = f32[2]{{0}} call(%b.{i}), to_apply=%c.{i + 1}",
        )
        for i in range(n)
    ]  # fmt: skip
    return _unnamed(n, *made, _caller(n, "c.0", name="ENTRY %main"))


@attack
def chain_of_copies(n: int) -> Members:
    lines = [f"%a.{i} = f32[2]{{0}} copy(%a.{i - 1})" for i in range(1, n)]
    return _unnamed(n, _computation("ENTRY %main", "%a.0 = f32[2]{0} parameter(0)", *lines))


@attack
def ring_of_copies(n: int) -> Members:
    lines = [f"%a.{i} = f32[2]{{0}} copy(%a.{(i + 1) % n})" for i in range(n)]
    return _unnamed(n, _computation("ENTRY %main", *lines))


@attack
def computations(n: int) -> Members:
    made = [_computation(f"%c.{i}", f"ROOT %a.{i} = f32[2]{{0}} constant({{1, 2}})") for i in range(n)]
    return _unnamed(1, *made, _computation("ENTRY %main", "%a = f32[2]{0} parameter(0)"))


@attack
def computations_of_one_name(n: int) -> Members:
    made = [_computation("%c", "ROOT %a.0 = f32[2]{0} call(%a.0), to_apply=%c") for _ in range(n)]
    return _unnamed(1, *made, _computation("ENTRY %main", "%a = f32[2]{0} parameter(0)"))


@attack
def unclosed_instructions(n: int) -> Members:
    lines = [f"%a.{i} = f32[2]{{0}} constant({{" for i in range(n)]
    return _unnamed(1, _computation("ENTRY %main", *lines))


@attack
def unclosed_instruction(n: int) -> Members:
    return _unnamed(1, _computation("ENTRY %main", "%a.0 = f32[2]{0} constant({", *["1, 2, 3" for _ in range(n)]))


@attack
def operands(n: int) -> Members:
    text = f"%a.0 = f32[2]{{0}} add({', '.join(f'%a.{i}' for i in range(n))})"
    return _unnamed(1, _computation("ENTRY %main", text))


# -- names and groups of devices -----------------------------------------------------------------


def _instructions(texts: list[str]) -> Members:
    """Values that these instructions define; each text begins with its shape. They are live at the same time."""
    names = named(len(texts))
    values = (value(i, a, offset=8 * i) for i, a in enumerate(names))
    records = (record(i, a, text) for i, (a, text) in enumerate(zip(names, texts, strict=True)))
    lines = [f"%{a} = {text}" for a, text in zip(names, texts, strict=True)]
    made = _computation("ENTRY %main", "%x = f32[2]{0} parameter(0)", *lines)
    return dump(values, records=records, ranges=(f"{a}{{}}:0-3" for a in names), hlo=hlo(made))


@attack
def collectives(n: int) -> Members:
    return _instructions([f"f32[2]{{0}} all-reduce(%x), replica_groups={{{{{i},{i + 1}}}}}" for i in range(n)])


@attack
def groups_of_devices(n: int) -> Members:
    groups = ",".join(f"{{{2 * i},{2 * i + 1}}}" for i in range(n))
    return _instructions([f"f32[2]{{0}} all-reduce(%x), replica_groups={{{groups}}}"] * 2)


@attack
def unfinished_groups(n: int) -> Members:
    """Nor does the list of axes end."""
    texts = ["{{" + "0," * n, "{{0" + ",0" * n, "mesh[" + "'a'=2," * n, "mesh['a'=2] {" + "'a'," * n]
    return _instructions([f"f32[2]{{0}} all-reduce(%x), replica_groups={text}" for text in texts])


@attack
def loops_in_scopes(n: int) -> Members:
    """What moves the slices of a loop is named after the loop, under a scope of its own."""
    names = (f"jit(f)/s{i}/while/body/{'dynamic_slice' if i % 2 else 'dot_general'}" for i in range(n))
    return _instructions([f'f32[2]{{0}} copy(%x), metadata={{op_name="{name}"}}' for name in names])
