"""Owned buffers that cross the border: `Column` (read-only bytes) and `Names` (interned text)."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from buffer cimport Buf, drop, foresee, join, push_bytes, put_code, zeros
from interner cimport (
    Pool, Slot, intern_name, key_of, pool_append, pool_drop, pool_expect, pool_find, pool_item, pool_look_up,
)
from text cimport Text, text_begin, text_drop

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


cdef tuple own_two(Buf* a, Buf* b):
    # Two columns, or neither.
    if a.failed or b.failed:
        drop(a)
        drop(b)
        raise MemoryError("no memory for a column")
    return own(a), own(b)


def recode(Column column not None, const int[::1] codes not None, Py_ssize_t known):
    """Replace each int32 code c >= known of the column, which nobody else may be looking at, by codes[c - known]."""
    cdef size_t i
    cdef size_t n = column.buf.size // 4
    cdef int32_t* data = <int32_t*> column.buf.data
    cdef bint good = True
    with nogil:
        for i in range(n):
            if data[i] >= known:
                if data[i] - known < codes.shape[0]:
                    data[i] = codes[data[i] - known]
                else:
                    good = False
    if not good:
        raise IndexError("no such code")


def distinct(const long long[::1] values not None):
    """The distinct values, ascending; None if there are more than 16."""
    cdef int64_t[16] met
    cdef int n = 0, k = 0
    cdef Py_ssize_t i
    with nogil:
        for i in range(values.shape[0]):
            if n and values[i] == met[k]:
                continue
            k = 0
            while k < n and values[i] != met[k]:
                k += 1
            if k == n:
                if n == 16:
                    n = -1
                    break
                met[n] = values[i]
                n += 1
    return sorted([met[k] for k in range(n)]) if n >= 0 else None


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
    text_begin(t)
    if t.bytes.failed or t.offsets.failed or t.valid.failed:
        text_drop(t)
        raise MemoryError("no memory for a column")
    return own(&t.bytes), own(&t.offsets), own(&t.valid)


cdef bint dense(const long long[::1] keys, int64_t* low, int64_t* span) noexcept nogil:
    # Whether keys, of which there is one at least, can be looked up by their difference from the lowest.
    cdef Py_ssize_t i, n = keys.shape[0]
    cdef int64_t least = keys[0], most = keys[0]
    for i in range(n):
        least = min(least, keys[i])
        most = max(most, keys[i])
    low[0] = least
    span[0] = 0
    # A difference of 64 bits may not fit into 64 bits.
    if <uint64_t> most - <uint64_t> least > <uint64_t> (8 * n + 1024) or n > 0x7FFFFFFF:
        return False
    span[0] = most - least + 1
    return True


def first_rows(const long long[::1] keys not None):
    """The least key, and by difference from it the first row + 1 of each key, 0 for none (int32).

    None instead of the rows if there is no key, or if keys are not nearly dense.
    """
    cdef Buf out
    cdef Py_ssize_t i
    cdef int64_t low = 0, span = 0
    if keys.shape[0] == 0 or not dense(keys, &low, &span):
        return low, None
    with nogil:
        if zeros(&out, span * 4):
            for i in range(keys.shape[0] - 1, -1, -1):
                (<int32_t*> out.data)[keys[i] - low] = <int32_t> i + 1
    return low, own(&out)


def rows_of(const int[::1] rows not None, int64_t low, const long long[::1] wanted not None):
    """The row of each wanted key, -1 for none (int64), given what `first_rows` returned."""
    cdef Buf out
    cdef Py_ssize_t i
    cdef uint64_t at, n = rows.shape[0]
    with nogil:
        if zeros(&out, wanted.shape[0] * 8):
            for i in range(wanted.shape[0]):
                at = <uint64_t> wanted[i] - <uint64_t> low
                (<int64_t*> out.data)[i] = rows[at] - 1 if at < n else -1
    return own(&out)


ctypedef fused Number:
    int
    long long


def take(const Number[::1] items not None, const int[::1] rows not None):
    """items[rows]."""
    cdef Buf out
    cdef Py_ssize_t i
    cdef bint good = True
    with nogil:
        if zeros(&out, rows.shape[0] * sizeof(Number)):
            for i in range(rows.shape[0]):
                good = good and 0 <= rows[i] < items.shape[0]
                (<Number*> out.data)[i] = items[rows[i]] if good else 0
    column = own(&out)
    if not good:
        raise IndexError("no such row")
    return column


def in_order(const long long[::1] ids not None):
    """Rows in ascending order of their ids: int32. None if an id comes twice, or if ids are not nearly dense."""
    cdef Buf place, out
    cdef int32_t* rows
    cdef Py_ssize_t i, n = ids.shape[0]
    cdef int64_t low = 0, span = 0
    cdef bint good = True
    memset(&out, 0, sizeof(Buf))
    if n == 0:
        return own(&out)
    if not dense(ids, &low, &span):
        return None
    with nogil:
        if zeros(&place, span * 4) and zeros(&out, n * 4):
            rows = <int32_t*> place.data
            for i in range(n):
                good = good and rows[ids[i] - low] == 0
                rows[ids[i] - low] = <int32_t> i + 1
            if good:
                out.size = 0
                for i in range(span):
                    if rows[i]:
                        put_code(&out, rows[i] - 1)
        elif not out.failed:
            out.failed = place.failed
        drop(&place)
    column = own(&out)
    return column if good else None


cdef class Known:
    """The texts that some `Names` held at one time, looked into by any number of threads."""

    def __dealloc__(self):
        with nogil:
            drop(&self.pool.table)


cdef class Names:
    """Texts that repeat, each held once: text -> code (int32), in order of first appearance.

    Not locked: one scan at a time may add to it. Texts of `base` keep their codes and are not held again.
    """

    def __cinit__(self, Known base=None):
        if base is not None and base.pool.n:
            self.base = base
            self.pool.base = &base.pool
            self.pool.first = base.pool.n

    def __dealloc__(self):
        with nogil:
            pool_drop(&self.pool)

    cdef int alone(self) except -1:
        # What a base holds cannot be reached by all means.
        if self.pool.first:
            raise ValueError("these names have a base: that can be asked only of names without one")
        return 0

    def __len__(self):
        return self.pool.first + self.pool.n

    @property
    def known(self):
        """How many of the texts are the base's: the first ones."""
        return self.pool.first

    def expect(self, Py_ssize_t n):
        """Make room for n texts in all, so that growing does not move them again and again."""
        if not pool_expect(&self.pool, max(n, 0)):
            raise MemoryError("no memory for names")

    def adopt(self, Names other not None):
        """Take over all of other's texts, with their codes, if there are none here yet; whether that was done."""
        cdef Pool pool = self.pool
        if pool.n or pool.first or other.pool.first:
            return False
        self.pool = other.pool
        other.pool = pool
        return True

    def look_up(self, Names other not None, int[::1] codes not None, Py_ssize_t begin, Py_ssize_t end):
        """codes[i] = our code of other's own text i, -1 if it is not here, for begin <= i < end.

        Changes no texts: several threads may look up at once.
        """
        self.alone()
        if not 0 <= begin <= end <= codes.shape[0] or end > other.pool.n:
            raise IndexError("no such texts")
        if begin < end:
            with nogil:
                pool_look_up(&self.pool, &other.pool, <int32_t*> &codes[0], <int32_t> begin, <int32_t> end)

    def add(self, Names other not None, int[::1] codes not None):
        """Add other's own texts that `look_up` did not find, in their order; fills in their codes.

        Returns whether each of other's codes is the same here.
        """
        cdef Py_ssize_t i
        cdef size_t n
        cdef const char* p
        cdef bint same = True
        self.alone()
        if codes.shape[0] != other.pool.n:
            raise IndexError("one code for each text")
        with nogil:
            for i in range(codes.shape[0]):
                if codes[i] < 0:
                    p = pool_item(&other.pool, other.pool.first + <int32_t> i, &n)
                    codes[i] = pool_append(&self.pool, key_of(p, n), p, n)
                same = same and codes[i] == other.pool.first + i
        if self.pool.failed:
            raise MemoryError("no memory for names")
        return bool(same)

    def code(self, const unsigned char[::1] text not None):
        """Code of one text, which is added if it is new."""
        cdef const char* p = <const char*> &text[0] if text.shape[0] else nothing
        return intern_name(&self.pool, p, <size_t> text.shape[0])

    def codes(self, const unsigned char[::1] data, const int[::1] offsets not None, int[::1] found not None, bint add):
        """found[i] = code of the text data[offsets[i]:offsets[i + 1]]; of one that is not here -1, or `add` it."""
        cdef Py_ssize_t i
        cdef size_t n
        cdef const char* first = <const char*> &data[0] if data.shape[0] else nothing
        cdef const char* p
        self.alone()
        if offsets.shape[0] != found.shape[0] + 1 or offsets[0] < 0 or offsets[found.shape[0]] > data.shape[0]:
            raise IndexError("no such texts")
        with nogil:
            for i in range(found.shape[0]):
                p = first + offsets[i]
                n = <size_t> max(0, offsets[i + 1] - offsets[i])
                found[i] = intern_name(&self.pool, p, n) if add else pool_find(&self.pool, key_of(p, n), p, n)
        if self.pool.failed:
            raise MemoryError("no memory for names")

    def snapshot(self):
        """What there is now, to base other names on, whatever is added here meanwhile."""
        cdef Known known = Known.__new__(Known)
        known.bytes, known.ends = self.export()
        known.pool.items.bytes = known.bytes.buf
        known.pool.items.ends = known.ends.buf
        known.pool.mask = self.pool.mask
        known.pool.n = self.pool.n
        if self.pool.table.arena != NULL:
            join(self.pool.table.arena)
            known.pool.table = self.pool.table
        elif self.pool.table.size:
            push_bytes(&known.pool.table, self.pool.table.data, self.pool.table.size)
            if known.pool.table.failed:
                raise MemoryError("no memory for names")
        known.pool.slots = <Slot*> known.pool.table.data
        return known

    def export(self):
        """(bytes, int64 ends) of all texts so far; the pool goes on growing behind them."""
        self.alone()
        if self.pool.failed:
            raise MemoryError("no memory for names")
        return share(&self.pool.items.bytes), share(&self.pool.items.ends)
