/* urcu/config.h for macOS: what liburcu's configure script finds on it. */
#define CONFIG_RCU_SMP                1
#define CONFIG_RCU_TLS                __thread
#define CONFIG_RCU_HAVE_CLOCK_GETTIME 1
#define CONFIG_RCU_HAVE_MULTIFLAVOR   1
