# Interner: maps texts to codes. Each text is stored once; codes are numbered in order of first appearance.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from buffer cimport NO_CODE, Buffer, allocate_zeroed, prefetch, presize, push, push_bytes, release
from text cimport equal, push_utf8

cdef extern from "hash.h":
    uint32_t hash_text "xla_hash_text"(const char*, size_t) noexcept nogil
    uint64_t hash_pair "xla_hash_pair"(uint32_t, uint32_t) noexcept nogil
    ctypedef struct Slot "xla_slot":
        uint32_t key                              # hash of the text; 0: an empty slot
        int32_t code
    Slot load_slot "xla_load_slot"(const Slot*) noexcept nogil
    void store_slot "xla_store_slot"(Slot*, uint32_t, int32_t) noexcept nogil

cdef enum:
    LOOKUP_BATCH = 32                             # texts looked up together, so that cache misses overlap

cdef struct TextList:
    Buffer bytes
    Buffer ends                                   # int64: end of each text

cdef struct Interner:
    TextList texts                                # without those of the base
    Buffer table                                  # memory of the slots
    Slot* slots
    uint64_t mask                                 # number of slots - 1
    const Interner* base                          # snapshot whose texts keep their codes; NULL: none
    int32_t n_base                                # number of texts in the base; the first code of this interner
    int32_t n                                     # number of texts, without those of the base
    int32_t last                                  # code returned last, because names often repeat
    bint failed


cdef inline const char* interned_text(const Interner* interner, int32_t code, size_t* n) noexcept nogil:
    # The text of a code, of length n[0].
    cdef const int64_t* ends
    cdef int64_t begin
    if code < interner.n_base:
        interner = interner.base
    else:
        code -= interner.n_base
    ends = <const int64_t*> interner.texts.ends.data
    begin = ends[code - 1] if code else 0
    n[0] = <size_t> (ends[code] - begin)
    return interner.texts.bytes.data + begin


cdef inline bint rehash(Interner* interner, uint64_t n_slots) noexcept nogil:
    cdef Buffer table
    cdef Slot* slots
    cdef uint64_t i, k
    if not allocate_zeroed(&table, n_slots * sizeof(Slot)):
        interner.failed = True
        return False
    slots = <Slot*> table.data
    if interner.slots != NULL:
        for i in range(interner.mask + 1):
            if interner.slots[i].key:
                k = interner.slots[i].key & (n_slots - 1)
                while slots[k].key:
                    k = (k + 1) & (n_slots - 1)
                slots[k] = interner.slots[i]
        release(&interner.table)
    interner.table = table
    interner.slots = slots
    interner.mask = n_slots - 1
    return True


cdef inline bint is_text_of(const Interner* interner, int32_t code, const char* p, size_t n) noexcept nogil:
    # Whether the code is that of the text.
    cdef size_t m
    cdef const char* q = interned_text(interner, code, &m)
    return m == n and equal(q, p, n)


cdef inline bint slots_full(const Interner* interner) noexcept nogil:
    # Whether two slots in three are in use, or there are none.
    return <uint64_t> interner.n * 3 >= interner.mask * 2


cdef inline int32_t intern_hashed(
    Interner* interner, const char* p, size_t n, uint32_t key, bint* invalid
) noexcept nogil:
    # `key` is hash_text(p, n).
    cdef Slot* slot
    cdef uint64_t i
    cdef size_t m, before
    cdef int32_t code
    if interner.base != NULL:
        code = find_code(interner.base, key, p, n)
        if code >= 0:
            interner.last = code
            return code
    if slots_full(interner) and not rehash(interner, (interner.mask + 1) * 2 if interner.mask else 256):
        return 0
    i = key & interner.mask
    while True:
        slot = &interner.slots[i]
        if slot.key == key:
            if is_text_of(interner, slot.code, p, n):
                interner.last = slot.code
                return slot.code
        elif slot.key == 0:
            break
        i = (i + 1) & interner.mask
    before = interner.texts.bytes.size
    if not push_utf8(&interner.texts.bytes, p, n):
        # Store the escaped text under its own key; it may be interned already.
        invalid[0] = True
        m = interner.texts.bytes.size - before
        interner.texts.bytes.size = before
        return intern_escaped(interner, m, invalid)
    push(&interner.texts.ends, <int64_t> interner.texts.bytes.size)
    if interner.texts.bytes.failed or interner.texts.ends.failed:
        interner.failed = True
        return 0
    interner.last = interner.n_base + interner.n
    store_slot(slot, key, interner.last)
    interner.n += 1
    return interner.last


