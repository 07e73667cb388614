/* Memory of columns and tables. Small blocks come from malloc. Larger ones are pages of their own: they grow by moving
   page tables instead of bytes, take no memory where nothing was written, and go back to the system at once.
   (No large pages: docs/benchmarks.md says why.) */
#ifndef XLAMEM_PAGES_H
#define XLAMEM_PAGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define XLA_PAGES 1
#include <sys/mman.h>
#else
#define XLA_PAGES 0
#endif

#define XLA_LARGE ((size_t)256 << 10)      /* a block of this size or more is made of pages */

/* The size that a block for n bytes gets: whole pages of any size in use. */
static inline size_t xla_room(size_t n) {
    return XLA_PAGES && n >= XLA_LARGE ? (n + 65535) & ~(size_t)65535 : n;
}

#if XLA_PAGES
/* n bytes of zeros, or NULL. */
static inline char *xla_map(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (char *)p;
}

/* Many columns in one block, each in its place. The block goes back when the last of them leaves. */
typedef struct { size_t size; long columns; } xla_arena;

static inline xla_arena *xla_arena_for(size_t n) {
    size_t size = xla_room(n);
    xla_arena *arena = n >= XLA_LARGE ? (xla_arena *)(void *)xla_map(size) : NULL;
    if (arena != NULL) arena->size = size;
    return arena;
}

static inline void xla_join(xla_arena *arena) { __atomic_add_fetch(&arena->columns, 1, __ATOMIC_RELAXED); }

static inline void xla_leave(xla_arena *arena) {
    if (__atomic_sub_fetch(&arena->columns, 1, __ATOMIC_ACQ_REL) == 0) munmap(arena, arena->size);
}
#else
typedef struct { size_t size; long columns; } xla_arena;
static inline xla_arena *xla_arena_for(size_t n) { (void)n; return NULL; }
static inline void xla_join(xla_arena *arena) { (void)arena; }
static inline void xla_leave(xla_arena *arena) { (void)arena; }
#endif

static inline void xla_release(char *data, size_t room) {
#if XLA_PAGES
    if (room >= XLA_LARGE) { munmap(data, room); return; }
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
        if (room >= XLA_LARGE) {
            void *moved = mremap(data, room, want, MREMAP_MAYMOVE);
            return moved == MAP_FAILED ? NULL : (char *)moved;
        }
        p = xla_map(want);
        if (p != NULL && data != NULL) {
            memcpy(p, data, used);
            free(data);
        }
        return p;
    }
#endif
    (void)used; (void)room;
    return (char *)realloc(data, want);
}

/* xla_room(n) bytes of zeros, or NULL. */
static inline void *xla_zeros(size_t n) {
#if XLA_PAGES
    if (n >= XLA_LARGE) return xla_map(xla_room(n));
#endif
    return calloc(n, 1);
}

#endif
