# Repeats are recognised before any lookup; names are queued and looked up together.

from libc.stdint cimport int32_t, uint32_t

from buffer cimport NO_CODE, Buffer, prefetch, push_code
from interner cimport LOOKUP_BATCH, Interner, hash_text, intern, intern_hashed, intern_name, interned_text, load_slot
from text cimport Slice, equal

cdef extern from "steps.h":
    unsigned int prefix_hash "xla_prefix_hash"(const char*, bint, int) noexcept nogil


# The last text for each hash of its first characters.

cdef enum:
    REPEAT_BITS = 7

cdef struct Repeat:
    const char* p                                 # in the scanned text; NULL: none yet
    size_t n
    int32_t code

cdef struct RepeatCache:
    bint long_prefix                              # hash 16 characters instead of 8
    Repeat[128] items                             # 1 << REPEAT_BITS


cdef inline Repeat* cached_repeat(RepeatCache* cache, const char* p) noexcept nogil:
    return &cache.items[prefix_hash(p, cache.long_prefix, REPEAT_BITS)]


cdef inline bint is_repeat(const Repeat* cached, const char* p, const char* end, char stop) noexcept nogil:
    # Whether the cached text begins at p and is followed by `stop`.
    return cached.n < <size_t> (end - p) and p[cached.n] == stop and cached.p != NULL and equal(p, cached.p, cached.n)


cdef inline int32_t repeat_code(
    Repeat* cached, Interner* interner, const char* p, const char* end, bint* invalid
) noexcept nogil:
    # Return the code of a text and cache it.
    cdef bint escaped = False
    cdef int32_t code
    if cached.p != NULL and cached.n == <size_t> (end - p) and equal(p, cached.p, cached.n):
        return cached.code
    code = intern(interner, p, end - p, &escaped)
    if escaped:
        invalid[0] = True
    else:
        cached.p = p
        cached.n = end - p
        cached.code = code
    return code


# A queue of names. By the time they are looked up, their slots are in the cache.

cdef struct QueuedName:
    const char* p
    size_t n
    uint32_t key                                  # hash of the name; 0: same as the previous name
    Buffer* column
    size_t offset                                 # of its code in the column

cdef struct NameQueue:
    Interner* interner
    const Interner* likely_in                     # holds most names: the interner or its base
    int n
    QueuedName[LOOKUP_BATCH] items


cdef inline void init_queue(NameQueue* queue, Interner* interner) noexcept nogil:
    queue.interner = interner
    queue.likely_in = interner if interner.base == NULL else interner.base
    queue.n = 0


cdef inline void push_name(NameQueue* queue, Buffer* column, const char* p, size_t n) noexcept nogil:
    # Append the code of a name to a column. It is filled in when the queue is flushed.
    cdef QueuedName* item
    cdef uint32_t key
    if queue.n == LOOKUP_BATCH:
        flush_names(queue)
    item = &queue.items[queue.n]
    if queue.n and item[-1].n == n and equal(item[-1].p, p, n):
        key = 0
    else:
        key = hash_text(p, n)
        prefetch(&queue.likely_in.slots[key & queue.likely_in.mask])
    enqueue(queue, column, p, n, key)


cdef inline void push_same_name(NameQueue* queue, Buffer* column, const char* p, size_t n) noexcept nogil:
    # The same for a name that equals the previous one.
    if queue.n == 0 or queue.n == LOOKUP_BATCH:
        push_name(queue, column, p, n)
    else:
        enqueue(queue, column, p, n, 0)


cdef inline void enqueue(NameQueue* queue, Buffer* column, const char* p, size_t n, uint32_t key) noexcept nogil:
    cdef QueuedName* item = &queue.items[queue.n]
    item.p = p
    item.n = n
    item.key = key
    item.column = column
    item.offset = column.size
    queue.n += 1
    push_code(column, NO_CODE)


cdef inline void flush_names(NameQueue* queue) noexcept nogil:
    # Look up the queued names in order.
    cdef Interner* interner = queue.interner
    cdef const Interner* likely_in = queue.likely_in
    cdef QueuedName* item
    cdef int32_t[LOOKUP_BATCH] codes
    cdef int32_t code = 0
    cdef bint invalid = False
    cdef int i
    cdef size_t n
    if likely_in.n:
        # Each load depends on the previous one: the slot, the offset of its text, the text.
        for i in range(queue.n):
            codes[i] = load_slot(&likely_in.slots[queue.items[i].key & likely_in.mask]).code
            if codes[i] >= likely_in.n:           # added after the snapshot
                codes[i] = 0
            prefetch(likely_in.texts.ends.data + 8 * <size_t> codes[i])
        for i in range(queue.n):
            prefetch(interned_text(likely_in, codes[i], &n))
    for i in range(queue.n):
        item = &queue.items[i]
        if item.key:
            code = intern_hashed(interner, item.p, item.n, item.key, &invalid)
        if item.offset + 4 <= item.column.size:   # otherwise its row was removed
            (<int32_t*> (item.column.data + item.offset))[0] = code
    queue.n = 0


# The codes of {} and {0} to {9}, once interned, need no lookup.

cdef struct IndexCodes:
    Interner* interner
    int32_t[11] cached                            # {0} to {9}, {}; NO_CODE: not interned yet


cdef inline void init_index_codes(IndexCodes* indices, Interner* interner) noexcept nogil:
    cdef int i
    indices.interner = interner
    for i in range(11):
        indices.cached[i] = NO_CODE


cdef inline int32_t index_code(IndexCodes* indices, const Slice* index) noexcept nogil:
    # Code of a shape index, NO_CODE if it is absent.
    cdef int32_t* code
    if index.p == NULL:
        return NO_CODE
    if index.n > 3:
        return intern_name(indices.interner, index.p, index.n)
    code = &indices.cached[index.p[1] - c'0' if index.n == 3 else 10]
    if code[0] == NO_CODE:
        code[0] = intern_name(indices.interner, index.p, index.n)
    return code[0]
