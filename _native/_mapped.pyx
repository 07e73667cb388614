"""NumPy arrays in mapped temporary files, where there are too many bytes of large ones for memory."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport PyObject

cdef extern from "mapped.h":
    ctypedef struct xla_handler:
        pass
    xla_handler* xla_handler_for(const char* pattern, size_t large, size_t most) nogil
    void xla_handler_gone(object capsule) noexcept

ctypedef object (*SetHandler)(PyObject* handler)

cdef enum:
    SET_HANDLER = 304          # PyDataMem_SetHandler, in the table of NumPy's functions


def handler(bytes pattern not None, size_t large, size_t most):
    """A handler for `use`: arrays of `large` bytes or more go to files once there are `most` bytes of such in memory.

    `pattern` are the files' names, as mkstemp wants them. Where no file can be had, an array stays in memory.
    """
    cdef xla_handler* made = xla_handler_for(pattern, large, most)
    if made == NULL:
        raise MemoryError("no memory for a handler")
    return PyCapsule_New(made, "mem_handler", xla_handler_gone)


def use(api not None, handler not None):
    """Let a handler make NumPy's arrays in this thread (or context) from now on; the one that did so before.

    `api` is NumPy's capsule `_ARRAY_API`.
    """
    cdef void** table = <void**> PyCapsule_GetPointer(api, NULL)
    return (<SetHandler> table[SET_HANDLER])(<PyObject*> handler)
