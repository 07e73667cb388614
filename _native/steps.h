/* Steps over up to 32 characters at once with SSE2. Without it a step covers no character, and the caller goes on one
   by one. A load within a page cannot fault, even beyond the end of the text. The pointer of an empty text may be
   invalid.

   Only xla_peek16 and xla_peek8 read beyond the text. Sanitizers skip them, and check the first character instead. */
#ifndef XLAMEM_STEPS_H
#define XLAMEM_STEPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "platform.h"

#if XLA_SSE2
#include <emmintrin.h>
#define xla_in_page(p) (((uintptr_t)(p) & 4095) <= 4080)
#define xla_in_page32(p) (((uintptr_t)(p) & 4095) <= 4064)
#define xla_splat(c) _mm_set1_epi8((char)(c))
#define xla_load16(p) _mm_loadu_si128((const __m128i *)(p))
#define xla_up_to(x, most) _mm_cmpeq_epi8(_mm_min_epu8((x), xla_splat(most)), (x))
#if defined(__SANITIZE_ADDRESS__)
#define XLA_PEEK __attribute__((noinline, unused, no_sanitize("address"))) static
#define xla_check_readable(p, n) xla_touch((p), (n))
/* Make the sanitizer report n characters that may not be read. */
__attribute__((noinline, unused)) static void xla_touch(const char *p, size_t n) {
    volatile char sink;
    for (size_t i = 0; i < n; i++) sink = p[i];
    (void)sink;
}
#else
#define XLA_PEEK static inline
#define xla_check_readable(p, n) ((void)0)
#endif
XLA_PEEK __m128i xla_peek16(const char *p) { return xla_load16(p); }
XLA_PEEK uint64_t xla_peek8(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
#else
#define xla_in_page(p) 0
#endif

#if XLA_SSE2
/* A bit for each of 16 characters, the first the lowest: whether it may be part of a name. */
static inline uint32_t xla_in_name(__m128i c) {
    __m128i letter = xla_up_to(_mm_sub_epi8(_mm_or_si128(c, xla_splat(0x20)), xla_splat('a')), 25);
    __m128i digit = xla_up_to(_mm_sub_epi8(c, xla_splat('0')), 9);
    __m128i dash_dot = xla_up_to(_mm_sub_epi8(c, xla_splat('-')), 1);
    __m128i all = _mm_or_si128(_mm_or_si128(letter, digit), _mm_or_si128(dash_dot, _mm_cmpeq_epi8(c, xla_splat('_'))));
    return (uint32_t)_mm_movemask_epi8(all);
}
#endif

/* The number of characters at p that may be part of a name, at most 32. Most names are shorter: no branch on the
   length. */
static inline unsigned xla_name_step(const char *p) {
#if XLA_SSE2
    if (xla_in_page32(p)) {
        uint64_t in_name;
        xla_check_readable(p, 1);
        in_name = xla_in_name(xla_peek16(p)) | (uint64_t)xla_in_name(xla_peek16(p + 16)) << 16;
        return (unsigned)__builtin_ctzll(~in_name);
    }
#endif
    (void)p;
    return 0;
}

#if XLA_SSE2
/* Eight characters minus '0', and the highest bit of each that is not a digit. */
static inline uint64_t xla_digits(const char *p, uint64_t *other) {
    uint64_t v = xla_peek8(p) ^ 0x3030303030303030u;
    *other = (v | ((v & 0x7F7F7F7F7F7F7F7Fu) + 0x7676767676767676u)) & 0x8080808080808080u;
    return v;
}

/* The number of eight digits, the first in the lowest byte: pairs, then fours, then eights. */
static inline uint64_t xla_eight(uint64_t v) {
    v = v * 10 + (v >> 8);
    v = (v & 0x000000FF000000FFu) * 0x000F424000000064u + (v >> 16 & 0x000000FF000000FFu) * 0x0000271000000001u;
    return v >> 32;
}
#endif

/* Read one to fifteen digits without a loop. Returns their number, or 0 if there are more or none. */
static inline unsigned xla_short_number(const char *p, int64_t *out) {
#if XLA_SSE2
    if (xla_in_page(p)) {
        static const int64_t tens[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
        uint64_t other, v, first;
        unsigned n;
        xla_check_readable(p, 1);
        v = xla_digits(p, &other);
        if (other & 0x80) return 0;
        if (other != 0) {
            n = (unsigned)__builtin_ctzll(other) >> 3;
            *out = (int64_t)xla_eight(v << (64 - 8 * n));                 /* zeros in front */
            return n;
        }
        xla_check_readable(p, 9);
        first = xla_eight(v);
        v = xla_digits(p + 8, &other);
        if (other == 0) return 0;
        n = (unsigned)__builtin_ctzll(other) >> 3;
        *out = (int64_t)first * tens[n] + (int64_t)(n ? xla_eight(v << (64 - 8 * n)) : 0);
        return 8 + n;
    }
#endif
    (void)p; (void)out;
    return 0;
}

/* A bit for each of 16 characters, the first the lowest: whether it may be a bracket, a quote, or a comma or blank
   where these are asked for. */
static inline unsigned xla_marks(const char *p, int comma, int blank) {
#if XLA_SSE2
    if (xla_in_page(p)) {
        __m128i c = xla_peek16(p), d = _mm_or_si128(c, xla_splat(0x20));
        __m128i mark = _mm_or_si128(_mm_cmpeq_epi8(d, xla_splat('{')), _mm_cmpeq_epi8(d, xla_splat('}')));
        mark = _mm_or_si128(mark, _mm_cmpeq_epi8(_mm_and_si128(c, xla_splat(0xFE)), xla_splat('(')));
        mark = _mm_or_si128(mark, blank ? _mm_cmpeq_epi8(_mm_and_si128(c, xla_splat(0xFD)), xla_splat(' '))
                                        : _mm_cmpeq_epi8(c, xla_splat('"')));
        if (comma) mark = _mm_or_si128(mark, _mm_cmpeq_epi8(c, xla_splat(',')));
        return (unsigned)_mm_movemask_epi8(mark);
    }
#endif
    (void)p; (void)comma; (void)blank;
    return 0xFFFF;
}

/* The number of the lowest bit set; at least one must be. */
static inline unsigned xla_lowest(unsigned bits) {
#if XLA_GNU
    return (unsigned)__builtin_ctz(bits);
#else
    unsigned i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
#endif
}

/* The number of characters at p before a quote or backslash, at most 16. */
static inline unsigned xla_quote_step(const char *p) {
#if XLA_SSE2
    if (xla_in_page(p)) {
        __m128i c = xla_peek16(p);
        __m128i stop = _mm_or_si128(_mm_cmpeq_epi8(c, xla_splat('"')), _mm_cmpeq_epi8(c, xla_splat('\\')));
        return (unsigned)__builtin_ctz((unsigned)_mm_movemask_epi8(stop) | 0x10000u);
    }
#endif
    (void)p;
    return 0;
}

/* The first n <= 32 characters at p, padded with zeros. */
static inline void xla_first32(const char *p, size_t n, uint64_t out[4]) {
#if XLA_SSE2
    static const char keep[64] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
    };
    if (n && xla_in_page32(p)) {
        __m128i a = _mm_and_si128(xla_peek16(p), xla_load16(keep + 32 - n));
        __m128i b = _mm_and_si128(xla_peek16(p + 16), xla_load16(keep + 48 - n));
        xla_check_readable(p, n);
        out[0] = (uint64_t)_mm_cvtsi128_si64(a);
        out[1] = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(a, a));
        out[2] = (uint64_t)_mm_cvtsi128_si64(b);
        out[3] = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(b, b));
        return;
    }
