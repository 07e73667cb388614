/* Structs of columns: the compiler counts their columns. */
#ifndef XLAMEM_COLUMNS_H
#define XLAMEM_COLUMNS_H

#include "pages.h"

#if XLA_GNU
#define xla_likely(x) __builtin_expect(!!(x), 1)
#define xla_prefetch(p) __builtin_prefetch(p)
#else
#define xla_likely(x) (x)
#define xla_prefetch(p) ((void)(p))
#endif

/* Does not compile for a struct with a member that is not a column. */
#define xla_only_columns(s) sizeof(char[sizeof(s) % sizeof(xla_buffer) ? -1 : 1])
#define xla_n_columns(s) (sizeof(s) / sizeof(xla_buffer) * xla_only_columns(s))

/* Reserve space for a number of rows of numbers in each column of the struct at s. Returns 0 if out of memory. */
#define xla_reserve_rows(s, rows) xla_reserve_columns((xla_buffer *)(void *)(s), xla_n_columns(*(s)), rows)

static inline int xla_reserve_columns(xla_buffer *columns, size_t n, size_t rows) {
    for (size_t i = 0; i < n; i++) {
        if (columns[i].size + 8 * rows > columns[i].capacity) xla_grow(&columns[i], 8 * rows);
        if (columns[i].failed) return 0;
    }
    return 1;
}

/* Whether n more bytes are reserved. Always true, except in checked and sanitized builds, which check it. */
#if defined(XLAMEM_CHECKED) || defined(__SANITIZE_ADDRESS__)
#define xla_reserved(b, n) ((b)->size + (n) <= (b)->capacity || ((b)->failed = XLA_UNRESERVED, 0))
#else
#define xla_reserved(b, n) 1
#endif

#endif
