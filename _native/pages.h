/* Memory of columns and tables. Small blocks come from malloc. Larger ones are pages of their own: they grow by moving
   page tables instead of bytes, take no memory where nothing was written, and go back to the system, or to a
   bounded store of spare blocks.
   (No large pages: docs/benchmarks.md says why.) */
#ifndef XLAMEM_PAGES_H
#define XLAMEM_PAGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#define XLA_PAGES 1
#include <sys/mman.h>
#else
#define XLA_PAGES 0
#endif

/* The address sanitizer knows nothing of what lies within a mapping: it is told what must not be accessed, between the
   columns of an arena and in spare blocks, and a page without access follows each block. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define XLA_GAP ((size_t)64)
#define XLA_GUARD ((size_t)4096)
#define xla_forbid(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define xla_allow(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define XLA_GAP ((size_t)0)
#define XLA_GUARD ((size_t)0)
#define xla_forbid(p, n) ((void)(p), (void)(n))
#define xla_allow(p, n) ((void)(p), (void)(n))
#endif

#define XLA_LARGE ((size_t)256 << 10)      /* a block of this size or more is made of pages */

/* The size that a block for n bytes gets: whole pages of any size in use. */
static inline size_t xla_room(size_t n) {
    return XLA_PAGES && n >= XLA_LARGE ? (n + 65535) & ~(size_t)65535 : n;
}

