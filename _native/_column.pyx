"""Memory handed to Python: `Column` (read-only bytes) and `Names` (interned texts); rows looked up by key."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from buffer cimport (
    UNRESERVED, Buffer, allocate_zeroed, poison, presize, push_bytes, put_code, release, retain_arena,
)
from cells cimport Key, sort_keys
from interner cimport (
    Interner, Slot, append_text, find_code, find_codes, hash_text, intern_name, interned_text, release_interner,
    reserve_texts,
)
from text cimport TextColumn, push_first_offset, release_text

cdef enum:
    MOST_GAPS = 8           # entries per id of a table that sorts ids; sparser ones are sorted by their digits
    SMALL_TABLE = 1 << 22   # entries of a table of rows; ids of CPU dumps are 10 to 30 apart

cdef extern from "hash.h":
    uint64_t stable_hash "xla_stable_hash"(const char*, size_t) noexcept nogil

cdef extern from *:
    """
    #ifndef XLAMEM_STAMP
    #define XLAMEM_STAMP "?"
    #endif
    static char xla_empty[8];   /* exported by an empty column: pyarrow aborts on a null pointer */
    """
    const char* XLAMEM_STAMP
    char* empty "xla_empty"

STAMP = XLAMEM_STAMP.decode("ascii")


cdef class Column:
    """A read-only block of bytes, exported through the buffer protocol without a copy."""

    def __dealloc__(self):
        with nogil:
            release(&self.buffer)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef char* data = self.buffer.data if self.buffer.size else empty
        PyBuffer_FillInfo(view, self, data, <Py_ssize_t> self.buffer.size, 1, flags)

    def __len__(self):
        return <Py_ssize_t> self.buffer.size


cdef object raise_failed(int failed):
    if failed == UNRESERVED:
        raise SystemError("a column has more rows than were reserved")
    raise MemoryError("no memory for a column")


cdef Column own(Buffer* b):
    # Move the bytes into a Column. The buffer is empty afterwards.
    cdef int failed = b.failed
    cdef Column column = Column.__new__(Column)
    if failed:
        release(b)
        raise_failed(failed)
    column.buffer = b[0]
    poison(b.data + b.size, b.capacity - b.size)
    memset(b, 0, sizeof(Buffer))
    return column


cdef tuple own_two(Buffer* a, Buffer* b):
    # Both columns, or neither.
    cdef int failed = a.failed or b.failed
    if failed:
        release(a)
        release(b)
        raise_failed(failed)
    return own(a), own(b)


cdef tuple own_text(TextColumn* t):
    cdef int failed
    push_first_offset(t)
    failed = t.bytes.failed or t.offsets.failed or t.valid.failed
    if failed:
        release_text(t)
        raise_failed(failed)
    return own(&t.bytes), own(&t.offsets), own(&t.valid)


def recode(Column column not None, const int[::1] codes not None, Py_ssize_t first):
    """Replace each int32 code c >= first in the column by codes[c - first]. Not thread-safe."""
    cdef size_t i
    cdef size_t n = column.buffer.size // 4
    cdef int32_t* data = <int32_t*> column.buffer.data
    cdef bint good = True
    with nogil:
        for i in range(n):
            if data[i] >= first:
                if data[i] - first < codes.shape[0]:
                    data[i] = codes[data[i] - first]
                else:
                    good = False
    if not good:
        raise IndexError("no such code")


def distinct(const long long[::1] values not None):
    """List the distinct values in ascending order. None if there are more than 16."""
    cdef int64_t[16] seen
    cdef int n = 0, k = 0
    cdef Py_ssize_t i
    with nogil:
        for i in range(values.shape[0]):
            if n and values[i] == seen[k]:
                continue
            k = 0
            while k < n and values[i] != seen[k]:
                k += 1
            if k == n:
                if n == 16:
                    n = -1
                    break
                seen[n] = values[i]
                n += 1
    return sorted([seen[k] for k in range(n)]) if n >= 0 else None


cdef Column share(Buffer* b):
    # The bytes so far, as a column. In an arena they are not copied: later ones are appended after them, and a buffer
    # that outgrows its room moves. A short buffer is copied.
    cdef Column column
    cdef Buffer copy
    with nogil:
        if b.arena == NULL:
            presize(b, 1, b, 1.25)
    if b.arena == NULL:
        memset(&copy, 0, sizeof(Buffer))
        push_bytes(&copy, b.data, b.size)
        return own(&copy)
    column = Column.__new__(Column)
    retain_arena(b.arena)
    column.buffer = b[0]
    return column


cdef bint dense(const long long[::1] keys, int64_t* low, int64_t* span) noexcept nogil:
    # Whether the keys, at least one, are dense enough for a table by difference from the lowest.
    cdef Py_ssize_t i, n = keys.shape[0], most_entries = max(8 * n, min(64 * n, SMALL_TABLE)) + 1024
    cdef int64_t least = keys[0], most = keys[0]
    for i in range(n):
        least = min(least, keys[i])
        most = max(most, keys[i])
    low[0] = least
    span[0] = 0
    # Unsigned: the difference of two int64 may not fit into one.
    if <uint64_t> most - <uint64_t> least > <uint64_t> most_entries or n > 0x7FFFFFFF:
        return False
    span[0] = most - least + 1
    return True


def first_rows(const long long[::1] keys not None):
    """Return the lowest key, and by difference from it the first row + 1 of each key, 0 for none (int32).

    The rows are None if there are no keys, or if they are not nearly dense.
    """
    cdef Buffer out
    cdef Py_ssize_t i
    cdef int64_t low = 0, span = 0
    if keys.shape[0] == 0 or not dense(keys, &low, &span):
        return low, None
    with nogil:
        if allocate_zeroed(&out, span * 4):
            for i in range(keys.shape[0] - 1, -1, -1):
                (<int32_t*> out.data)[keys[i] - low] = <int32_t> i + 1
    return low, own(&out)


def rows_of(const int[::1] rows not None, int64_t low, const long long[::1] wanted not None):
    """Return the row of each wanted key, or -1 (int64). `rows` and `low` are those of `first_rows`."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef uint64_t k, n = rows.shape[0]
    with nogil:
        if allocate_zeroed(&out, wanted.shape[0] * 8):
            for i in range(wanted.shape[0]):
                k = <uint64_t> wanted[i] - <uint64_t> low
                (<int64_t*> out.data)[i] = rows[k] - 1 if k < n else -1
    return own(&out)


