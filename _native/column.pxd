# Growable columns and the pool of interned text. Plain C structs: no Python object, no GIL.
#
# A push that finds no memory sets `failed` and drops the item, so that loops need no check of their
# own; whoever hands the column over (`_column.own`) raises MemoryError then.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include "steps.h"
    #if defined(__GNUC__)
    #define xla_likely(x) __builtin_expect(!!(x), 1)
    #define xla_prefetch(p) __builtin_prefetch(p)
    #else
    #define xla_likely(x) (x)
    #define xla_prefetch(p) ((void)(p))
    #endif

    static inline uint64_t xla_load64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
    static inline uint64_t xla_load32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }

    static inline uint64_t xla_mix(uint64_t a, uint64_t b) {
    #if defined(__SIZEOF_INT128__)
        unsigned __int128 r = (unsigned __int128)a * b;
        return (uint64_t)r ^ (uint64_t)(r >> 64);
    #else
        a *= b | 1; return a ^ (a >> 32) ^ (b << 7);
    #endif
    }

    /* A hash of short texts, names above all, that has no branch on their length. */
    static inline uint64_t xla_hash_short(const char *p, size_t n) {
        uint64_t t[4];
        xla_first32(p, n, t);
        return xla_mix(t[0] ^ 0xd6e8feb86659fd93u, t[1] ^ 0x9e3779b97f4a7c15u)
               ^ xla_mix(t[2] ^ (n * 0xa0761d6478bd642fu), t[3] ^ 0xe7037ed1a0b428dbu);
    }

    /* A hash of more than 16 characters that stays fast on long shapes (four lanes of 8 bytes). */
    static inline uint64_t xla_hash_long(const char *p, size_t n) {
        const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
        uint64_t h = n * k0;
        if (n > 64) {
            uint64_t l0 = h, l1 = k0, l2 = k1, l3 = ~h;
            while (n > 32) {
                l0 = xla_mix(l0 ^ xla_load64(p), k0); l1 = xla_mix(l1 ^ xla_load64(p + 8), k1);
                l2 = xla_mix(l2 ^ xla_load64(p + 16), k0); l3 = xla_mix(l3 ^ xla_load64(p + 24), k1);
                p += 32; n -= 32;
            }
            h = l0 ^ (l1 << 1) ^ (l2 << 2) ^ (l3 << 3) ^ xla_mix(l1 ^ l3, l0 ^ l2);
        }
        while (n > 16) { h = xla_mix(h ^ xla_load64(p), k1 ^ xla_load64(p + 8)); p += 16; n -= 16; }
        return xla_mix(h ^ xla_load64(p + n - 16) ^ k1, xla_load64(p + n - 8) ^ k0);
    }

    /* The 32 bits that a text is looked up by. */
    static inline uint32_t xla_key(const char *p, size_t n) {
        uint64_t h = n <= 32 ? xla_hash_short(p, n) : xla_hash_long(p, n);
        uint32_t key = (uint32_t)(h ^ h >> 29);
        return key ? key : 1;
    }

    /* A slot is read and written as a whole: a pool may grow while others look into what it held before. (Processors
       that cannot do so may see halves of two slots, which name no text that is sought: texts are compared.) */
    #if defined(__GNUC__) && __SIZEOF_POINTER__ >= 8
    #define XLA_WHOLE_SLOTS 1
    #else
    #define XLA_WHOLE_SLOTS 0
    #endif
    typedef union { struct { uint32_t key; int32_t code; }; uint64_t whole; } xla_slot;

    static inline xla_slot xla_load_slot(const xla_slot *at) {
        xla_slot slot;
    #if XLA_WHOLE_SLOTS
        slot.whole = __atomic_load_n(&at->whole, __ATOMIC_RELAXED);
    #else
        slot = *at;
    #endif
        return slot;
    }

    static inline void xla_store_slot(xla_slot *at, uint32_t key, int32_t code) {
        xla_slot slot;
        slot.key = key;
        slot.code = code;
    #if XLA_WHOLE_SLOTS
        __atomic_store_n(&at->whole, slot.whole, __ATOMIC_RELAXED);
    #else
        *at = slot;
    #endif
    }

    static inline int xla_equal(const char *p, const char *q, size_t n) {
        return n <= 32 ? xla_equal32(p, q, n) : memcmp(p, q, n) == 0;
    }
    """
    bint likely "xla_likely"(bint) noexcept nogil
    void prefetch "xla_prefetch"(const void*) noexcept nogil
    uint32_t key_of "xla_key"(const char*, size_t) noexcept nogil
    bint equal "xla_equal"(const char*, const char*, size_t) noexcept nogil
    bint copy_ascii "xla_copy_ascii"(char*, const char*, size_t) noexcept nogil
    ctypedef struct Slot "xla_slot":
        uint32_t key                              # 0: an empty slot
        int32_t code
    Slot load_slot "xla_load_slot"(const Slot*) noexcept nogil
    void store_slot "xla_store_slot"(Slot*, uint32_t, int32_t) noexcept nogil
    unsigned int head_of "xla_head"(const char*, bint, int) noexcept nogil
    const int64_t NO_INT "INT64_MIN"              # null in a column of integers

cdef extern from "pages.h":
    const size_t GAP "XLA_GAP"                    # bytes between the columns of an arena that must not be accessed
    void forbid "xla_forbid"(const void*, size_t) noexcept nogil
    ctypedef struct Arena "xla_arena":
        size_t size
        long columns
    Arena* arena_for "xla_arena_for"(size_t) noexcept nogil
    void join "xla_join"(Arena*) noexcept nogil
    void leave "xla_leave"(Arena*) noexcept nogil
    void release "xla_release"(char*, size_t) noexcept nogil
    ctypedef struct Buf "xla_buf":
        char* data
        size_t size                               # bytes used
        size_t room                               # bytes that fit
        Arena* arena                              # where data lies; NULL: in a block of its own
        bint failed
    bint make_room "xla_make_room"(Buf*, size_t) noexcept nogil
    bint grow "xla_grow"(Buf*, size_t) noexcept nogil

cdef enum:
    NO_CODE = -1                                  # null in a column of codes
    WAITING = 32                                  # names that are looked up together

cdef struct Text:
    Buf bytes
    Buf offsets                                   # int32: 0, then the end of each item, modulo 2^32
    Buf valid                                     # one byte an item

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


cdef inline void reserve(Buf* b, size_t more) noexcept nogil:
    if b.size + more > b.room:
        grow(b, more)


cdef inline size_t foreseen(size_t size, double times) noexcept nogil:
    return <size_t> (size * times * 1.08) + 1087 & ~<size_t> 63


cdef inline void foresee(Buf* first, size_t n, const Buf* sample, double times) noexcept nogil:
    # Room for n columns to become `times` as long as those of a sample. A column that grows beyond leaves the others.
    cdef size_t i, room, total = 64
    cdef char* data
    cdef Arena* arena
    for i in range(n):
        total += foreseen(max(sample[i].size, first[i].size), times) + GAP
    arena = arena_for(total)
    if arena == NULL:
        return
    data = <char*> arena + 64
    for i in range(n):
        room = foreseen(max(sample[i].size, first[i].size), times)
        if first[i].size:
            memcpy(data, first[i].data, first[i].size)
        drop_block(&first[i])
        first[i].data = data
        first[i].room = room
        first[i].arena = arena
        arena.columns += 1
        forbid(data + room, GAP)
        data += room + GAP
    forbid(data, <char*> arena + arena.size - data)


cdef enum:
    LONG_SPAN = 1 << 20                           # bytes of text from which on columns are sized ahead
    SAMPLES = 12
    SAMPLED = 192                                 # of a span, one part in so many is a sample


cdef inline const char* line_with(const char* p, const char* end, const char* text, size_t n) noexcept nogil:
    # The first line behind p that starts with text; end if there is none.
    while True:
        p = <const char*> memchr(p, c'\n', end - p)
        if p == NULL or p + 1 + n > end:
            return end
        p += 1
        if memcmp(p, text, n) == 0:
            return p


cdef inline const char* sample_at(const char* p, const char* end, int i, const char* text, size_t n) noexcept nogil:
    # Where the i-th sample of a span begins, at a line that starts with text.
    return line_with(p + (end - p) // SAMPLES * i + (end - p) // (2 * SAMPLES), end, text, n)


cdef inline const char* outlook(const char* p, const char* end) noexcept nogil:
    # Where in a span enough was seen to foresee the length of its columns; its end if it is a short one.
    return p + (end - p) // 32 if end - p >= LONG_SPAN else end


cdef inline void drop_block(Buf* b) noexcept nogil:
    if b.arena != NULL:
        leave(b.arena)
    else:
        release(b.data, b.room)


cdef inline void drop(Buf* b) noexcept nogil:
    drop_block(b)
    memset(b, 0, sizeof(Buf))


cdef inline void push(Buf* b, int64_t x) noexcept nogil:
    if likely(b.size + 8 <= b.room) or grow(b, 8):
        (<int64_t*> (b.data + b.size))[0] = x
        b.size += 8


cdef inline void push_code(Buf* b, int32_t x) noexcept nogil:
    if likely(b.size + 4 <= b.room) or grow(b, 4):
        (<int32_t*> (b.data + b.size))[0] = x
        b.size += 4


cdef inline void push_byte(Buf* b, uint8_t x) noexcept nogil:
    if likely(b.size + 1 <= b.room) or grow(b, 1):
        b.data[b.size] = <char> x
        b.size += 1


cdef inline void push_bytes(Buf* b, const char* p, size_t n) noexcept nogil:
    if likely(b.size + n <= b.room) or grow(b, n):
        if n:
            memcpy(b.data + b.size, p, n)
            b.size += n


# Where room was made for some rows at once, their columns need no look at it.

cdef inline bint make_rows(Buf* first, size_t n, size_t rows) noexcept nogil:
    # Room for so many rows of numbers in each of n columns; False: no memory.
    cdef size_t i
    for i in range(n):
        reserve(&first[i], rows * 8)
        if first[i].failed:
            return False
    return True


cdef inline void put(Buf* b, int64_t x) noexcept nogil:
    (<int64_t*> (b.data + b.size))[0] = x
    b.size += 8


cdef inline void put_code(Buf* b, int32_t x) noexcept nogil:
    (<int32_t*> (b.data + b.size))[0] = x
    b.size += 4


cdef inline void put_byte(Buf* b, uint8_t x) noexcept nogil:
    b.data[b.size] = <char> x
    b.size += 1


cdef inline int utf8_length(const char* p, const char* end) noexcept nogil:
    # Length of the well-formed UTF-8 sequence at p, 0 if there is none.
    cdef uint8_t a = <uint8_t> p[0]
    cdef uint8_t b
    cdef int n, i
    if a < 0x80:
        return 1
    if a < 0xC2 or a > 0xF4:
        return 0
    n = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if end - p < n:
        return 0
    b = <uint8_t> p[1]
    if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F) or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
        return 0
    for i in range(1, n):
        if (<uint8_t> p[i] & 0xC0) != 0x80:
            return 0
    return n


cdef inline bint push_utf8(Buf* b, const char* p, size_t n) noexcept nogil:
    # Appends text; bytes that are not UTF-8 become \xNN. Returns whether all of it was UTF-8.
    cdef const char* end = p + n
    cdef const char* digits = "0123456789abcdef"
    cdef int k
    cdef bint good = True
    if likely(b.size + n + 16 <= b.room) or grow(b, n + 16):
        if likely(copy_ascii(b.data + b.size, p, n)):
            b.size += n
            return True
    while p < end:
        k = utf8_length(p, end)
        if k:
            push_bytes(b, p, k)
            p += k
        else:
            good = False
            push_byte(b, c'\\')
            push_byte(b, c'x')
            push_byte(b, digits[<uint8_t> p[0] >> 4])
            push_byte(b, digits[<uint8_t> p[0] & 15])
            p += 1
    return good


cdef inline void text_begin(Text* t) noexcept nogil:
    if t.offsets.size == 0:
        push_code(&t.offsets, 0)


cdef inline void text_end(Text* t, bint valid) noexcept nogil:
    # Closes the item whose bytes were appended to t.bytes.
    text_begin(t)
    push_code(&t.offsets, <int32_t> <uint32_t> t.bytes.size)
    push_byte(&t.valid, valid)


cdef inline bint text_push(Text* t, const char* p, size_t n) noexcept nogil:
    cdef bint good = push_utf8(&t.bytes, p, n)
    text_end(t, True)
    return good


cdef inline void text_null(Text* t) noexcept nogil:
    text_end(t, False)


cdef inline void text_drop(Text* t) noexcept nogil:
    drop(&t.bytes)
    drop(&t.offsets)
    drop(&t.valid)


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


cdef inline bint zeros(Buf* b, size_t n) noexcept nogil:
    # n bytes, written here and now: a page that is read first and written then would cost two faults.
    memset(b, 0, sizeof(Buf))
    b.arena = arena_for(n + 64)
    if b.arena != NULL:
        b.arena.columns = 1
        b.data = <char*> b.arena + 64
        b.room = n
    elif not make_room(b, n):
        return False
    memset(b.data, 0, n)
    b.size = n
    return True


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

cdef struct Part:
    const char* p                                 # NULL: not there
    size_t n

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
