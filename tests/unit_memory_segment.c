/* Shared memory for rings and arenas: sealed, taken in full at creation, passed by descriptor only. */
#include "shm/memory_segment.h"
#include "unit_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BYTES     (8 * TEST_PAGE_BYTES)
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct memory_segment open_segment(void)
{
    struct memory_segment segment;
    struct fault fault = {.text = ""};
    ck_assert_msg(memory_segment_create(&segment, "unit-test", BYTES, &fault) == 0, "%s", fault.text);
    return segment;
}

static void assert_has(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted) != NULL, "\"%s\" is not in: %s", wanted, text);
}

/* The lowest free descriptor: it does not move if none is leaked. */
static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

/* ---- Creation ---- */

START_TEST(a_new_segment_is_zeros_in_whole_pages_and_all_there)
{
    struct memory_segment segment = open_segment();
    static const uint8_t zeros[BYTES];
    struct stat status;
    ck_assert_uint_eq(segment.bytes, BYTES);
    ck_assert_uint_eq((uintptr_t)segment.memory % TEST_PAGE_BYTES, 0);
    ck_assert_mem_eq(segment.memory, zeros, BYTES);
    ck_assert_int_eq(fstat(segment.fd, &status), 0);
    ck_assert_int_eq(status.st_size, BYTES);
    ck_assert_int_ge(status.st_blocks * 512, BYTES);
    memory_segment_close(&segment);
}
END_TEST

START_TEST(a_new_segment_is_touched_before_anybody_uses_it)
{
    struct memory_segment segment = open_segment();
    uint64_t entry[BYTES / TEST_PAGE_BYTES]; /* of our page table; the highest bit: present */
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    off_t at = (off_t)((uintptr_t)segment.memory / TEST_PAGE_BYTES * sizeof entry[0]);
    ck_assert_int_eq(pread(pagemap, entry, sizeof entry, at), sizeof entry);
    for (size_t page = 0; page < COUNT_OF(entry); page++)
        ck_assert_uint_eq(entry[page] >> 63, 1);
    close(pagemap);
    memory_segment_close(&segment);
}
END_TEST

START_TEST(its_label_is_in_the_list_of_mappings)
{
    struct memory_segment segment = open_segment();
    static char maps[1 << 20];
    FILE *file = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(file);
    maps[fread(maps, 1, sizeof maps - 1, file)] = '\0';
    fclose(file);
    assert_has(maps, "/memfd:unit-test");
    memory_segment_close(&segment);
}
END_TEST

START_TEST(its_descriptor_does_not_pass_to_another_program)
{
    struct memory_segment segment = open_segment();
    ck_assert_int_eq(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
    memory_segment_close(&segment);
}
END_TEST

START_TEST(what_cannot_be_had_is_an_error_that_says_how_much)
{
    static const struct {
        size_t bytes;
        const char *found;
    } rows[] = {{0, "cannot take 0 bytes"}, {SIZE_MAX, "cannot take 18446744073709551615 bytes"}};
    int before = next_descriptor();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct memory_segment segment;
        struct fault fault = {.text = ""};
        ck_assert_int_lt(memory_segment_create(&segment, "unit-test", rows[i].bytes, &fault), 0);
        ck_assert_int_eq(fault.kind, FAULT_RUNTIME);
        assert_has(fault.text, rows[i].found);
        assert_has(fault.text, "\"unit-test\"");
        ck_assert_int_eq(segment.fd, -1);
        ck_assert_ptr_null(segment.memory);
    }
    ck_assert_int_eq(next_descriptor(), before);
}
END_TEST

