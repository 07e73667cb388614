"""Cross-checks of columns, each in one pass without temporary arrays."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from buffer cimport NO_INT, Buffer, prefetch, push
from xlamem._column cimport own

cdef enum:
    PREFETCH_ROWS = 16


def beyond(const long long[::1] capacity not None, const long long[::1] owner not None,
           const long long[::1] offset not None, const long long[::1] size not None):
    """List the rows i (int64) with offset[i] + size[i] > capacity[owner[i]]; a negative owner has no bound.

    Nulls (the least int64) count as 0. Rows with a negative offset or size are listed.
    """
    cdef Buffer out
    cdef Py_ssize_t i, n = owner.shape[0]
    cdef int64_t first, bytes_, limit
    memset(&out, 0, sizeof(Buffer))
    if offset.shape[0] != n or size.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(n):
            if 0 <= owner[i] < capacity.shape[0]:
                first = 0 if offset[i] == NO_INT else offset[i]
                bytes_ = 0 if size[i] == NO_INT else size[i]
                limit = capacity[owner[i]]
                if first < 0 or bytes_ < 0 or first > limit or bytes_ > limit - first:
                    push(&out, i)
    return own(&out)


def agree(const int[::1] order not None, tuple values not None, tuple records not None, Py_ssize_t first):
    """Return whether record i equals the value in row order[first + i].

    `values` and `records` hold name, index, phi, color and id.
    """
    cdef const int[::1] names, indices, other_names, other_indices
    cdef const unsigned char[::1] phis, other_phis
    cdef const long long[::1] colors, ids, other_colors, other_ids
    names, indices, phis, colors, ids = values
    other_names, other_indices, other_phis, other_colors, other_ids = records
    cdef Py_ssize_t i, k, n = other_ids.shape[0], n_values = ids.shape[0]
    cdef bint good = True
    if other_names.shape[0] != n or other_indices.shape[0] != n or other_phis.shape[0] != n or (
        other_colors.shape[0] != n or names.shape[0] != n_values or indices.shape[0] != n_values
        or phis.shape[0] != n_values or colors.shape[0] != n_values
    ):
        raise ValueError("columns of one table must have one length")
    if not 0 <= first <= order.shape[0] - n:
        return False
    with nogil:
        for i in range(first, first + n):
            if order.shape[0] - i > PREFETCH_ROWS:
                k = order[i + PREFETCH_ROWS]
                if 0 <= k < n_values:
                    prefetch(&names[k])
                    prefetch(&indices[k])
                    prefetch(&phis[k])
                    prefetch(&colors[k])
                    prefetch(&ids[k])
            k = order[i]
            if not 0 <= k < n_values or (
                ids[k] != other_ids[i - first] or names[k] != other_names[i - first]
                or indices[k] != other_indices[i - first] or phis[k] != other_phis[i - first]
                or colors[k] != other_colors[i - first]
            ):
                good = False
                break
    return good


def live_at(int64_t step, const int[::1] owner not None, const long long[::1] start not None,
            const long long[::1] end not None, const unsigned char[::1] full not None,
            unsigned char[::1] seen not None):
    """Count the ranges that contain the step and whose value, row owner[i] or -1, has a nonzero `full`.

    Sets seen[row] to 1 for each value that has a range.
    """
    cdef Py_ssize_t i, n = owner.shape[0], count = 0
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
                count += 1
    return count


def unseen(const unsigned char[::1] wanted not None, const long long[::1] owner not None,
           const unsigned char[::1] seen not None):
    """List the rows i (int64) that are not `seen`, although wanted[owner[i]]."""
    cdef Buffer out
    cdef Py_ssize_t i
    memset(&out, 0, sizeof(Buffer))
    if owner.shape[0] != seen.shape[0]:
        raise ValueError("columns of one table must have one length")
    with nogil:
        for i in range(owner.shape[0]):
            if not seen[i] and 0 <= owner[i] < wanted.shape[0] and wanted[owner[i]]:
                push(&out, i)
    return own(&out)


def first_gap(const long long[::1] values not None, int64_t first):
    """Return the first row i whose value is not first + i, or -1."""
    cdef Py_ssize_t i, row = -1
    with nogil:
        for i in range(values.shape[0]):
            if values[i] != first + i:
                row = i
                break
    return row
