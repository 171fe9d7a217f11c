/* Runs every unit suite, one after the other; the closing line is Check's. CK_RUN_SUITE and CK_RUN_CASE choose. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* X(function): `Suite *function(void)`, one a unit. */
#define SUITES(X)                                                                                            \
    X(ring_suite)                                                                                            \
    X(ring_peers_suite)                                                                                      \
    X(arena_suite)                                                                                           \
    X(doorbell_suite)                                                                                        \
    X(doorbell_fences_suite)                                                                                 \
    X(frame_headers_suite)                                                                                   \
    X(offload_suite)                                                                                         \
    X(offload_cuts_suite)                                                                                    \
    X(ctl_stats_suite)                                                                                       \
    X(ctl_top_suite)                                                                                         \
    X(ctl_record_suite)                                                                                      \
    X(ctl_watch_suite)                                                                                       \
    X(ctl_doctor_suite)                                                                                      \
    X(vmlane_stats_suite)                                                                                    \
    X(stats_segment_suite)                                                                                   \
    X(stats_view_suite)                                                                                      \
    X(stats_dir_suite)                                                                                       \
    X(service_manager_suite)                                                                                 \
    X(settings_suite)                                                                                        \
    X(histogram_suite)                                                                                       \
    X(memory_segment_suite)                                                                                  \
    X(memory_pages_suite)                                                                                    \
    X(counters_suite)                                                                                        \
    X(darwin_unixgram_suite)                                                                                 \
    X(darwin_path_suite)                                                                                     \
    X(darwin_waits_suite)                                                                                    \
    X(darwin_vmnet_suite)                                                                                    \
    X(privileges_suite)                                                                                      \
    X(vmnet_helper_suite)                                                                                    \
    X(tx_result_suite)                                                                                       \
    X(port_spec_suite)                                                                                       \
    X(unix_address_suite)                                                                                    \
    X(call_ring_suite)                                                                                       \
    X(port_tap_suite)                                                                                        \
    X(unixgram_suite)                                                                                        \
    X(stream_framing_suite)                                                                                  \
    X(port_stream_suite)                                                                                     \
    X(stream_express_suite)                                                                                  \
    X(port_stream_peers_suite)                                                                               \
    X(channel_suite)                                                                                         \
    X(capture_ring_suite)                                                                                    \
    X(fd_message_suite)                                                                                      \
    X(capture_suite)                                                                                         \
    X(pcapng_suite)                                                                                          \
    X(port_shm_suite)                                                                                        \
    X(shm_door_suite)                                                                                        \
    X(vmlane_shm_suite)                                                                                      \
    X(port_packet_suite)                                                                                     \
    X(port_packet_tx_suite)                                                                                  \
    X(port_packet_interface_suite)                                                                           \
    X(port_fault_suite)                                                                                      \
    X(port_pcap_suite)                                                                                       \
    X(flow_table_suite)                                                                                      \
    X(budget_suite)                                                                                          \
    X(layout_suite)                                                                                          \
    X(worker_rest_suite)                                                                                     \
    X(thread_suite)                                                                                          \
    X(reader_suite)                                                                                          \
    X(writer_suite)                                                                                          \
    X(writer_budget_suite)                                                                                   \
    X(writer_lanes_suite)                                                                                    \
    X(codel_suite)                                                                                           \
    X(frame_ecn_suite)                                                                                       \
    X(flow_queue_suite)                                                                                      \
    X(writer_queues_suite)                                                                                   \
    X(writer_refused_suite)                                                                                  \
    X(config_file_suite)                                                                                     \
    X(engine_suite)                                                                                          \
    X(order_stress_suite)

#define X(function) Suite *function(void);
SUITES(X)
#undef X

/* `unit I/N` runs every N-th suite from the I-th on, so that N of them share the work (tests/run-units). */
int main(int argc, char **argv)
{
    unsigned part = 1, parts = 1, number = 0;
    SRunner *runner = srunner_create(NULL);
    if (argc > 1 && (sscanf(argv[1], "%u/%u", &part, &parts) != 2 || part == 0 || part > parts)) {
        fprintf(stderr, "usage: unit [I/N], part I of N\n");
        return EXIT_FAILURE;
    }
#define X(function)                                                                                          \
    if (number++ % parts == part - 1)                                                                        \
        srunner_add_suite(runner, function());
    SUITES(X)
#undef X
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
