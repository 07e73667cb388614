/* Memory of columns. Small blocks come from malloc. Large columns are mapped: they grow by moving page tables instead of
   bytes, take no memory where nothing was written, and return to the system when freed.
   (No huge pages: docs/benchmarks.md says why.) */
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
   columns of an arena, and a page without access follows each block. */
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

#endif

/* Many columns in one block, freed with the last of them. Blocks below XLA_HEAP_MAX come from malloc, which hands the
   same pages out again: mapping them anew for each of many 5 MB dumps costs 2,000 page faults a dump, 4 % of the time. */
#define XLA_HEAP_MAX ((size_t)8 << 20)
typedef struct { size_t size; long columns; } xla_arena;

#if XLA_PAGES
static inline xla_arena *xla_arena_for(size_t n) {
    xla_arena *arena;
    if (n < XLA_LARGE) return NULL;
    n = xla_room(n);
    arena = (xla_arena *)(n < XLA_HEAP_MAX ? malloc(n) : (void *)xla_map(n));
    if (arena != NULL) { arena->size = n; arena->columns = 0; }
    return arena;
}

static inline void xla_join(xla_arena *arena) { __atomic_add_fetch(&arena->columns, 1, __ATOMIC_RELAXED); }

static inline void xla_leave(xla_arena *arena) {
    if (__atomic_sub_fetch(&arena->columns, 1, __ATOMIC_ACQ_REL)) return;
    if (arena->size < XLA_HEAP_MAX) free(arena);
    else xla_unmap((char *)arena, arena->size);
}
#else
static inline xla_arena *xla_arena_for(size_t n) { (void)n; return NULL; }
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
    if (b->arena != NULL) arena = xla_arena_for(room + 64);
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
