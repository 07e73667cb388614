# For the section modules: columns handed to Python, and the interners within `Names`.

from buffer cimport Buffer
from interner cimport Interner
from text cimport TextColumn

cdef class Column:
    cdef Buffer buffer

cdef class Snapshot:
    cdef Interner interner
    cdef Column bytes                             # memory of the interner's texts
    cdef Column ends

cdef class Names:
    cdef Interner interner
    cdef Snapshot base
    cdef int require_memory(self) except -1
    cdef int require_no_base(self) except -1

cdef Column own(Buffer* b)
cdef tuple own_two(Buffer* a, Buffer* b)
cdef tuple own_text(TextColumn* t)
