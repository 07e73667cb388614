# What the section modules need of _column: hand a buffer over, reach a pool.

from buffer cimport Buf
from interner cimport Pool
from text cimport Text

cdef class Column:
    cdef Buf buf
    cdef Py_ssize_t shape

cdef class Known:
    cdef Pool pool
    cdef Column bytes                             # that the pool's items lie in
    cdef Column ends

cdef class Names:
    cdef Pool pool
    cdef Known base
    cdef int alone(self) except -1

cdef Column own(Buf* b)
cdef tuple own_two(Buf* a, Buf* b)
cdef tuple own_text(Text* t)
