"""Bytes in unions of address ranges over time, in O(n log n).

All functions take values ordered by group. A group is an allocation, an address space of its own. Live ranges are
closed. A value must end below 2^62, so that no sum of two addresses overflows.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from buffer cimport Buffer, push, release, reserve
from cells cimport (
    MAX_ITEMS, Key, Scratch, add_range, add_union_range, build_cells, build_tree, exclusive_bytes, free_scratch,
    init_scratch, init_union, is_valid_range, largest_group, sort_keys,
)
from xlamem._column cimport own, own_two

cdef enum:
    MAX_WORK = 1 << 25                            # changes of exclusive bytes that are followed, some seconds


cdef inline void fill(Buffer* b, Py_ssize_t n, int64_t value) noexcept nogil:
    # n numbers, all the same.
    cdef Py_ssize_t left = n
    reserve(b, n * 8)
    while left > 0:
        push(b, value)
        left -= 1


cdef inline void add_at(int64_t* out, int64_t steps, int64_t t, int64_t by) noexcept nogil:
    if t < steps:
        out[t] += by


ctypedef fused Step:
    int32_t
    int64_t


def covered(const int32_t[::1] rows not None, const int32_t[::1] group not None,
            const Step[::1] start not None, const Step[::1] end not None,
            const int64_t[::1] offset not None, const int64_t[::1] size not None,
            const int64_t[::1] space not None, int64_t[:, ::1] changes not None):
    """Add to `changes[s, t]` the growth, at step t, of the bytes that live values cover in space s.

    The values are the `rows` of the columns, ordered by group; `space[g]` is the space of group g. Returns the maximum
    of each group over all steps, and the first step at which it is reached (0 if the maximum is 0): two int64 columns
    of len(space).
    """
    cdef Buffer maxima, steps_of_maxima
    cdef Py_ssize_t n = rows.shape[0], n_rows = group.shape[0], steps = changes.shape[1], i, j, k = 0, m, row
    cdef int64_t* out
    cdef int64_t* maximum
    cdef int64_t* step_of_maximum
    cdef int64_t t, before, now, largest = 0
    cdef int32_t g = -1
    cdef Scratch w
    cdef bint good = True
    if start.shape[0] != n_rows or end.shape[0] != n_rows or offset.shape[0] != n_rows or size.shape[0] != n_rows:
        raise ValueError("columns of one table must have one length")
    for i in range(space.shape[0]):
        if not 0 <= space[i] < changes.shape[0]:
            raise ValueError("a group must be of a space")
    for i in range(n):
        row = rows[i]
        if not 0 <= row < n_rows:
            raise ValueError("rows must be of the table")
        if not (
            0 <= group[row] < space.shape[0] and 0 <= start[row] <= end[row] < steps
            and is_valid_range(offset[row], size[row])
        ):
            raise ValueError("a live range must lie in the schedule and a value in its group")
        if group[row] < g:
            raise ValueError("values must be ordered by group")
        if group[row] != g:
            k = i
            g = group[row]
        largest = max(largest, i + 1 - k)
    if largest >= MAX_ITEMS:
        raise ValueError("too many values in one group")
    memset(&maxima, 0, sizeof(Buffer))
    memset(&steps_of_maxima, 0, sizeof(Buffer))
    with nogil:
        fill(&maxima, space.shape[0], 0)
        fill(&steps_of_maxima, space.shape[0], 0)
        maximum = <int64_t*> maxima.data
        step_of_maximum = <int64_t*> steps_of_maxima.data
        good = init_scratch(&w, largest) and not maxima.failed and not steps_of_maxima.failed
        i = 0
        while i < n and good:
            g = group[rows[i]]
            out = &changes[space[g], 0]
            j = i + 1
            while j < n and group[rows[j]] == g:
                j += 1
            m = j - i
            if m == 1:
                row = rows[i]
                add_at(out, steps, start[row], size[row])
                add_at(out, steps, <int64_t> end[row] + 1, -size[row])
                maximum[g] = size[row]
                step_of_maximum[g] = start[row] if size[row] else 0
            else:
                good = init_union(&w.union_, w.bounds, build_cells(&w, &rows[i], &offset[0], &size[0], m))
                for k in range(m):
                    w.keys[2 * k].key = start[rows[i + k]]
                    w.keys[2 * k].item = <int32_t> (2 * k)
                    w.keys[2 * k + 1].key = <int64_t> end[rows[i + k]] + 1
                    w.keys[2 * k + 1].item = <int32_t> (2 * k + 1)
                if good:
                    sort_keys(w.keys, w.other, 2 * m)
                    before = 0
                    k = 0
                    while k < 2 * m:
                        t = w.keys[k].key
                        while k < 2 * m and w.keys[k].key == t:
                            add_union_range(
                                &w.union_, w.left[w.keys[k].item >> 1], w.right[w.keys[k].item >> 1],
                                -1 if w.keys[k].item & 1 else 1)
                            k += 1
                        now = w.union_.nodes[1].once
                        add_at(out, steps, t, now - before)
                        before = now
                        if now > maximum[g]:
                            maximum[g] = now
                            step_of_maximum[g] = t
            i = j
        free_scratch(&w)
    if not good:
        release(&maxima)
        release(&steps_of_maxima)
        raise MemoryError("no memory for a sweep")
    return own_two(&maxima, &steps_of_maxima)


def charge(const int64_t[::1] group not None, const int64_t[::1] ids not None,
           const int64_t[::1] offset not None, const int64_t[::1] size not None):
    """Return the bytes charged to each of the values that are live together, and its exclusive bytes.

    Shared bytes are charged to the lowest id. Values must be ordered by group and id. Returns two int64 columns.
    """
    cdef Buffer charged, single
    cdef Py_ssize_t n = group.shape[0], i, j, k
    cdef int64_t before
    cdef Scratch w
    cdef bint good = True
    if ids.shape[0] != n or offset.shape[0] != n or size.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    if n >= MAX_ITEMS:
        raise ValueError("too many values in one group")
    for i in range(n):
        if not is_valid_range(offset[i], size[i]):
            raise ValueError("a value must lie in its group")
        if i and (group[i] < group[i - 1] or (group[i] == group[i - 1] and ids[i] < ids[i - 1])):
            raise ValueError("values must be ordered by group and id")
    memset(&charged, 0, sizeof(Buffer))
    memset(&single, 0, sizeof(Buffer))
    with nogil:
        good = init_scratch(&w, largest_group(&group[0], n) if n else 0)
        i = 0
        while i < n and good:
            j = i + 1
            while j < n and group[j] == group[i]:
                j += 1
            good = build_tree(&w, &offset[i], &size[i], j - i)
            for k in range(j - i if good else 0):
                before = w.tree.nodes[1].once
                add_range(&w.tree, w.left[k], w.right[k], 1)
                push(&charged, w.tree.nodes[1].once - before)
            for k in range(j - i if good else 0):
                push(&single, exclusive_bytes(&w.tree, 1, 0, w.tree.leaves, w.left[k], w.right[k], 0))
            i = j
        free_scratch(&w)
    charged.failed |= not good
    return own_two(&charged, &single)


cdef struct Maxima:
    # A segment tree of maxima over the steps.
    int64_t* nodes
    int64_t leaves


cdef int64_t maximum_in(const Maxima* maxima, int64_t a, int64_t b) noexcept nogil:
    # The maximum of the steps [a, b].
    cdef int64_t maximum = -1
    a += maxima.leaves
    b += maxima.leaves + 1
    while a < b:
        if a & 1:
            if maxima.nodes[a] > maximum:
                maximum = maxima.nodes[a]
            a += 1
        if b & 1:
            b -= 1
            if maxima.nodes[b] > maximum:
                maximum = maxima.nodes[b]
        a >>= 1
        b >>= 1
    return maximum


cdef bint init_maxima(Maxima* maxima, const int64_t* values, int64_t n) noexcept nogil:
    # False: no memory.
    cdef int64_t i
    maxima.leaves = 1
    while maxima.leaves < n:
        maxima.leaves *= 2
    maxima.nodes = <int64_t*> malloc(2 * maxima.leaves * 8)
    if maxima.nodes == NULL:
        return False
    for i in range(maxima.leaves):
        maxima.nodes[maxima.leaves + i] = values[i] if i < n else -1
    for i in range(maxima.leaves - 1, 0, -1):
        maxima.nodes[i] = max(maxima.nodes[2 * i], maxima.nodes[2 * i + 1])
    return True


cdef struct LiveTree:
    # The candidates by rank of their offset: the largest end of any live one below each node, -1 for none.
    int64_t* end
    int64_t leaves
    int32_t* item                                 # candidate (item of the group) of each rank
    int64_t* offset                               # of each rank
    int64_t n


cdef void set_live(LiveTree* live, int64_t rank, int64_t end) noexcept nogil:
    # Set the end of a candidate; -1: not live.
    cdef int64_t i = rank + live.leaves
    live.end[i] = end
    i >>= 1
    while i:
        live.end[i] = max(live.end[2 * i], live.end[2 * i + 1])
        i >>= 1


cdef void push_overlapping(
    const LiveTree* live, int64_t i, int64_t lo, int64_t hi, int64_t below, int64_t offset, Buffer* out
) noexcept nogil:
    # Push each live candidate of a rank less than `below` that ends after `offset`.
    cdef int64_t middle
    if lo >= below or live.end[i] <= offset:
        return
    if hi - lo == 1:
        push(out, live.item[lo])
        return
    middle = (lo + hi) // 2
    push_overlapping(live, 2 * i, lo, middle, below, offset, out)
    push_overlapping(live, 2 * i + 1, middle, hi, below, offset, out)


cdef int64_t ranks_below(const LiveTree* live, int64_t end) noexcept nogil:
    # The number of candidates with an offset less than `end`.
    cdef int64_t lo = 0, hi = live.n, middle
    while lo < hi:
        middle = (lo + hi) // 2
        if live.offset[middle] < end:
            lo = middle + 1
        else:
            hi = middle
    return lo


cdef struct Sweep:
    # The candidates of one group, swept over the steps.
    int64_t n
    const int64_t* offset
    const int64_t* size
    Maxima maxima
    LiveTree live
    Scratch scratch
    int64_t* out                                  # the result so far
    int64_t* since                                # step from which `exclusive` holds; -1: not live yet, -2: ended
    int64_t* exclusive                            # bytes that only this candidate covers
    int64_t* rank                                 # -1: no candidate
    Key* order
    Buffer changed                                # items whose exclusive bytes may change at the step
    int64_t work                                  # items that were in `changed`


cdef void free_sweep(Sweep* s) noexcept nogil:
    free_scratch(&s.scratch)
    free(s.maxima.nodes)
    free(s.live.end)
    free(s.live.item)
    free(s.live.offset)
    free(s.since)
    free(s.exclusive)
    free(s.rank)
    free(s.order)
    release(&s.changed)


cdef bint init_sweep(Sweep* s, const unsigned char* candidate) noexcept nogil:
    # Allocate the arrays and rank the candidates. False: no memory.
    cdef int64_t i, k = 0, n = s.n
    cdef LiveTree* live = &s.live
    live.leaves = 1
    for i in range(n):
        live.n += candidate[i]
    while live.leaves < live.n:
        live.leaves *= 2
    live.end = <int64_t*> malloc(2 * live.leaves * 8)
    live.item = <int32_t*> malloc((live.n + 1) * 4)
    live.offset = <int64_t*> malloc((live.n + 1) * 8)
    s.since = <int64_t*> malloc((n + 1) * 8)
    s.exclusive = <int64_t*> malloc((n + 1) * 8)
    s.rank = <int64_t*> malloc((n + 1) * 8)
    s.order = <Key*> malloc((live.n + 1) * sizeof(Key))
    if (live.end == NULL or live.item == NULL or live.offset == NULL or s.since == NULL or s.exclusive == NULL
            or s.rank == NULL or s.order == NULL or not init_scratch(&s.scratch, n)):
        return False
    memset(live.end, 255, 2 * live.leaves * 8)
    for i in range(n):
        s.rank[i] = s.since[i] = -1
        if candidate[i]:
            s.order[k].key = s.offset[i]
            s.order[k].item = <int32_t> i
            k += 1
    sort_keys(s.order, s.scratch.other, live.n)
    for i in range(live.n):
        live.item[i] = s.order[i].item
        live.offset[i] = s.order[i].key
        s.rank[s.order[i].item] = i
    return build_tree(&s.scratch, s.offset, s.size, n)


cdef void end_stretch(Sweep* s, int64_t item, int64_t step) noexcept nogil:
    # Account for the steps up to `step` during which the item's exclusive bytes were constant.
    cdef int64_t other
    if 0 <= s.since[item] < step:
        other = maximum_in(&s.maxima, s.since[item], step - 1) - s.exclusive[item]
        if other > s.out[item]:
            s.out[item] = other


cdef void take_event(Sweep* s, int64_t item, bint ends, int64_t step) noexcept nogil:
    # A value begins or ends at the step.
    cdef int64_t end = s.offset[item] + s.size[item]
    cdef Scratch* w = &s.scratch
    add_range(&w.tree, w.left[item], w.right[item], -1 if ends else 1)
    if s.rank[item] >= 0 and ends:
        end_stretch(s, item, step)
        s.since[item] = -2
        set_live(&s.live, s.rank[item], -1)
    elif s.rank[item] >= 0:
        set_live(&s.live, s.rank[item], end)
        push(&s.changed, item)
    if s.size[item]:
        push_overlapping(&s.live, 1, 0, s.live.leaves, ranks_below(&s.live, end), s.offset[item], &s.changed)


cdef bint sweep_steps(Sweep* s, const int64_t* start, const int64_t* end) noexcept nogil:
    # False: more than MAX_WORK.
    cdef Scratch* w = &s.scratch
    cdef Key* events = w.keys
    cdef int64_t i, k = 0, n = 2 * s.n, step, item
    for i in range(s.n):
        events[2 * i].key = start[i]
        events[2 * i].item = <int32_t> (2 * i)
        events[2 * i + 1].key = end[i] + 1
        events[2 * i + 1].item = <int32_t> (2 * i + 1)
    sort_keys(events, w.other, n)
    while k < n:
        step = events[k].key
        s.changed.size = 0
        while k < n and events[k].key == step:
            take_event(s, events[k].item >> 1, events[k].item & 1, step)
            k += 1
            if s.work + <int64_t> (s.changed.size // 8) > MAX_WORK:
                return False
        s.work += s.changed.size // 8
        for i in range(<int64_t> (s.changed.size // 8)):
            item = (<int64_t*> s.changed.data)[i]
            if s.since[item] == step or s.since[item] == -2:
                continue
            end_stretch(s, item, step)
            s.since[item] = step
            s.exclusive[item] = exclusive_bytes(&w.tree, 1, 0, w.tree.leaves, w.left[item], w.right[item], 0)
    return True


cdef void without_sweep(Sweep* s, const int64_t* start, const int64_t* end) noexcept nogil:
    # As if no other value shared bytes with a candidate.
    cdef int64_t i
    for i in range(s.n):
        if s.rank[i] >= 0:
            s.out[i] = maximum_in(&s.maxima, start[i], end[i]) - s.size[i]


def inside(const int64_t[::1] start not None, const int64_t[::1] end not None, const int64_t[::1] offset not None,
           const int64_t[::1] size not None, const unsigned char[::1] candidate not None,
           const int64_t[::1] occupied not None):
    """Return, for each candidate of one group, the maximum over its live range of occupied(t) - its exclusive bytes.

    `occupied` is that of the whole space, one number per step. Returns int64, -1 for values that are no candidates.
    Steps between which the exclusive bytes of a candidate do not change are taken together. If they change too often,
    because many values overlap many others, all bytes of a candidate are taken for exclusive: a lower bound.
    """
    cdef Buffer result
    cdef Py_ssize_t n = start.shape[0], steps = occupied.shape[0], i
    cdef Sweep s
    cdef bint good
    if end.shape[0] != n or offset.shape[0] != n or size.shape[0] != n or candidate.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    if n >= MAX_ITEMS:
        raise ValueError("too many values in one group")
    for i in range(n):
        if not (0 <= start[i] <= end[i] < steps and is_valid_range(offset[i], size[i])):
            raise ValueError("a live range must lie in the schedule and a value in its group")
    memset(&result, 0, sizeof(Buffer))
    if n == 0:
        return own(&result)
    memset(&s, 0, sizeof(Sweep))
    s.n = n
    s.offset, s.size = &offset[0], &size[0]
    with nogil:
        fill(&result, n, -1)
        s.out = <int64_t*> result.data
        good = not result.failed and init_maxima(&s.maxima, &occupied[0], steps) and init_sweep(&s, &candidate[0])
        if good and not sweep_steps(&s, &start[0], &end[0]):
            without_sweep(&s, &start[0], &end[0])
        good = good and not s.changed.failed
        free_sweep(&s)
    if not good:
        release(&result)
        raise MemoryError("no memory for a sweep")
    return own(&result)
