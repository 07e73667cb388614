"""A table's columns handed to Arrow in one call, by Arrow's C data interface: nothing that is laid out is copied."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

ctypedef const void* Where

cdef extern from *:
    """
    #include <stdint.h>

    /* https://arrow.apache.org/docs/format/CDataInterface.html */
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };

    static inline int64_t xla_nulls(const int64_t *v, int64_t n) {
        int64_t nulls = 0;
        for (int64_t i = 0; i < n; i++) nulls += v[i] == INT64_MIN;
        return nulls;
    }
    static inline int64_t xla_negative(const int32_t *v, int64_t n) {
        int64_t negative = 0;
        for (int64_t i = 0; i < n; i++) negative += v[i] < 0;
        return negative;
    }
    static inline int64_t xla_zeros(const uint8_t *v, int64_t n) {
        int64_t zeros = 0;
        for (int64_t i = 0; i < n; i++) zeros += v[i] == 0;
        return zeros;
    }
    #define XLA_BITMAP(NAME, TYPE, TEST) \\
        static inline void NAME(const TYPE *v, int64_t n, int bit, uint8_t *bits) { \\
            int64_t i = 0; \\
            (void)bit; \\
            for (; i + 8 <= n; i += 8) { \\
                unsigned byte = 0; \\
                for (int k = 0; k < 8; k++) { TYPE x = v[i + k]; byte |= (unsigned)(TEST) << k; } \\
                bits[i >> 3] = (uint8_t)byte; \\
            } \\
            for (; i < n; i++) { TYPE x = v[i]; bits[i >> 3] |= (uint8_t)((unsigned)(TEST) << (i & 7)); } \\
        }
    XLA_BITMAP(xla_bits_int, int64_t, x != INT64_MIN)
    XLA_BITMAP(xla_bits_code, int32_t, x >= 0)
    XLA_BITMAP(xla_bits_byte, uint8_t, x >> bit & 1)
    """
    ctypedef struct ArrowArray "struct ArrowArray":
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        Where* buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

    int64_t nulls "xla_nulls"(const int64_t*, int64_t) noexcept nogil
    int64_t negative "xla_negative"(const int32_t*, int64_t) noexcept nogil
    int64_t zeros "xla_zeros"(const uint8_t*, int64_t) noexcept nogil
    void bits_int "xla_bits_int"(const int64_t*, int64_t, int, uint8_t*) noexcept nogil
    void bits_code "xla_bits_code"(const int32_t*, int64_t, int, uint8_t*) noexcept nogil
    void bits_byte "xla_bits_byte"(const uint8_t*, int64_t, int, uint8_t*) noexcept nogil

cdef enum:
    K_INT
    K_BOOL
    K_NAME
    K_TEXT

INT, BOOL, NAME, TEXT = K_INT, K_BOOL, K_NAME, K_TEXT

cdef struct Part:
    # One column: what it is made of, and what is made for it.
    int kind
    bint absent                                   # every item is null
    bint nullable
    int bit                                       # K_BOOL: which bit of each byte
    Where data
    const int32_t* offsets                        # K_TEXT
    const uint8_t* valid                          # K_TEXT
    ArrowArray array
    ArrowArray dictionary
    Where[3] buffers
    Where[3] dictionary_buffers
    void* made                                    # items that are all null
    uint8_t* bitmap

cdef struct Record:
    ArrowArray array
    PyObject* owners                              # a list of the objects whose memory the columns show
    int64_t n
    Where[1] buffers
    ArrowArray** children
    Part* parts


cdef void keep(ArrowArray* child) noexcept nogil:
    # Children are never moved away from the record, which frees them.
    child.release = NULL


cdef void drop_record(Record* record) noexcept nogil:
    cdef int64_t i
    for i in range(record.n):
        free(record.parts[i].made)
        free(record.parts[i].bitmap)
    free(record.parts)
    free(record.children)
    with gil:
        Py_DECREF(<object> record.owners)
    free(record)


cdef void release(ArrowArray* array) noexcept nogil:
    drop_record(<Record*> array.private_data)
    array.release = NULL


cdef object view(object owner, Py_ssize_t need, list owners, Where* data):
    # Where the bytes of an object are; it is kept as long as the record.
    cdef Py_buffer buffer
    PyObject_GetBuffer(owner, &buffer, PyBUF_SIMPLE)
    data[0] = buffer.buf
    cdef Py_ssize_t size = buffer.len
    PyBuffer_Release(&buffer)
    if size < need:
        raise ValueError("a column is shorter than its table")
    owners.append(owner)


cdef object describe(Part* part, int64_t n, tuple column, list owners):
    # Fills what a part is made of from (kind, nullable, value, dictionary).
    cdef object value = column[2]
    cdef tuple dictionary
    part.kind = column[0]
    part.nullable = column[1]
    part.absent = value is None
    if part.kind == K_NAME:
        dictionary = column[3]
        part.dictionary.length = dictionary[2]
        view(dictionary[1], (dictionary[2] + 1) * 4, owners, &part.dictionary_buffers[1])
        view(dictionary[0], 0, owners, &part.dictionary_buffers[2])
    if part.absent:
        return
    if part.kind == K_TEXT:
        view(value[0], 0, owners, &part.data)
        view(value[1], (n + 1) * 4, owners, <Where*> &part.offsets)
        view(value[2], n, owners, <Where*> &part.valid)
        if not 0 <= part.offsets[n] <= min(<int64_t> len(value[0]), <int64_t> 0x7fffffff):
            raise ValueError("a text must lie in its bytes, which are fewer than 2^31")
    elif part.kind == K_BOOL:
        if isinstance(value, tuple):
            part.bit = value[1]
            value = value[0]
        view(value, n, owners, &part.data)
    else:
        view(value, n * (8 if part.kind == K_INT else 4), owners, &part.data)


cdef bint lay_out(Part* part, int64_t n) noexcept nogil:
    # Makes the bitmaps, which are not there yet. False: no memory.
    cdef int64_t missing = 0
    cdef size_t bitmap = <size_t> (n + 7) // 8
    cdef ArrowArray* array = &part.array
    array.length = n
    array.buffers = &part.buffers[0]
    array.n_buffers = 3 if part.kind == K_TEXT else 2
    array.release = keep
    if part.kind == K_NAME:
        part.dictionary.n_buffers = 3
        part.dictionary.buffers = &part.dictionary_buffers[0]
        part.dictionary.release = keep
        array.dictionary = &part.dictionary
    if part.absent:
        part.made = calloc(<size_t> n + 1, 8)
        part.bitmap = <uint8_t*> calloc(bitmap + 1, 1)
        part.buffers[0] = part.bitmap
        part.buffers[1] = part.made
        part.buffers[2] = part.made
        array.null_count = n
        return part.made != NULL and part.bitmap != NULL
    part.buffers[1] = part.data
    if part.kind == K_TEXT:
        part.buffers[1] = part.offsets
        part.buffers[2] = part.data
        missing = zeros(part.valid, n)
    elif part.kind == K_INT and part.nullable:
        missing = nulls(<const int64_t*> part.data, n)
    elif part.kind == K_NAME and part.nullable:
        missing = negative(<const int32_t*> part.data, n)
    array.null_count = missing
    if not missing and part.kind != K_BOOL:
        return True
    part.bitmap = <uint8_t*> calloc(bitmap + 1, 1)
    if part.bitmap == NULL:
        return False
    if part.kind == K_BOOL:
        bits_byte(<const uint8_t*> part.data, n, part.bit, part.bitmap)
        part.buffers[1] = part.bitmap
        return True
    part.buffers[0] = part.bitmap
    if part.kind == K_TEXT:
        bits_byte(part.valid, n, 0, part.bitmap)
    elif part.kind == K_INT:
        bits_int(<const int64_t*> part.data, n, 0, part.bitmap)
    else:
        bits_code(<const int32_t*> part.data, n, 0, part.bitmap)
    return True


def record(Py_ssize_t rows, list columns not None):
    """Address of an ArrowArray struct that holds these columns of `rows` rows, for `RecordBatch._import_from_c`.

    Each column is (kind, nullable, value, dictionary). The value: int64 items, the least one null (INT);
    one byte an item, or (bytes, bit) (BOOL); (bytes, int32 offsets, one byte an item: valid) (TEXT); int32
    codes, negative ones null, and as dictionary (bytes, int32 offsets, number of texts) (NAME); None for
    a column of nulls. Whoever imports the struct owns it; the values are kept until it is released.
    """
    cdef Py_ssize_t i, n = len(columns)
    cdef list owners = []
    cdef bint good = True
    cdef Record* whole = <Record*> calloc(1, sizeof(Record))
    if whole == NULL:
        raise MemoryError("no memory for a table")
    Py_INCREF(owners)
    whole.owners = <PyObject*> owners
    whole.parts = <Part*> calloc(<size_t> n + 1, sizeof(Part))
    whole.children = <ArrowArray**> calloc(<size_t> n + 1, sizeof(void*))
    try:
        if whole.parts == NULL or whole.children == NULL:
            raise MemoryError("no memory for a table")
        whole.n = n
        for i in range(n):
            describe(&whole.parts[i], rows, columns[i], owners)
        with nogil:
            for i in range(n):
                whole.children[i] = &whole.parts[i].array
                good = lay_out(&whole.parts[i], rows) and good
        if not good:
            raise MemoryError("no memory for a table")
    except BaseException:
        drop_record(whole)
        raise
    whole.array.length = rows
    whole.array.n_buffers = 1
    whole.array.buffers = &whole.buffers[0]
    whole.array.n_children = n
    whole.array.children = whole.children
    whole.array.release = release
    whole.array.private_data = whole
    return <uintptr_t> &whole.array
