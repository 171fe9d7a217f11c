#include "config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* A file being read. */
struct config {
    const char *path;
    yaml_document_t document;
    struct vmlane_options *options;
    struct link_config defaults;
    struct fault *fault;
};

/* A node's line, from 1. */
static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

/* Puts file, line and where in the file before what is wrong. */
static int fail_at(const struct config *config, size_t line, const char *where, const char *what)
{
    return fault_set(config->fault, FAULT_USAGE, EINVAL, "%s:%zu: %s%s%s", config->path, line, where,
                     where[0] ? ": " : "", what);
}

static const char *scalar_of(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Calls `visit` for each key of a mapping, in its order, with its value; each key may be there once. */
static int each_key(struct config *config, const yaml_node_t *mapping, const char *where,
                    int (*visit)(struct config *config, const yaml_node_t *key, yaml_node_t *value,
                                 void *context),
                    void *context)
{
    const yaml_node_pair_t *first = mapping->data.mapping.pairs.start, *end = mapping->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = first; pair < end; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&config->document, pair->key);
        if (!scalar_of(key) || strlen(scalar_of(key)) != key->data.scalar.length)
            return fail_at(config, line_of(key), where, "a key is a word");
        for (const yaml_node_pair_t *before = first; before < pair; before++) {
            const yaml_node_t *other = yaml_document_get_node(&config->document, before->key);
            char text[256];
            if (strcmp(scalar_of(other), scalar_of(key)) != 0)
                continue;
            snprintf(text, sizeof text, "%.64s is given twice (before in line %zu)", scalar_of(key),
                     line_of(other));
            return fail_at(config, line_of(key), where, text);
        }
        int err = visit(config, key, yaml_document_get_node(&config->document, pair->value), context);
        if (err)
            return err;
    }
    return 0;
}

/* One option of a link, of the defaults, or (target null) of the process. */
static int set_option(struct config *config, struct link_config *target, const char *where,
                      const yaml_node_t *key, const yaml_node_t *value)
{
    struct fault fault;
    char text[256];
    const char *name = scalar_of(key), *given = scalar_of(value);
    if (!given || strlen(given) != value->data.scalar.length) {
        snprintf(text, sizeof text, "%.64s: a single value is expected", name);
        return fail_at(config, line_of(value), where, text);
    }
    if (vmlane_options_set(config->options, target, name, given, &fault) == 0)
        return 0;
    return fail_at(config, line_of(key), where, fault.text);
}

/* The section that options are for. */
struct section {
    struct link_config *target;
    char where[STATS_NAME_BYTES + 16];
};

static int visit_option(struct config *config, const yaml_node_t *key, yaml_node_t *value, void *context)
{
    struct section *section = context;
    return set_option(config, section->target, section->where, key, value);
}

static int read_section(struct config *config, const yaml_node_t *value, struct section *section)
{
    if (value->type != YAML_MAPPING_NODE)
        return fail_at(config, line_of(value), section->where, "options are expected, one KEY: VALUE a line");
    return each_key(config, value, section->where, visit_option, section);
}

static int visit_link(struct config *config, const yaml_node_t *key, yaml_node_t *value, void *context)
{
    (void)context;
    struct fault fault;
    struct section section;
    if (vmlane_options_add_link(config->options, &config->defaults, scalar_of(key), &section.target,
                                &fault) != 0)
        return fail_at(config, line_of(key), "link", fault.text);
    snprintf(section.where, sizeof section.where, "link \"%s\"", section.target->name);
    int err = read_section(config, value, &section);
    if (!err && vmlane_options_check_link(section.target, &fault) != 0)
        err = fail_at(config, line_of(key), section.where, fault.text);
    return err;
}

static int read_links(struct config *config, const yaml_node_t *value)
{
    if (value->type != YAML_MAPPING_NODE)
        return fail_at(config, line_of(value), "link",
                       "links are expected, each NAME: with its options below");
    return each_key(config, value, "link", visit_link, NULL);
}

static int visit_top(struct config *config, const yaml_node_t *key, yaml_node_t *value, void *context)
{
    const bool *links = context;
    struct section defaults = {.target = &config->defaults, .where = "defaults"};
    bool is_link = strcmp(scalar_of(key), "link") == 0;
    if (*links)
        return is_link ? read_links(config, value) : 0;
    if (is_link)
        return 0;
    if (strcmp(scalar_of(key), "defaults") == 0)
        return read_section(config, value, &defaults);
    return set_option(config, NULL, "", key, value);
}

static int read_document(struct config *config)
{
    const yaml_node_t *root = yaml_document_get_root_node(&config->document);
    if (!root) /* an empty file, which is no links */
        return 0;
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(config, line_of(root), "", "options are expected, one KEY: VALUE a line");
    bool links = false; /* defaults are for every link, wherever they stand */
    int err = each_key(config, root, "", visit_top, &links);
    links = true;
    return err ? err : each_key(config, root, "", visit_top, &links);
}

/* Bytes that are no text have an offset, and no line. */
static size_t line_of_problem(const yaml_parser_t *parser, const char *text, size_t bytes)
{
    size_t line = parser->problem_mark.line + 1;
    for (size_t i = 0; parser->error == YAML_READER_ERROR && i < parser->problem_offset && i < bytes; i++)
        line += text[i] == '\n';
    return line;
}

static int parse(struct config *config, const char *text, size_t bytes)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return fault_set(config->fault, FAULT_RUNTIME, ENOMEM, "no memory to read \"%s\"", config->path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    int err = 0;
    for (int document = 0; !err && !parser.stream_end_produced; document++) {
        if (!yaml_parser_load(&parser, &config->document)) {
            err = fail_at(config, line_of_problem(&parser, text, bytes), "",
                          parser.problem ? parser.problem : "this is not YAML");
            break;
        }
        const yaml_node_t *root = yaml_document_get_root_node(&config->document);
        if (document > 0 && root)
            err = fail_at(config, line_of(root), "", "a second document begins: one is read");
        else
            err = read_document(config);
        yaml_document_delete(&config->document);
    }
    yaml_parser_delete(&parser);
    return err;
}

static int read_text(const struct config *config, char *text, size_t *bytes)
{
    struct stat status;
    int fd = open(config->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = -1;
    if (fd >= 0 && fstat(fd, &status) == 0 && !S_ISREG(status.st_mode))
        errno = EINVAL;
    else if (fd >= 0)
        got = read(fd, text, CONFIG_FILE_BYTES_MAX + 1);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return fault_set(config->fault, FAULT_USAGE, error, "cannot read configuration file \"%s\": %s",
                         config->path, error == EINVAL ? "it is not a file" : strerror(error));
    if (got > (ssize_t)CONFIG_FILE_BYTES_MAX)
        return fault_set(config->fault, FAULT_USAGE, EFBIG,
                         "configuration file \"%s\" is longer than %u bytes", config->path,
                         CONFIG_FILE_BYTES_MAX);
    *bytes = (size_t)got;
    return 0;
}

int config_file_read(struct vmlane_options *options, const char *path, struct fault *fault)
{
    struct config config = {
        .path = path, .options = options, .defaults = vmlane_link_standard(), .fault = fault};
    *options = vmlane_options_standard();
    char *text = malloc(CONFIG_FILE_BYTES_MAX + 1);
    size_t bytes = 0;
    if (!text)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to read \"%s\"", path);
    int err = read_text(&config, text, &bytes);
    if (!err)
        err = parse(&config, text, bytes);
    free(text);
    return err;
}
