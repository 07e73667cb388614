"""What the checks of a whole dump ask of its columns, each in one pass and without temporary arrays."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from buffer cimport NO_INT, Buf, prefetch, push
from xlamem._column cimport own

cdef enum:
    AHEAD = 16                                    # rows that are called into the cache early


def beyond(const long long[::1] room not None, const long long[::1] place not None,
           const long long[::1] offset not None, const long long[::1] size not None):
    """The rows i (int64) whose offset[i] + size[i] is more than room[place[i]]; a negative place has no bound.

    A null (the least int64) counts as 0; an offset or a size below 0 lies in no room.
    """
    cdef Buf out
    cdef Py_ssize_t i, n = place.shape[0]
    cdef int64_t first, bytes_, most
    memset(&out, 0, sizeof(Buf))
    if offset.shape[0] != n or size.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(n):
            if 0 <= place[i] < room.shape[0]:
                first = 0 if offset[i] == NO_INT else offset[i]
                bytes_ = 0 if size[i] == NO_INT else size[i]
                most = room[place[i]]
                if first < 0 or bytes_ < 0 or first > most or bytes_ > most - first:
                    push(&out, i)
    return own(&out)


def agree(const int[::1] rows not None, int64_t low, tuple values not None, tuple records not None, int64_t before):
    """Whether the ids of records ascend from above `before`, and each record is like the value of its id.

    `values` and `records`: name, index, phi and color of each; behind them the id of each record.
    rows[id - low] is the row + 1 of a value, 0 for none.
    """
    cdef const int[::1] names, indices, other_names, other_indices
    cdef const unsigned char[::1] phis, other_phis
    cdef const long long[::1] colors, other_colors, ids
    names, indices, phis, colors = values
    other_names, other_indices, other_phis, other_colors, ids = records
    cdef Py_ssize_t i, k, n = ids.shape[0]
    cdef uint64_t at, behind = rows.shape[0]
    cdef bint good = True
    if other_names.shape[0] != n or other_indices.shape[0] != n or other_phis.shape[0] != n or (
        other_colors.shape[0] != n or indices.shape[0] != names.shape[0] or phis.shape[0] != names.shape[0]
        or colors.shape[0] != names.shape[0]
    ):
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(n):
            at = <uint64_t> ids[i] - <uint64_t> low  # a difference of 64 bits may not fit into 64 bits
            if at < behind and behind - at > AHEAD:
                k = rows[at + AHEAD]
                if 0 < k <= names.shape[0]:
                    prefetch(&names[k - 1])
                    prefetch(&indices[k - 1])
                    prefetch(&phis[k - 1])
                    prefetch(&colors[k - 1])
            k = rows[at] - 1 if ids[i] > before and at < behind else -1
            if not 0 <= k < names.shape[0] or (
                names[k] != other_names[i] or indices[k] != other_indices[i] or phis[k] != other_phis[i]
                or colors[k] != other_colors[i]
            ):
                good = False
                break
            before = ids[i]
    return good


def live_at(int64_t step, const int[::1] owner not None, const long long[::1] start not None,
            const long long[::1] end not None, const unsigned char[::1] full not None,
            unsigned char[::1] seen not None):
    """How many ranges hold the step whose value is `full`; one without a value has -1 as owner.

    seen[row] becomes 1 for each value that has a range.
    """
    cdef Py_ssize_t i, n = owner.shape[0], held = 0
    cdef int k
    if start.shape[0] != n or end.shape[0] != n or full.shape[0] != seen.shape[0]:
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(n):
            k = owner[i]
            if not 0 <= k < seen.shape[0]:
                continue
            seen[k] = 1
            if full[k] and start[i] <= step <= end[i]:
                held += 1
    return held


def unseen(const unsigned char[::1] wanted not None, const long long[::1] place not None,
           const unsigned char[::1] seen not None):
    """The rows i (int64) that are not seen although wanted[place[i]]."""
    cdef Buf out
    cdef Py_ssize_t i
    memset(&out, 0, sizeof(Buf))
    if place.shape[0] != seen.shape[0]:
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(place.shape[0]):
            if not seen[i] and 0 <= place[i] < wanted.shape[0] and wanted[place[i]]:
                push(&out, i)
    return own(&out)


def first_gap(const long long[::1] values not None, int64_t first):
    """The first row i whose value is not first + i; -1 if there is none."""
    cdef Py_ssize_t i, found = -1
    with nogil:
        for i in range(values.shape[0]):
            if values[i] != first + i:
                found = i
                break
    return found
