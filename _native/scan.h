/* Loops that compilers vectorise, cloned for AVX2 where the loader can choose at run time. */
#ifndef XLAMEM_SCAN_H
#define XLAMEM_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "platform.h"

/* Whether a newline in p[0:n] is followed by an upper-case letter (or one of @[\]^_). Reads up to p[n]. */
XLA_CLONES static int xla_any_title(const uint8_t *p, size_t n) {
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= (uint8_t)((p[i] == '\n') & ((p[i + 1] & 0xE0) == 0x40));
    return any;
}

/* Offset in [from, n - 1) of the first newline before a line that starts with an upper-case letter; n if none. */
static inline size_t xla_next_title(const char *text, size_t from, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    while (from + 1 < n) {
        size_t block = n - 1 - from < 1024 ? n - 1 - from : 1024;
        if (xla_any_title(p + from, block))
            for (size_t i = from; i < from + block; i++)
                if (p[i] == '\n' && (p[i + 1] & 0xE0) == 0x40)
                    return i;
        from += block;
    }
    return n;
}

/* Whether "BufferAssignment" may start in p[0:n]. Reads up to p[n + 5]. */
XLA_CLONES static int xla_any_module(const uint8_t *p, size_t n) {
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= (uint8_t)((p[i] == 'B') & (p[i + 6] == 'A'));
    return any;
}

/* Offset of the first "BufferAssignment" in text[from:n]; n if there is none. */
static inline size_t xla_next_module(const char *text, size_t from, size_t n) {
    static const char words[] = "BufferAssignment";
    size_t stop = n < sizeof words - 1 ? 0 : n - (sizeof words - 1) + 1;
    while (from < stop) {
        size_t block = stop - from < 1024 ? stop - from : 1024;
        if (xla_any_module((const uint8_t *)text + from, block))
            for (size_t i = from; i < from + block; i++)
                if (memcmp(text + i, words, sizeof words - 1) == 0)
                    return i;
        from += block;
    }
    return n;
}

/* Whether a line in p[0:n] has the 'u' and the second blank of " uses are not …", which " uses:" has not. Reads up to
   p[n + 5]. */
XLA_CLONES static int xla_any_unknown(const uint8_t *p, size_t n) {
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= (uint8_t)((p[i] == '\n') & (p[i + 2] == 'u') & (p[i + 6] == ' '));
    return any;
}

#endif
