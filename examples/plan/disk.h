/* disk.h: measures the file below a tier's memory: plan --calibrate --disk FILE. Lookups and
   updates of a table whose rows come and go, less those of one in memory; of narrow and wide rows.
   */
#ifndef PLAN_DISK_H
#define PLAN_DISK_H
#include "read.h"
#include <math.h>
#if defined(__linux__)
#include <fcntl.h>
#include <unistd.h>
#endif

#ifndef DISK_ROWS
#define DISK_ROWS (1 << 14) /* a power of two */
#endif
enum { DISK_IDS = DISK_ROWS / 16, DISK_NARROW = 16, DISK_WIDE = 512, DISK_TURNS = 3 };

/* What has been written is read from the disk again, not from the system's cache of it. */
static void disk_forget(const char *path) {
#if defined(__linux__)
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
#else
    (void)path;
#endif
}
/* Every row once, in no order; before each quarter, as many as memory holds, the system forgets the
   file. *seconds: all but what that takes. path NULL: all are in memory. */
static neo_status disk_turn(neo_ctx *ctx, neo_bags *bags, const char *path, int64_t *offsets,
                            int64_t *id, neo_tensor rows, double *seconds) {
    const neo_jagged batch = {.batch = DISK_IDS, .feature_count = 1, .id_dtype = NEO_I64,
                              .offsets = offsets, .ids = id};
    neo_status status = NEO_OK;
    *seconds = 0;
    for (int64_t first = 0; first < DISK_ROWS && status == NEO_OK; first += DISK_IDS) {
        for (int64_t i = 0; i < DISK_IDS; i++) {
            offsets[i] = i, offsets[i + 1] = i + 1;
            id[i] = (first + i) * 12345 % DISK_ROWS;
        }
        if (path && first % (DISK_ROWS / 4) == 0) disk_forget(path);
        const int64_t began = neo_time_ns();
        status = neo_bags_forward(bags, &batch, rows);
        if (status == NEO_OK) status = neo_bags_backward(bags, &batch, rows, 0.01f);
        if (status == NEO_OK) status = neo_ctx_synchronize(ctx);
        *seconds += 1e-9 * (double)(neo_time_ns() - began);
    }
    return status;
}
/* *each: seconds of a row that is read or written, the shortest of some turns. path NULL: between a
   device and its host. */
static neo_status disk_width(neo_ctx *ctx, const char *path, int64_t cols, double *each) {
    neo_tier_desc desc = {.path = path, .memory_bytes = DISK_ROWS / 4 * (4 * cols + 128),
                          .evict = NEO_EVICT_LRU};
    neo_table_desc table = {.name = "disk", .rows = DISK_ROWS, .dim = cols};
    neo_bags_desc bags = {.tables = &table, .table_count = 1, .max_batch = DISK_IDS,
                          .max_ids = DISK_IDS};
    const int64_t shape[2] = {DISK_IDS, cols};
    neo_tensor rows = neo_tensor_none();
    int64_t *ids = more(NULL, sizeof *ids * (2 * DISK_IDS + 1));
    double best[2] = {1e30, 1e30}, seconds;
    neo_bags_memory memory;
    neo_status status = neo_bags_bytes(ctx, &bags, &memory);
    if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &rows);
    if (!path) desc.memory_bytes += (int64_t)memory.workspace_bytes; /* a device's are among it */
    for (int tiered = 0; tiered < 2 && status == NEO_OK; tiered++) {
        neo_tier *tier = NULL;
        neo_bags *made = NULL;
        if (tiered) status = neo_tier_create(ctx, &desc, &tier);
        bags.tier = tier;
        if (status == NEO_OK) status = neo_bags_create(ctx, &bags, &made);
        for (int i = -1; i < DISK_TURNS && status == NEO_OK; i++) { /* the first makes the rows */
            double moved = 1;
            if (tiered) neo_tier_reset_stats(tier);
            status = disk_turn(ctx, made, tiered ? path : NULL, ids, ids + DISK_IDS + 1, rows,
                               &seconds);
            if (tiered) {
                const neo_tier_stats stats = neo_tier_get_stats(tier);
                moved = (double)(stats.read + stats.written);
                seconds = (seconds - best[0]) / (moved > 0 ? moved : 1);
            }
            if (i >= 0 && seconds < best[tiered]) best[tiered] = seconds;
        }
        neo_bags_destroy(made);
        neo_tier_destroy(tier);
    }
    *each = best[1];
    neo_tensor_free(ctx, &rows);
    free(ids);
    return status;
}
/* ctx: of a device; NULL: one of one thread. */
static neo_status disk_measure(neo_ctx *of, const char *path, double *bandwidth, double *row_us) {
    const neo_ctx_desc one = {.threads = 1};
    const double more_bytes = 4.0 * (DISK_WIDE - DISK_NARROW);
    double narrow, wide;
    neo_ctx *ctx = of;
    neo_status status = of ? NEO_OK : neo_ctx_create(&one, &ctx);
    if (status != NEO_OK) return status;
    status = disk_width(ctx, path, DISK_NARROW, &narrow);
    if (status == NEO_OK) status = disk_width(ctx, path, DISK_WIDE, &wide);
    if (!of) neo_ctx_destroy(ctx);
    if (status != NEO_OK) return status;
    *bandwidth = more_bytes / fmax(wide - narrow, 1e-11);
    *row_us = 1e6 * fmax(narrow - 4.0 * DISK_NARROW / *bandwidth, 0);
    return NEO_OK;
}
static void disk_print(const neo_cluster *c, int json) {
    const double figures[3] = {(double)c->file_bytes, c->file_bandwidth, c->file_row_us};
    print_figures(json, "tier", "disk", 3, figures, "");
}
#endif
