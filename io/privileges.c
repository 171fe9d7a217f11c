#include "privileges.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool in_reserve; /* root can be had again */
    uid_t uid;
    gid_t gid;
} privileges;

int privileges_lower_to(uid_t uid, gid_t gid, struct fault *fault)
{
    /* Groups first: after that there are no rights to change them. */
    if (setgroups(1, &gid) != 0 || setegid(gid) != 0 || seteuid(uid) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot become user %u, group %u: %s", (unsigned)uid,
                         (unsigned)gid, strerror(errno));
    privileges.in_reserve = true;
    privileges.uid = uid;
    privileges.gid = gid;
    return 0;
}

void privileges_raise(void)
{
    if (privileges.in_reserve && seteuid(0) != 0)
        privileges.in_reserve = false; /* what needs root says so by itself */
}

void privileges_lower_again(void)
{
    if (privileges.in_reserve && seteuid(privileges.uid) != 0)
        abort(); /* as root by mistake is no way to go on */
}

int privileges_drop(struct fault *fault)
{
    if (!privileges.in_reserve)
        return 0;
    uid_t uid = privileges.uid;
    gid_t gid = privileges.gid;
    privileges.in_reserve = false;
    if (seteuid(0) != 0 || setgroups(1, &gid) != 0 || setgid(gid) != 0 || setuid(uid) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot give up root for user %u: %s", (unsigned)uid,
                         strerror(errno));
    if (setuid(0) == 0 || seteuid(0) == 0 || getuid() != uid || geteuid() != uid || getgid() != gid)
        return fault_set(fault, FAULT_RUNTIME, EPERM, "root was given up for user %u, and is still there",
                         (unsigned)uid);
    return 0;
}

#ifdef __APPLE__
/* A number in the environment, as sudo puts it there. */
static bool number_of(const char *name, unsigned *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    unsigned long number = strtoul(text, &end, 10);
    *value = (unsigned)number;
    return *end == '\0' && number < UINT_MAX;
}

int privileges_begin(struct fault *fault)
{
    unsigned uid, gid;
    if (geteuid() != 0)
        return 0;
    if (!number_of("SUDO_UID", &uid) || !number_of("SUDO_GID", &gid)) {
        uid = (unsigned)getuid();
        gid = (unsigned)getgid();
    }
    return uid == 0 ? 0 : privileges_lower_to((uid_t)uid, (gid_t)gid, fault);
}
#else
int privileges_begin(struct fault *fault)
{
    (void)fault;
    return 0;
}
#endif
