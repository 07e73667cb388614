"""What is known across the spans of a dump read piece by piece, as places in its files instead of text.

A place is the offset in a file, with the number of the file in the bits from 48 on. Equality is decided by the
text that stands there; hashes only say where to look. Not locked: one thread at a time.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memmove, memset

import numpy as np

from buffer cimport Buf, drop, push, push_byte, push_code
from interner cimport key_of, pool_item
from text cimport Part
from cursor cimport CLASS, IN_NAME, Short, short_value
from gaps cimport Gaps, short_any
from xlamem._column cimport Names, own

cdef enum:
    MOST_FILES = 64
    FILE_BIT = 48

# What Texts.add says of a text.
cdef enum:
    T_NEW
    T_REPEAT
    T_OTHER

NEW, REPEAT, OTHER = T_NEW, T_REPEAT, T_OTHER


def find(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, const unsigned char[::1] text not None):
    """Offset of the first occurrence of a text in data[begin:end], -1 for none."""
    cdef const char* p
    cdef const char* stop
    cdef const char* found = NULL
    cdef size_t n = text.shape[0]
    if not 0 <= begin <= end <= data.shape[0] or n == 0:
        raise ValueError("a span must lie in the data, and the text must not be empty")
    if end - begin < <Py_ssize_t> n:
        return -1
    p = <const char*> &data[begin]
    stop = p + (end - begin) - n + 1
    with nogil:
        while p < stop:
            p = <const char*> memchr(p, text[0], stop - p)
            if p == NULL:
                break
            if memcmp(p, &text[0], n) == 0:
                found = p
                break
            p += 1
    return -1 if found == NULL else found - <const char*> &data[0]


cdef struct Base:
    const char* begin
    const char* end


cdef inline const char* at_place(const Base* bases, int64_t place) noexcept nogil:
    return bases[place >> FILE_BIT].begin + (place & ((<int64_t> 1 << FILE_BIT) - 1))


cdef class Files:
    """The texts of a dump's files, by number; they must stay as they are as long as this lives."""

    cdef Base[MOST_FILES] bases
    cdef Py_buffer[MOST_FILES] views
    cdef int n

    def __cinit__(self, texts not None):
        if len(texts) > MOST_FILES:
            raise ValueError("too many files in one dump")
        for text in texts:
            PyObject_GetBuffer(text, &self.views[self.n], PyBUF_SIMPLE)
            self.bases[self.n].begin = <const char*> self.views[self.n].buf
            self.bases[self.n].end = self.bases[self.n].begin + self.views[self.n].len
            self.n += 1

    def __dealloc__(self):
        for i in range(self.n):
            PyBuffer_Release(&self.views[i])

    cdef int check(self, const long long[::1] places) except -1:
        cdef Py_ssize_t i
        cdef bint good = True
        with nogil:
            for i in range(places.shape[0]):
                good &= 0 <= places[i] and places[i] >> FILE_BIT < self.n and (
                    at_place(self.bases, places[i]) < self.bases[places[i] >> FILE_BIT].end)
        if not good:
            raise ValueError("a place must lie in its file")
        return 0

    def names(self, const long long[::1] records not None):
        """Places of the names in the values `<ID NAME…>` at these places: int64; 0 where there is none."""
        cdef Buf out
        cdef Py_ssize_t i
        cdef Short s
        cdef const char* p
        memset(&out, 0, sizeof(Buf))
        self.check(records)
        with nogil:
            for i in range(records.shape[0]):
                p = at_place(self.bases, records[i])
                p = header_name(p, self.bases[records[i] >> FILE_BIT].end, &s)
                push(&out, records[i] + (s.name.p - at_place(self.bases, records[i])) if p != NULL else 0)
        return own(&out)

    def same_names(self, const long long[::1] names not None, const long long[::1] others not None):
        """For each i whether NAME[INDEX] at names[i] and at others[i] are equal: one byte each."""
        cdef Buf out
        cdef Py_ssize_t i
        cdef Part a, b, x, y
        memset(&out, 0, sizeof(Buf))
        if names.shape[0] != others.shape[0]:
            raise ValueError("there must be as many places here as there")
        self.check(names)
        self.check(others)
        with nogil:
            for i in range(names.shape[0]):
                label(self.bases, names[i], &a, &x)
                label(self.bases, others[i], &b, &y)
                push_byte(&out, a.n == b.n and memcmp(a.p, b.p, a.n) == 0 and (x.p == NULL) == (y.p == NULL) and (
                    x.p == NULL or same_index(&x, &y)))
        return own(&out)


