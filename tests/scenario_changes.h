/* Someone who changes a running vmlane all the time: policies of one link, others added and removed. */
#ifndef VMLANE_TESTS_SCENARIO_CHANGES_H
#define VMLANE_TESTS_SCENARIO_CHANGES_H

#define POLICY_CHANGES 1000u
#define LINK_CHANGES   100u

struct changes {
    const char *control; /* the process's control socket */
    unsigned links;      /* how many are added and removed; ten policies each are set meanwhile */
};

#define ALL_CHANGES(socket) (&(struct changes){.control = (socket), .links = LINK_CHANGES})

/* For helper_start: sets a policy of the link web1 ten times for each other link that it adds and removes, as fast as
 * the process takes it. Exits with 0 once all were taken, else with another status and a line on stderr. */
void change_everything(void *changes);

#endif