#if XLA_PAGES
/* n bytes of a file, or of zeros without one (-1); NULL if there is no memory. To be given to xla_unmap. */
static inline char *xla_map_file(int file, size_t n) {
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    char *data = NULL;
    void *p;
#if defined(__SANITIZE_ADDRESS__)
    n = (n + 4095) & ~(size_t)4095;
    p = mmap(NULL, n + XLA_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    data = (char *)p;
    flags |= MAP_FIXED;
#endif
    p = mmap(data, n, PROT_READ | PROT_WRITE, flags, file, 0);
    if (p != MAP_FAILED) return (char *)p;
    if (data != NULL) munmap(data, n + XLA_GUARD);
    return NULL;
}

static inline char *xla_map(size_t n) { return xla_map_file(-1, n); }

static inline void xla_unmap(char *data, size_t n) {
    if (XLA_GUARD) n = (n + 4095) & ~(size_t)4095;
    xla_allow(data, n);
    munmap(data, n + XLA_GUARD);
}

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

static inline void xla_spare_join(xla_spare *spare) {
    if (spare != NULL) __atomic_add_fetch(&spare->users, 1, __ATOMIC_RELAXED);
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
    if (found.data != NULL) xla_allow(found.data, found.size);
    return found;
}

/* The oldest blocks go back to the system until at most so many bytes are held. */
static inline void xla_spare_trim(xla_spare *spare, size_t most) {
    xla_block gone[XLA_SPARE_BLOCKS];
    int n = 0;
    if (!xla_spare_lock(spare)) return;
    while (spare->held > most) gone[n++] = xla_spare_out(spare, 0);
    xla_spare_unlock(spare);
    while (n) { n--; xla_unmap(gone[n].data, gone[n].size); }
}

/* A spare block, else a new one. */
static inline xla_block xla_take(xla_spare *spare, size_t n) {
    xla_block found = xla_spare_find(spare, n);
    if (found.data == NULL) found.data = xla_map(n);
    return found;
}

/* A block goes back: to the store, for which the oldest ones make room, or to the system. */
static inline void xla_give(xla_spare *spare, xla_block block) {
    xla_block gone[XLA_SPARE_BLOCKS];
    int n = 0;
    xla_forbid(block.data, block.size);
    if (spare != NULL && block.size <= spare->limit && xla_spare_lock(spare)) {
        while (spare->n == XLA_SPARE_BLOCKS || spare->held + block.size > spare->limit)
            gone[n++] = xla_spare_out(spare, 0);
        spare->blocks[spare->n++] = block;
        spare->held += block.size;
        xla_spare_unlock(spare);
    } else gone[n++] = block;
    while (n) { n--; xla_unmap(gone[n].data, gone[n].size); }
}

/* Many columns in one block, each in its place. The block goes back when the last of them leaves. */
typedef struct { size_t size; long columns; xla_spare *spare; } xla_arena;

static inline xla_arena *xla_arena_for(xla_spare *spare, size_t n) {
    xla_arena *arena = NULL;
    if (n >= XLA_LARGE) {
        xla_block block = xla_take(spare, xla_room(n));
        arena = (xla_arena *)(void *)block.data;
        if (arena != NULL) {
            xla_spare_join(spare);
            arena->size = block.size;
            arena->columns = 0;
            arena->spare = spare;
        }
    }
    return arena;
}

static inline void xla_join(xla_arena *arena) { __atomic_add_fetch(&arena->columns, 1, __ATOMIC_RELAXED); }

static inline void xla_leave(xla_arena *arena) {
    if (__atomic_sub_fetch(&arena->columns, 1, __ATOMIC_ACQ_REL) == 0) {
        xla_spare *spare = arena->spare;
        xla_block block = {(char *)arena, arena->size};
        xla_give(spare, block);
        xla_spare_leave(spare);
    }
}
#else
typedef struct { size_t limit; } xla_spare;
typedef struct { size_t size; long columns; xla_spare *spare; } xla_arena;
static inline xla_spare *xla_spare_for(size_t limit) { (void)limit; return (xla_spare *)calloc(1, sizeof(xla_spare)); }
static inline void xla_spare_join(xla_spare *spare) { (void)spare; }
static inline void xla_spare_leave(xla_spare *spare) { (void)spare; }
static inline void xla_spare_trim(xla_spare *spare, size_t most) { (void)spare; (void)most; }
static inline xla_arena *xla_arena_for(xla_spare *spare, size_t n) { (void)spare; (void)n; return NULL; }
static inline void xla_join(xla_arena *arena) { (void)arena; }
static inline void xla_leave(xla_arena *arena) { (void)arena; }
#endif

static inline void xla_release(char *data, size_t room) {
#if XLA_PAGES
    if (room >= XLA_LARGE) { xla_unmap(data, room); return; }
#endif
    (void)room;
    free(data);
}

/* The block `data` of `room` bytes, of which `used` count, made `want` = xla_room(…) bytes long; NULL (and the block
   as it was) if there is no memory. */
static inline char *xla_resize(char *data, size_t used, size_t room, size_t want) {
#if XLA_PAGES
    if (want >= XLA_LARGE) {
        char *p;
#if !defined(__SANITIZE_ADDRESS__)             /* else a page without access follows */
        if (room >= XLA_LARGE) {
            void *moved = mremap(data, room, want, MREMAP_MAYMOVE);
            return moved == MAP_FAILED ? NULL : (char *)moved;
        }
#endif
        p = xla_map(want);
        if (p != NULL && data != NULL) {
            memcpy(p, data, used < want ? used : want);
            xla_release(data, room);
        }
        return p;
    }
#endif
    (void)used; (void)room;
    return (char *)realloc(data, want);
}

/* A growable column. */
typedef struct {
    char *data;
    size_t size;                           /* bytes used */
    size_t room;                           /* bytes that fit */
    xla_arena *arena;                      /* where data lies; NULL: in a block of its own */
    int failed;                            /* an item was dropped: no memory */
} xla_buf;

/* At least `room` bytes in all, in a block of its own; of a column that was in an arena, in one of its own. */
static inline int xla_make_room(xla_buf *b, size_t room) {
    xla_arena *arena = NULL;
    char *data;
    if (b->arena != NULL) arena = xla_arena_for(b->arena->spare, room + 64);
    room = xla_room(room);
    if (arena != NULL) {
        arena->columns = 1;
        data = (char *)arena + 64;
        room = arena->size - 64;
    } else data = b->arena == NULL ? xla_resize(b->data, b->size, b->room, room) : xla_resize(NULL, 0, 0, room);
    if (data == NULL) { b->failed = 1; return 0; }
    if (b->arena != NULL) {
        memcpy(data, b->data, b->size);
        xla_leave(b->arena);
        b->arena = arena;
    }
    b->data = data;
    b->room = room;
    return 1;
}

/* Room for `more` bytes. Seldom needed, and kept out of the loops that push, which it would bloat. */
#if defined(__GNUC__)
__attribute__((noinline, cold, unused))
#endif
static int xla_grow(xla_buf *b, size_t more) {
    size_t half = b->room + (b->room >> 1) + 256;
    return xla_make_room(b, b->size + more > half ? b->size + more : half);
}

#endif
