/* record_file: what `vmlanectl record` keeps: a file of JSON lines, appended to one whole line at a time.
 *
 *     {"vmlane_record":1,"build":"0.1.0 abc","bucket_sub_bits":4,"bucket_max_bits":40}
 *     {"schema":1,"time_ns":...,"interval_ns":...,"links":[...],"workers":[...]}      (interval_json, sparse)
 *     ...
 *
 * Each line tells of one interval by itself: a line that is lost costs that interval alone. A line is written by one
 * write call; what is left of one by a crash or a full disk is cut off by the next writer and skipped by readers. One
 * writer a file (flock). Version 1 is the first line's `vmlane_record`; readers skip keys that they do not know. */
#ifndef VMLANE_CTL_RECORD_FILE_H
#define VMLANE_CTL_RECORD_FILE_H

#include "../shm/fault.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORD_VERSION        1
#define RECORD_LINE_BYTES_MAX (64u * 1024 * 1024)

/* Opens for appending: makes the file (0640) with its first line, or checks the one that is there, and cuts off a
 * line that was left unfinished (`*cut_bytes` says how much). Returns a descriptor, or -errno with a fault:
 * FAULT_USAGE (it is no record, or of another version), FAULT_IN_USE (somebody is recording to it), FAULT_RUNTIME. */
int record_file_append(const char *path, const char *build, uint64_t *cut_bytes, struct fault *fault);

/* Writes one value as a line; takes the reference. A line that did not fit is taken back. Returns 0, or -errno with a
 * fault. */
int record_file_write(int fd, const char *path, json_t *json, struct fault *fault);

struct record_file_counts {
    uint64_t intervals; /* lines that were read */
    uint64_t damaged;   /* lines that could not be */
    bool unfinished;    /* the last one has no end */
};

/* Calls `visit` with each interval. Returns 0 or -errno with a fault. */
int record_file_read(const char *path, void (*visit)(const json_t *interval, void *context), void *context,
                     struct record_file_counts *counts, struct fault *fault);

#endif