cdef const char* header_name(const char* p, const char* end, Short* s) noexcept nogil:
    # Reads "<ID NAME…>", which may have gaps, in the line at p; NULL if it is not there.
    cdef const char* e = short_value(p, end, s)
    cdef Gaps gaps
    if e != NULL:
        return e
    e = <const char*> memchr(p, c'\n', end - p)
    if e == NULL:
        return NULL
    p = <const char*> memchr(p, c'<', e - p)
    gaps.n = 0
    gaps.full = False
    return short_any(p, e, s, &gaps) if p != NULL else NULL


cdef void label(const Base* bases, int64_t place, Part* word, Part* sub) noexcept nogil:
    # NAME, and INDEX in its braces (or brackets: E0) if one follows.
    cdef const char* p = at_place(bases, place)
    cdef const char* end = bases[place >> FILE_BIT].end
    word.p = p
    while p < end and CLASS[<uint8_t> p[0]] & IN_NAME:
        p += 1
    word.n = p - word.p
    sub.p = NULL
    sub.n = 0
    if p < end and (p[0] == c'{' or p[0] == c'['):
        sub.p = p
        while p < end and p[0] != c'}' and p[0] != c']' and p[0] != c'\n':
            p += 1
        if p < end and p[0] != c'\n':
            sub.n = p + 1 - sub.p
        else:
            sub.p = NULL


cdef inline bint same_index(const Part* a, const Part* b) noexcept nogil:
    # Brackets count as braces, unless the index is too long for that (_allocations.braced).
    if a.n != b.n or memcmp(a.p + 1, b.p + 1, a.n - 2) != 0:
        return False
    return a.n <= 256 or a.p[0] == b.p[0]


