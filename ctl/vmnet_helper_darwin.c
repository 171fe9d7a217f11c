#include "vmnet_helper.h"

#include "../io/vmnet_darwin.h"

#include <stdio.h>

static void print(const char *name, void *context)
{
    (void)context;
    printf("%s\n", name);
}

int vmnet_helper_list_interfaces(struct fault *fault)
{
    return vmnet_each_shared_interface(darwin_find_here, print, NULL, fault);
}
