/* Mapped files that become shorter while they are read. The kernel answers access behind their end with SIGBUS, which
   would end the process. Here such a page becomes one of newlines, which stop every loop over text, and the mapping is
   marked. A signal handler can only use variables of the process: this is the only state of the native modules. */
#ifndef XLAMEM_GUARD_H
#define XLAMEM_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "platform.h"

#if XLA_SIGBUS
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { XLA_GUARDED = 1024 };

static struct {
    volatile uintptr_t begin, end;                /* begin is 0: free */
    volatile sig_atomic_t cut;
} xla_guards[XLA_GUARDED];
static struct sigaction xla_previous;
static volatile sig_atomic_t xla_n_guards, xla_passed_on; /* xla_n_guards: numbers that were used so far */

static void xla_on_sigbus(int number, siginfo_t *info, void *context) {
    const uintptr_t at = (uintptr_t)info->si_addr, size = (uintptr_t)sysconf(_SC_PAGESIZE), page = at & ~(size - 1);
    (void)context;
    for (int i = 0; i < xla_n_guards; i++) {
        if (xla_guards[i].begin && xla_guards[i].begin <= at && at < xla_guards[i].end) {
            void *p = mmap((void *)page, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            if (p == MAP_FAILED)
                break;
            memset(p, '\n', size);
            xla_guards[i].cut = 1;
            return;
        }
    }
    /* Not ours: the access is repeated under the previous handler, and if that returns here, under the default. */
    if (xla_passed_on)
        signal(number, SIG_DFL);
    else
        sigaction(number, &xla_previous, NULL);
    xla_passed_on = 1;
}

/* Install the handler, unless it is there: others, as faulthandler, may have replaced it. */
static int xla_install(void) {
    struct sigaction action, current;
    if (sigaction(SIGBUS, NULL, &current))
        return -1;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == xla_on_sigbus)
        return 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = xla_on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    xla_previous = current;
    xla_passed_on = 0;
    return sigaction(SIGBUS, &action, NULL);
}

/* Reserve a free guard for this thread: without the GIL, others add guards too. No address is in it yet. */
static int xla_guard_claim(int i) {
    uintptr_t free = 0;
    return __atomic_compare_exchange_n(&xla_guards[i].begin, &free, UINTPTR_MAX, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Guard a mapping. Returns its number, or -1: it is not guarded. */
static int xla_guard_add(const void *p, size_t n) {
    int i = 0;
    if (xla_install())
        return -1;
    while (i < XLA_GUARDED && !xla_guard_claim(i))
        i++;
    if (i == XLA_GUARDED)
        return -1;
    for (int n = xla_n_guards; n <= i; n = xla_n_guards)
        __atomic_compare_exchange_n(&xla_n_guards, &n, i + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    xla_guards[i].cut = 0;
    xla_guards[i].end = (uintptr_t)p + n;
    __atomic_store_n(&xla_guards[i].begin, (uintptr_t)p, __ATOMIC_RELEASE);
    return i;
}

static void xla_guard_remove(int i) { xla_guards[i].begin = 0; }

static int xla_guard_cut(const void *p) {
    for (int i = 0; i < xla_n_guards; i++)
        if (xla_guards[i].begin && xla_guards[i].begin <= (uintptr_t)p && (uintptr_t)p < xla_guards[i].end)
            return xla_guards[i].cut;
    return 0;
}

#else
static int xla_guard_add(const void *p, size_t n) { (void)p; (void)n; return -1; }
static void xla_guard_remove(int i) { (void)i; }
static int xla_guard_cut(const void *p) { (void)p; return 0; }
#endif
#endif