cdef inline int32_t find_code(const Interner* interner, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Return the code of a text, ignoring the base, or NO_CODE. Read-only. A snapshot shares its slots with the interner
    # that it was taken from: codes added later are skipped.
    cdef Slot slot
    cdef uint64_t i = key & interner.mask
    if interner.slots == NULL:
        return NO_CODE
    while True:
        slot = load_slot(&interner.slots[i])
        if slot.key == 0:
            return NO_CODE
        if slot.key == key and slot.code < interner.n and is_text_of(interner, slot.code, p, n):
            return slot.code
        i = (i + 1) & interner.mask


cdef inline int32_t existing_code(const Interner* interner, const char* p, size_t n) noexcept nogil:
    # Return the code of a text in the interner or its base, or NO_CODE. Read-only.
    cdef uint32_t key = hash_text(p, n)
    cdef uint64_t i = key & interner.mask
    cdef Slot slot
    cdef int32_t code = find_code(interner.base, key, p, n) if interner.base != NULL else NO_CODE
    if code >= 0 or interner.slots == NULL:
        return code
    while True:
        slot = interner.slots[i]
        if slot.key == 0:
            return NO_CODE
        if slot.key == key and is_text_of(interner, slot.code, p, n):
            return slot.code
        i = (i + 1) & interner.mask


cdef inline void find_codes(
    const Interner* interner, const Interner* other, int32_t* codes, int32_t i, int32_t end
) noexcept nogil:
    # Set codes[i] to the code here of text i of the other interner (without its base), or NO_CODE. Slots, offsets and
    # texts of a batch are prefetched together.
    cdef uint32_t[LOOKUP_BATCH] keys
    cdef int32_t k, m
    cdef size_t n
    cdef const char* p
    while i < end:
        m = min(<int32_t> LOOKUP_BATCH, end - i)
        for k in range(m):
            p = interned_text(other, other.n_base + i + k, &n)
            keys[k] = hash_text(p, n)
            prefetch(interner.slots + (keys[k] & interner.mask))
        if interner.n:
            for k in range(m):
                prefetch(interner.texts.ends.data + 8 * <size_t> interner.slots[keys[k] & interner.mask].code)
            for k in range(m):
                prefetch(interned_text(interner, interner.slots[keys[k] & interner.mask].code, &n))
        for k in range(m):
            p = interned_text(other, other.n_base + i + k, &n)
            codes[i + k] = find_code(interner, keys[k], p, n)
        i += m


cdef inline int32_t append_text(Interner* interner, uint32_t key, const char* p, size_t n) noexcept nogil:
    # Add a text of another interner that is not interned here.
    cdef uint64_t i
    if slots_full(interner) and not rehash(interner, (interner.mask + 1) * 2 if interner.mask else 256):
        return 0
    i = key & interner.mask
    while interner.slots[i].key:
        i = (i + 1) & interner.mask
    push_bytes(&interner.texts.bytes, p, n)
    push(&interner.texts.ends, <int64_t> interner.texts.bytes.size)
    if interner.texts.bytes.failed or interner.texts.ends.failed:
        interner.failed = True
        return 0
    store_slot(&interner.slots[i], key, interner.n)
    interner.n += 1
    return interner.n - 1


cdef inline int32_t intern_escaped(Interner* interner, size_t n, bint* invalid) noexcept nogil:
    # Intern the n bytes of valid UTF-8 that push_utf8 left after the last text.
    cdef char* copy = <char*> realloc(NULL, n + 1)
    cdef int32_t code = 0
    if copy == NULL:
        interner.failed = True
        return 0
    memcpy(copy, interner.texts.bytes.data + interner.texts.bytes.size, n)
    code = intern_hashed(interner, copy, n, hash_text(copy, n), invalid)
    free(copy)
    return code


cdef inline int32_t intern(Interner* interner, const char* p, size_t n, bint* invalid) noexcept nogil:
    # Return the code of a text, adding it if it is new. Sets invalid[0] if it is not UTF-8.
    cdef size_t m
    cdef const char* q
    if interner.n or interner.n_base:
        q = interned_text(interner, interner.last, &m)
        if m == n and equal(p, q, n):
            return interner.last
    return intern_hashed(interner, p, n, hash_text(p, n), invalid)


cdef inline int32_t intern_name(Interner* interner, const char* p, size_t n) noexcept nogil:
    # The same for names, which are ASCII by their grammar.
    cdef bint invalid = False
    return intern(interner, p, n, &invalid)


cdef inline bint reserve_texts(Interner* interner, uint64_t n) noexcept nogil:
    # Reserve space for n texts, without those of the base.
    cdef uint64_t n_slots = interner.mask + 1 if interner.slots != NULL else 256
    while n_slots * 2 < n * 3:
        n_slots *= 2
    return (n_slots == interner.mask + 1 and interner.slots != NULL) or rehash(interner, n_slots)


cdef inline void presize_interner(
    Interner* interner, const Interner* sample, double names, double ratio
) noexcept nogil:
    # Reserve space in an empty interner for a number of names and for `ratio` times the texts of a sample.
    if interner.n == 0:
        reserve_texts(interner, <uint64_t> (sample.n * ratio if interner.n_base else names))
        presize(&interner.texts.bytes, 2, &sample.texts.bytes, ratio)


cdef inline void release_interner(Interner* interner) noexcept nogil:
    release(&interner.texts.bytes)
    release(&interner.texts.ends)
    release(&interner.table)
    memset(interner, 0, sizeof(Interner))
