# Names to codes: each text is held once, and its code is its number in the order of first appearance.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from buffer cimport NO_CODE, Buf, drop, foresee, prefetch, push, push_bytes, zeros
from text cimport equal, push_utf8

cdef extern from "hash.h":
    uint32_t key_of "xla_key"(const char*, size_t) noexcept nogil
    ctypedef struct Slot "xla_slot":
        uint32_t key                              # 0: an empty slot
        int32_t code
    Slot load_slot "xla_load_slot"(const Slot*) noexcept nogil
    void store_slot "xla_store_slot"(Slot*, uint32_t, int32_t) noexcept nogil

cdef enum:
    WAITING = 32                                  # names that are looked up together

cdef struct Items:
    Buf bytes
    Buf ends                                      # int64: end of each item

cdef struct Pool:
    Items items
    Buf table                                     # where the slots lie
    Slot* slots
    uint64_t mask
    const Pool* base                              # texts known already, which are not held again; NULL: none
    int32_t first                                 # how many those are: codes from here on are the pool's own
    int32_t n                                     # texts of its own
    int32_t last                                  # code returned last: names come in runs
    bint failed


cdef inline const char* pool_item(const Pool* pool, int32_t code, size_t* n) noexcept nogil:
    cdef const int64_t* ends
    cdef int64_t begin
    if code < pool.first:
        pool = pool.base
    else:
        code -= pool.first
    ends = <const int64_t*> pool.items.ends.data
    begin = ends[code - 1] if code else 0
    n[0] = <size_t> (ends[code] - begin)
    return pool.items.bytes.data + begin


cdef inline bint pool_rehash(Pool* pool, uint64_t room) noexcept nogil:
    cdef Buf table
    cdef Slot* slots
    cdef uint64_t i, at
    if not zeros(&table, room * sizeof(Slot)):
        pool.failed = True
        return False
    slots = <Slot*> table.data
    if pool.slots != NULL:
        for i in range(pool.mask + 1):
            if pool.slots[i].key:
                at = pool.slots[i].key & (room - 1)
                while slots[at].key:
                    at = (at + 1) & (room - 1)
                slots[at] = pool.slots[i]
        drop(&pool.table)
    pool.table = table
    pool.slots = slots
    pool.mask = room - 1
    return True


cdef inline bint pool_holds(const Pool* pool, int32_t code, const char* p, size_t n) noexcept nogil:
    # Whether the item is this text.
    cdef size_t m
    cdef const char* q = pool_item(pool, code, &m)
    return m == n and equal(q, p, n)


cdef inline bint pool_full(const Pool* pool) noexcept nogil:
    # Two slots in three are in use, or there are none.
    return <uint64_t> pool.n * 3 >= pool.mask * 2


cdef inline int32_t intern_keyed(Pool* pool, const char* p, size_t n, uint32_t key, bint* bad) noexcept nogil:
    # `key` is key_of(p, n).
    cdef Slot* slot
    cdef uint64_t at
    cdef size_t m, before
    cdef int32_t code
    if pool.base != NULL:
        code = pool_find(pool.base, key, p, n)
        if code >= 0:
            pool.last = code
            return code
    if pool_full(pool) and not pool_rehash(pool, (pool.mask + 1) * 2 if pool.mask else 256):
        return 0
    at = key & pool.mask
    while True:
        slot = &pool.slots[at]
        if slot.key == key:
            if pool_holds(pool, slot.code, p, n):
                pool.last = slot.code
                return slot.code
        elif slot.key == 0:
            break
        at = (at + 1) & pool.mask
    before = pool.items.bytes.size
    if not push_utf8(&pool.items.bytes, p, n):
        # Stored escaped. The escaped text may be there already, so it is looked up under its own key.
        bad[0] = True
        m = pool.items.bytes.size - before
        pool.items.bytes.size = before
        return intern_escaped(pool, m, bad)
    push(&pool.items.ends, <int64_t> pool.items.bytes.size)
    if pool.items.bytes.failed or pool.items.ends.failed:
        pool.failed = True
        return 0
    pool.last = pool.first + pool.n
    store_slot(slot, key, pool.last)
    pool.n += 1
    return pool.last


