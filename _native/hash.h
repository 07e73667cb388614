/* Hashes of texts, and the slots of a hash table. */
#ifndef XLAMEM_HASH_H
#define XLAMEM_HASH_H

#include <stdint.h>
#include <string.h>

#include "platform.h"
#include "steps.h"

static inline uint64_t xla_load64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline uint64_t xla_mix(uint64_t a, uint64_t b) {
#if XLA_INT128
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
#else
    a *= b | 1; return a ^ (a >> 32) ^ (b << 7);
#endif
}

/* The seed differs from process to process, so that a file cannot be made whose texts collide. All modules have the
   same one, as they share tables: on Linux 8 of the random bytes that the kernel gives to a new program, elsewhere the
   address of a variable of the C library, which the loader randomizes. */
#if defined(XLAMEM_SEED)                    /* a test, which knows the seed */
static inline uint64_t xla_seed(void) { return XLAMEM_SEED; }
#elif defined(__linux__)
#include <sys/auxv.h>
static uint64_t xla_random_bytes;
__attribute__((constructor)) static void xla_set_seed(void) {
    const char *p = (const char *)getauxval(AT_RANDOM);
    xla_random_bytes = (uintptr_t)&XLA_ANCHOR ^ (p ? xla_load64(p + 8) : 0);
}
static inline uint64_t xla_seed(void) { return xla_random_bytes; }
#else
static inline uint64_t xla_seed(void) { return (uintptr_t)&XLA_ANCHOR; }
#endif

/* For texts of up to 32 characters: no branch on the length. */
static inline uint64_t xla_hash_short(const char *p, size_t n) {
    const uint64_t s = xla_seed();
    uint64_t t[4];
    xla_first32(p, n, t);
    return xla_mix(t[0] ^ s, t[1] ^ s ^ 0x9e3779b97f4a7c15u)
           ^ xla_mix(t[2] ^ s ^ (n * 0xa0761d6478bd642fu), t[3] ^ s ^ 0xe7037ed1a0b428dbu);
}

/* For texts of more than 16 characters: four lanes of 8 bytes. */
static inline uint64_t xla_hash_long(const char *p, size_t n) {
    const uint64_t s = xla_seed(), k0 = s ^ 0x9e3779b97f4a7c15u, k1 = s ^ 0xd6e8feb86659fd93u;
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

/* The key of a text in a hash table; never 0. */
static inline uint32_t xla_hash_text(const char *p, size_t n) {
    uint64_t h = n <= 32 ? xla_hash_short(p, n) : xla_hash_long(p, n);
    uint32_t key = (uint32_t)(h ^ h >> 29);
    return key ? key : 1;
}

/* Of two numbers. */
static inline uint64_t xla_hash_pair(uint32_t a, uint32_t b) {
    return xla_mix(((uint64_t)a << 32 | b) ^ xla_seed(), 0x9e3779b97f4a7c15u ^ xla_seed());
}

/* MurmurHash64A with seed 0: the hash of a text that is stored, the same on every little-endian processor. */
static inline uint64_t xla_stable_hash(const char *p, size_t n) {
    const uint64_t m = 0xc6a4a7935bd1e995u;
    uint64_t h = n * m, k = 0;
    for (; n >= 8; p += 8, n -= 8) {
        k = xla_load64(p) * m;
        h = (h ^ (k ^ k >> 47) * m) * m;
    }
    if (n) {
        k = 0;
        memcpy(&k, p, n);
        h = (h ^ k) * m;
    }
    h = (h ^ h >> 47) * m;
    return h ^ h >> 47;
}

/* Slots are read and written atomically: an interner may grow while threads read its snapshot. Where the processor does
   not support this, a reader may see halves of two slots, which is harmless because the texts are compared. */
typedef union { struct { uint32_t key; int32_t code; }; uint64_t bits; } xla_slot;

static inline xla_slot xla_load_slot(const xla_slot *p) {
    xla_slot slot;
#if XLA_ATOMIC
    slot.bits = __atomic_load_n(&p->bits, __ATOMIC_RELAXED);
#else
    slot = *p;
#endif
    return slot;
}

static inline void xla_store_slot(xla_slot *p, uint32_t key, int32_t code) {
    xla_slot slot;
    slot.key = key;
    slot.code = code;
#if XLA_ATOMIC
    __atomic_store_n(&p->bits, slot.bits, __ATOMIC_RELAXED);
#else
    *p = slot;
#endif
}

#endif
