/* Unix datagram sockets as peers have them, in a folder of their own that goes with the test. */
#ifndef VMLANE_TESTS_UNIT_SOCKET_SUPPORT_H
#define VMLANE_TESTS_UNIT_SOCKET_SUPPORT_H

#include "unit_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define SOCKET_FOLDER_TEMPLATE "/tmp/vml-unit-XXXXXX"

static char socket_folder[] = SOCKET_FOLDER_TEMPLATE;

/* Fixture: a folder for the test's sockets. */
static inline void folder_setup(void)
{
    strcpy(socket_folder, SOCKET_FOLDER_TEMPLATE);
    ck_assert_ptr_nonnull(mkdtemp(socket_folder));
}

static inline void folder_teardown(void)
{
    DIR *folder = opendir(socket_folder);
    if (!folder)
        return;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
    }
    closedir(folder);
    rmdir(socket_folder);
}

/* A path in the folder; one of a few buffers, each good for a while. */
static inline const char *in_folder(const char *name)
{
    static char path[8][300];
    static unsigned next;
    char *text = path[next++ % 8];
    snprintf(text, sizeof path[0], "%s/%s", socket_folder, name);
    return text;
}

static inline struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    strcpy(address.sun_path, path);
    return address;
}

static inline int socket_unbound(int type)
{
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static inline int socket_bound(int type, const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket_unbound(type);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Returns 0 or -errno. */
static inline int socket_connect(int fd, const char *path)
{
    struct sockaddr_un address = address_of(path);
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
}

static inline void send_datagram(int fd, const void *bytes, size_t length)
{
    ck_assert_int_eq(send(fd, bytes, length, 0), (ssize_t)length);
}

static inline void send_to_path(int fd, const char *path, const void *bytes, size_t length)
{
    struct sockaddr_un address = address_of(path);
    ck_assert_int_eq(sendto(fd, bytes, length, 0, (struct sockaddr *)&address, sizeof address),
                     (ssize_t)length);
}

#endif
