"""The instructions and values of a dump that is read span by span, as locations in its files instead of text.

A location is an offset in a file, with the number of the file in the bits from 48 on. Hashes only say where to look:
texts are compared in the files. Not locked: one thread at a time.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memmove, memset

import numpy as np

from buffer cimport Buffer, push, push_byte, push_code, release
from cursor cimport CLASS, IN_NAME, ShortValue, short_value
from gaps cimport Gaps, clear_gaps, gapped_short
from interner cimport hash_pair, hash_text, interned_text
from text cimport Slice
from xlamem._column cimport Names, own

cdef enum:
    MAX_FILES = 64
    FILE_BIT = 48
    MAX_TEXTS = 8                                 # of one name, found by its hash

# Results of Texts.add.
cdef enum:
    T_NEW
    T_REPEAT
    T_OTHER

NEW, REPEAT, OTHER = T_NEW, T_REPEAT, T_OTHER


def find(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end,
         const unsigned char[::1] text not None):
    """Return the offset of the first occurrence of a text in data[begin:end], or -1."""
    cdef const char* p
    cdef const char* stop
    cdef const char* match = NULL
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
                match = p
                break
            p += 1
    return -1 if match == NULL else match - <const char*> &data[0]


cdef struct FileText:
    const char* begin
    const char* end


cdef inline const char* text_at(const FileText* texts, int64_t location) noexcept nogil:
    return texts[location >> FILE_BIT].begin + (location & ((<int64_t> 1 << FILE_BIT) - 1))


cdef class Files:
    """The texts of a dump's files, by number. They must not change while this object exists."""

    cdef FileText[MAX_FILES] texts
    cdef Py_buffer[MAX_FILES] views
    cdef int n

    def __cinit__(self, texts not None):
        if len(texts) > MAX_FILES:
            raise ValueError("too many files in one dump")
        for text in texts:
            PyObject_GetBuffer(text, &self.views[self.n], PyBUF_SIMPLE)
            self.texts[self.n].begin = <const char*> self.views[self.n].buf
            self.texts[self.n].end = self.texts[self.n].begin + self.views[self.n].len
            self.n += 1

    def __dealloc__(self):
        for i in range(self.n):
            PyBuffer_Release(&self.views[i])

    cdef int check(self, const long long[::1] locations) except -1:
        cdef Py_ssize_t i
        cdef bint good = True
        with nogil:
            for i in range(locations.shape[0]):
                good &= 0 <= locations[i] and locations[i] >> FILE_BIT < self.n and (
                    text_at(self.texts, locations[i]) < self.texts[locations[i] >> FILE_BIT].end)
        if not good:
            raise ValueError("a location must lie in its file")
        return 0

    def names(self, const long long[::1] records not None):
        """Return the location of the name in the value `<ID NAME…>` at each location, or 0: int64."""
        cdef Buffer out
        cdef Py_ssize_t i
        cdef ShortValue s
        cdef const char* p
        memset(&out, 0, sizeof(Buffer))
        self.check(records)
        with nogil:
            for i in range(records.shape[0]):
                p = text_at(self.texts, records[i])
                p = header_name(p, self.texts[records[i] >> FILE_BIT].end, &s)
                push(&out, records[i] + (s.name.p - text_at(self.texts, records[i])) if p != NULL else 0)
        return own(&out)

    def same_names(self, const long long[::1] names not None, const long long[::1] others not None):
        """One byte per i: whether NAME[INDEX] at names[i] and at others[i] are equal."""
        cdef Buffer out
        cdef Py_ssize_t i
        cdef Slice a, b, x, y
        memset(&out, 0, sizeof(Buffer))
        if names.shape[0] != others.shape[0]:
            raise ValueError("there must be as many locations as others")
        self.check(names)
        self.check(others)
        with nogil:
            for i in range(names.shape[0]):
                label(self.texts, names[i], &a, &x)
                label(self.texts, others[i], &b, &y)
                push_byte(&out, a.n == b.n and memcmp(a.p, b.p, a.n) == 0 and (x.p == NULL) == (y.p == NULL) and (
                    x.p == NULL or same_index(&x, &y)))
        return own(&out)


