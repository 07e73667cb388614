"""The functions of `kernels` are those of pyarrow.compute."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from xlamem import kernels

TEXTS = pa.array(["layer_1/a", None, "", "b(a", "layer_1/a"])
ENCODED = TEXTS.dictionary_encode()
NUMBERS = pa.array([3, None, -1, 1 << 62, 3])
FLAGS = pa.array([True, None, False, True, False])
TABLE = pa.table({"text": TEXTS, "n": NUMBERS})
STRUCT = pa.StructArray.from_arrays([pa.array([True, False]), pa.array([True, True])], ["a", "b"])
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("add", (pa.array([1, None]), 3), {}),
    ("and_", (FLAGS, FLAGS), {}),
    ("and_kleene", (FLAGS, FLAGS), {}),
    ("and_kleene", (FLAGS, pa.array([False] * 5)), {}),
    ("and_not", (FLAGS, pa.array([False] * 5)), {}),
    ("any", (FLAGS,), {}),
    ("any", (pa.array([], pa.bool_()),), {"min_count": 0}),
    ("array_sort_indices", (TEXTS,), {}),
    ("binary_join_element_wise", (TEXTS, "x", "/"), {}),
    ("binary_join_element_wise", (TEXTS, "x", "/"), {"null_handling": "skip"}),
    ("case_when", (STRUCT, "first", "second"), {}),
    ("cast", (ENCODED, pa.string()), {}),
    ("cast", (NUMBERS, pa.string()), {}),
    ("cast", (TEXTS, pa.string()), {}),
    ("coalesce", (NUMBERS, 7), {}),
    ("coalesce", (TEXTS, TEXTS, "x"), {}),
    ("count_distinct", (TEXTS,), {}),
    ("count_substring", (TEXTS, "a"), {}),
    ("dictionary_encode", (TEXTS,), {}),
    ("drop_null", (NUMBERS,), {}),
    ("equal", (TEXTS, "b(a"), {}),
    ("equal", (ENCODED, "b(a"), {}),
    ("equal", (NUMBERS, 3), {}),
    ("equal", (NUMBERS, None), {}),
    ("extract_regex", (TEXTS, r"(?P<name>\w+)_(?P<n>\d)"), {}),
    ("fill_null", (NUMBERS, -1), {}),
    ("fill_null", (FLAGS, False), {}),
    ("fill_null", (pa.array(["a", "b"]), ""), {}),
    ("filter", (TABLE, FLAGS), {}),
    ("filter", (TEXTS, FLAGS), {}),
    ("greater", (NUMBERS, 0), {}),
    ("if_else", (FLAGS, "x", TEXTS), {}),
    ("if_else", (FLAGS, None, TEXTS), {}),
    ("index", (TEXTS, "b(a"), {}),
    ("index", (TEXTS, "missing"), {}),
    ("index_in", (TEXTS, pa.array(["b(a", None])), {}),
    ("invert", (FLAGS,), {}),
    ("is_in", (TEXTS, pa.array(["b(a", None])), {}),
    ("is_in", (TEXTS, pa.array(["b(a", None])), {"skip_nulls": True}),
    ("is_null", (TEXTS,), {}),
    ("is_valid", (TEXTS,), {}),
    ("less", (NUMBERS, 3), {}),
    ("list_element", (pa.array([["a", "b"], None]), 1), {}),
    ("match_substring", (TEXTS, "A"), {"ignore_case": True}),
    ("match_substring_regex", (TEXTS, r"_\d"), {}),
    ("not_equal", (TEXTS, "b(a"), {}),
    ("or_", (FLAGS, pa.array([True] * 5)), {}),
    ("or_kleene", (FLAGS, pa.array([True] * 5)), {}),
    ("replace_substring", (TEXTS, "(", ")"), {}),
    ("replace_substring_regex", (TEXTS, r"(\d)", r"<\1>"), {}),
    ("replace_with_mask", (pa.array(["a", "b"]), pa.array([False, True]), pa.array(["c"])), {}),
    ("sort_indices", (TEXTS,), {}),
    ("sort_indices", (pa.chunked_array([TEXTS]),), {}),
    ("sort_indices", (TABLE,), {"sort_keys": [("text", "ascending"), ("n", "ascending")]}),
    ("split_pattern", (TEXTS, "_"), {"max_splits": 1}),
    ("starts_with", (TEXTS, "b("), {}),
    ("struct_field", (STRUCT, "b"), {}),
    ("sum", (NUMBERS,), {}),
    ("sum", (pa.array([], pa.int64()),), {"min_count": 0}),
    ("take", (TABLE, pa.array([1, None, 0])), {}),
    ("take", (pa.chunked_array([TEXTS]), pa.array([4, 0])), {}),
    ("unique", (TEXTS,), {}),
    ("utf8_rtrim", (TEXTS, "a1"), {}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
def test_a_kernel_returns_what_arrow_returns(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    found, expected = (getattr(module, name)(*arguments, **options) for module in (kernels, pc))
    assert found.equals(expected)
    if not isinstance(found, pa.Table):
        assert found.type == expected.type


def test_a_table_is_sorted_as_by_arrow() -> None:
    keys = [("n", "descending"), ("text", "ascending")]
    assert kernels.sort_by(TABLE, keys).equals(TABLE.sort_by(keys))


def test_every_kernel_is_compared() -> None:
    imported = {"Any", "Callable", "Sequence"}
    public = {name for name, value in vars(kernels).items() if callable(value) and not name.startswith("_")}
    assert public - imported == {"sort_by", *(name for name, *_ in CALLS)}


def test_errors_are_those_of_arrow() -> None:
    with pytest.raises(pa.ArrowIndexError):
        kernels.take(TEXTS, pa.array([99]))
    with pytest.raises(pa.ArrowInvalid):
        kernels.cast(TEXTS, pa.int64())


def test_arrow_is_not_asked_to_infer_types() -> None:
    code = (
        "import sys; import pyarrow as pa; from xlamem import kernels; sys.modules.pop('dateutil', None); "
        "kernels.equal(pa.array(['a'], pa.string()), 'a'); kernels.if_else(True, None, pa.array(['a'], pa.string())); "
        "print({'dateutil', 'pyarrow.compute'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
