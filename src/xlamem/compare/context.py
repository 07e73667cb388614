"""What the rules that find edits look at, and what they return."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, Mask, arrow_array, encoded, flags_of, groups_of, ints, is_in, sums_of
from ..compute.layout import TEMP
from ..compute.lazy import cached_property
from ..compute.op_names import CALL, folded_paths, matching, patterns_of, scopes
from ..compute.program import Program
from ..dump import hlo_body
from ..parse.hlo_body import HloBody
from .compiler import chip_of, other_chip
from .graph import both_sides
from .instructions import OUTPUT, RESIZED
from .interface import Interface
from .matching import Matching
from .rows import Differences, Shape, ShapePairs, parsed, text_matches

UNNAMED = r"^\(|;|^[a-z\-_]+\.(?:\d+|\*)$"
"""Several op_names, in parentheses or separated by `;`, or the name of an instruction instead (`broadcast.37`)."""
CONVERSION = r"(?:^|/)(?:convert_element_type|reduce_precision|Cast(?:_(?:\d+|\*))?)$"
"""Operations that convert element types, as JAX and TensorFlow name them."""
TENSORFLOW_MOVE = r"(?:^|/)(?:Cast|Reshape|[Tt]ranspose|Squeeze|ExpandDims|Identity)(?:_(?:\d+|\*))?$"
"""Operations of TensorFlow that only move or convert bytes."""
PRODUCT_NAME = r"(?:^|/)(?:dot_general|conv_general_dilated)$"
"""Operations that multiply matrices: XLA gives fusions their names."""
COLLECTIVES = r"^(?:all|collective|ragged-all|reduce-scatter)(?:-[a-z]+)*$"
DEVICE_NUMBER = r"^(?:partition|replica)-id$"
SHARDED = r"\bdevices=\[[\d,]*(?:[2-9]|1\d)"
"""A sharding over several devices as old compilers print it."""
FLOAT = r"^(?:f\d|bf16)"
TILED = r"(bf16\[[\d,]*\])\{[\d,]*:T\((\d+),128\)"
"""Arrays of bfloat16 in tiles of some rows."""
TALL = 16
"""Rows of the tiles that TPU7x has for bfloat16."""
MAX_NAMES = 3
"""Number of names in a clause."""
MAX_SCOPES = 64
"""Maximum number of scopes around an operation: together, they are as long as the square of its depth."""


Result = TypeVar("Result")
Types = dict[str, Counter[str]]
Evidence = Literal["interface", "names", "buffers", "files"]


class Edit(NamedTuple):
    """Something that differs between two programs, and the contributions that it explains."""

    kind: str
    """A key of `schema.EDITS`."""
    text: str
    """What differs, as a clause."""
    claims: Mask
    """The contributions; those that an earlier edit explains do not count."""
    evidence: Evidence
    """Where the edit was found: a key of `schema.EVIDENCE`."""


@dataclass(frozen=True, eq=False)
class Names:
    """The op_names of the instructions of a program."""

    codes: Ints
    """By instruction; -1 for none."""
    texts: pa.Array
    frames: Ints
    """The stack frame of each instruction; negative if it is not printed."""
    is_parameter: Mask | None = None
    """Whether each instruction is a parameter, if known."""

    @cached_property
    def _patterns(self) -> tuple[Ints, pa.Array]:
        return patterns_of(self.texts)

    def match(self, pattern: str) -> Mask:
        """Return whether each text contains a pattern, which must treat all digits alike."""
        codes, patterns = self._patterns
        return matching(patterns, pattern)[codes] if len(codes) else np.zeros(0, bool)

    def places(self) -> Ints:
        """Return the number of different stack frames of each text: of the lines of the model, not of its copies."""
        named = self.codes >= 0
        first, _ = groups_of(self.codes[named], np.unique(self.frames[named], return_inverse=True)[1])
        counts: Ints = np.bincount(self.codes[named][first], minlength=len(self.texts))
        return counts

    @cached_property
    def in_model(self) -> Mask:
        """Whether the model has an operation of each text. Others, which XLA made, have no stack frame."""
        counts = np.bincount(self.codes[(self.codes >= 0) & (self.frames > 0)], minlength=len(self.texts))
        if not counts.any():  # old versions of JAX print files and lines instead; arguments have neither
            named = self.codes >= 0 if self.is_parameter is None else (self.codes >= 0) & ~self.is_parameter
            counts = np.bincount(self.codes[named], minlength=len(self.texts))
        in_model: Mask = counts > 0
        return in_model

    @cached_property
    def paths(self) -> tuple[Ints, list[str]]:
        """The texts with wrappers and folded layers: codes (-1 for names that are merged or made by XLA) and texts."""
        return self._paths_without(rf"^$|{UNNAMED}|{CALL}")

    @cached_property
    def paths_and_calls(self) -> tuple[Ints, list[str]]:
        """The same with names that end in a transformation, as those of operations that it inlines do."""
        return self._paths_without(rf"^$|{UNNAMED}")

    @cached_property
    def _folded(self) -> tuple[Ints, pa.Array]:
        return folded_paths(self.texts, plain=False)

    def _paths_without(self, pattern: str) -> tuple[Ints, list[str]]:
        codes, paths = self._folded
        named = ~matching(paths, pattern)
        return np.where(self.in_model & named[codes], codes, -1), paths.to_pylist()

    def folded(self) -> set[str | None]:
        """Return the distinct texts without wrappers and with folded layers."""
        codes, paths = folded_paths(self.texts)
        return set(pc.take(paths, arrow_array(np.unique(codes[codes >= 0]))).to_pylist())

    def lines(self) -> Counter[str]:
        """Return the number of lines with each operation."""
        counts: Counter[str] = Counter()
        codes, paths = self.paths
        named = codes >= 0
        for path, n in zip(paths, sums_of(self.places()[named], codes[named], len(paths)).tolist(), strict=True):
            counts[path] += n
        return +counts

    def scopes_of(self, pattern: str) -> set[str]:
        """Return the scopes, with folded layers, of the op_names that match."""
        matched = pc.filter(self.texts, arrow_array(self.match(pattern)))
        return {name or "" for name in scopes(matched, fold=True).to_pylist()}

    def count(self, pattern: str) -> int:
        """Return the number of instructions whose op_name matches."""
        return int(self.instructions(pattern).sum())

    def instructions(self, pattern: str) -> Mask:
        """Return the instructions whose op_name matches."""
        return flags_of(self.match(pattern), self.codes)


class Context:
    """What the rules look at: two programs, and the contributions to their difference."""

    def __init__(self, m: Matching, rows: Differences) -> None:
        self.m, self.rows = m, rows
        self._results: dict[str, Any] = {}

    def once(self, key: str, compute: Callable[[], Result]) -> Result:
        """Return the result cached under `key`, computed on first use: what several rules of a module need."""
        if key not in self._results:
            self._results[key] = compute()
        result: Result = self._results[key]
        return result

    @cached_property
    def interface(self) -> Interface:
        return Interface(self.m)

    @property
    def platforms_differ(self) -> bool:
        return self.m.a.tables.platform != self.m.b.tables.platform

    @cached_property
    def _chips(self) -> tuple[str | None, str | None]:
        return chip_of(self.m.a), chip_of(self.m.b)

    @property
    def has_chips(self) -> bool:
        """Whether the files of both dumps name the chip."""
        return all(self._chips)

    @cached_property
    def other_chip(self) -> str | None:
        """What says that both programs were compiled for different chips, as a clause."""
        if self.platforms_differ:
            return None
        return other_chip(*self._chips) if self.has_chips else self._chip_of_other_layouts()

    def _chip_of_other_layouts(self) -> str | None:
        """Say that chips differ if only one side has bfloat16 arrays in tiles of 16 rows that both sides have.

        Of the TPUs, only TPU7x has such tiles, and only TPU v4 has a cmem, and no vmem that XLA uses.
        """
        caches = [{s.name for s in p.spaces} & {"cmem", "vmem"} for p in (self.m.a, self.m.b)]
        if all(len(names) == 1 for names in caches) and caches[0] != caches[1]:
            return f"compiled for another TPU, with {min(caches[1])} instead of {min(caches[0])}"
        a, b = (_rows_of_tiles(p) for p in (self.m.a, self.m.b))
        tall_a, tall_b = ({shape for shape, rows in side if rows == TALL} for side in (a, b))
        others = {shape for shape, rows in (b if tall_a else a) if rows == TALL // 2}
        if bool(tall_a) == bool(tall_b) or (tall_a or tall_b).isdisjoint(others):
            return None
        before, after = (TALL if tall else TALL // 2 for tall in (tall_a, tall_b))
        return f"compiled for another TPU, with tiles of {after} rows for bf16 instead of {before}"

    @property
    def platforms(self) -> set[str | None]:
        """The platforms of both programs, None for one that is not known."""
        return {self.m.a.tables.platform, self.m.b.tables.platform}

    @property
    def none(self) -> Mask:
        """No contribution."""
        return np.zeros(self.rows.n, bool)

    @cached_property
    def _matched(self) -> tuple[Ints, Ints, Ints]:
        """Matched values of A and B, and the larger of their sizes."""
        a = np.flatnonzero(self.m.value >= 0)
        b = self.m.value[a]
        return a, b, np.maximum(self.m.a.size[a], self.m.b.size[b])

    @property
    def matched_bytes(self) -> int:
        return int(self._matched[2].sum())

    @cached_property
    def resized(self) -> list[tuple[Shape, Shape, int]]:
        """Distinct pairs of shapes that differ between values of the same operation, and the bytes of these values."""
        return self._reshaped(np.isin(self.m.rule[self._matched[0]], (OUTPUT, RESIZED)))

    @cached_property
    def reshaped(self) -> list[tuple[Shape, Shape, int]]:
        """Distinct pairs of shapes that differ between matched values, and the bytes of these values."""
        return self._reshaped(np.ones(len(self._matched[0]), bool))

    def _reshaped(self, chosen: Mask) -> list[tuple[Shape, Shape, int]]:
        return [(x, y, n) for x, y, n in self._shapes(chosen).weighed() if x != y]

    def _shapes(self, chosen: Mask) -> ShapePairs:
        """Return the shapes of these matched values."""
        a, b, size = (column[chosen] for column in self._matched)
        return ShapePairs(self.m.a.value_text("shape", a), self.m.b.value_text("shape", b), size)

    @cached_property
    def temporaries(self) -> list[tuple[Shape, Shape, int]]:
        """Distinct pairs of shapes of matched temporaries, also of those that are alike, and the bytes of these."""
        a, b, _ = self._matched
        categories = self.m.a.categories_of(a), self.m.b.categories_of(b)
        return [*self._shapes((categories[0] == TEMP) & (categories[1] == TEMP)).weighed()]

    @cached_property
    def dimensions(self) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
        """The dimensions of all buffers of both programs."""
        a, b = both_sides(_dimensions, self.m.a, self.m.b)
        return a, b

    @cached_property
    def devices(self) -> tuple[int, int]:
        """The number of devices of both programs; 0 if it is not known.

        Old compilers do not print it, and new ones do not print 1: a program that needs several has an unknown number.
        """
        if len(self._bodies) < 2:
            return 0, 0
        sides = zip(self._bodies, self.opcodes, (self.interface.a, self.interface.b), strict=True)
        a, b = (body.devices or int(not _is_shared(names, own.sharding)) for body, names, own in sides)
        return a, b

    @cached_property
    def op_names(self) -> tuple[Names, Names]:
        """The op_names of both programs: from the HLO texts, which have those inside fusions, if both are there."""
        return self._names("op_name")

    @cached_property
    def lines(self) -> tuple[Counter[str], Counter[str]]:
        """The number of lines of the model with each operation."""
        return both_sides(Names.lines, *self.op_names)

    @cached_property
    def operations(self) -> tuple[set[str | None], set[str | None]]:
        """The op_names of both programs without wrappers and with folded layers."""
        a, b = both_sides(Names.folded, *self.op_names)
        return a, b

    @cached_property
    def opcodes(self) -> tuple[Names, Names]:
        """The opcodes of both programs, likewise."""
        return self._names("opcode")

    @property
    def instruction_names(self) -> tuple[Names, Names]:
        """The names of the instructions of both programs, likewise."""
        return self._names("instruction")

    @cached_property
    def types(self) -> tuple[Types, Types]:
        """The element types of the results of each operation, by path; of HLO texts only, if both are there."""
        if len(self._bodies) < 2:
            return {}, {}
        first, second = both_sides(_types, *zip(self._bodies, self.op_names, strict=True))
        return first, second

    @cached_property
    def _bodies(self) -> list[HloBody]:
        """The HLO texts. Operations that one lacks because it is truncated are not gone."""
        bodies = [hlo_body(p.tables) for p in (self.m.a, self.m.b)]
        return [body for body in bodies if body is not None and body.complete]

    @cached_property
    def has_names(self) -> bool:
        """Whether the op_names of both programs are known: a dump may lack the used values."""
        return self.has_hlo or all(p.tables["instructions"].num_rows for p in (self.m.a, self.m.b))

    @property
    def has_hlo(self) -> bool:
        """Whether both HLO texts are there, to their ends. Datasets and memory files lack what is inside of fusions."""
        return len(self._bodies) == 2

    def _names(self, column: str) -> tuple[Names, Names]:
        found = [(body.text(column), np.asarray(body.stack_frame_id), body.text("opcode")) for body in self._bodies]
        if len(found) < 2:
            tables = [p.tables["instructions"] for p in (self.m.a, self.m.b)]
            found = [(table[column], ints(table, "stack_frame_id"), table["opcode"]) for table in tables]
        a, b = (
            Names(codes, pc.cast(texts, pa.string()), frames, is_in(opcodes, ["parameter"]))
            for (codes, texts), frames, opcodes in ((encoded(texts), *others) for texts, *others in found)
        )
        return a, b


def _rows_of_tiles(p: Program) -> set[tuple[str, int]]:
    """Return the shapes of bfloat16 arrays on a TPU with the number of rows of their tiles."""
    if p.tables.platform != "tpu":
        return set()
    texts = pc.unique(p.value_text("shape", np.arange(len(p.owner)))).to_pylist()
    found = (re.match(TILED, text) for text in texts if text)
    return {(match[1], int(match[2])) for match in found if match}


def _is_shared(opcodes: Names, sharding: pa.Array) -> bool:
    """Return whether several devices run a program: they exchange data, differ, or have parts of its arguments."""
    texts = pc.fill_null(pc.cast(sharding, pa.string()), "")
    return opcodes.count(f"{COLLECTIVES}|{DEVICE_NUMBER}") > 0 or bool(matching(texts, SHARDED).any())


def _dimensions(p: Program) -> set[tuple[int, ...]]:
    texts = pc.unique(p.value_text("shape", np.arange(len(p.owner)))).to_pylist()
    return {shape.dimensions for text in texts if (shape := parsed(text))}


def _types(side: tuple[HloBody, Names]) -> Types:
    """Return the number of lines of the model by path and floating-point type."""
    body, names = side
    types = body.text("element_type")
    codes, texts = encoded(types)
    computed = ~is_in(body.text("opcode"), ["parameter", "constant"])
    rows = np.flatnonzero(computed & (names.codes >= 0) & text_matches(pc.cast(texts, pa.string()), codes, FLOAT))
    found = np.unique(np.stack([names.codes[rows], codes[rows], names.frames[rows]]), axis=1)
    counts: Types = {}
    path_codes, paths = names.paths
    for name, kind in found[:2].T.tolist():
        if path_codes[name] >= 0:
            counts.setdefault(paths[path_codes[name]], Counter())[texts[kind].as_py()] += 1
    return counts


def with_scopes(paths: Iterable[str]) -> set[str]:
    """Return paths and the scopes around them, of which the outermost ones if there are very many."""
    found: set[str] = set()
    for path in paths:
        ends = (m.start() for m in islice(re.finditer("/", path), MAX_SCOPES))
        found.update([path], (path[:end] for end in ends))
    return found


def listed(names: list[str]) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def are(n: int, noun: str) -> str:
    """Return a number and a noun with its verb: `1 argument is`, `2 arguments are`."""
    return f"{n:,} {noun} is" if n == 1 else f"{n:,} {noun}s are"


def largest(names: pa.Array, rows: Ints, sizes: Ints) -> str:
    """Return the names of the largest of these rows."""
    order = rows[np.argsort(-sizes, kind="stable")]
    return listed(pc.take(names, arrow_array(order[: MAX_NAMES + 1])).to_pylist())
