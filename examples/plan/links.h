/* links.h: measures the links of a rank, by the ranks of mpirun: plan --calibrate of a program that
   is built for MPI (make build/plan_mpi); between GPUs, of which each rank has one, by NCCL where
   the program has it (make build/plan_nccl), and without mpirun those of this machine. */
#ifndef PLAN_LINKS_H
#define PLAN_LINKS_H
#include "../train/device.h"
#include "read.h"

enum { LINK_TURNS = 9, LINK_MS = 100 }; /* no larger call behind one that took so long */
/* A link, what calls of several sizes take of it, and how far turns of the largest exchange are
   apart: quartiles, over the median. */
typedef struct links {
    neo_link link[NEO_LEVEL_COUNT]; /* bandwidth 0: there is none */
    double us[NEO_LEVEL_COUNT][NEO_LINK_KINDS][NEO_LINK_SIZES];
    double spread[NEO_LEVEL_COUNT];
    int rank;
} links;
static int link_order(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}
/* ns of calls in `group`, of all such groups at once: quartiles of turns, each the slowest rank's.
   count: floats, of an exchange to each. */
static neo_status link_time(neo_comm *all, neo_comm *group, int kind, int64_t count, float *data,
                            double ns[3]) {
    int64_t turn[LINK_TURNS];
    neo_status status = NEO_OK;
    for (int i = -1; i < LINK_TURNS && status == NEO_OK; i++) {
        status = neo_comm_barrier(all, NULL);
        const int64_t began = neo_comm_time_ns(all);
        if (status == NEO_OK)
            status = kind == NEO_LINK_REDUCE
                         ? neo_comm_all_reduce(group, NEO_REDUCE_SUM, data, data, count, NEO_F32,
                                               NULL)
                         : neo_comm_all_to_all(group, data, data + count * neo_comm_size(group),
                                               count, NEO_F32, NULL);
        if (i >= 0) turn[i] = neo_comm_time_ns(all) - began;
    }
    if (status == NEO_OK)
        status = neo_comm_all_reduce(all, NEO_REDUCE_MAX, turn, turn, LINK_TURNS, NEO_I64, NULL);
    if (status != NEO_OK) return status;
    qsort(turn, LINK_TURNS, sizeof turn[0], link_order);
    for (int k = 0; k < 3 && status == NEO_OK; k++)
        ns[k] = (double)turn[LINK_TURNS / 4 * (k + 1)];
    return status;
}
/* Latency is what an exchange of one number takes, bandwidth what the two largest differ by. */
static neo_status link_measure(neo_comm *all, neo_comm *group, links *to, int level) {
    const int64_t ranks = neo_comm_size(group), least = NEO_LINK_LEAST / 4,
                  most = least << 4 * (NEO_LINK_SIZES - 1), room = 4 * most;
    neo_link *link = &to->link[level];
    double ns[3], before = 0, sent = 0;
    neo_tensor zeros = neo_tensor_none(); /* where the groups' buffers are */
    neo_status status = neo_tensor_alloc(neo_comm_ctx(all), NEO_F32, 1, &room, &zeros);
    float *const data = zeros.data;
    if (status == NEO_OK) status = neo_tensor_zero(neo_comm_ctx(all), zeros);
    if (status == NEO_OK) status = link_time(all, group, NEO_LINK_EXCHANGE, 1, data, ns);
    if (status == NEO_OK) link->latency_us = 1e-3 * ns[1];
    for (int i = 0; i < NEO_LINK_KINDS * NEO_LINK_SIZES && status == NEO_OK; i++) {
        const int kind = i / NEO_LINK_SIZES, size = i % NEO_LINK_SIZES;
        const int64_t floats = least << 4 * size, each = (floats + ranks - 2) / (ranks - 1);
        double *us = &to->us[level][kind][size];
        if (size && (us[-1] <= 0 || us[-1] > 1e3 * LINK_MS)) continue;
        if (!size) before = link->latency_us, sent = 0;
        status = link_time(all, group, kind, kind == NEO_LINK_REDUCE ? each * ranks / 2 : each,
                           data, ns);
        if (status != NEO_OK) break;
        us[0] = 1e-3 * ns[1];
        if (kind == NEO_LINK_EXCHANGE) {
            const double now = 4.0 * (double)floats;
            link->bandwidth = 1e6 * (now - sent) / (us[0] > before ? us[0] - before : 1e-3);
            to->spread[level] = (ns[2] - ns[0]) / (ns[1] > 0 ? ns[1] : 1);
            before = us[0], sent = now;
        }
    }
    neo_tensor_free(neo_comm_ctx(all), &zeros);
    return status;
}
/* A group of the ranks whose buffers are where a step's are: comm's, or the devices'. */
static neo_status links_group(neo_comm *comm, neo_comm **on) {
    neo_comm *over = comm;
    if (!neo_ctx_device(neo_comm_ctx(comm))) return neo_comm_split(comm, 0, 0, on);
    neo_status status = device_group(comm, "tree", &over);
    if (status == NEO_OK) status = neo_comm_split_device(over, 0, 0, on);
    device_group_end(comm, over);
    return status;
}
static neo_status links_measure(neo_comm *comm, void *user) {
    links found = {.rank = neo_comm_rank(comm)};
    neo_comm *on = NULL, *group[NEO_LEVEL_COUNT] = {NULL, NULL};
    if (neo_comm_size(comm) == 1) return NEO_OK;
    neo_status status = links_group(comm, &on);
    if (status == NEO_OK) status = neo_comm_split_nodes(on, &group[0], &group[1]);
    for (int level = 0; level < NEO_LEVEL_COUNT && status == NEO_OK; level++)
        if (neo_comm_size(group[level]) > 1)
            status = link_measure(comm, group[level], &found, level);
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) neo_comm_destroy(group[level]);
    neo_comm_destroy(on);
    /* ranks that are threads have one process to tell */
    if (!found.rank || neo_comm_get_backend(comm) != NEO_BACKEND_THREADS) *(links *)user = found;
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
        for (int kind = 0; kind < NEO_LINK_KINDS; kind++)
            print_figures(json, LINKS[level][kind], "", NEO_LINK_SIZES, l->us[level][kind], "");
    }
}
#endif
