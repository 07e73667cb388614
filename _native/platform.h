/* What the compiler, the processor and the system offer. The other headers ask here only. XLAMEM_PORTABLE answers no to
   all that has a replacement, to test it. */
#ifndef XLAMEM_PLATFORM_H
#define XLAMEM_PLATFORM_H

#include <stdint.h>

#if defined(__GNUC__) && !defined(XLAMEM_PORTABLE) /* GCC and Clang: attributes and builtins */
#define XLA_GNU 1
#else
#define XLA_GNU 0
#endif

/* SSE2 is part of x86-64. Other processors go through text one character at a time. */
#if XLA_GNU && defined(__SSE2__) && defined(__x86_64__)
#define XLA_SSE2 1
#else
#define XLA_SSE2 0
#endif

/* Functions compiled twice, of which the loader chooses one: only in GCC, and with glibc. */
#if XLA_GNU && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define XLA_CLONES __attribute__((target_clones("avx2", "default")))
#define XLA_CLONED 1
#else
#define XLA_CLONES
#define XLA_CLONED 0
#endif

#if XLA_GNU && defined(__SIZEOF_INT128__)
#define XLA_INT128 1
#else
#define XLA_INT128 0
#endif

/* Atomic access to 8 bytes. */
#if XLA_GNU && __SIZEOF_POINTER__ >= 8
#define XLA_ATOMIC 1
#else
#define XLA_ATOMIC 0
#endif

/* Large columns are mapped and grow with mremap. */
#if XLA_GNU && defined(__linux__)
#define XLA_PAGES 1
#else
#define XLA_PAGES 0
#endif

/* SIGBUS is what access behind the end of a mapped file causes. Windows does not let a mapped file become shorter. */
#if defined(__linux__) || defined(__APPLE__)
#define XLA_SIGBUS 1
#else
#define XLA_SIGBUS 0
#endif

/* A variable of the C library, which the loader places at another address in each process. */
#if defined(_WIN32)
#include <stdlib.h>
#define XLA_ANCHOR _sys_nerr
#elif defined(__APPLE__)
#include <crt_externs.h>
#define XLA_ANCHOR (*_NSGetEnviron())
#else
extern char **environ;
#define XLA_ANCHOR environ
#endif

#endif
