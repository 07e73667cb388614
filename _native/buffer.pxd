# Growable columns. Plain C structs: no Python object, no GIL.
#
# A push that finds no memory sets `failed` and drops the item, so that loops need no check of their
# own; whoever hands the column over (`_column.own`) raises MemoryError then.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define xla_likely(x) __builtin_expect(!!(x), 1)
    #define xla_prefetch(p) __builtin_prefetch(p)
    #else
    #define xla_likely(x) (x)
    #define xla_prefetch(p) ((void)(p))
    #endif
    """
    bint likely "xla_likely"(bint) noexcept nogil
    void prefetch "xla_prefetch"(const void*) noexcept nogil
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
