"""Owned buffers that cross the border: `Column` (read-only bytes) and `Names` (interned text)."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memset

from column cimport (
    Buf, Text, drop, foresee, intern_name, join, pool_drop, pool_item, pool_rehash, push_bytes, push_code,
)

cdef extern from *:
    """
    #ifndef XLAMEM_STAMP
    #define XLAMEM_STAMP "?"
    #endif
    static char xla_nothing[8];   /* what an empty column shows: pyarrow aborts on a null pointer */
    """
    const char* XLAMEM_STAMP
    char* nothing "xla_nothing"

STAMP = XLAMEM_STAMP.decode("ascii")


cdef class Column:
    """A read-only block of bytes, owned. Exported through the buffer protocol without a copy."""

    def __dealloc__(self):
        with nogil:
            drop(&self.buf)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef char* data = self.buf.data if self.buf.size else nothing
        PyBuffer_FillInfo(view, self, data, <Py_ssize_t> self.buf.size, 1, flags)

    def __len__(self):
        return <Py_ssize_t> self.buf.size


cdef Column own(Buf* b):
    # Moves the bytes into a Column; the struct is empty afterwards.
    cdef Column column = Column.__new__(Column)
    if b.failed:
        drop(b)
        raise MemoryError("no memory for a column")
    column.buf = b[0]
    memset(b, 0, sizeof(Buf))
    return column


cdef Column share(Buf* b):
    # The bytes so far. In an arena they stay where they are: what is appended later lies behind them, and if it
    # does not fit, it is b that moves. A short column is copied.
    cdef Column column
    cdef Buf copy
    with nogil:
        if b.arena == NULL:
            foresee(b, 1, b, 1.25)
    if b.arena == NULL:
        memset(&copy, 0, sizeof(Buf))
        push_bytes(&copy, b.data, b.size)
        return own(&copy)
    column = Column.__new__(Column)
    join(b.arena)
    column.buf = b[0]
    return column


cdef tuple own_text(Text* t):
    return own(&t.bytes), own(&t.ends), own(&t.valid)


cdef class Names:
    """Texts that repeat, each held once: text -> code (int32), in order of first appearance.

    Not locked: one scan at a time may add to it.
    """

    def __dealloc__(self):
        with nogil:
            pool_drop(&self.pool)

    def __len__(self):
        return self.pool.n

    def expect(self, Py_ssize_t n):
        """Make room for n texts in all, so that growing does not move them again and again."""
        cdef uint64_t room = self.pool.mask + 1 if self.pool.slots != NULL else 256
        while room < <uint64_t> n * 2:
            room *= 2
        if room > self.pool.mask + 1 or self.pool.slots == NULL:
            pool_rehash(&self.pool, room)
            if self.pool.failed:
                raise MemoryError("no memory for names")

    def merge(self, Names other not None):
        """Adds all of other's texts; returns the int32 column that maps its codes to ours."""
        cdef Buf codes
        cdef int32_t i
        cdef size_t n
        cdef const char* p
        memset(&codes, 0, sizeof(Buf))
        with nogil:
            for i in range(other.pool.n):
                p = pool_item(&other.pool, i, &n)
                push_code(&codes, intern_name(&self.pool, p, n))
        if self.pool.failed:
            raise MemoryError("no memory for names")
        return own(&codes)

    def code(self, const unsigned char[::1] text not None):
        """Code of one text, which is added if it is new."""
        cdef const char* p = <const char*> &text[0] if text.shape[0] else nothing
        return intern_name(&self.pool, p, <size_t> text.shape[0])

    def export(self):
        """(bytes, int64 ends) of all texts so far; the pool goes on growing behind them."""
        if self.pool.failed:
            raise MemoryError("no memory for names")
        return share(&self.pool.items.bytes), share(&self.pool.items.ends)
