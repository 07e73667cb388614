/* Memory of columns. Small blocks come from malloc. Large columns are mapped: they grow by moving page tables instead
   of bytes, take no memory where nothing was written, and return to the system when freed.
   (No huge pages: see bench/HISTORY.md.) */
#ifndef XLAMEM_PAGES_H
#define XLAMEM_PAGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "platform.h"

#if XLA_PAGES
#include <sys/mman.h>
#endif

/* For the address sanitizer: poisoned bytes between the columns of an arena, and a guard page after each mapping. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define XLA_REDZONE ((size_t)64)
#define XLA_GUARD ((size_t)4096)
#define xla_poison(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define xla_unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define XLA_REDZONE ((size_t)0)
#define XLA_GUARD ((size_t)0)
#define xla_poison(p, n) ((void)(p), (void)(n))
#define xla_unpoison(p, n) ((void)(p), (void)(n))
#endif

#define XLA_MMAP_MIN ((size_t)256 << 10)   /* bytes; larger blocks are mapped */

/* The size of a block for n bytes: whole pages, up to 64 KiB large. */
static inline size_t xla_block_size(size_t n) {
    return XLA_PAGES && n >= XLA_MMAP_MIN ? (n + 65535) & ~(size_t)65535 : n;
}

#if XLA_PAGES
/* Map n zero bytes. Returns NULL if there is no memory. */
static inline char *xla_map(size_t n) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *data = NULL;
    void *p;
#if defined(__SANITIZE_ADDRESS__)
    n = (n + 4095) & ~(size_t)4095;
    p = mmap(NULL, n + XLA_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    data = (char *)p;
    flags |= MAP_FIXED;
#endif
    p = mmap(data, n, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p != MAP_FAILED) return (char *)p;
    if (data != NULL) munmap(data, n + XLA_GUARD);
    return NULL;
}

static inline void xla_unmap(char *data, size_t n) {
    if (XLA_GUARD) n = (n + 4095) & ~(size_t)4095;
    xla_unpoison(data, n);
    munmap(data, n + XLA_GUARD);
}
#endif

/* Many columns in one block, which is freed with the last of them. Blocks below XLA_HEAP_MAX come from malloc, which
   reuses their pages: mapping new ones for each 5 MB dump of many takes 2,000 page faults and 4 % of the time. */
#define XLA_HEAP_MAX ((size_t)8 << 20)
typedef struct { size_t size; long columns; } xla_arena;

#if XLA_PAGES
static inline xla_arena *xla_arena_new(size_t n) {
    xla_arena *arena;
    if (n < XLA_MMAP_MIN) return NULL;
    n = xla_block_size(n);
    arena = (xla_arena *)(n < XLA_HEAP_MAX ? malloc(n) : (void *)xla_map(n));
    if (arena != NULL) { arena->size = n; arena->columns = 0; }
    return arena;
}

static inline void xla_arena_retain(xla_arena *arena) { __atomic_add_fetch(&arena->columns, 1, __ATOMIC_RELAXED); }

static inline void xla_arena_release(xla_arena *arena) {
    if (__atomic_sub_fetch(&arena->columns, 1, __ATOMIC_ACQ_REL)) return;
    if (arena->size < XLA_HEAP_MAX) free(arena);
    else xla_unmap((char *)arena, arena->size);
}
#else
static inline xla_arena *xla_arena_new(size_t n) { (void)n; return NULL; }
static inline void xla_arena_retain(xla_arena *arena) { (void)arena; }
static inline void xla_arena_release(xla_arena *arena) { (void)arena; }
#endif

static inline void xla_free_block(char *data, size_t size) {
#if XLA_PAGES
    if (size >= XLA_MMAP_MIN) { xla_unmap(data, size); return; }
#endif
    (void)size;
    free(data);
}

/* Resize a block to `want` bytes and keep its first `used` bytes. Returns NULL, with the block unchanged, if there is
   no memory. */
static inline char *xla_resize(char *data, size_t used, size_t size, size_t want) {
#if XLA_PAGES
    if (want >= XLA_MMAP_MIN) {
        char *p;
#if !defined(__SANITIZE_ADDRESS__)             /* with it, a guard page follows */
        if (size >= XLA_MMAP_MIN) {
            void *moved = mremap(data, size, want, MREMAP_MAYMOVE);
            return moved == MAP_FAILED ? NULL : (char *)moved;
        }
#endif
        p = xla_map(want);
        if (p != NULL && data != NULL) {
            memcpy(p, data, used < want ? used : want);
            xla_free_block(data, size);
        }
        return p;
    }
#endif
    (void)used; (void)size;
    return (char *)realloc(data, want);
}

enum { XLA_NO_MEMORY = 1, XLA_UNRESERVED };

/* A growable column. */
typedef struct {
    char *data;
    size_t size;                           /* bytes in use */
    size_t capacity;                       /* bytes allocated */
    xla_arena *arena;                      /* NULL: data is a separate block */
    int failed;                            /* XLA_NO_MEMORY, XLA_UNRESERVED or 0 */
} xla_buffer;

/* Allocate at least `capacity` bytes in all. A column in a shared arena moves to a separate block. */
static inline int xla_set_capacity(xla_buffer *b, size_t capacity) {
    xla_arena *arena = NULL;
    char *data;
    if (b->arena != NULL) arena = xla_arena_new(capacity + 64);
    capacity = xla_block_size(capacity);
    if (arena != NULL) {
        arena->columns = 1;
        data = (char *)arena + 64;
        capacity = arena->size - 64;
    } else if (b->arena == NULL) data = xla_resize(b->data, b->size, b->capacity, capacity);
    else data = xla_resize(NULL, 0, 0, capacity);
    if (data == NULL) { b->failed = XLA_NO_MEMORY; return 0; }
    if (b->arena != NULL) {
        memcpy(data, b->data, b->size);
        xla_arena_release(b->arena);
        b->arena = arena;
    }
    b->data = data;
    b->capacity = capacity;
    return 1;
}

/* Make capacity for `more` bytes. Rare, and kept out of line to keep the loops that push small. */
#if XLA_GNU
__attribute__((noinline, cold, unused))
#endif
static int xla_grow(xla_buffer *b, size_t more) {
    size_t half = b->capacity + (b->capacity >> 1) + 256;
    return xla_set_capacity(b, b->size + more > half ? b->size + more : half);
}

#endif