cdef class Texts:
    """The distinct instructions `%NAME = …` seen so far."""

    # A slot is one number: a tag, made of the key of the name, above the offset of the text in all files laid end to
    # end, plus 1; 0 is empty. Slots are ordered by tag, but that names which differ in a last digit alone are
    # neighbours (see key_of).
    cdef Files files
    cdef int64_t[MOST_FILES + 1] first    # offset at which each file begins
    cdef int place_bits, tag_bits
    cdef unsigned long long[::1] slots    # of NumPy, who may have them in a file
    cdef uint64_t room
    cdef int64_t n
    cdef Buf early             # begin and end of each text that does not end its line, by offset; nearly always none

    def __cinit__(self, Files files not None):
        cdef int i
        self.files = files
        for i in range(files.n):
            self.first[i + 1] = self.first[i] + (files.bases[i].end - files.bases[i].begin)
        while (self.first[files.n] + 1) >> self.place_bits:
            self.place_bits += 1
        self.tag_bits = min(32, 64 - self.place_bits)

    def __dealloc__(self):
        drop(&self.early)

    def __len__(self):
        return self.n

    cdef inline uint64_t slot_of(self, uint64_t tag, uint64_t room) noexcept nogil:
        # Where in as many slots a tag belongs: its upper 3 bits are the last digit.
        cdef int bits = self.tag_bits - 3
        return ((tag & ((<uint64_t> 1 << bits) - 1)) * (room >> 3) >> bits << 3) + (tag >> bits)

    cdef int grow(self, size_t more) except -1:
        # Room for as many more texts, at a load of at most four fifths.
        cdef uint64_t room, at, i
        cdef unsigned long long[::1] slots
        if (self.n + more) * 5 <= self.room * 4:
            return 0
        room = ((self.n + more) * 8 // 5 + 1024) & ~<uint64_t> 7
        slots = np.zeros(room, np.ulonglong)
        with nogil:
            for i in range(self.room):
                if self.slots[i]:
                    at = self.slot_of(self.slots[i] >> self.place_bits, room)
                    while slots[at]:
                        at = at + 1 if at + 1 < room else 0
                    slots[at] = self.slots[i]
        self.slots = slots
        self.room = room
        return 0

    def add(self, const long long[::1] begins not None, const long long[::1] ends not None):
        """Add the texts between these places; one byte each: NEW, REPEAT of a text there is, or OTHER text of its name."""
        cdef Buf out
        cdef Py_ssize_t i
        memset(&out, 0, sizeof(Buf))
        if begins.shape[0] != ends.shape[0]:
            raise ValueError("there must be as many begins as ends")
        self.files.check(begins)
        self.files.check(ends)
        self.grow(begins.shape[0])
        with nogil:
            for i in range(begins.shape[0]):
                push_byte(&out, self.put(begins[i], ends[i] - begins[i]))
            out.failed |= self.early.failed
        return own(&out)

    cdef uint8_t put(self, int64_t begin, int64_t n) noexcept nogil:
        cdef int file = <int> (begin >> FILE_BIT), other
        cdef const char* p = at_place(self.files.bases, begin)
        cdef const char* q
        cdef int64_t m = 1, offset = self.first[file] + (begin & ((<int64_t> 1 << FILE_BIT) - 1)), there, left
        cdef uint64_t key, tag, at
        cdef uint8_t found = T_NEW
        while m < n and CLASS[<uint8_t> p[m]] & IN_NAME:
            m += 1
        key = key_of(p + 1, m - 1)
        tag = ((key & 7) << 29 | key >> 3) >> (32 - self.tag_bits)
        at = self.slot_of(tag, self.room)
        while self.slots[at]:
            if self.slots[at] >> self.place_bits == tag:
                there = <int64_t> (self.slots[at] & ((<uint64_t> 1 << self.place_bits) - 1)) - 1
                other = 0
                while there >= self.first[other + 1]:
                    other += 1
                q = self.files.bases[other].begin + (there - self.first[other])
                left = self.first[other + 1] - there
                if left > m and memcmp(p, q, m) == 0 and CLASS[<uint8_t> q[m]] & IN_NAME == 0:
                    if left >= n and memcmp(p, q, n) == 0 and self.ends(there, n, q, left):
                        return T_REPEAT
                    found = T_OTHER
            at = at + 1 if at + 1 < self.room else 0
        if p + n < self.files.bases[file].end and p[n] != c'\n':
            self.keep_early(offset, offset + n)
        self.n += 1
        self.slots[at] = tag << self.place_bits | <uint64_t> (offset + 1)
        return found

    cdef bint ends(self, int64_t offset, int64_t n, const char* q, int64_t left) noexcept nogil:
        # Whether the text there, at q, has n bytes; so many agree already, and `left` are left of its file.
        cdef int64_t i = self.early_from(offset)
        cdef const int64_t* early = <const int64_t*> self.early.data
        if i < <int64_t> (self.early.size // 16) and early[2 * i] == offset:
            return early[2 * i + 1] == offset + n
        return left == n or q[n] == c'\n'

    cdef int64_t early_from(self, int64_t offset) noexcept nogil:
        # Number of the early texts that begin before an offset.
        cdef const int64_t* early = <const int64_t*> self.early.data
        cdef int64_t lo = 0, hi = self.early.size // 16, middle
        while lo < hi:
            middle = (lo + hi) // 2
            if early[2 * middle] < offset:
                lo = middle + 1
            else:
                hi = middle
        return lo

    cdef void keep_early(self, int64_t begin, int64_t end) noexcept nogil:
        # They come in the order of the text: what has to be moved is mostly nothing.
        cdef int64_t i = self.early_from(begin), n = self.early.size // 16
        cdef int64_t* early
        push(&self.early, begin)
        push(&self.early, end)
        if not self.early.failed:
            early = <int64_t*> self.early.data
            memmove(&early[2 * i + 2], &early[2 * i], (n - i) * 16)
            early[2 * i] = begin
            early[2 * i + 1] = end


cdef class Values:
    """The dump's values by name and index: `places` of their names, in ascending order of their ids."""

    cdef Files files
    cdef const long long[::1] places
    cdef Py_ssize_t at         # behind the value found last: ranges are printed in the order of the ids
    cdef unsigned long long[::1] slots     # made when first needed; key << 32 | number + 1
    cdef uint64_t room

    def __cinit__(self, Files files not None, const long long[::1] places not None):
        files.check(places)
        self.files, self.places = files, places

    cdef bint holds(self, Py_ssize_t k, const Part* word, const Part* sub) noexcept nogil:
        # Whether value k has this name and index; no index is {}.
        cdef const char* p = at_place(self.files.bases, self.places[k])
        cdef const char* end = self.files.bases[self.places[k] >> FILE_BIT].end
        cdef Part mine, index
        if <size_t> (end - p) <= word.n or p[0] != word.p[0] or memcmp(p, word.p, word.n) != 0 or (
            CLASS[<uint8_t> p[word.n]] & IN_NAME
        ):
            return False
        label(self.files.bases, self.places[k], &mine, &index)
        return same_index(&index, sub) if index.p != NULL else sub.n == 2

    cdef int make(self) except -1:
        cdef Py_ssize_t k, n = self.places.shape[0]
        cdef uint64_t key, at
        cdef Part word, sub
        self.room = <uint64_t> n + <uint64_t> n // 2 + 8
        self.slots = np.zeros(self.room, np.ulonglong)
        with nogil:
            for k in range(n):
                label(self.files.bases, self.places[k], &word, &sub)
                key = label_key(&word, &sub)
                at = key * self.room >> 32
                while self.slots[at]:
                    at = at + 1 if at + 1 < self.room else 0
                self.slots[at] = key << 32 | <uint64_t> (k + 1)
        return 0

    cdef Py_ssize_t search(self, const Part* word, const Part* sub) noexcept nogil:
        # Number of the first value of this name and index; -1 for none.
        cdef uint64_t key = label_key(word, sub)
        cdef uint64_t at = key * self.room >> 32
        cdef Py_ssize_t k
        while self.slots[at]:
            if self.slots[at] >> 32 == key:
                k = <Py_ssize_t> <uint32_t> self.slots[at] - 1
                if self.holds(k, word, sub):
                    return k
            at = at + 1 if at + 1 < self.room else 0
        return -1

    def match(self, Names names not None, Names indices not None, const int[::1] instructions not None,
              const int[::1] shape_indices not None):
        """Number of the value of each (name, index), given as codes: int32, -1 where there is none.

        As `_liveness.match`: nearly always it is the next value; a hash of all is made only for one that is not.
        """
        cdef Buf out
        cdef Py_ssize_t i, k, found, n = self.places.shape[0]
        cdef Part word, sub
        memset(&out, 0, sizeof(Buf))
        if instructions.shape[0] != shape_indices.shape[0]:
            raise ValueError("columns of one table must have one length")
        for i in range(instructions.shape[0]):
            if not (0 <= instructions[i] < names.pool.n and 0 <= shape_indices[i] < indices.pool.n):
                raise ValueError("a code must be of its pool")
        with nogil:
            for i in range(instructions.shape[0]):
                word.p = pool_item(&names.pool, instructions[i], &word.n)
                sub.p = pool_item(&indices.pool, shape_indices[i], &sub.n)
                found = -1
                for k in range(self.at, min(self.at + 8, n)):
                    if self.holds(k, &word, &sub):
                        found = k
                        break
                if found < 0 and n:
                    if self.room == 0:
                        with gil:
                            try:
                                self.make()
                            except BaseException:
                                drop(&out)
                                raise
                    found = self.search(&word, &sub)
                if found >= 0:
                    self.at = found + 1
                push_code(&out, <int32_t> found)
        return own(&out)


cdef uint64_t label_key(const Part* word, const Part* sub) noexcept nogil:
    # 32 bits of the name and of what stands between the braces.
    cdef uint64_t h = key_of(word.p, word.n)
    cdef size_t i
    if sub.p != NULL:
        for i in range(1, sub.n - 1):
            h = (h ^ <uint8_t> sub.p[i]) * <uint64_t> 0x9e3779b97f4a7c15
            h ^= h >> 29
    return (h * <uint64_t> 0x9e3779b97f4a7c15) >> 32
