"""Find the operations that turn bfloat16 into f32, and the arrays that are f32 because of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ...dump import hlo_body
from ...parse.hlo_body import HloBody
from ..columns import Ints, Mask, encoded, flags_of, ints, nullable, take
from ..hlo_flow import HloFlow, groups
from ..lazy import cached_property
from ..op_names import END, are_forward, matching
from ..origins import lines_of_body, origins
from ..program import distinct_rows
from .activations import Activations, are_later
from .what_if import largest_groups

_CONVERSION = rf"/convert_element_type{END}"
"""The primitive by which JAX converts element types, also where the types of operands differ."""
_ELEMENTWISE = "^(?:add|subtract|multiply|divide|maximum|minimum|power|select)$"
_MOVES = (
    r"^(?:parameter|fusion|call|get-tuple-element|bitcast|copy|copy-start|copy-done|transpose|reshape|slice|"
    r"dynamic-slice|dynamic-update-slice|broadcast|pad|concatenate)$"
)
"""Opcodes that pass on what XLA has converted to bfloat16, by themselves or in fusions."""
_FROM_NOTHING = "^(?:constant|iota)$"
MAX_PLACES = 3
"""Maximum number of lines that are named."""
MAX_DISTANCE = 1 << 11
"""Maximum number of instructions from a conversion to what is computed from it."""
MAX_MOVES = 16
"""Maximum number of instructions between a conversion and the argument that it reads."""


class Promotion(NamedTuple):
    """Operations that turn bfloat16 into f32, and what is f32 because of them."""

    values: Mask
    """Temporaries that are computed from them in f32."""
    group: int
    graph: Graph


def promotions(a: Activations) -> list[Promotion]:
    """Return what turns bfloat16 into f32 in the forward pass, by groups of arrays that are f32 because of it.

    JAX names these conversions. What a program converts for a while, and does not hold in f32, is not of interest.
    """
    body = hlo_body(a.p.tables)
    if body is None:
        return []
    graph = Graph(a, body)
    if not len(graph.promotions):
        return []
    is_f32 = a.w.in_arena & has_type(a, "f32")
    of_value = np.where(is_f32, take(graph.reached, _rows_of_values(a, body)), -1)
    largest = largest_groups(np.where(a.w.at_peak, of_value, -1), a.p.extent)
    return [Promotion(of_value == group, group, graph) for group in largest.tolist()]


def has_type(a: Activations, name: str) -> Mask:
    """Return which values have this element type."""
    codes, names = encoded(a.p.tables["values"]["element_type"])
    return flags_of(matching(names, f"^{name}$"), codes)


def _rows_of_values(a: Activations, body: HloBody) -> Ints:
    """Return the row of the HLO text that names each value, -1 for none."""
    source, n = origins(a.p).source, a.p.tables["instructions"].num_rows
    codes, names = a.p.texts("instructions", "instruction")
    row = np.asarray(body.rows_of(pc.cast(names, pa.string())), np.int64)
    # The rows of the HLO text follow those of the table.
    return np.where(source < n, take(row, take(codes, np.minimum(source, n - 1))), source - n)


class Graph:
    """The instructions of the forward pass that compute in f32, in groups of those that depend on each other."""

    def __init__(self, a: Activations, body: HloBody) -> None:
        self._p, self._body, self._flow = a.p, body, HloFlow(body)
        codes, names = self._flow.texts("op_name")
        is_later = flags_of(are_later(names), codes)
        self._is_forward = flags_of(are_forward(names), codes) & ~is_later if a.is_training else ~is_later
        self._converts = flags_of(matching(names, _CONVERSION), codes) & self._flow.has_opcode("^convert$")
        self._has_name = codes >= 0
        codes, types = self._flow.texts("element_type")
        self._f32, self._bf16 = (flags_of(matching(types, f"^{name}$"), codes) for name in ("f32", "bf16"))
        self._is_entry = (self._flow.parameter_number >= 0) & (np.asarray(body.computation) == body.entry)
        self._left_out = is_later | self._is_entry | self._flow.has_opcode(_FROM_NOTHING)
        self._products = self._flow.has_opcode("^(?:dot|convolution)$")
        self._moves = self._flow.has_opcode(_MOVES)
        self._operands = [self._flow.operand(np.arange(len(body)), number) for number in range(3)]

    @cached_property
    def promotions(self) -> Ints:
        """The rows of conversions from bfloat16 to f32 in the forward pass, except those of arguments, and of products.

        Where a processor computes in f32, XLA may have made the operand f32 as well.
        """
        if not self._has_bf16:
            return np.empty(0, np.int64)
        rows = np.flatnonzero(self._converts & self._is_forward & self._f32)
        rows = rows[take(self._bf16 | self._f32, self._operands[0][rows]) > 0]
        rows = rows[~self._are_arguments(self._operands[0][rows])]
        return np.union1d(rows, self._promoting_products)

    @cached_property
    def _has_bf16(self) -> bool:
        """Whether the program itself has bfloat16: XLA narrows what products read in any program."""
        own = (self._converts & self._is_forward) | self._is_entry
        return bool((own & self._bf16).any())

    @cached_property
    def _promoting_products(self) -> Ints:
        """The rows of products of activations in bfloat16 and weights in f32: XLA needs no conversion for them."""
        rows, found = np.flatnonzero(self._products & self._f32 & self._is_forward), np.empty(0, np.int64)
        for one, other in ((0, 1), (1, 0)) if len(rows) else ():
            weight, factor = self._operands[one][rows], self._operands[other][rows]
            is_promoting = (take(self._f32, weight) > 0) & (take(self._bf16 & ~self._are_narrowed, factor) > 0)
            is_promoting &= self._are_arguments(weight) & ~self._are_arguments(factor)
            found = np.append(found, rows[is_promoting])
        return found

    def _are_arguments(self, rows: Ints) -> Mask:
        """Return which rows only move an argument of the program."""
        source, user = self._flow.pairs
        parent = np.full(len(self._body), -1)
        parent[user] = source
        # The other operands are positions, or what is written.
        has_more = self._flow.has_opcode("^(?:dynamic-slice|dynamic-update-slice|pad|concatenate)$")
        parent[has_more] = self._operands[0][has_more]
        rows, active = rows.copy(), np.flatnonzero(rows >= 0)
        for _ in range(MAX_MOVES):
            active = active[(self._moves & ~self._is_entry)[rows[active]]]
            if not len(active):
                break
            rows[active] = parent[rows[active]]
            active = active[rows[active] >= 0]
        found: Mask = take(self._is_entry, rows) > 0
        return found

    @cached_property
    def group(self) -> Ints:
        """The group of each row with a promotion, -1 for others."""
        (source, user), rows, is_promotion = self._flow.pairs, self.promotions, self._flags(self.promotions)
        computes = (self._f32 | self._flow.has_opcode("-start$") | self._are_narrowed) & ~self._left_out
        joined = computes[source] & computes[user] & ~is_promotion[user]
        # Those on the same line are one: it may run several times.
        file, line = self._lines
        order = np.lexsort((line, file))
        rows, file, line = rows[order], file[order], line[order]
        same = (np.diff(file) == 0) & (np.diff(line) == 0) & (file[1:] >= 0)
        one, other = np.append(source[joined], rows[:-1][same]), np.append(user[joined], rows[1:][same])
        group = groups(len(self._body), one, other)
        return np.where(np.isin(group, group[self.promotions]), group, -1)

    def _flags(self, rows: Ints) -> Mask:
        found = np.zeros(len(self._body), bool)
        found[rows] = True
        return found

    @cached_property
    def _are_narrowed(self) -> Mask:
        """Which rows are bfloat16 although the program computes them in f32: XLA narrows what only products read."""
        first, second, _ = self._operands
        is_wide = (take(self._f32, first) > 0) & (take(self._f32, second) > 0)
        products = self._products & self._bf16 & self._has_name
        narrowed = self._flow.has_opcode("^convert$") & self._bf16 & ~self._has_name & (take(self._f32, first) > 0)
        moves = (self._moves & self._bf16) | self._flow.has_opcode("-start$")
        passes = ((moves | products) & ~self._left_out) | narrowed
        source, user = self._flow.pairs
        joined = passes[source] & passes[user]
        group = groups(len(self._body), source[joined], user[joined])
        found: Mask = passes & np.isin(group, group[narrowed | (products & is_wide)])
        return found

    # -- words -------------------------------------------------------------------------------------

    @cached_property
    def _lines(self) -> tuple[Ints, Ints]:
        """Codes of the files, and the lines of the model, of the promotions."""
        columns = lines_of_body(self._p, self._body, self.promotions)
        return encoded(columns["source_file"])[0], ints(pa.table(columns), "source_line")

    def described(self, group: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return where a group begins to be f32, and where what is computed from it meets other operands that are."""
        source, user = self._first(group)
        rows = np.flatnonzero((self.reached == group) & self._flow.has_opcode(_ELEMENTWISE))
        rows = rows[self._any_operand(rows, self._f32 & (self._reached < 0) & ~self._is_filled)]
        rows = rows[np.unique(self._line_of_text[rows], return_index=True)[1]]
        texts = self._lines_of(np.append(source, rows))
        named, others = texts[: len(source)], dict.fromkeys(filter(None, texts[len(source) :]))
        return self._places(source, user, named), tuple(text for text in others if text not in named)[:MAX_PLACES]

    def is_model(self, group: int) -> bool:
        """Return whether products read what is f32 in a group, and the program converts none of that back."""
        members, line = self.reached == group, self._reached
        read = self._products & members & ~self._flags(self.promotions)
        of_first = members & np.isin(line, line[self._first(group)[0]])
        back = self._converts & self._bf16 & self._is_forward & (take(of_first, self._operands[0]) > 0)
        return bool(read.any() and not back.any())

    def _first(self, group: int) -> tuple[Ints, Ints]:
        """Return promotions of a group that do not read what is f32 because of others, and what reads each of them."""
        members, line, (source, user) = self.reached == group, self._reached, self._flow.pairs
        is_promotion = members & self._flags(self.promotions)
        reads = is_promotion[source] & self._is_forward[user] & ~self._moves[user]
        products = np.flatnonzero(members & self._flags(self._promoting_products))
        source, user = np.append(source[reads], products), np.append(user[reads], products)
        # What also reads something that is f32 because of another line promotes nothing more.
        others = np.stack([take(line, operand[user]) for operand in self._operands])
        is_late = ((others >= 0) & (others != line[source])).any(axis=0)
        is_first = ~np.isin(line[source], line[source[is_late]])
        if is_first.any():
            return source[is_first], user[is_first]
        rows = np.flatnonzero(is_promotion)
        return (source, user) if len(source) else (rows, rows)

    def _any_operand(self, rows: Ints, flags: Mask) -> Mask:
        """Return whether one of the first operands of each row has a flag."""
        found: Mask = np.any([take(flags, operand[rows]) > 0 for operand in self._operands], axis=0)
        return found

    @cached_property
    def reached(self) -> Ints:
        """The group of each row that is computed from a promotion, -1 for others."""
        return np.where(self._reached >= 0, self.group, -1)

    @cached_property
    def _reached(self) -> Ints:
        """The line of a promotion that each row is computed from, the nearest one; -1 for none."""
        source, user = self._flow.pairs
        known = (self.group[source] >= 0) & (self.group[user] >= 0) & ~self._flags(self.promotions)[user]
        user = user[known][np.argsort(source[known], kind="stable")]
        n = np.bincount(source[known], minlength=len(self._body))
        begin, line, rows = np.cumsum(n) - n, np.full(len(self._body), -1), self.promotions
        line[rows] = distinct_rows(*self._lines)
        for _ in range(MAX_DISTANCE):
            repeats = n[rows]
            shift = np.repeat(begin[rows] - np.cumsum(repeats) + repeats, repeats)
            users, of_line = user[shift + np.arange(len(shift))], np.repeat(line[rows], repeats)
            is_new = line[users] < 0
            rows = users[is_new]
            if not len(rows):
                break
            line[rows] = of_line[is_new]
            rows = np.unique(rows)
        return line

    @cached_property
    def _is_filled(self) -> Mask:
        """Whether each row is a constant, or filled with one."""
        constant, copies = self._flow.has_opcode(_FROM_NOTHING), self._flow.has_opcode("^(?:broadcast|convert)$")
        filled: Mask = constant | (copies & (take(constant, self._operands[0]) > 0))
        return filled

    @cached_property
    def _line_of_text(self) -> Ints:
        """Codes that are equal for rows with equal source lines."""
        body = self._body
        return distinct_rows(np.asarray(body.stack_frame_id, np.int64), np.asarray(body.source_line, np.int64))

    def _lines_of(self, rows: Ints) -> list[str]:
        """Return the line of each of these rows, `train.py:74`, or an empty text."""
        lines = lines_of_body(self._p, self._body, rows)
        paths = [(path or "").replace("\\", "/").rpartition("/")[2] for path in lines["source_file"].to_pylist()]
        return [f"{p}:{n}" if p else "" for p, n in zip(paths, lines["source_line"].to_pylist(), strict=True)]

    def _places(self, rows: Ints, users: Ints, lines: list[str]) -> tuple[str, ...]:
        """Return the lines of these promotions, each with the primitive of what reads it.

        Of several, that on the same line is the one for which it was made.
        """
        codes, names = self._flow.texts("op_name")
        of_users = pc.take(names, nullable(codes[users]))
        found = pc.replace_substring_regex(of_users, rf"^(?:.*/)?([^/]*?){END}", r"\1").to_pylist()
        frame = np.asarray(self._body.stack_frame_id, np.int64)
        order = np.argsort(frame[rows] == frame[users], kind="stable").tolist()
        named = [f"`{name}`" if name else "an operation" for name in found]
        of_line = {lines[i]: f"{named[i]} ({lines[i]})" if lines[i] else named[i] for i in order}
        return tuple(of_line[line] for line in dict.fromkeys(lines))[:MAX_PLACES]
