/* stage: what a program in perf/ sets up around its measurement and takes down again: a folder of its own, and its
 * priority. By the main thread. */
#ifndef VMLANE_PERF_STAGE_H
#define VMLANE_PERF_STAGE_H

#define STAGE_FOLDER_BYTES 64u

/* Makes a folder that only this user can enter, and writes its path. Returns 0, or -errno after a message on stderr.
 * `program` is for messages, here and below. */
int stage_folder_make(char folder[STAGE_FOLDER_BYTES], const char *program);

/* Removes it with all that is in it; an empty path is no folder. What cannot be removed is said. */
void stage_folder_remove(const char *folder, const char *program);

/* Sets the nice value of this process and, where sessions are scheduled as groups, of this session. A refusal is said,
 * and the measurement goes on. */
void stage_priority(int nice, const char *program);

#endif
