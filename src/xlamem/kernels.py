"""Arrow's compute functions, with the names and arguments that they have in pyarrow.compute.

Importing pyarrow.compute takes a sixth of a quick command, because it wraps and documents 300 functions. Methods such
as `Table.take` and `Array.cast` import it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import _compute

_SCALARS = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), type(None): pa.null()}


def _call(name: str, arguments: tuple[Any, ...], options: Any = None) -> Any:
    # Where Arrow has to infer the type of a scalar, it tries to import dateutil each time.
    typed = [pa.scalar(a, _SCALARS[type(a)]) if type(a) in _SCALARS else a for a in arguments]
    return _compute.call_function(name, typed, options)


def _function(name: str, options: str = "", arity: int = 1) -> Callable[..., Any]:
    """Return a function of `arity` columns. Its other arguments are those of a class of options."""
    if not options:
        return lambda *columns: _call(name, columns)
    make = getattr(_compute, options)
    return lambda *arguments, **others: _call(name, arguments[:arity], make(*arguments[arity:], **others))


add = _function("add")
and_ = _function("and")
and_kleene = _function("and_kleene")
and_not = _function("and_not")
any = _function("any", "ScalarAggregateOptions")  # noqa: A001
array_sort_indices = _function("array_sort_indices", "ArraySortOptions")
case_when = _function("case_when")
coalesce = _function("coalesce")
count_distinct = _function("count_distinct", "CountOptions")
count_substring = _function("count_substring", "MatchSubstringOptions")
dictionary_encode = _function("dictionary_encode")
drop_null = _function("drop_null")
equal = _function("equal")
extract_regex = _function("extract_regex", "ExtractRegexOptions")
filter = _function("filter", "FilterOptions", 2)  # noqa: A001
greater = _function("greater")
if_else = _function("if_else")
index_in = _function("index_in", "SetLookupOptions")
invert = _function("invert")
is_in = _function("is_in", "SetLookupOptions")
is_null = _function("is_null")
is_valid = _function("is_valid")
less = _function("less")
list_element = _function("list_element")
match_substring = _function("match_substring", "MatchSubstringOptions")
match_substring_regex = _function("match_substring_regex", "MatchSubstringOptions")
not_equal = _function("not_equal")
or_ = _function("or")
or_kleene = _function("or_kleene")
replace_substring = _function("replace_substring", "ReplaceSubstringOptions")
replace_substring_regex = _function("replace_substring_regex", "ReplaceSubstringOptions")
replace_with_mask = _function("replace_with_mask")
sort_indices = _function("sort_indices", "SortOptions")
split_pattern = _function("split_pattern", "SplitPatternOptions")
starts_with = _function("starts_with", "MatchSubstringOptions")
struct_field = _function("struct_field", "StructFieldOptions")
sum = _function("sum", "ScalarAggregateOptions")  # noqa: A001
take = _function("take", "TakeOptions", 2)
unique = _function("unique")
utf8_rtrim = _function("utf8_rtrim", "TrimOptions")


def binary_join_element_wise(*texts: Any, null_handling: str = "emit_null") -> Any:
    """Join texts; the last one is the separator."""
    return _call("binary_join_element_wise", texts, _compute.JoinOptions(null_handling))


def cast(values: Any, target_type: pa.DataType) -> Any:
    """Return values of another type. Raises ArrowInvalid if one does not fit."""
    if values.type == target_type:
        return values
    return _call("cast", (values,), _compute.CastOptions(target_type))


def fill_null(values: Any, fill_value: Any) -> Any:
    """Return the values with `fill_value` in place of null."""
    if not values.null_count:
        return values
    return _call("coalesce", (values, pa.scalar(fill_value, values.type)))


def sort_by(table: pa.Table, keys: Sequence[tuple[str, str]]) -> pa.Table:
    """Return the table sorted by these columns, each "ascending" or "descending"; nulls are last."""
    return take(table, _call("sort_indices", (table,), _compute.SortOptions(keys)))


def index(values: Any, value: Any) -> pa.Int64Scalar:
    """Return the first index of a value, or -1."""
    return _call("index", (values,), _compute.IndexOptions(pa.scalar(value, values.type)))