ctypedef fused Number:
    int
    long long


def positions(const Number[::1] keys not None, const long long[::1] wanted not None):
    """Return the number of keys below each wanted one (int64). The keys ascend.

    Each search begins where the last one ended and doubles its steps, so that it is fast if `wanted` ascends too.
    """
    cdef Buffer out
    cdef Py_ssize_t i, low, high, step, middle, at = 0, n = keys.shape[0]
    cdef long long key
    with nogil:
        if allocate_zeroed(&out, wanted.shape[0] * 8):
            for i in range(wanted.shape[0]):
                key = wanted[i]
                step = 1
                low = high = at
                if at < n and keys[at] < key:
                    while high < n and keys[high] < key:
                        low = high + 1
                        high = min(low + step, n)
                        step += step
                else:
                    while low > 0 and keys[low - 1] >= key:
                        high = low - 1
                        low = max(high - step, 0)
                        step += step
                while low < high:
                    middle = low + (high - low) // 2
                    if keys[middle] < key:
                        low = middle + 1
                    else:
                        high = middle
                at = low
                (<int64_t*> out.data)[i] = at
    return own(&out)


def take(const Number[::1] items not None, const int[::1] rows not None):
    """Return items[rows]."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef bint good = True
    with nogil:
        if allocate_zeroed(&out, rows.shape[0] * sizeof(Number)):
            for i in range(rows.shape[0]):
                good = good and 0 <= rows[i] < items.shape[0]
                (<Number*> out.data)[i] = items[rows[i]] if good else 0
    column = own(&out)
    if not good:
        raise IndexError("no such row")
    return column


def in_order(const long long[::1] ids not None):
    """Return the rows in ascending order of their ids (int32). None if an id is repeated."""
    cdef Buffer table, out
    cdef int32_t* rows
    cdef Key* keys
    cdef Py_ssize_t i, n = ids.shape[0]
    cdef int64_t low = 0, span = 0
    cdef bint good = True, is_dense
    memset(&out, 0, sizeof(Buffer))
    if n == 0:
        return own(&out)
    if n > 0x7FFFFFFF:
        return None
    is_dense = dense(ids, &low, &span) and span <= MOST_GAPS * n
    with nogil:
        if allocate_zeroed(&table, span * 4 if is_dense else 2 * n * sizeof(Key)) and allocate_zeroed(&out, n * 4):
            if is_dense:
                rows = <int32_t*> table.data
                for i in range(n):
                    good = good and rows[ids[i] - low] == 0
                    rows[ids[i] - low] = <int32_t> i + 1
                if good:
                    out.size = 0
                    for i in range(span):
                        if rows[i]:
                            put_code(&out, rows[i] - 1)
            else:
                keys = <Key*> table.data
                for i in range(n):
                    # Unsigned: the difference of two int64 may not fit into one.
                    keys[i].key = <int64_t> (<uint64_t> ids[i] - <uint64_t> low)
                    keys[i].item = <int32_t> i
                sort_keys(keys, keys + n, n)
                for i in range(n):
                    good = good and (i == 0 or keys[i].key != keys[i - 1].key)
                    (<int32_t*> out.data)[i] = keys[i].item
        elif not out.failed:
            out.failed = table.failed
        release(&table)
    column = own(&out)
    return column if good else None


def hashes(const unsigned char[::1] data, const int[::1] offsets not None, long long[::1] out not None):
    """out[i] = MurmurHash64A, as int64, of the text data[offsets[i]:offsets[i + 1]]."""
    cdef Py_ssize_t i
    cdef const char* first = <const char*> &data[0] if data.shape[0] else empty
    if offsets.shape[0] != out.shape[0] + 1 or offsets[0] < 0 or offsets[out.shape[0]] > data.shape[0]:
        raise IndexError("no such texts")
    with nogil:
        for i in range(out.shape[0]):
            out[i] = <int64_t> stable_hash(first + offsets[i], <size_t> max(0, offsets[i + 1] - offsets[i]))


cdef class Snapshot:
    """A snapshot of the texts of a `Names`, safe for lookups from several threads."""

    def __dealloc__(self):
        with nogil:
            release(&self.interner.table)


cdef class Names:
    """Interned texts: text -> code (int32), in the order of first appearance.

    Not locked: one scan at a time may add texts. Texts of the snapshot `base` keep their codes and are not stored
    again.
    """

    def __cinit__(self, Snapshot base=None):
        if base is not None and base.interner.n:
            self.base = base
            self.interner.base = &base.interner
            self.interner.n_base = base.interner.n

    def __dealloc__(self):
        with nogil:
            release_interner(&self.interner)

    cdef int require_memory(self) except -1:
        # A text that found no memory has a code all the same.
        if self.interner.failed:
            raise MemoryError("no memory for names")
        return 0

    cdef int require_no_base(self) except -1:
        if self.interner.n_base:
            raise ValueError("these names have a base: only names without one support this")
        return 0

    def __len__(self):
        return self.interner.n_base + self.interner.n

    @property
    def n_base(self):
        """Number of texts in the base, whose codes come first."""
        return self.interner.n_base

    def expect(self, Py_ssize_t n):
        """Reserve space for n texts in total, so that adding them does not grow the table repeatedly."""
        if not reserve_texts(&self.interner, max(n, 0)):
            raise MemoryError("no memory for names")

    def adopt(self, Names other not None):
        """Take all texts of the other names, with their codes, if there are none here. Returns whether it did."""
        cdef Interner interner = self.interner
        if interner.n or interner.n_base or other.interner.n_base:
            return False
        self.interner = other.interner
        other.interner = interner
        return True

    def look_up(self, Names other not None, int[::1] codes not None, Py_ssize_t begin, Py_ssize_t end):
        """codes[i] = our code of the other's own text i, or -1, for begin <= i < end.

        Adds no texts: several threads may look up at once.
        """
        self.require_no_base()
        if not 0 <= begin <= end <= codes.shape[0] or end > other.interner.n:
            raise IndexError("no such texts")
        if begin < end:
            with nogil:
                find_codes(&self.interner, &other.interner, <int32_t*> &codes[0], <int32_t> begin, <int32_t> end)

    def add(self, Names other not None, int[::1] codes not None):
        """Add the other's own texts that `look_up` did not find, in their order, and fill in their codes.

        Returns whether each text has the same code in both.
        """
        cdef Py_ssize_t i
        cdef size_t n
        cdef const char* p
        cdef bint same = True
        self.require_no_base()
        if codes.shape[0] != other.interner.n:
            raise IndexError("one code for each text")
        with nogil:
            for i in range(codes.shape[0]):
                if codes[i] < 0:
                    p = interned_text(&other.interner, other.interner.n_base + <int32_t> i, &n)
                    codes[i] = append_text(&self.interner, hash_text(p, n), p, n)
                same = same and codes[i] == other.interner.n_base + i
        self.require_memory()
        return bool(same)

    def code(self, const unsigned char[::1] text not None):
        """Return the code of a text, adding it if it is new."""
        cdef const char* p = <const char*> &text[0] if text.shape[0] else empty
        cdef int code = intern_name(&self.interner, p, <size_t> text.shape[0])
        self.require_memory()
        return code

    def codes(self, const unsigned char[::1] data, const int[::1] offsets not None, int[::1] out not None, bint add):
        """out[i] = code of the text data[offsets[i]:offsets[i + 1]]. New texts are added, or get -1 without `add`."""
        cdef Py_ssize_t i
        cdef size_t n
        cdef const char* first = <const char*> &data[0] if data.shape[0] else empty
        cdef const char* p
        self.require_no_base()
        if offsets.shape[0] != out.shape[0] + 1 or offsets[0] < 0 or offsets[out.shape[0]] > data.shape[0]:
            raise IndexError("no such texts")
        with nogil:
            for i in range(out.shape[0]):
                p = first + offsets[i]
                n = <size_t> max(0, offsets[i + 1] - offsets[i])
                out[i] = intern_name(&self.interner, p, n) if add else find_code(&self.interner, hash_text(p, n), p, n)
        self.require_memory()

    def longest_probe(self):
        """Return how many slots the slowest search for one of our own texts looks at. It shows whether texts collide."""
        cdef uint64_t i, longest = 0
        cdef const Slot* slots = self.interner.slots
        with nogil:
            for i in range(self.interner.mask + 1 if slots != NULL else 0):
                if slots[i].key:
                    longest = max(longest, ((i - slots[i].key) & self.interner.mask) + 1)
        return longest

    def snapshot(self):
        """Return the texts so far, as a base for other names. Texts may be added here meanwhile."""
        cdef Snapshot snapshot = Snapshot.__new__(Snapshot)
        snapshot.bytes, snapshot.ends = self.export()
        snapshot.interner.texts.bytes = snapshot.bytes.buffer
        snapshot.interner.texts.ends = snapshot.ends.buffer
        snapshot.interner.mask = self.interner.mask
        snapshot.interner.n = self.interner.n
        if self.interner.table.arena != NULL:
            retain_arena(self.interner.table.arena)
            snapshot.interner.table = self.interner.table
        elif self.interner.table.size:
            push_bytes(&snapshot.interner.table, self.interner.table.data, self.interner.table.size)
            if snapshot.interner.table.failed:
                raise MemoryError("no memory for names")
        snapshot.interner.slots = <Slot*> snapshot.interner.table.data
        return snapshot

    def export(self):
        """Return (bytes, int64 end of each text) of all texts so far. Texts may still be added."""
        self.require_no_base()
        self.require_memory()
        return share(&self.interner.texts.bytes), share(&self.interner.texts.ends)
