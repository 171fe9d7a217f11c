/* needs: io/port_spec.c shm/settings.c shm/fault.c workers/layout.c */
/* Fuzz target for everything that reads words from people: port specs, settings, lists of cores, layouts. The first
 * byte chooses, the rest is the text. */
#include "../../io/port_spec.h"
#include "../../shm/settings.h"
#include "../../workers/layout.h"

#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void fuzz_spec(const char *text)
{
    struct port_spec spec;
    struct fault fault;
    uint64_t number = 7;
    uint8_t mac[6];
    bool given;
    if (port_spec_parse(&spec, text, &fault) != 0)
        return;
    check(strlen(spec.kind) + strlen(spec.address) < PORT_SPEC_BYTES);
    check(spec.key_count <= PORT_SPEC_KEYS_MAX);
    port_spec_check_keys(&spec, "mtu mac", &fault);
    if (port_spec_number(&spec, "mtu", 68, 65521, &number, &fault) == 0)
        check(number == 7 || (number >= 68 && number <= 65521));
    port_spec_mac(&spec, "mac", mac, &given, &fault);
}

static void fuzz_setting(uint8_t choice, const char *text)
{
    char message[64], again[64];
    enum setting setting = (enum setting)(choice % SETTING_COUNT);
    uint64_t value, same;
    if (setting_parse(setting, text, &value, message, sizeof message) != 0)
        return;
    check(value >= setting_info[setting].lowest && value <= setting_info[setting].highest);
    setting_format(setting, value, again, sizeof again);
    check(setting_parse(setting, again, &same, message, sizeof message) == 0 && same == value);
}

static void fuzz_layout(const char *text)
{
    struct layout layout;
    struct placement placement;
    struct fault fault;
    struct cpu_list cpus = {.count = 2, .cpu = {0, 1}};
    if (layout_parse(&layout, text, &fault) != 0)
        return;
    if (layout_place(&placement, &layout, &cpus, "link", 3, 2, 2, &fault) == 0)
        check(placement.agents == 8);
}

static void fuzz_cpus(const char *text)
{
    struct cpu_list list, same;
    struct fault fault;
    char again[8 * LAYOUT_CPUS_MAX];
    if (cpu_list_parse(&list, text, &fault) != 0)
        return;
    check(list.count <= LAYOUT_CPUS_MAX && (list.count == 0) == (strcmp(text, "any") == 0));
    cpu_list_format(&list, again, sizeof again);
    check(cpu_list_parse(&same, again, &fault) == 0 && same.count == list.count);
    for (uint32_t i = 0; i < list.count; i++)
        check(same.cpu[i] == list.cpu[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 1)
        return 0;
    char *text = malloc(bytes);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    fuzz_spec(text);
    fuzz_setting(data[0], text);
    fuzz_layout(text);
    fuzz_cpus(text);
    free(text);
    return 0;
}
