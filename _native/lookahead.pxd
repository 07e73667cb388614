# What was met before, so that a repeat is not looked up again; and names that wait to be looked up together.

from libc.stdint cimport int32_t, uint32_t

from buffer cimport NO_CODE, Buf, prefetch, push_code
from interner cimport WAITING, Pool, intern, intern_keyed, intern_name, key_of, load_slot, pool_item
from text cimport Part, equal

cdef extern from "steps.h":
    unsigned int head_of "xla_head"(const char*, bint, int) noexcept nogil

# What was met before where texts repeat: the last text for each number made of its first characters.

cdef enum:
    MEMO_BITS = 7

cdef struct Met:
    const char* p                                 # in the text that is scanned; NULL: nothing yet
    size_t n
    int32_t code

cdef struct Memo:
    bint two                                      # whether 16 characters make the number, not 8
    Met[128] items                                # 1 << MEMO_BITS


cdef inline Met* memo_at(Memo* memo, const char* p) noexcept nogil:
    return &memo.items[head_of(p, memo.two, MEMO_BITS)]


cdef inline bint is_met(const Met* met, const char* p, const char* end, char stop) noexcept nogil:
    # Whether its text stands at p, with `stop` behind it.
    return met.n < <size_t> (end - p) and p[met.n] == stop and met.p != NULL and equal(p, met.p, met.n)


cdef inline int32_t code_of(Met* met, Pool* pool, const char* p, const char* end, bint* bad) noexcept nogil:
    # Code of a text, which is what was met from now on.
    cdef bint odd = False
    cdef int32_t code
    if met.p != NULL and met.n == <size_t> (end - p) and equal(p, met.p, met.n):
        return met.code
    code = intern(pool, p, end - p, &odd)
    if odd:
        bad[0] = True
    else:
        met.p = p
        met.n = end - p
        met.code = code
    return code


# Names wait until there are some, and are looked up together: by then their slots are in the cache.

cdef struct Wait:
    const char* p
    size_t n
    uint32_t key                                  # 0: the same text as the one before
    Buf* column
    size_t at                                     # where in the column its code belongs

cdef struct Queue:
    Pool* pool
    const Pool* known                             # where most names are found: the pool, or what it is based on
    int n
    Wait[WAITING] items


cdef inline void queue_init(Queue* queue, Pool* pool) noexcept nogil:
    queue.pool = pool
    queue.known = pool if pool.base == NULL else pool.base
    queue.n = 0


cdef inline void push_name(Queue* queue, Buf* column, const char* p, size_t n) noexcept nogil:
    # Appends the code of a name to a column; it is there when the queue is settled.
    cdef Wait* w
    cdef uint32_t key
    if queue.n == WAITING:
        settle(queue)
    w = &queue.items[queue.n]
    if queue.n and w[-1].n == n and equal(w[-1].p, p, n):
        key = 0
    else:
        key = key_of(p, n)
        prefetch(&queue.known.slots[key & queue.known.mask])
    enqueue(queue, column, p, n, key)


cdef inline void push_same(Queue* queue, Buf* column, const char* p, size_t n) noexcept nogil:
    # The same for a name known to be that pushed last.
    if queue.n == 0 or queue.n == WAITING:
        push_name(queue, column, p, n)
    else:
        enqueue(queue, column, p, n, 0)


cdef inline void enqueue(Queue* queue, Buf* column, const char* p, size_t n, uint32_t key) noexcept nogil:
    cdef Wait* w = &queue.items[queue.n]
    w.p = p
    w.n = n
    w.key = key
    w.column = column
    w.at = column.size
    queue.n += 1
    push_code(column, NO_CODE)


cdef inline void settle(Queue* queue) noexcept nogil:
    # Looks up what waits, in the order in which it came.
    cdef Pool* pool = queue.pool
    cdef const Pool* known = queue.known
    cdef Wait* w
    cdef int32_t[WAITING] met
    cdef int32_t code = 0
    cdef bint bad = False
    cdef int i
    cdef size_t n
    if known.n:
        # From the slot to where the text begins and to the text itself: each step waits for the one before.
        for i in range(queue.n):
            met[i] = load_slot(&known.slots[queue.items[i].key & known.mask]).code
            if met[i] >= known.n:                 # added behind a snapshot's back
                met[i] = 0
            prefetch(known.items.ends.data + 8 * <size_t> met[i])
        for i in range(queue.n):
            prefetch(pool_item(known, met[i], &n))
    for i in range(queue.n):
        w = &queue.items[i]
        if w.key:
            code = intern_keyed(pool, w.p, w.n, w.key, &bad)
        if w.at + 4 <= w.column.size:             # not taken back meanwhile
            (<int32_t*> (w.column.data + w.at))[0] = code
    queue.n = 0


# The codes of {} and of {0} to {9} are known without a look-up once they were met.

cdef struct Indices:
    Pool* pool
    int32_t[11] met                               # {0} to {9}, {}; NO_CODE: not met yet


cdef inline void indices_init(Indices* indices, Pool* pool) noexcept nogil:
    cdef int i
    indices.pool = pool
    for i in range(11):
        indices.met[i] = NO_CODE


cdef inline int32_t index_code(Indices* indices, const Part* part) noexcept nogil:
    # Code of a shape index, NO_CODE if there is none.
    cdef int32_t* met
    if part.p == NULL:
        return NO_CODE
    if part.n > 3:
        return intern_name(indices.pool, part.p, part.n)
    met = &indices.met[part.p[1] - c'0' if part.n == 3 else 10]
    if met[0] == NO_CODE:
        met[0] = intern_name(indices.pool, part.p, part.n)
    return met[0]
