#include "vmnet_helper.h"

#include <errno.h>

int vmnet_helper_list_interfaces(struct fault *fault)
{
    return fault_set(fault, FAULT_RUNTIME, ENOSYS, "vmnet is macOS's: there is nothing to list here");
}
