"""Mapped files that become shorter while they are read: a mark instead of the end of the process."""

cdef extern from "guard.h":
    int guard_add "xla_guard_add"(const void*, size_t) nogil
    void guard_remove "xla_guard_remove"(int) nogil
    int guard_cut "xla_guard_cut"(const void*) nogil


def add(const unsigned char[::1] data not None):
    """Guard mapped data, which must stay mapped until `remove`. Returns its number, or -1 if it is not guarded."""
    return guard_add(&data[0], data.shape[0]) if data.shape[0] else -1


def remove(int number):
    """End the guard with this number."""
    if number >= 0:
        guard_remove(number)


def is_cut(const unsigned char[::1] data not None):
    """Whether the file behind guarded data has become shorter, and the missing part was accessed."""
    return bool(guard_cut(&data[0])) if data.shape[0] else False
