#include "vmnet_darwin.h"

#include <errno.h>

struct status {
    uint32_t status;
    int error;
    const char *name;
    const char *advice;
};

/* What each is seen for, from bug reports of programs that use the framework. */
static const struct status statuses[] = {
    {VMNET_SUCCESS, 0, "success", "nothing is wrong"},
    {VMNET_FAILURE, EIO, "failure",
     "another hypervisor's networking may hold it: quit VMware, VirtualBox or Docker, or restart the Mac"},
    {VMNET_MEM_FAILURE, ENOMEM, "out of memory",
     "without enough rights a network object fails like this too: sign vmlane with "
     "ctl/packaging/macos/vmlane.entitlements"},
    {VMNET_INVALID_ARGUMENT, EINVAL, "invalid argument",
     "addresses must be private ones and start=, end= and mask= given together; a bridged interface must "
     "exist "
     "('vmnet-helper --list-shared-interfaces' shows them); tso= and checksum= must suit the mode"},
    {VMNET_SETUP_INCOMPLETE, ENETDOWN, "setup is not complete", "try again in a moment"},
    {VMNET_INVALID_ACCESS, EACCES, "permission denied",
     "before macOS 26 it takes root: run vmlane with sudo; it gives root up right after the start"},
    {VMNET_PACKET_TOO_BIG, EMSGSIZE, "packet too big", "the guest's MTU is larger than the interface's"},
    {VMNET_BUFFER_EXHAUSTED, ENOBUFS, "buffers exhausted", "it is busy: this passes"},
    {VMNET_TOO_MANY_PACKETS, E2BIG, "too many packets", "fewer packets a call are sent from now on"},
    {VMNET_SHARING_SERVICE_BUSY, EBUSY, "sharing service busy",
     "Internet Sharing is on: turn it off in System Settings, General, Sharing, or use bridged mode"},
    {VMNET_NOT_AUTHORIZED, EPERM, "not authorized",
     "before macOS 26 run vmlane with sudo; on macOS 26 sign it with "
     "ctl/packaging/macos/vmlane.entitlements"},
};

static const struct status *find(uint32_t status)
{
    static const struct status unknown = {0, EIO, "unknown status", "is this a newer macOS?"};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i].status == status)
            return &statuses[i];
    }
    return &unknown;
}

int vmnet_errno(uint32_t status)
{
    return find(status)->error;
}

const char *vmnet_status_name(uint32_t status)
{
    return find(status)->name;
}

const char *vmnet_advice(uint32_t status)
{
    return find(status)->advice;
}
