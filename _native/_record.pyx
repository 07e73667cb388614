"""Exports columns as an Arrow record batch through Arrow's C data interface, without copying."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

ctypedef const void* Pointer

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
        Pointer* buffers
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

cdef struct ArrowColumn:
    # One column: its memory and its allocations.
    int kind
    bint all_null
    bint nullable
    int bit                                       # K_BOOL: which bit of each byte
    Pointer data
    const int32_t* offsets                        # K_TEXT
    const uint8_t* valid                          # K_TEXT
    ArrowArray array
    ArrowArray dictionary
    Pointer[3] buffers
    Pointer[3] dictionary_buffers
    void* null_items                              # for a column of nulls
    uint8_t* bitmap

cdef struct Record:
    ArrowArray array
    PyObject* owners                              # a list of the objects whose memory the columns show
    int64_t n
    Pointer[1] buffers
    ArrowArray** children
    ArrowColumn* columns


cdef void release_child(ArrowArray* child) noexcept nogil:
    # Children stay in the record, which frees them.
    child.release = NULL


cdef void free_record(Record* record) noexcept nogil:
    cdef int64_t i
    for i in range(record.n):
        free(record.columns[i].null_items)
        free(record.columns[i].bitmap)
    free(record.columns)
    free(record.children)
    with gil:
        Py_DECREF(<object> record.owners)
    free(record)


cdef void release(ArrowArray* array) noexcept nogil:
    free_record(<Record*> array.private_data)
    array.release = NULL


cdef object view(object owner, Py_ssize_t need, list owners, Pointer* data):
    # Set `data` to the bytes of an object, which is kept as long as the record.
    cdef Py_buffer buffer
    PyObject_GetBuffer(owner, &buffer, PyBUF_SIMPLE)
    data[0] = buffer.buf
    cdef Py_ssize_t size = buffer.len
    PyBuffer_Release(&buffer)
    if size < need:
        raise ValueError("a column is shorter than its table")
    owners.append(owner)


cdef object describe(ArrowColumn* column, int64_t n, tuple parts, list owners):
    # Fill the pointers of a column from (kind, nullable, value, dictionary).
    cdef object value = parts[2]
    cdef tuple dictionary
    column.kind = parts[0]
    column.nullable = parts[1]
    column.all_null = value is None
    if column.kind == K_NAME:
        dictionary = parts[3]
        column.dictionary.length = dictionary[2]
        view(dictionary[1], (dictionary[2] + 1) * 4, owners, &column.dictionary_buffers[1])
        view(dictionary[0], 0, owners, &column.dictionary_buffers[2])
    if column.all_null:
        return
    if column.kind == K_TEXT:
        view(value[0], 0, owners, &column.data)
        view(value[1], (n + 1) * 4, owners, <Pointer*> &column.offsets)
        view(value[2], n, owners, <Pointer*> &column.valid)
        if not 0 <= column.offsets[n] <= min(<int64_t> len(value[0]), <int64_t> 0x7fffffff):
            raise ValueError("a text must lie in its bytes, which are fewer than 2^31")
    elif column.kind == K_BOOL:
        if isinstance(value, tuple):
            column.bit = value[1]
            value = value[0]
        view(value, n, owners, &column.data)
    else:
        view(value, n * (8 if column.kind == K_INT else 4), owners, &column.data)


cdef bint lay_out(ArrowColumn* column, int64_t n) noexcept nogil:
    # Allocate the bitmaps. False: no memory.
    cdef int64_t missing = 0
    cdef size_t bitmap = <size_t> (n + 7) // 8
    cdef ArrowArray* array = &column.array
    array.length = n
    array.buffers = &column.buffers[0]
    array.n_buffers = 3 if column.kind == K_TEXT else 2
    array.release = release_child
    if column.kind == K_NAME:
        column.dictionary.n_buffers = 3
        column.dictionary.buffers = &column.dictionary_buffers[0]
        column.dictionary.release = release_child
        array.dictionary = &column.dictionary
    if column.all_null:
        column.null_items = calloc(<size_t> n + 1, 8)
        column.bitmap = <uint8_t*> calloc(bitmap + 1, 1)
        column.buffers[0] = column.bitmap
        column.buffers[1] = column.null_items
        column.buffers[2] = column.null_items
        array.null_count = n
        return column.null_items != NULL and column.bitmap != NULL
    column.buffers[1] = column.data
    if column.kind == K_TEXT:
        column.buffers[1] = column.offsets
        column.buffers[2] = column.data
        missing = zeros(column.valid, n)
    elif column.kind == K_INT and column.nullable:
        missing = nulls(<const int64_t*> column.data, n)
    elif column.kind == K_NAME and column.nullable:
        missing = negative(<const int32_t*> column.data, n)
    array.null_count = missing
    if not missing and column.kind != K_BOOL:
        return True
    column.bitmap = <uint8_t*> calloc(bitmap + 1, 1)
    if column.bitmap == NULL:
        return False
    if column.kind == K_BOOL:
        bits_byte(<const uint8_t*> column.data, n, column.bit, column.bitmap)
        column.buffers[1] = column.bitmap
        return True
    column.buffers[0] = column.bitmap
    if column.kind == K_TEXT:
        bits_byte(column.valid, n, 0, column.bitmap)
    elif column.kind == K_INT:
        bits_int(<const int64_t*> column.data, n, 0, column.bitmap)
    else:
        bits_code(<const int32_t*> column.data, n, 0, column.bitmap)
    return True


def record(Py_ssize_t rows, list columns not None):
    """Return the address of an ArrowArray struct of these columns, of `rows` rows, for `RecordBatch._import_from_c`.

    Each column is (kind, nullable, value, dictionary), with a value of

    * INT: int64 items, the least is null,
    * BOOL: one byte per item, or (bytes, number of the bit),
    * TEXT: (bytes, int32 offsets, one byte per item: valid),
    * NAME: int32 codes, negative ones are null; the dictionary is (bytes, int32 offsets, number of texts),
    * None: a column of nulls.

    The importer owns the struct. The values are kept alive until it is released.
    """
    cdef Py_ssize_t i, n = len(columns)
    cdef list owners = []
    cdef bint good = True
    cdef Record* record_ = <Record*> calloc(1, sizeof(Record))
    if record_ == NULL:
        raise MemoryError("no memory for a table")
    Py_INCREF(owners)
    record_.owners = <PyObject*> owners
    record_.columns = <ArrowColumn*> calloc(<size_t> n + 1, sizeof(ArrowColumn))
    record_.children = <ArrowArray**> calloc(<size_t> n + 1, sizeof(void*))
    try:
        if record_.columns == NULL or record_.children == NULL:
            raise MemoryError("no memory for a table")
        record_.n = n
        for i in range(n):
            describe(&record_.columns[i], rows, columns[i], owners)
        with nogil:
            for i in range(n):
                record_.children[i] = &record_.columns[i].array
                good = lay_out(&record_.columns[i], rows) and good
        if not good:
            raise MemoryError("no memory for a table")
    except BaseException:
        free_record(record_)
        raise
    record_.array.length = rows
    record_.array.n_buffers = 1
    record_.array.buffers = &record_.buffers[0]
    record_.array.n_children = n
    record_.array.children = record_.children
    record_.array.release = release
    record_.array.private_data = record_
    return <uintptr_t> &record_.array
