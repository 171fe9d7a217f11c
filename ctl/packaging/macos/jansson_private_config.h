/* jansson_private_config.h for macOS: what jansson's configure script finds on it. */
#define HAVE_ATOMIC_BUILTINS 1
#define HAVE_CLOSE           1
#define HAVE_FCNTL_H         1
#define HAVE_GETTIMEOFDAY    1
#define HAVE_OPEN            1
#define HAVE_READ            1
#define HAVE_SCHED_H         1
#define HAVE_SCHED_YIELD     1
#define HAVE_STDINT_H        1
#define HAVE_SYS_TIME_H      1
#define HAVE_UNISTD_H        1
#define USE_URANDOM          1

#define INITIAL_HASHTABLE_ORDER 3