#endif
    memset(out, 0, 32);
    if (n) memcpy(out, p, n);
}

/* Whether the n <= 32 characters at p and q are the same. */
static inline int xla_equal32(const char *p, const char *q, size_t n) {
#if XLA_SSE2
    if (n && xla_in_page32(p) && xla_in_page32(q)) {
        uint64_t a = (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(xla_peek16(p), xla_peek16(q)));
        uint64_t b = (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(xla_peek16(p + 16), xla_peek16(q + 16)));
        xla_check_readable(p, n);
        xla_check_readable(q, n);
        return (~(a | b << 16) & (((uint64_t)1 << n) - 1)) == 0;
    }
#endif
    return n == 0 || memcmp(p, q, n) == 0;
}

/* The same for any n. */
static inline int xla_equal(const char *p, const char *q, size_t n) {
    return n <= 32 ? xla_equal32(p, q, n) : memcmp(p, q, n) == 0;
}

/* Copy n characters to `to`, where 16 more may be overwritten. Returns whether all of them are ASCII. */
static inline int xla_copy_ascii(char *to, const char *p, size_t n) {
#if XLA_SSE2
    if (n >= 16) {
        __m128i c = xla_load16(p + n - 16), any = c;
        _mm_storeu_si128((__m128i *)(void *)(to + n - 16), c);
        for (size_t i = 0; i + 16 < n; i += 16) {
            c = xla_load16(p + i);
            any = _mm_or_si128(any, c);
            _mm_storeu_si128((__m128i *)(void *)(to + i), c);
        }
        return _mm_movemask_epi8(any) == 0;
    }
    if (n && xla_in_page(p)) {
        __m128i c = xla_peek16(p);
        xla_check_readable(p, n);
        _mm_storeu_si128((__m128i *)(void *)to, c);
        return ((unsigned)_mm_movemask_epi8(c) & ((1u << n) - 1)) == 0;
    }
#endif
    uint8_t any_byte = 0;
    for (size_t i = 0; i < n; i++) any_byte |= (uint8_t)(to[i] = p[i]);
    return any_byte < 0x80;
}

/* A hash of `bits` bits of the first 8 (or, if `two`, 16) characters at p; 0 where they may not be read. */
static inline unsigned xla_prefix_hash(const char *p, int two, int bits) {
#if XLA_SSE2
    if (xla_in_page(p)) {
        uint64_t a = xla_peek8(p), b = two ? xla_peek8(p + 8) : 0;
        return (unsigned)((a * 0x9e3779b97f4a7c15u ^ b * 0xd6e8feb86659fd93u) >> (64 - bits));
    }
#endif
    (void)p; (void)two; (void)bits;
    return 0;
}

#endif
