# Growable columns. Plain C structs: no Python object, no GIL.
#
# A push that runs out of memory sets `failed` and drops the item, so loops need no checks.
# `_column.own` raises MemoryError when the column is handed over.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "pages.h":
    const size_t REDZONE "XLA_REDZONE"            # bytes between the columns of an arena
    void poison "xla_poison"(const void*, size_t) noexcept nogil
    ctypedef struct Arena "xla_arena":
        size_t size
        long columns
    Arena* new_arena "xla_arena_new"(size_t) noexcept nogil
    void retain_arena "xla_arena_retain"(Arena*) noexcept nogil
    void release_arena "xla_arena_release"(Arena*) noexcept nogil
    void free_block "xla_free_block"(char*, size_t) noexcept nogil
    ctypedef struct Buffer "xla_buffer":
        char* data
        size_t size                               # bytes in use
        size_t capacity                           # bytes allocated
        Arena* arena                              # NULL: data is a separate block
        int failed                                # NO_MEMORY, UNRESERVED or 0
    bint set_capacity "xla_set_capacity"(Buffer*, size_t) noexcept nogil
    bint grow "xla_grow"(Buffer*, size_t) noexcept nogil
    const int NO_MEMORY "XLA_NO_MEMORY"           # an item was dropped
    const int UNRESERVED "XLA_UNRESERVED"         # checked builds: a row was appended without being reserved

cdef extern from "columns.h":
    bint likely "xla_likely"(bint) noexcept nogil
    void prefetch "xla_prefetch"(const void*) noexcept nogil
    # The arguments must be structs whose members are all columns; anything else does not compile.
    size_t n_columns "xla_n_columns"(...) noexcept nogil
    bint reserve_rows "xla_reserve_rows"(void*, size_t) noexcept nogil
    bint reserved "xla_reserved"(Buffer*, size_t) noexcept nogil
    const int64_t NO_INT "INT64_MIN"              # null in a column of integers

cdef enum:
    NO_CODE = -1                                  # null in a column of codes
    CACHE_LINE = 64
    AHEAD = 2048                                  # bytes between the text being read and what is prefetched


cdef inline void prefetch_ahead(const char* p, int lines) noexcept nogil:
    # Prefetch cache lines of the text: the hardware prefetcher does not cross pages.
    cdef int i
    for i in range(lines):
        prefetch(p + AHEAD + i * CACHE_LINE)


cdef inline void reserve(Buffer* b, size_t more) noexcept nogil:
    if b.size + more > b.capacity:
        grow(b, more)


cdef inline void release_block(Buffer* b) noexcept nogil:
    if b.arena != NULL:
        release_arena(b.arena)
    else:
        free_block(b.data, b.capacity)


cdef inline void release(Buffer* b) noexcept nogil:
    release_block(b)
    memset(b, 0, sizeof(Buffer))


cdef inline void release_columns(Buffer* columns, size_t n) noexcept nogil:
    # Free those that were not handed over: another one, or an object of Python, may have found no memory.
    cdef size_t i
    for i in range(n):
        release(&columns[i])


cdef inline bint allocate_zeroed(Buffer* b, size_t n) noexcept nogil:
    # Write immediately: reading a page first and writing it later costs two faults.
    memset(b, 0, sizeof(Buffer))
    b.arena = new_arena(n + 64)
    if b.arena != NULL:
        b.arena.columns = 1
        b.data = <char*> b.arena + 64
        b.capacity = n
    elif not set_capacity(b, n):
        return False
    memset(b.data, 0, n)
    b.size = n
    return True


# Append an item, growing the column if necessary.

cdef inline void push(Buffer* b, int64_t x) noexcept nogil:
    if likely(b.size + 8 <= b.capacity) or grow(b, 8):
        (<int64_t*> (b.data + b.size))[0] = x
        b.size += 8


cdef inline void push_code(Buffer* b, int32_t x) noexcept nogil:
    if likely(b.size + 4 <= b.capacity) or grow(b, 4):
        (<int32_t*> (b.data + b.size))[0] = x
        b.size += 4


cdef inline void push_byte(Buffer* b, uint8_t x) noexcept nogil:
    if likely(b.size + 1 <= b.capacity) or grow(b, 1):
        b.data[b.size] = <char> x
        b.size += 1


cdef inline void push_bytes(Buffer* b, const char* p, size_t n) noexcept nogil:
    if likely(b.size + n <= b.capacity) or grow(b, n):
        if n:
            memcpy(b.data + b.size, p, n)
            b.size += n


# Append an item to space reserved by `reserve_rows`.

cdef inline void put(Buffer* b, int64_t x) noexcept nogil:
    if reserved(b, 8):
        (<int64_t*> (b.data + b.size))[0] = x
        b.size += 8


cdef inline void put_code(Buffer* b, int32_t x) noexcept nogil:
    if reserved(b, 4):
        (<int32_t*> (b.data + b.size))[0] = x
        b.size += 4


cdef inline void put_byte(Buffer* b, uint8_t x) noexcept nogil:
    if reserved(b, 1):
        b.data[b.size] = <char> x
        b.size += 1


# Columns of a long span are allocated at their predicted size, from samples or from the beginning of the span.

cdef enum:
    PRESIZE_MIN_SPAN = 1 << 20                    # bytes of text; shorter spans grow their columns
    SAMPLES = 12                                  # in each span
    SAMPLE_FRACTION = 192                         # all samples together are a 192nd of the span


cdef inline size_t predicted_size(size_t size, double ratio) noexcept nogil:
    return <size_t> (size * ratio * 1.08) + 1087 & ~<size_t> 63


cdef inline void presize(Buffer* first, size_t n, const Buffer* sample, double ratio) noexcept nogil:
    # Move n columns into one arena, with space for `ratio` times the bytes of the sample's columns. A column that
    # outgrows its space moves to a separate block.
    cdef size_t i, capacity, total = 64
    cdef char* data
    cdef Arena* arena
    for i in range(n):
        total += predicted_size(max(sample[i].size, first[i].size), ratio) + REDZONE
    arena = new_arena(total)
    if arena == NULL:
        return
    data = <char*> arena + 64
    for i in range(n):
        capacity = predicted_size(max(sample[i].size, first[i].size), ratio)
        if first[i].size:
            memcpy(data, first[i].data, first[i].size)
        release_block(&first[i])
        first[i].data = data
        first[i].capacity = capacity
        first[i].arena = arena
        arena.columns += 1
        poison(data + capacity, REDZONE)
        data += capacity + REDZONE
    poison(data, <char*> arena + arena.size - data)


cdef inline const char* find_line(const char* p, const char* end, const char* text, size_t n) noexcept nogil:
    # Return the first line after p that starts with the text, or end if there is none.
    while True:
        p = <const char*> memchr(p, c'\n', end - p)
        if p == NULL or p + 1 + n > end:
            return end
        p += 1
        if memcmp(p, text, n) == 0:
            return p


cdef inline const char* sample_start(const char* p, const char* end, int i, const char* text, size_t n) noexcept nogil:
    # The beginning of sample i, a line that starts with the text.
    return find_line(p + (end - p) // SAMPLES * i + (end - p) // (2 * SAMPLES), end, text, n)


cdef inline const char* presize_point(const char* p, const char* end) noexcept nogil:
    # How far a span is scanned before the final size of its columns is predicted; end for a short span.
    return p + (end - p) // 32 if end - p >= PRESIZE_MIN_SPAN else end
