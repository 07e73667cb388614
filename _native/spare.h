/* Mapped blocks that mapped.h keeps for the next array. */
#ifndef XLAMEM_SPARE_H
#define XLAMEM_SPARE_H

#include "pages.h"

#if XLA_PAGES
/* Blocks that were given back and wait for the next use: pages that are there already cost no fault. It lives as long
   as its owner or any block that may come back. */
#define XLA_SPARE_BLOCKS 32
typedef struct { char *data; size_t size; } xla_block;
typedef struct {
    size_t limit, held;                    /* bytes */
    long users;
    int busy, n;
    xla_block blocks[XLA_SPARE_BLOCKS];    /* the one given back first stands first */
} xla_spare;

static inline xla_spare *xla_spare_for(size_t limit) {
    xla_spare *spare = (xla_spare *)calloc(1, sizeof(xla_spare));
    if (spare != NULL) { spare->limit = limit; spare->users = 1; }
    return spare;
}

static inline void xla_spare_leave(xla_spare *spare) {
    if (spare == NULL || __atomic_sub_fetch(&spare->users, 1, __ATOMIC_ACQ_REL) != 0) return;
    while (spare->n) { xla_block *b = &spare->blocks[--spare->n]; xla_unmap(b->data, b->size); }
    free(spare);
}

/* Nobody waits here for long: whoever finds the store busy again and again (for ever, in the child of a fork at the
   wrong moment) does without it. */
static inline int xla_spare_lock(xla_spare *spare) {
    for (int i = 0; i < 1000; i++)
        if (!__atomic_exchange_n(&spare->busy, 1, __ATOMIC_ACQUIRE)) return 1;
    return 0;
}

static inline void xla_spare_unlock(xla_spare *spare) { __atomic_store_n(&spare->busy, 0, __ATOMIC_RELEASE); }

static inline xla_block xla_spare_out(xla_spare *spare, int i) {
    xla_block found = spare->blocks[i];
    spare->held -= found.size;
    memmove(&spare->blocks[i], &spare->blocks[i + 1], (size_t)(--spare->n - i) * sizeof(xla_block));
    return found;
}

/* A spare block of n bytes or up to a quarter more, with anything in it; NULL if there is none. */
static inline xla_block xla_spare_find(xla_spare *spare, size_t n) {
    xla_block found = {NULL, n};
    if (spare != NULL && xla_spare_lock(spare)) {
        for (int i = 0; i < spare->n; i++)
            if (spare->blocks[i].size >= n && spare->blocks[i].size <= n + n / 4) {
                found = xla_spare_out(spare, i);
                break;
            }
        xla_spare_unlock(spare);
    }
    if (found.data != NULL) xla_unpoison(found.data, found.size);
    return found;
}

/* A block goes back: to the store, for which the oldest ones make room, or to the system. */
static inline void xla_give(xla_spare *spare, xla_block block) {
    xla_block gone[XLA_SPARE_BLOCKS];
    int n = 0;
    xla_poison(block.data, block.size);
    if (spare != NULL && block.size <= spare->limit && xla_spare_lock(spare)) {
        while (spare->n == XLA_SPARE_BLOCKS || spare->held + block.size > spare->limit)
            gone[n++] = xla_spare_out(spare, 0);
        spare->blocks[spare->n++] = block;
        spare->held += block.size;
        xla_spare_unlock(spare);
    } else gone[n++] = block;
    while (n) { n--; xla_unmap(gone[n].data, gone[n].size); }
}
#else
typedef struct { size_t limit; } xla_spare;
static inline void xla_spare_leave(xla_spare *spare) { (void)spare; }
#endif

#endif