START_TEST(closing_gives_all_back_and_may_be_done_twice)
{
    int before = next_descriptor();
    struct memory_segment segment = open_segment();
    void *memory = segment.memory;
    memory_segment_close(&segment);
    ck_assert_int_eq(segment.fd, -1);
    ck_assert_ptr_null(segment.memory);
    memory_segment_close(&segment);
    ck_assert_int_eq(next_descriptor(), before);
    ck_assert_int_eq(msync(memory, BYTES, MS_ASYNC), -1); /* not mapped any more */
    ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

/* ---- Seals ---- */

START_TEST(nobody_can_resize_it)
{
    struct memory_segment segment = open_segment();
    static const off_t lengths[] = {0, BYTES - 1, BYTES - (off_t)TEST_PAGE_BYTES, BYTES + 1, 2 * BYTES};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        ck_assert_int_eq(ftruncate(segment.fd, lengths[i]), -1);
        ck_assert_int_eq(errno, EPERM);
    }
    ck_assert_int_eq(posix_fallocate(segment.fd, 0, 2 * BYTES), EPERM);
    memory_segment_close(&segment);
}
END_TEST

START_TEST(its_seals_are_for_good)
{
    struct memory_segment segment = open_segment();
    ck_assert_int_eq(fcntl(segment.fd, F_GET_SEALS), ALL_SEALS);
    ck_assert_int_eq(fcntl(segment.fd, F_ADD_SEALS, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
    ck_assert_int_eq(errno, EPERM);
    memory_segment_close(&segment);
}
END_TEST

/* ---- Segments of somebody else ---- */

static int memfd_with(off_t bytes, int seals)
{
    int fd = memfd_create("unit-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, bytes), 0);
    if (seals)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void assert_refused(int fd, const char *found, const char *wanted)
{
    struct memory_segment segment = {.fd = -1};
    struct fault fault = {.text = ""};
    ck_assert_int_lt(memory_segment_attach(&segment, fd, BYTES, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_REFUSED);
    assert_has(fault.text, found);
    assert_has(fault.text, wanted);
    ck_assert_ptr_null(segment.memory);
    ck_assert_int_eq(segment.fd, -1);
}

START_TEST(attach_refuses_what_can_still_be_resized)
{
    static const struct {
        int seals;
        const char *found;
    } rows[] = {{0, "seals 0x0"},
                {F_SEAL_SHRINK, "seals 0x2"},
                {F_SEAL_GROW, "seals 0x4"},
                {F_SEAL_SHRINK | F_SEAL_GROW, "seals 0x6"},
                {F_SEAL_SHRINK | F_SEAL_SEAL, "seals 0x3"},
                {F_SEAL_GROW | F_SEAL_SEAL, "seals 0x5"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int fd = memfd_with(BYTES, rows[i].seals);
        assert_refused(fd, rows[i].found, "wanted 0x7");
        ck_assert_int_eq(close(fd), 0); /* still the caller's */
    }
}
END_TEST

START_TEST(attach_refuses_what_cannot_be_sealed)
{
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(ftruncate(file, BYTES), 0);
    assert_refused(file, "not sealed", "wanted 0x7");
    close(file);
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    assert_refused(ends[0], "not sealed", "wanted 0x7");
    close(ends[0]);
    close(ends[1]);
    assert_refused(-1, "not sealed", "wanted 0x7");
}
END_TEST

START_TEST(attach_refuses_huge_pages_which_may_not_be_there)
{
    struct memory_segment segment;
    struct fault fault = {.text = ""};
    int fd = memfd_create("unit-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0 || ftruncate(fd, 2 << 20) != 0 || fcntl(fd, F_ADD_SEALS, ALL_SEALS) != 0) {
        fprintf(stderr, "memory_segment: SKIPPED huge pages: %s\n", strerror(errno));
        return;
    }
    ck_assert_int_eq(memory_segment_attach(&segment, fd, BYTES, &fault), -EINVAL);
    ck_assert_int_eq(fault.kind, FAULT_REFUSED);
    assert_has(fault.text, "ordinary pages");
    close(fd);
}
END_TEST

START_TEST(attach_refuses_what_is_too_short)
{
    static const struct {
        off_t bytes;
        const char *found;
    } rows[] = {{0, "has 0 bytes"},
                {BYTES - (off_t)TEST_PAGE_BYTES, "has 28672 bytes"},
                {BYTES - 1, "has 32767 bytes"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int fd = memfd_with(rows[i].bytes, ALL_SEALS);
        assert_refused(fd, rows[i].found, "wanted 32768");
        close(fd);
    }
}
END_TEST

START_TEST(attach_maps_the_same_memory)
{
    struct memory_segment ours = open_segment(), theirs;
    struct fault fault = {.text = ""};
    ck_assert_msg(memory_segment_attach(&theirs, dup(ours.fd), BYTES, &fault) == 0, "%s", fault.text);
    ck_assert_ptr_ne(theirs.memory, ours.memory);
    strcpy(ours.memory, "from us");
    ck_assert_str_eq(theirs.memory, "from us");
    memory_segment_close(&theirs);
    ck_assert_str_eq(ours.memory, "from us");
    memory_segment_close(&ours);
}
END_TEST

static int send_descriptor(int socket, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec byte = {.iov_base = "", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

static int receive_descriptor(int socket)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char data;
    int fd;
    struct iovec byte = {.iov_base = &data, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* In the child, which has only the socket. */
static int answer_in_shared_memory(int socket)
{
    struct memory_segment segment;
    int fd = receive_descriptor(socket);
    if (fd < 0 || memory_segment_attach(&segment, fd, BYTES, NULL) != 0)
        return 1;
    char *last = (char *)segment.memory + BYTES - 8;
    if (strcmp(segment.memory, "question") != 0 || strcmp(last, "the end") != 0)
        return 2;
    if (ftruncate(segment.fd, 0) == 0)
        return 3;
    strcpy(segment.memory, "answer");
    memory_segment_close(&segment);
    return 0;
}

START_TEST(a_process_that_gets_the_descriptor_sees_the_content)
{
    int sockets[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t child = fork(); /* before the segment is there: nothing is inherited */
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(sockets[0]);
        _exit(answer_in_shared_memory(sockets[1]));
    }
    close(sockets[1]);
    struct memory_segment segment = open_segment();
    strcpy(segment.memory, "question");
    strcpy((char *)segment.memory + BYTES - 8, "the end");
    ck_assert_int_eq(send_descriptor(sockets[0], segment.fd), 0);
    ck_assert_int_eq(child_status(child), 0);
    ck_assert_str_eq(segment.memory, "answer");
    memory_segment_close(&segment);
    close(sockets[0]);
}
END_TEST

Suite *memory_segment_suite(void);

Suite *memory_segment_suite(void)
{
    Suite *suite = suite_create("memory_segment");

    TCase *creation = tcase_create("creation");
    tcase_add_test(creation, a_new_segment_is_zeros_in_whole_pages_and_all_there);
    tcase_add_test(creation, a_new_segment_is_touched_before_anybody_uses_it);
    tcase_add_test(creation, its_label_is_in_the_list_of_mappings);
    tcase_add_test(creation, its_descriptor_does_not_pass_to_another_program);
    tcase_add_test(creation, what_cannot_be_had_is_an_error_that_says_how_much);
    tcase_add_test(creation, closing_gives_all_back_and_may_be_done_twice);
    suite_add_tcase(suite, creation);

    TCase *seals = tcase_create("seals");
    tcase_add_test(seals, nobody_can_resize_it);
    tcase_add_test(seals, its_seals_are_for_good);
    suite_add_tcase(suite, seals);

    TCase *attach = tcase_create("attach");
    tcase_add_test(attach, attach_refuses_what_can_still_be_resized);
    tcase_add_test(attach, attach_refuses_what_cannot_be_sealed);
    tcase_add_test(attach, attach_refuses_huge_pages_which_may_not_be_there);
    tcase_add_test(attach, attach_refuses_what_is_too_short);
    tcase_add_test(attach, attach_maps_the_same_memory);
    tcase_add_test(attach, a_process_that_gets_the_descriptor_sees_the_content);
    suite_add_tcase(suite, attach);
    return suite;
}
