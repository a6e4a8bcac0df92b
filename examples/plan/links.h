/* links.h: measures the links of a rank, by the ranks of mpirun: plan --calibrate of a program that
   is built for MPI (make build/plan_mpi). */
#ifndef PLAN_LINKS_H
#define PLAN_LINKS_H
#include "read.h"

enum { LINK_TURNS = 9, LINK_FLOATS = 1 << 16 }; /* to each other rank */
/* A link, and how far turns of its large exchange are apart: quartiles, over the median. */
typedef struct links {
    neo_link link[NEO_LEVEL_COUNT]; /* bandwidth 0: there is none */
    double spread[NEO_LEVEL_COUNT];
    int rank;
} links;
static int link_order(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}
/* An all-to-all in `group`, of all such groups at once: of one number, and of many; what a byte
   takes and what is left for none. Turns are those of the slowest rank. */
static neo_status link_measure(neo_comm *all, neo_comm *group, links *to, int level) {
    const int others = neo_comm_size(group) - 1;
    int64_t turn[2][LINK_TURNS];
    float *out = more(NULL, 2 * sizeof *out * LINK_FLOATS * ((size_t)others + 1)),
          *in = out + (size_t)LINK_FLOATS * ((size_t)others + 1);
    neo_status status = NEO_OK;
    memset(out, 0, sizeof *out * LINK_FLOATS * ((size_t)others + 1));
    for (int i = -2; i < 2 * LINK_TURNS && status == NEO_OK; i++) {
        const int many = i & 1;
        status = neo_comm_barrier(all, NULL);
        const int64_t began = neo_comm_time_ns(all);
        if (status == NEO_OK)
            status = neo_comm_all_to_all(group, out, in, many ? LINK_FLOATS : 1, NEO_F32, NULL);
        if (i >= 0) turn[many][i / 2] = neo_comm_time_ns(all) - began;
    }
    free(out);
    for (int many = 0; many < 2 && status == NEO_OK; many++) {
        status = neo_comm_all_reduce(all, NEO_REDUCE_MAX, turn[many], turn[many], LINK_TURNS,
                                     NEO_I64, NULL);
        qsort(turn[many], LINK_TURNS, sizeof turn[many][0], link_order);
    }
    const double few = (double)turn[0][LINK_TURNS / 2], much = (double)turn[1][LINK_TURNS / 2];
    to->link[level].latency_us = 1e-3 * few;
    to->link[level].bandwidth =
        1e9 * 4.0 * (LINK_FLOATS - 1) * others / (much > few ? much - few : 1);
    to->spread[level] =
        (double)(turn[1][LINK_TURNS * 3 / 4] - turn[1][LINK_TURNS / 4]) / (much > 0 ? much : 1);
    return status;
}
static neo_status links_measure(neo_comm *comm, void *user) {
    links *to = user, none = {.rank = neo_comm_rank(comm)};
    neo_comm *group[NEO_LEVEL_COUNT];
    if (neo_comm_size(comm) == 1) return NEO_OK;
    *to = none;
    neo_status status = neo_comm_split_nodes(comm, &group[0], &group[1]);
    for (int level = 0; level < NEO_LEVEL_COUNT && status == NEO_OK; level++) {
        if (neo_comm_size(group[level]) > 1) status = link_measure(comm, group[level], to, level);
        neo_comm_destroy(group[level]);
    }
    return status;
}
static void links_print(const links *l, int json) {
    static const char *const NAMES[NEO_LEVEL_COUNT] = {"local", "cross"};
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) {
        const double figures[2] = {l->link[level].bandwidth, l->link[level].latency_us};
        char remark[64];
        if (figures[0] <= 0) continue;
        snprintf(remark, sizeof remark, " # quartiles %.0f %% apart", 100 * l->spread[level]);
        print_figures(json, NAMES[level], "", 2, figures, remark);
    }
}
#endif
