/* ck_md.h for macOS on both kinds of processor: what Concurrency Kit's configure script would write. */
#ifndef CK_MD_H
#define CK_MD_H

#define CK_MD_CACHELINE (64)
#define CK_MD_PAGESIZE  (4096)
#define CK_MD_RTM_DISABLE
#define CK_MD_LSE_DISABLE
#define CK_MD_POINTER_PACK_DISABLE
#define CK_MD_SSE_ENABLE
#define CK_MD_PPC32_LWSYNC_DISABLE
#define CK_MD_VMA_BITS_UNKNOWN
#if defined(__x86_64__)
#define CK_MD_TSO
#else
#define CK_MD_RMO
#endif
#define CK_PR_ENABLE_DOUBLE

#define CK_VERSION "0.7.1"
#define CK_GIT_SHA ""

#endif
