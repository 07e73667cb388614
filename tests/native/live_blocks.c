/* Counts the blocks that the native modules hold. Preloaded, it takes the place of malloc and mmap, and remembers what it
   returns to code in the watched ranges until it is freed, by whomever. A chosen allocation can be made to fail. For glibc,
   whose own functions have a second name. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

typedef struct block { struct block *next; void *p; } block;

enum { BUCKETS = 1 << 16, RANGES = 64 };
static struct { uintptr_t begin, end; } ranges[RANGES];
static int n_ranges;
static block *buckets[BUCKETS];
static long live, allocated, failing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void blocks_watch(uintptr_t begin, uintptr_t end) {
    if (n_ranges == RANGES) abort();
    ranges[n_ranges].begin = begin;
    ranges[n_ranges++].end = end;
}

long blocks_live(void) { return live; }

/* The number of watched allocations so far. */
long blocks_allocated(void) { return allocated; }

/* Let the k-th allocation from now on fail; 0: none. */
void blocks_fail(long k) { failing = k ? allocated + k : 0; }

static block **bucket_of(void *p) { return &buckets[((uintptr_t)p >> 4) * 2654435761u >> 8 & (BUCKETS - 1)]; }

static void add(void *p) {
    block *b;
    if (p == NULL || p == MAP_FAILED) return;
    b = __libc_malloc(sizeof *b);
    if (b == NULL) abort();
    pthread_mutex_lock(&lock);
    b->p = p;
    b->next = *bucket_of(p);
    *bucket_of(p) = b;
    live++;
    pthread_mutex_unlock(&lock);
}

/* Forget a block before it is freed: another thread may get the same address at once. Returns whether it was one. */
static int drop(void *p) {
    block *found = NULL;
    if (p == NULL || n_ranges == 0) return 0;
    pthread_mutex_lock(&lock);
    for (block **b = bucket_of(p); *b != NULL; b = &(*b)->next)
        if ((*b)->p == p) {
            found = *b;
            *b = found->next;
            live--;
            break;
        }
    pthread_mutex_unlock(&lock);
    __libc_free(found);
    return found != NULL;
}

static int is_watched(void *caller) {
    for (int i = 0; i < n_ranges; i++)
        if (ranges[i].begin <= (uintptr_t)caller && (uintptr_t)caller < ranges[i].end) return 1;
    return 0;
}

/* Count a watched allocation. Returns whether it is to fail. */
static int fails(void) {
    if (__atomic_add_fetch(&allocated, 1, __ATOMIC_SEQ_CST) != failing) return 0;
    errno = ENOMEM;
    return 1;
}

#define WATCHED is_watched(__builtin_return_address(0))

void *malloc(size_t n) {
    void *p;
    if (!WATCHED) return __libc_malloc(n);
    if (fails()) return NULL;
    add(p = __libc_malloc(n));
    return p;
}

void *calloc(size_t n, size_t size) {
    void *p;
    if (!WATCHED) return __libc_calloc(n, size);
    if (fails()) return NULL;
    add(p = __libc_calloc(n, size));
    return p;
}

void *realloc(void *old, size_t n) {
    const int watched = WATCHED;
    int held;
    void *p;
    if (watched && fails()) return NULL;
    held = drop(old);
    p = __libc_realloc(old, n);
    if (p == NULL && n != 0) {
        if (held) add(old);
    } else if (watched || held)
        add(p);
    return p;
}

void free(void *p) {
    drop(p);
    __libc_free(p);
}

void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    const int watched = WATCHED && !(flags & MAP_FIXED); /* which replaces pages of another mapping */
    void *p;
    if (watched && fails()) return MAP_FAILED;
    p = (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
    if (watched) add(p);
    return p;
}

int munmap(void *p, size_t n) {
    drop(p);
    return (int)syscall(SYS_munmap, p, n);
}

void *mremap(void *old, size_t size, size_t n, int flags, ...) {
    const int watched = WATCHED;
    void *p, *to;
    va_list more;
    int held;
    va_start(more, flags);
    to = va_arg(more, void *);
    va_end(more);
    if (watched && fails()) return MAP_FAILED;
    held = drop(old);
    p = (void *)syscall(SYS_mremap, old, size, n, flags, to);
    if (held) add(p == MAP_FAILED ? old : p);
    return p;
}
