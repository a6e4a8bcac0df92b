/* board.h: --tensorboard DIR: the numbers of the log as TensorBoard's curves, and with --histograms
   N every N steps how large weights and gradients of each dense parameter are. */
#ifndef EXAMPLE_BOARD_H
#define EXAMPLE_BOARD_H
#include "guard.h"

/* On rank 0; elsewhere *events stays NULL. */
static neo_status board_open(const cli_rank *me, const cli_board *board, neo_events **events) {
    char reason[4352];
    if (!board->dir || me->rank) return NEO_OK;
    make_folders(board->dir, reason);
    const neo_status status = neo_events_open(me->ctx, board->dir, events);
    if (status == NEO_OK) return status;
    return neo_fail(status, "--tensorboard: %s", reason[0] ? reason : neo_last_error());
}

/* events: NULL where there is no board. */
static neo_status board_number(neo_events *events, const char *tag, int64_t step, double x) {
    return events ? neo_events_scalar(events, tag, step, x) : NEO_OK;
}

/* names: of the parameters, from neo_fsdp_norms. */
static neo_status board_write(neo_events *events, int64_t step, const neo_param_norm *names,
                              const neo_histogram *of, int count) {
    static const char *const kinds[] = {"weights", "gradients"};
    char tag[256];
    for (int i = 0; i < 2 * count; i++) {
        snprintf(tag, sizeof tag, "%s/%.200s", kinds[i / count], names[i % count].name);
        TRY(neo_events_histogram(events, tag, step, &of[i]));
    }
    return NEO_OK;
}

/* After a step, where --histograms asks for it. Collective. */
static neo_status board_histograms(const cli_rank *me, const cli_board *board, neo_events *events,
                                   neo_fsdp *dense, int64_t step) {
    if (!board->histograms || step % board->histograms) return NEO_OK;
    const int count = neo_fsdp_norm_count(dense);
    neo_param_norm *names = malloc((size_t)(count + 1) * sizeof *names);
    neo_histogram *of = malloc((size_t)(2 * count + 1) * sizeof *of);
    neo_status status = agree(me->comm, names && of ? NEO_OK : out_of_memory());
    if (status == NEO_OK) status = neo_fsdp_norms(dense, names);
    if (status == NEO_OK) status = neo_fsdp_histograms(dense, of, of + count);
    if (status == NEO_OK)
        status = agree(me->comm, events ? board_write(events, step, names, of, count) : NEO_OK);
    free(names);
    free(of);
    return status;
}
#endif