cdef inline int32_t pool_find(const Pool* pool, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Code of a stored text whose key is known; -1 if it is not there. Changes nothing. What was added to the slots
    # behind a snapshot's back has codes that it does not know.
    cdef Slot slot
    cdef uint64_t at = key & pool.mask
    if pool.slots == NULL:
        return NO_CODE
    while True:
        slot = load_slot(&pool.slots[at])
        if slot.key == 0:
            return NO_CODE
        if slot.key == key and slot.code < pool.n and pool_holds(pool, slot.code, p, n):
            return slot.code
        at = (at + 1) & pool.mask


cdef inline void pool_look_up(const Pool* pool, const Pool* other, int32_t* codes, int32_t i, int32_t end) noexcept nogil:
    # codes[i] = the code here of the other pool's own item i, -1 if it is not here. Slots, places and texts of some
    # items are called into the cache together.
    cdef uint32_t[WAITING] keys
    cdef int32_t k, m
    cdef size_t n
    cdef const char* p
    while i < end:
        m = min(<int32_t> WAITING, end - i)
        for k in range(m):
            p = pool_item(other, other.first + i + k, &n)
            keys[k] = key_of(p, n)
            prefetch(pool.slots + (keys[k] & pool.mask))
        if pool.n:
            for k in range(m):
                prefetch(pool.items.ends.data + 8 * <size_t> pool.slots[keys[k] & pool.mask].code)
            for k in range(m):
                prefetch(pool_item(pool, pool.slots[keys[k] & pool.mask].code, &n))
        for k in range(m):
            p = pool_item(other, other.first + i + k, &n)
            codes[i + k] = pool_find(pool, keys[k], p, n)
        i += m


cdef inline int32_t pool_append(Pool* pool, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Adds a stored text of another pool, known not to be there.
    cdef uint64_t at
    if pool_full(pool) and not pool_rehash(pool, (pool.mask + 1) * 2 if pool.mask else 256):
        return 0
    at = key & pool.mask
    while pool.slots[at].key:
        at = (at + 1) & pool.mask
    push_bytes(&pool.items.bytes, p, n)
    push(&pool.items.ends, <int64_t> pool.items.bytes.size)
    if pool.items.bytes.failed or pool.items.ends.failed:
        pool.failed = True
        return 0
    store_slot(&pool.slots[at], key, pool.n)
    pool.n += 1
    return pool.n - 1


cdef inline int32_t intern_escaped(Pool* pool, size_t n, bint* bad) noexcept nogil:
    # The n bytes just behind the pool's last item (left there by push_utf8) are pure UTF-8.
    cdef char* copy = <char*> realloc(NULL, n + 1)
    cdef int32_t code = 0
    if copy == NULL:
        pool.failed = True
        return 0
    memcpy(copy, pool.items.bytes.data + pool.items.bytes.size, n)
    code = intern_keyed(pool, copy, n, key_of(copy, n), bad)
    free(copy)
    return code


cdef inline int32_t intern(Pool* pool, const char* p, size_t n, bint* bad) noexcept nogil:
    # Code of a text; sets bad[0] if it held bytes that are not UTF-8.
    cdef size_t m
    cdef const char* q
    if pool.n or pool.first:
        q = pool_item(pool, pool.last, &m)
        if m == n and equal(p, q, n):
            return pool.last
    return intern_keyed(pool, p, n, key_of(p, n), bad)


cdef inline int32_t intern_name(Pool* pool, const char* p, size_t n) noexcept nogil:
    # For names, whose characters are ASCII by grammar.
    cdef bint bad = False
    return intern(pool, p, n, &bad)


cdef inline bint pool_expect(Pool* pool, uint64_t n) noexcept nogil:
    # Room for n texts in all.
    cdef uint64_t room = pool.mask + 1 if pool.slots != NULL else 256
    while room * 2 < n * 3:
        room *= 2
    return (room == pool.mask + 1 and pool.slots != NULL) or pool_rehash(pool, room)


cdef inline void pool_foresee(Pool* pool, const Pool* sample, double names, double texts) noexcept nogil:
    # Room for so many names, and for `texts` times the texts of a sample, in a pool that is empty still.
    if pool.n == 0:
        pool_expect(pool, <uint64_t> (sample.n * texts if pool.first else names))
        foresee(&pool.items.bytes, 2, &sample.items.bytes, texts)


cdef inline void pool_drop(Pool* pool) noexcept nogil:
    drop(&pool.items.bytes)
    drop(&pool.items.ends)
    drop(&pool.table)
    memset(pool, 0, sizeof(Pool))
