"""Place blocks of values in an arena: each at the first or the best gap that its live ranges leave.

All numbers are in cells and schedule steps, and live ranges are closed. Positions and sizes must add up to less than
2^60, so that no sum of them overflows.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from buffer cimport Buffer, push, push_code, release, reserve
from cells cimport MAX_ITEMS, Key, sort_keys
from xlamem._column cimport own

cdef enum:
    N_STRETCHES = 256                             # stretches of the schedule by which placed items are listed


cdef int32_t find_root(int32_t* parent, int32_t i) noexcept nogil:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def blocks(const int64_t[::1] start not None, const int64_t[::1] end not None,
           const int64_t[::1] position not None, const int64_t[::1] size not None):
    """Return the block of each value: int64. Values that share cells at some step are in one block.

    Values must be ordered by start. Blocks are numbered by their first value.
    """
    cdef Buffer result
    cdef Py_ssize_t n = start.shape[0], i, j, k, live = 0
    cdef int64_t count = 0
    cdef int32_t* parent
    cdef int32_t* active
    cdef int32_t a, b
    cdef bint good
    check_items(start, end, position, size)
    for i in range(1, n):
        if start[i] < start[i - 1]:
            raise ValueError("values must be ordered by start")
    memset(&result, 0, sizeof(Buffer))
    with nogil:
        parent = <int32_t*> malloc((n + 1) * 4)
        active = <int32_t*> malloc((n + 1) * 4)
        good = parent != NULL and active != NULL
        for i in range(n if good else 0):
            parent[i] = <int32_t> i
            k = 0
            for j in range(live):
                a = active[j]
                if end[a] < start[i]:
                    continue
                active[k] = a
                k += 1
                if position[a] < position[i] + size[i] and position[i] < position[a] + size[a]:
                    a = find_root(parent, a)
                    b = find_root(parent, <int32_t> i)
                    parent[max(a, b)] = min(a, b)
            active[k] = <int32_t> i
            live = k + 1
        reserve(&result, n * 8)
        for i in range(n if good and not result.failed else 0):
            a = find_root(parent, <int32_t> i)
            if a == i:
                push(&result, count)
                count += 1
            else:
                push(&result, (<int64_t*> result.data)[a])
        free(parent)
        free(active)
    if not good:
        release(&result)
        raise MemoryError("no memory for blocks")
    return own(&result)


cdef void check_items(const int64_t[::1] start, const int64_t[::1] end, const int64_t[::1] position,
                      const int64_t[::1] size):
    # Raise ValueError if an item has no steps, or numbers whose sums could overflow.
    cdef Py_ssize_t n = start.shape[0], i
    cdef int64_t limit = <int64_t> 1 << 60, total = 0
    if end.shape[0] != n or position.shape[0] != n or size.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    if n >= MAX_ITEMS:
        raise ValueError("too many values")
    for i in range(n):
        if not (0 <= start[i] <= end[i] and 0 <= position[i] < limit and 0 < size[i] < limit):
            raise ValueError("a value must have cells and steps")
        total += position[i] + size[i]
        if total >= limit:
            raise ValueError("positions and sizes must add up to less than 2^60")


cdef struct Placement:
    # The items placed so far.
    const int64_t* start
    const int64_t* end
    const int64_t* offset                         # of each item in its block
    const int64_t* size
    int64_t* position                             # of each placed item
    int64_t stretch                               # number of steps
    Buffer[N_STRETCHES] starting                  # placed items that start in each stretch
    Buffer[N_STRETCHES] continuing                # placed items that started earlier and are live in the stretch
    Buffer low                                    # Key: a block cannot begin in (low, high)
    Buffer high
    Buffer other                                  # scratch memory for sorting


cdef void forbid_near(Placement* p, int64_t item, const Buffer* placed) noexcept nogil:
    # List where the block of an item cannot begin, because of those placed items that are live at the same step.
    cdef int64_t i, low
    cdef int32_t other
    cdef Key* key
    for i in range(<int64_t> (placed.size // 4)):
        other = (<int32_t*> placed.data)[i]
        if p.start[other] > p.end[item] or p.end[other] < p.start[item]:
            continue
        reserve(&p.low, sizeof(Key))
        if p.low.failed:
            return
        low = p.position[other] - p.offset[item] - p.size[item]
        key = <Key*> (p.low.data + p.low.size)
        key.key = max(low, -1) + 1                # keys are not negative
        key.item = <int32_t> (p.high.size // 8)
        p.low.size += sizeof(Key)
        push(&p.high, p.position[other] + p.size[other] - p.offset[item])


cdef void forbid(Placement* p, int64_t item) noexcept nogil:
    cdef int64_t first = p.start[item] // p.stretch, i
    forbid_near(p, item, &p.continuing[first])
    for i in range(first, p.end[item] // p.stretch + 1):
        forbid_near(p, item, &p.starting[i])


cdef void add_placed(Placement* p, int64_t item, int64_t position) noexcept nogil:
    cdef int64_t first = p.start[item] // p.stretch, i
    p.position[item] = position
    push_code(&p.starting[first], <int32_t> item)
    for i in range(first + 1, p.end[item] // p.stretch + 1):
        push_code(&p.continuing[i], <int32_t> item)


cdef int64_t choose(Placement* p, bint best_fit) noexcept nogil:
    # The first position that is not forbidden, or the one in the smallest gap; -1: no memory.
    cdef int64_t n = <int64_t> (p.low.size // sizeof(Key)), i, low, free_from = 0, chosen = -1, smallest = 0
    cdef Key* keys = <Key*> p.low.data
    p.other.size = 0
    reserve(&p.other, (n + 1) * sizeof(Key))
    if p.low.failed or p.high.failed or p.other.failed:
        return -1
    sort_keys(keys, <Key*> p.other.data, n)
    for i in range(n):
        low = keys[i].key - 1
        if low >= free_from and (chosen < 0 or low - free_from < smallest):
            chosen = free_from
            smallest = low - free_from
            if not best_fit:
                break
        free_from = max(free_from, (<int64_t*> p.high.data)[keys[i].item])
    return free_from if chosen < 0 else chosen


def place(const int32_t[::1] order not None, const int64_t[::1] first not None, const int64_t[::1] start not None,
          const int64_t[::1] end not None, const int64_t[::1] offset not None, const int64_t[::1] size not None,
          bint best_fit):
    """Return the position of each block: int64. Blocks are placed one after another, in this order.

    The items of block b are those from `first[b]` to before `first[b + 1]`, and `offset` is that of an item in its
    block. A block is placed where none of its items shares a cell with an item of another block at any step: at the
    lowest such position, or in the smallest gap that is large enough.
    """
    cdef Buffer result
    cdef Py_ssize_t n = order.shape[0], items = start.shape[0], i, k
    cdef int64_t position, last_step = 0
    cdef int32_t b
    cdef Placement p
    cdef bint good = True
    check_items(start, end, offset, size)
    if first.shape[0] != n + 1 or first[0] != 0 or first[n] != items:
        raise ValueError("each item must be in one block")
    for i in range(n):
        if not 0 <= order[i] < n or first[i] > first[i + 1]:
            raise ValueError("the order must consist of blocks")
    for i in range(items):
        last_step = max(last_step, end[i])
    memset(&p, 0, sizeof(Placement))
    memset(&result, 0, sizeof(Buffer))
    if n == 0 or items == 0:
        return own(&result)
    p.start, p.end, p.offset, p.size = &start[0], &end[0], &offset[0], &size[0]
    p.stretch = last_step // N_STRETCHES + 1
    with nogil:
        p.position = <int64_t*> malloc(items * 8)
        reserve(&result, n * 8)
        good = p.position != NULL and not result.failed
        if good:
            memset(result.data, 0, n * 8)
            result.size = n * 8
        for i in range(n if good else 0):
            b = order[i]
            p.low.size = p.high.size = 0
            for k in range(first[b], first[b + 1]):
                forbid(&p, k)
            position = choose(&p, best_fit)
            if position < 0:
                good = False
                break
            (<int64_t*> result.data)[b] = position
            for k in range(first[b], first[b + 1]):
                add_placed(&p, k, position + offset[k])
        for i in range(N_STRETCHES):
            good = good and not p.starting[i].failed and not p.continuing[i].failed
            release(&p.starting[i])
            release(&p.continuing[i])
        release(&p.low)
        release(&p.high)
        release(&p.other)
        free(p.position)
    if not good:
        release(&result)
        raise MemoryError("no memory for a packing")
    return own(&result)
