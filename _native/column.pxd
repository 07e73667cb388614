# Growable columns and the pool of interned text. Plain C structs: no Python object, no GIL.
#
# A push that finds no memory sets `failed` and drops the item, so that loops need no check of their
# own; whoever hands the column over (`_column.own`) raises MemoryError then.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__)
    #define xla_likely(x) __builtin_expect(!!(x), 1)
    #else
    #define xla_likely(x) (x)
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

    /* A hash for short names that stays fast on long shapes (four lanes of 8 bytes). */
    static inline uint64_t xla_hash(const char *p, size_t n) {
        const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
        uint64_t a, b, h = n * k0;
        if (n >= 8) {
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
            if (n >= 8) { a = xla_load64(p); b = xla_load64(p + n - 8); }
            else { a = xla_load64(p + n - 8); b = 0; }
        } else if (n >= 4) { a = xla_load32(p); b = xla_load32(p + n - 4); }
        else if (n > 0) { a = ((uint64_t)(uint8_t)p[0] << 16) | ((uint64_t)(uint8_t)p[n >> 1] << 8) | (uint8_t)p[n - 1]; b = 0; }
        else { a = b = 0; }
        h = xla_mix(h ^ a ^ k1, b ^ k0);
        return h ^ (h >> 29);
    }

    /* The 32 bits that a text is looked up by. Texts that differ in a last digit below 8 lie in neighbouring
       slots, in one cache line: fusion.120, fusion.121, … are met together. */
    static inline uint32_t xla_key(const char *p, size_t n) {
        unsigned last = n ? (uint8_t)p[n - 1] - '0' : 255u;
        uint32_t key = (uint32_t)(last < 8 ? (xla_hash(p, n - 1) & ~7u) | last : xla_hash(p, n));
        return key ? key : 1;
    }

    static inline int xla_equal(const char *p, const char *q, size_t n) {
        if (n > 16) return memcmp(p, q, n) == 0;
        if (n >= 8) return ((xla_load64(p) ^ xla_load64(q)) | (xla_load64(p + n - 8) ^ xla_load64(q + n - 8))) == 0;
        if (n >= 4) return ((xla_load32(p) ^ xla_load32(q)) | (xla_load32(p + n - 4) ^ xla_load32(q + n - 4))) == 0;
        for (size_t i = 0; i < n; i++) if (p[i] != q[i]) return 0;
        return 1;
    }

    /* Large columns in large pages: fewer page faults. */
    #if defined(__linux__)
    #include <sys/mman.h>
    static inline void xla_large(char *p, size_t n) {
        uintptr_t a = ((uintptr_t)p + 4095) & ~(uintptr_t)4095;
        if (n >= (4u << 20)) madvise((void *)a, n - (a - (uintptr_t)p), MADV_HUGEPAGE);
    }
    #else
    static inline void xla_large(char *p, size_t n) { (void)p; (void)n; }
    #endif

    static inline int xla_ascii(const char *p, size_t n) {
        uint64_t any = 0; size_t i = 0;
        for (; i + 8 <= n; i += 8) any |= xla_load64(p + i);
        for (; i < n; i++) any |= (uint8_t)p[i];
        return (any & 0x8080808080808080u) == 0;
    }
    """
    bint likely "xla_likely"(bint) noexcept nogil
    uint32_t key_of "xla_key"(const char*, size_t) noexcept nogil
    bint equal "xla_equal"(const char*, const char*, size_t) noexcept nogil
    void large "xla_large"(char*, size_t) noexcept nogil
    bint ascii "xla_ascii"(const char*, size_t) noexcept nogil
    const int64_t NO_INT "INT64_MIN"              # null in a column of integers

cdef enum:
    NO_CODE = -1                                  # null in a column of codes

cdef struct Buf:
    char* data
    size_t size                                   # bytes used
    size_t room                                   # bytes that fit
    bint failed

cdef struct Text:
    Buf bytes
    Buf ends                                      # int64: end of each item
    Buf valid                                     # one byte an item

cdef struct Pool:
    Text items
    Buf keys                                      # uint32 of each item
    uint8_t* tags                                 # a byte of the key at each slot; 0 is empty
    int32_t* codes                                # the item at each slot
    uint64_t mask
    int32_t n
    int32_t last                                  # code returned last: names come in runs
    bint failed


cdef inline bint grow(Buf* b, size_t more) noexcept nogil:
    cdef size_t room = b.room + (b.room >> 1) + 256
    cdef char* data
    if room < b.size + more:
        room = b.size + more
    data = <char*> realloc(b.data, room)
    if data == NULL:
        b.failed = True
        return False
    large(data, room)
    b.data = data
    b.room = room
    return True


cdef inline void reserve(Buf* b, size_t more) noexcept nogil:
    if b.size + more > b.room:
        grow(b, more)


cdef inline void drop(Buf* b) noexcept nogil:
    free(b.data)
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
    if likely(ascii(p, n)):
        push_bytes(b, p, n)
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


cdef inline void text_end(Text* t, bint valid) noexcept nogil:
    # Closes the item whose bytes were appended to t.bytes.
    push(&t.ends, <int64_t> t.bytes.size)
    push_byte(&t.valid, valid)


cdef inline bint text_push(Text* t, const char* p, size_t n) noexcept nogil:
    cdef bint good = push_utf8(&t.bytes, p, n)
    text_end(t, True)
    return good


cdef inline void text_null(Text* t) noexcept nogil:
    text_end(t, False)


cdef inline void text_drop(Text* t) noexcept nogil:
    drop(&t.bytes)
    drop(&t.ends)
    drop(&t.valid)


cdef inline const char* pool_item(const Pool* pool, int32_t code, size_t* n) noexcept nogil:
    cdef const int64_t* ends = <const int64_t*> pool.items.ends.data
    cdef int64_t begin = ends[code - 1] if code else 0
    n[0] = <size_t> (ends[code] - begin)
    return pool.items.bytes.data + begin


cdef inline bint pool_rehash(Pool* pool, uint64_t room) noexcept nogil:
    cdef uint8_t* tags = <uint8_t*> realloc(NULL, room)
    cdef int32_t* codes = <int32_t*> realloc(NULL, room * 4)
    cdef uint64_t at
    cdef uint32_t key
    cdef int32_t i
    if tags == NULL or codes == NULL:
        free(tags)
        free(codes)
        pool.failed = True
        return False
    memset(tags, 0, room)
    for i in range(pool.n):
        key = (<uint32_t*> pool.keys.data)[i]
        at = key & (room - 1)
        while tags[at]:
            at = (at + 1) & (room - 1)
        tags[at] = tag_of(key)
        codes[at] = i
    free(pool.tags)
    free(pool.codes)
    pool.tags = tags
    pool.codes = codes
    pool.mask = room - 1
    return True


cdef inline uint8_t tag_of(uint32_t key) noexcept nogil:
    return <uint8_t> (key >> 24) | 1


cdef inline int32_t intern_keyed(Pool* pool, const char* p, size_t n, bint* bad) noexcept nogil:
    cdef uint32_t key = key_of(p, n)
    cdef uint8_t tag = tag_of(key)
    cdef uint64_t at
    cdef size_t m, before
    cdef int32_t code
    cdef const char* q
    if pool.mask <= <uint64_t> pool.n * 2 and not pool_rehash(pool, (pool.mask + 1) * 2 if pool.mask else 256):
        return 0
    at = key & pool.mask
    while True:
        if pool.tags[at] == 0:
            break
        if pool.tags[at] == tag:
            code = pool.codes[at]
            q = pool_item(pool, code, &m)
            if m == n and equal(p, q, n):
                pool.last = code
                return code
        at = (at + 1) & pool.mask
    before = pool.items.bytes.size
    if not push_utf8(&pool.items.bytes, p, n):
        # Stored escaped. The escaped text may be there already, so it is looked up under its own key.
        bad[0] = True
        m = pool.items.bytes.size - before
        pool.items.bytes.size = before
        return intern_escaped(pool, m, bad)
    push(&pool.items.ends, <int64_t> pool.items.bytes.size)
    code = pool.n
    pool.tags[at] = tag
    pool.codes[at] = code
    push_code(&pool.keys, <int32_t> key)
    pool.failed |= pool.items.bytes.failed or pool.items.ends.failed or pool.keys.failed
    pool.n += 1
    pool.last = code
    return code


cdef inline int32_t pool_find(const Pool* pool, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Code of a stored text whose key is known; -1 if it is not there. Changes nothing.
    cdef uint8_t tag = tag_of(key)
    cdef uint64_t at = key & pool.mask
    cdef size_t m
    cdef int32_t code
    cdef const char* q
    if pool.tags == NULL:
        return NO_CODE
    while pool.tags[at]:
        if pool.tags[at] == tag:
            code = pool.codes[at]
            if (<const uint32_t*> pool.keys.data)[code] == key:
                q = pool_item(pool, code, &m)
                if m == n and equal(p, q, n):
                    return code
        at = (at + 1) & pool.mask
    return NO_CODE


cdef inline int32_t pool_append(Pool* pool, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Adds a stored text of another pool, known not to be there.
    cdef uint64_t at
    if pool.mask <= <uint64_t> pool.n * 2 and not pool_rehash(pool, (pool.mask + 1) * 2 if pool.mask else 256):
        return 0
    at = key & pool.mask
    while pool.tags[at]:
        at = (at + 1) & pool.mask
    push_bytes(&pool.items.bytes, p, n)
    push(&pool.items.ends, <int64_t> pool.items.bytes.size)
    push_code(&pool.keys, <int32_t> key)
    pool.tags[at] = tag_of(key)
    pool.codes[at] = pool.n
    pool.failed |= pool.items.bytes.failed or pool.items.ends.failed or pool.keys.failed
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
    code = intern_keyed(pool, copy, n, bad)
    free(copy)
    return code


cdef inline int32_t intern(Pool* pool, const char* p, size_t n, bint* bad) noexcept nogil:
    # Code of a text; sets bad[0] if it held bytes that are not UTF-8.
    cdef size_t m
    cdef const char* q
    if pool.n:
        q = pool_item(pool, pool.last, &m)
        if m == n and equal(p, q, n):
            return pool.last
    return intern_keyed(pool, p, n, bad)


cdef inline int32_t intern_name(Pool* pool, const char* p, size_t n) noexcept nogil:
    # For names, whose characters are ASCII by grammar.
    cdef bint bad = False
    return intern(pool, p, n, &bad)


cdef inline void pool_drop(Pool* pool) noexcept nogil:
    text_drop(&pool.items)
    drop(&pool.keys)
    free(pool.tags)
    free(pool.codes)
    memset(pool, 0, sizeof(Pool))
