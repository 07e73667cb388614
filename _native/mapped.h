/* Where NumPy keeps its arrays (NEP 49): on the heap, but of large ones only so many bytes; the others in temporary
   files without a name, mapped: their pages are the system's to keep or to drop. */
#ifndef XLAMEM_MAPPED_H
#define XLAMEM_MAPPED_H

#include <Python.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spare.h"

#if !XLA_PAGES                             /* nothing is kept for the next use */
typedef struct { char *data; size_t size; } xla_block;
static inline xla_block xla_spare_find(xla_spare *spare, size_t n) {
    xla_block none = {NULL, n};
    (void)spare;
    return none;
}
static inline void xla_give(xla_spare *spare, xla_block block) { (void)spare; munmap(block.data, block.size); }
static inline char *xla_map_file(int file, size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : (char *)p;
}
#endif

/* As NumPy declares it (PyDataMem_Handler), followed by what is our own. */
typedef struct {
    char name[127];
    uint8_t version;
    struct {
        void *ctx;
        void *(*malloc)(void *, size_t);
        void *(*calloc)(void *, size_t, size_t);
        void *(*realloc)(void *, void *, size_t);
        void (*free)(void *, void *, size_t);
    } allocator;
    size_t large, most, held;              /* bytes: of a large array, of all large ones on the heap, of those there now */
    xla_spare *spare;                      /* mapped blocks that are free: pages that are there already cost no fault */
    char path[1];                          /* pattern of the files' names */
} xla_handler;

/* Stands before the bytes of each array. */
typedef union { struct { size_t size; int mapped; } is; char room[64]; } xla_head;

static inline int xla_reserve(int file, size_t n) {
#if defined(__APPLE__)
    fstore_t store = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, (off_t)n, 0};
    return fcntl(file, F_PREALLOCATE, &store) == -1 || ftruncate(file, (off_t)n);
#else
    return posix_fallocate(file, 0, (off_t)n);
#endif
}

/* n bytes of zeros in a file whose room on the disk is certain, or NULL. */
static inline char *xla_map_new(const char *pattern, size_t n) {
    char *p = NULL;
    char *path = strdup(pattern);
    int file = path == NULL ? -1 : mkstemp(path);
    if (file >= 0) {
        unlink(path);
        if (xla_reserve(file, n) == 0) p = xla_map_file(file, n);
        close(file);
    }
    free(path);
    return p;
}

/* The heap takes what no file has room for. */
static inline void *xla_array(xla_handler *self, size_t n, int zeros) {
    size_t size = n + sizeof(xla_head);
    int large = size >= self->large, mapped = 1;
    xla_head *head = NULL;
    if (size < n) return NULL;
    if (large && __atomic_load_n(&self->held, __ATOMIC_RELAXED) + size > self->most) {
        xla_block block = xla_spare_find(self->spare, size);
        if (block.data != NULL && zeros) memset(block.data, 0, size);
        if (block.data == NULL) block.data = xla_map_new(self->path, size);
        head = (xla_head *)(void *)block.data;
        size = block.size;
    }
    if (head == NULL) {
        head = (xla_head *)(zeros ? calloc(1, size) : malloc(size));
        if (head == NULL) return NULL;
        mapped = 0;
        if (large) __atomic_add_fetch(&self->held, size, __ATOMIC_RELAXED);
    }
    head->is.size = size;
    head->is.mapped = mapped;
    return head + 1;
}

static inline void *xla_array_malloc(void *self, size_t n) { return xla_array((xla_handler *)self, n, 0); }

static inline void *xla_array_calloc(void *self, size_t n, size_t size) {
    return size && n > SIZE_MAX / size ? NULL : xla_array((xla_handler *)self, n * size, 1);
}

static inline void xla_array_free(void *ctx, void *data, size_t n) {
    xla_handler *self = (xla_handler *)ctx;
    xla_head *head;
    (void)n;
    if (data == NULL) return;
    head = (xla_head *)data - 1;
    if (head->is.mapped) {
        xla_block block = {(char *)head, head->is.size};
        xla_give(self->spare, block);
        return;
    }
    if (head->is.size >= self->large) __atomic_sub_fetch(&self->held, head->is.size, __ATOMIC_RELAXED);
    free(head);
}

static inline void *xla_array_realloc(void *self, void *data, size_t n) {
    void *moved = xla_array((xla_handler *)self, n, 0);
    if (moved != NULL && data != NULL) {
        size_t before = ((xla_head *)data - 1)->is.size - sizeof(xla_head);
        memcpy(moved, data, before < n ? before : n);
        xla_array_free(self, data, before);
    }
    return moved;
}

static inline xla_handler *xla_handler_for(const char *pattern, size_t large, size_t most) {
    size_t n = strlen(pattern);
    xla_handler *self = (xla_handler *)calloc(1, sizeof(xla_handler) + n);
    if (self == NULL) return NULL;
    strcpy(self->name, "xlamem_mapped");
    memcpy(self->path, pattern, n);
    self->version = 1;
    self->allocator.ctx = self;
    self->allocator.malloc = xla_array_malloc;
    self->allocator.calloc = xla_array_calloc;
    self->allocator.realloc = xla_array_realloc;
    self->allocator.free = xla_array_free;
#if XLA_PAGES
    self->spare = xla_spare_for(2 * most);
#endif
    self->large = large;
    self->most = most;
    return self;
}

static void xla_handler_gone(PyObject *capsule) {
    xla_handler *self = (xla_handler *)PyCapsule_GetPointer(capsule, "mem_handler");
    xla_spare_leave(self->spare);
    free(self);
}

#endif