cdef const char* header_name(const char* p, const char* end, ShortValue* s) noexcept nogil:
    # "<ID NAME…>" in the line at p, perhaps with gaps.
    cdef const char* e = short_value(p, end, s)
    cdef Gaps gaps
    if e != NULL:
        return e
    e = <const char*> memchr(p, c'\n', end - p)
    if e == NULL:
        return NULL
    p = <const char*> memchr(p, c'<', e - p)
    clear_gaps(&gaps)
    return gapped_short(p, e, s, &gaps) if p != NULL else NULL


cdef void label(const FileText* texts, int64_t location, Slice* word, Slice* sub) noexcept nogil:
    # NAME, and INDEX in its braces (in E0: brackets) if there is one.
    cdef const char* p = text_at(texts, location)
    cdef const char* end = texts[location >> FILE_BIT].end
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


cdef inline bint same_index(const Slice* a, const Slice* b) noexcept nogil:
    # Brackets equal braces, unless the index is too long (early_values.braced_code).
    if a.n != b.n or memcmp(a.p + 1, b.p + 1, a.n - 2) != 0:
        return False
    return a.n <= 256 or a.p[0] == b.p[0]


cdef class Texts:
    """The distinct instructions `%NAME = …` so far."""

    # A slot holds a tag, made of the hash of the name, above the offset + 1 of the text in the concatenated files; 0 is
    # an empty slot. Slots are ordered by tag, except for its upper 3 bits: names that only differ in their last digit
    # are neighbours (hash_text). Beyond MAX_TEXTS texts of one name, which a valid dump does not have, the tag is made
    # of the hash of the text.
    cdef Files files
    cdef int64_t[MAX_FILES + 1] first             # offset at which each file begins
    cdef int offset_bits, tag_bits
    cdef unsigned long long[::1] slots            # a NumPy array, which may be mapped
    cdef uint64_t n_slots
    cdef int64_t n
    cdef Buffer early                             # begin and end of each text that ends before its line; rare

    def __cinit__(self, Files files not None):
        cdef int i
        self.files = files
        for i in range(files.n):
            self.first[i + 1] = self.first[i] + (files.texts[i].end - files.texts[i].begin)
        while (self.first[files.n] + 1) >> self.offset_bits:
            self.offset_bits += 1
        self.tag_bits = min(32, 64 - self.offset_bits)

    def __dealloc__(self):
        release(&self.early)

    def __len__(self):
        return self.n

    cdef inline uint64_t slot_of(self, uint64_t tag, uint64_t n_slots) noexcept nogil:
        # The first slot for a tag, whose upper 3 bits are those of the last digit.
        cdef int bits = self.tag_bits - 3
        return ((tag & ((<uint64_t> 1 << bits) - 1)) * (n_slots >> 3) >> bits << 3) + (tag >> bits)

    cdef int grow(self, size_t more) except -1:
        # Make room for more texts, at a load of at most four fifths.
        cdef uint64_t n_slots, slot, i
        cdef unsigned long long[::1] slots
        if (self.n + more) * 5 <= self.n_slots * 4:
            return 0
        n_slots = ((self.n + more) * 8 // 5 + 1024) & ~<uint64_t> 7
        slots = np.zeros(n_slots, np.ulonglong)
        with nogil:
            for i in range(self.n_slots):
                if self.slots[i]:
                    slot = self.slot_of(self.slots[i] >> self.offset_bits, n_slots)
                    while slots[slot]:
                        slot = slot + 1 if slot + 1 < n_slots else 0
                    slots[slot] = self.slots[i]
        self.slots = slots
        self.n_slots = n_slots
        return 0

    def add(self, const long long[::1] begins not None, const long long[::1] ends not None):
        """One byte per text: NEW, REPEAT of an earlier text, or OTHER text of an earlier name. Adds the new ones."""
        cdef Buffer out
        cdef Py_ssize_t i
        memset(&out, 0, sizeof(Buffer))
        if begins.shape[0] != ends.shape[0]:
            raise ValueError("there must be as many begins as ends")
        self.files.check(begins)
        self.files.check(ends)
        self.grow(begins.shape[0])
        with nogil:
            for i in range(begins.shape[0]):
                push_byte(&out, self.add_one(begins[i], ends[i] - begins[i]))
            out.failed |= self.early.failed
        return own(&out)

    cdef uint8_t add_one(self, int64_t begin, int64_t n) noexcept nogil:
        cdef int file = <int> (begin >> FILE_BIT)
        cdef const char* p = text_at(self.files.texts, begin)
        cdef int64_t m = 1, offset = self.first[file] + (begin & ((<int64_t> 1 << FILE_BIT) - 1))
        cdef uint64_t slot
        cdef uint32_t key
        cdef int others = 0
        while m < n and CLASS[<uint8_t> p[m]] & IN_NAME:
            m += 1
        key = hash_text(p + 1, m - 1)
        if self.find_text(p, m, n, key, &slot, &others):
            return T_REPEAT
        if others == MAX_TEXTS:
            key = hash_text(p + 1, n - 1)
            if self.find_text(p, m, n, key, &slot, NULL):
                return T_REPEAT
        if p[n] != c'\n':                        # ends lie in their file, too
            self.keep_early(offset, offset + n)
        self.n += 1
        self.slots[slot] = self.tag_of(key) << self.offset_bits | <uint64_t> (offset + 1)
        return T_OTHER if others else T_NEW

    cdef inline uint64_t tag_of(self, uint64_t key) noexcept nogil:
        return ((key & 7) << 29 | key >> 3) >> (32 - self.tag_bits)

    cdef bint find_text(
        self, const char* p, int64_t m, int64_t n, uint32_t key, uint64_t* slot, int* others
    ) noexcept nogil:
        # Whether the n bytes at p, the first m of which are its name, are one of the texts of a key. Otherwise sets
        # the slot for it, and counts other texts of the name, of which at most MAX_TEXTS are compared; NULL: of all.
        cdef uint64_t tag = self.tag_of(key), i = self.slot_of(tag, self.n_slots)
        cdef int64_t offset, left
        cdef const char* q
        cdef int other
        while self.slots[i]:
            if self.slots[i] >> self.offset_bits == tag:
                offset = <int64_t> (self.slots[i] & ((<uint64_t> 1 << self.offset_bits) - 1)) - 1
                other = 0
                while offset >= self.first[other + 1]:
                    other += 1
                q = self.files.texts[other].begin + (offset - self.first[other])
                left = self.first[other + 1] - offset
                if left > m and memcmp(p, q, m) == 0 and CLASS[<uint8_t> q[m]] & IN_NAME == 0:
                    if left >= n and memcmp(p, q, n) == 0 and self.ends(offset, n, q, left):
                        return True
                    if others != NULL:
                        others[0] += 1
                        if others[0] == MAX_TEXTS:
                            return False
            i = i + 1 if i + 1 < self.n_slots else 0
        slot[0] = i
        return False

    cdef bint ends(self, int64_t offset, int64_t n, const char* q, int64_t left) noexcept nogil:
        # Whether the text at q, at this offset, has n bytes. `left` bytes are left of its file.
        cdef int64_t i = self.early_from(offset)
        cdef const int64_t* early = <const int64_t*> self.early.data
        if i < <int64_t> (self.early.size // 16) and early[2 * i] == offset:
            return early[2 * i + 1] == offset + n
        return left == n or q[n] == c'\n'

    cdef int64_t early_from(self, int64_t offset) noexcept nogil:
        # The number of early texts that begin before an offset.
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
        # Texts come in the order of the file: there is rarely anything to move.
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
    """The dump's values by name and index. `locations` are those of their names, in ascending order of the ids."""

    cdef Files files
    cdef const long long[::1] locations
    cdef Py_ssize_t next_value                    # after the last match: ranges are printed in the order of the ids
    cdef unsigned long long[::1] slots            # key << 32 | number + 1; built when first needed
    cdef uint64_t n_slots

    def __cinit__(self, Files files not None, const long long[::1] locations not None):
        files.check(locations)
        self.files, self.locations = files, locations

    cdef bint is_value(self, Py_ssize_t k, const Slice* word, const Slice* sub) noexcept nogil:
        # Whether value k has this name and index. No index equals {}.
        cdef const char* p = text_at(self.files.texts, self.locations[k])
        cdef const char* end = self.files.texts[self.locations[k] >> FILE_BIT].end
        cdef Slice name, index
        if <size_t> (end - p) <= word.n or p[0] != word.p[0] or memcmp(p, word.p, word.n) != 0 or (
            CLASS[<uint8_t> p[word.n]] & IN_NAME
        ):
            return False
        label(self.files.texts, self.locations[k], &name, &index)
        return same_index(&index, sub) if index.p != NULL and sub.n > 2 else index.n <= 2 and sub.n <= 2

    cdef int build(self) except -1:
        cdef Py_ssize_t k, n = self.locations.shape[0]
        cdef uint64_t key, slot
        cdef Slice word, sub
        self.n_slots = <uint64_t> n + <uint64_t> n // 2 + 8
        self.slots = np.zeros(self.n_slots, np.ulonglong)
        with nogil:
            for k in range(n):
                label(self.files.texts, self.locations[k], &word, &sub)
                key = label_key(&word, &sub)
                slot = key * self.n_slots >> 32
                while self.slots[slot] and not self.is_in(slot, key, &word, &sub):
                    slot = slot + 1 if slot + 1 < self.n_slots else 0
                if not self.slots[slot]:          # of several values with one name and index, the first counts
                    self.slots[slot] = key << 32 | <uint64_t> (k + 1)
        return 0

    cdef bint is_in(self, uint64_t slot, uint64_t key, const Slice* word, const Slice* sub) noexcept nogil:
        # Whether the slot, which is in use, has the value of this key, name and index.
        return self.slots[slot] >> 32 == key and self.is_value(<uint32_t> self.slots[slot] - 1, word, sub)

    cdef Py_ssize_t search(self, const Slice* word, const Slice* sub) noexcept nogil:
        # Number of the first value of this name and index, or -1.
        cdef uint64_t key = label_key(word, sub)
        cdef uint64_t slot = key * self.n_slots >> 32
        while self.slots[slot]:
            if self.is_in(slot, key, word, sub):
                return <Py_ssize_t> <uint32_t> self.slots[slot] - 1
            slot = slot + 1 if slot + 1 < self.n_slots else 0
        return -1

    def match(self, Names names not None, Names indices not None, const int[::1] instructions not None,
              const int[::1] shape_indices not None):
        """Return the number of the value of each (name, index), given as codes: int32, or -1.

        As in `_liveness.match`, it is nearly always the next value; a hash table is built for the first that is not.
        """
        cdef Buffer out
        cdef Py_ssize_t i, k, value, n = self.locations.shape[0]
        cdef Slice word, sub
        memset(&out, 0, sizeof(Buffer))
        if instructions.shape[0] != shape_indices.shape[0]:
            raise ValueError("columns of one table must have one length")
        for i in range(instructions.shape[0]):
            if not (0 <= instructions[i] < names.interner.n and 0 <= shape_indices[i] < indices.interner.n):
                raise ValueError("a code must be one of its names")
        with nogil:
            for i in range(instructions.shape[0]):
                word.p = interned_text(&names.interner, instructions[i], &word.n)
                sub.p = interned_text(&indices.interner, shape_indices[i], &sub.n)
                value = -1
                for k in range(self.next_value, min(self.next_value + 8, n)):
                    if self.is_value(k, &word, &sub):
                        value = k
                        break
                if value < 0 and n:
                    if self.n_slots == 0:
                        with gil:
                            try:
                                self.build()
                            except BaseException:
                                release(&out)
                                raise
                    value = self.search(&word, &sub)
                if value >= 0:
                    self.next_value = value + 1
                push_code(&out, <int32_t> value)
        return own(&out)


cdef uint64_t label_key(const Slice* word, const Slice* sub) noexcept nogil:
    # 32 bits of the name and of the index without its brackets.
    cdef size_t n = sub.n - 2 if sub.n > 2 else 0
    return hash_pair(hash_text(word.p, word.n), hash_text(sub.p + 1, n) if n else 0) >> 32
