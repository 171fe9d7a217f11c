#include "scenario_changes.h"

#include "scenario_net.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_BYTES 65536

/* One request to the process, past vmlanectl. Ends the helper if it is not done. */
static void ask(const char *control, const char *request)
{
    static char answer[ANSWER_BYTES];
    struct sockaddr_un address = address_of(control);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        _exit(2);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    poll(&wait, 1, 10000);
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0);
    close(fd);
    answer[got > 0 ? got : 0] = '\0';
    if (strstr(answer, "\"ok\":true"))
        return;
    fprintf(stderr, "%s answered by %s\n", request, answer);
    _exit(1);
}

void change_everything(void *context)
{
    static const char *const settings[] = {"\"bulk\":\"fq\",\"idle\":\"spin\"",
                                           "\"express-max\":\"40\"",
                                           "\"express-max\":\"256\",\"bulk\":\"fifo\"",
                                           "\"idle\":\"park\",\"on-budget\":\"requeue\"",
                                           "\"express-quota-frames\":\"1\"",
                                           "\"express-flow-max\":\"1\"",
                                           "\"bulk\":\"fq\",\"express-flow-max\":\"8\"",
                                           "\"retry-wait\":\"1us\"",
                                           "\"idle\":\"backoff\",\"on-budget\":\"drop\"",
                                           "\"express-quota-frames\":\"64\",\"retry-wait\":\"50us\""};
    const struct changes *changes = context;
    for (unsigned i = 0; i < changes->links; i++) {
        ask(changes->control, text_of("{\"command\":\"link-add\",\"link\":\"extra%u\",\"arguments\":[\"--a\","
                                      "\"unixgram:%s\",\"--b\","
                                      "\"null\",\"--layout\",\"%s\"]}\n",
                                      i, in_folder("extra"), i % 2 ? "direction" : "shared"));
        for (unsigned k = 0; k < POLICY_CHANGES / LINK_CHANGES; k++)
            ask(changes->control, text_of("{\"command\":\"set\",\"link\":\"web1\",\"settings\":{%s}}\n",
                                          settings[k % COUNT_OF(settings)]));
        ask(changes->control, text_of("{\"command\":\"link-remove\",\"link\":\"extra%u\"}\n", i));
    }
}
