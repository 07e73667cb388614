/* A hash of texts, and the slots of a hash table. */
#ifndef XLAMEM_HASH_H
#define XLAMEM_HASH_H

#include <stdint.h>
#include <string.h>

#include "steps.h"

static inline uint64_t xla_load64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline uint64_t xla_load32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }

static inline uint64_t xla_mix(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
#else
    a *= b | 1; return a ^ (a >> 32) ^ (b << 7);
#endif
}

/* A hash of short texts, names above all, that has no branch on their length. */
static inline uint64_t xla_hash_short(const char *p, size_t n) {
    uint64_t t[4];
    xla_first32(p, n, t);
    return xla_mix(t[0] ^ 0xd6e8feb86659fd93u, t[1] ^ 0x9e3779b97f4a7c15u)
           ^ xla_mix(t[2] ^ (n * 0xa0761d6478bd642fu), t[3] ^ 0xe7037ed1a0b428dbu);
}

/* A hash of more than 16 characters that stays fast on long shapes (four lanes of 8 bytes). */
static inline uint64_t xla_hash_long(const char *p, size_t n) {
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
    uint64_t h = n * k0;
    if (n > 64) {
        uint64_t l0 = h, l1 = k0, l2 = k1, l3 = ~h;
        while (n > 32) {
            l0 = xla_mix(l0 ^ xla_load64(p), k0); l1 = xla_mix(l1 ^ xla_load64(p + 8), k1);
            l2 = xla_mix(l2 ^ xla_load64(p + 16), k0); l3 = xla_mix(l3 ^ xla_load64(p + 24), k1);
            p += 32; n -= 32;
        }
        h = l0 ^ (l1 << 1) ^ (l2 << 2) ^ (l3 << 3) ^ xla_mix(l1 ^ l3, l0 ^ l2);
    }
    while (n > 16) { h = xla_mix(h ^ xla_load64(p), k1 ^ xla_load64(p + 8)); p += 16; n -= 16; }
    return xla_mix(h ^ xla_load64(p + n - 16) ^ k1, xla_load64(p + n - 8) ^ k0);
}

/* The 32 bits that a text is looked up by. */
static inline uint32_t xla_key(const char *p, size_t n) {
    uint64_t h = n <= 32 ? xla_hash_short(p, n) : xla_hash_long(p, n);
    uint32_t key = (uint32_t)(h ^ h >> 29);
    return key ? key : 1;
}

/* A slot is read and written as a whole: a pool may grow while others look into what it held before. (Processors
   that cannot do so may see halves of two slots, which name no text that is sought: texts are compared.) */
#if defined(__GNUC__) && __SIZEOF_POINTER__ >= 8
#define XLA_WHOLE_SLOTS 1
#else
#define XLA_WHOLE_SLOTS 0
#endif
typedef union { struct { uint32_t key; int32_t code; }; uint64_t whole; } xla_slot;

static inline xla_slot xla_load_slot(const xla_slot *at) {
    xla_slot slot;
#if XLA_WHOLE_SLOTS
    slot.whole = __atomic_load_n(&at->whole, __ATOMIC_RELAXED);
#else
    slot = *at;
#endif
    return slot;
}

static inline void xla_store_slot(xla_slot *at, uint32_t key, int32_t code) {
    xla_slot slot;
    slot.key = key;
    slot.code = code;
#if XLA_WHOLE_SLOTS
    __atomic_store_n(&at->whole, slot.whole, __ATOMIC_RELAXED);
#else
    *at = slot;
#endif
}

#endif
