#include "ready_line.h"

#include <string.h>
#include <unistd.h>

static json_t *words(const char *text)
{
    json_t *list = json_array();
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        json_array_append_new(list, json_stringn(text, length));
        text += length;
        text += *text == ' ';
    }
    return list;
}

static void add_field(void *context, const struct port_field *field)
{
    json_t *value = field->kind == PORT_FIELD_TEXT     ? json_string(field->text)
                    : field->kind == PORT_FIELD_SWITCH ? json_boolean(field->number)
                                                       : json_integer((json_int_t)field->number);
    json_object_set_new(context, field->name, value);
}

static json_t *port_json(const struct port *port)
{
    const struct port_facts *facts = &port->facts;
    json_t *json = json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:o}", "spec", port->spec.text, "kind", facts->kind,
                             "mac", facts->mac[0] ? json_string(facts->mac) : json_null(), "mtu",
                             facts->mtu_bytes ? json_integer(facts->mtu_bytes) : json_null(),
                             "max_frame_bytes", (json_int_t)facts->max_frame_bytes, "queues",
                             (json_int_t)facts->queues, "offload", words(facts->offload));
    if (json && port->ops->describe) {
        json_t *device = json_object();
        port->ops->describe(port, add_field, device);
        json_object_set_new(json, "device", device);
    }
    return json;
}

json_t *ready_line(const struct link *link, const char *control)
{
    uint64_t arena_bytes = 0;
    enum memory_pages pages = MEMORY_PAGES_HUGE; /* of the path that has the smallest */
    for (uint32_t i = 0; i < link->paths; i++) {
        const struct path_memory *memory = &link->path[i].memory;
        arena_bytes += memory->arena_bytes;
        pages = memory->segment.pages < pages ? memory->segment.pages : pages;
    }
    return json_pack("{s:s,s:s,s:I,s:s,s:s,s:I,s:s,s:o,s:o}", "event", "ready", "link", link->config.name,
                     "pid", (json_int_t)getpid(), "stats", link->stats.path, "control", control,
                     "arena_bytes", (json_int_t)arena_bytes, "memory_pages", memory_pages_name[pages], "a",
                     port_json(&link->port[0]), "b", port_json(&link->port[1]));
}
