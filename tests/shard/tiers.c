/* tiers.c: where a plan puts rows below memory (neo_plan_desc.profile): what a profile counts, and
   its file; predicted hits against those that the real tier counts of ids drawn from the profile's
   law, exactly where a table is in memory as a whole; bytes of memory and of the file, exactly. By
   histograms of how often production rows are used, rows in memory by use leave at most a fiftieth
   of the accesses to the file that whole tables leave in the same memory, or, where no choice of
   rows could, little more than the best choice. */
#include "inside.h"
#include "neo_store.h"
#include "test.h"
#include "uses.h"
#include <sys/stat.h>
#include <unistd.h>

enum { TABLES = 6, BATCH = 256 }; /* tables and samples at most */
static char file[3000], text_file[3000];

typedef struct model {
    neo_ctx *ctx;
    int batch;
    int64_t dim;
    neo_table_desc table[TABLES];
    char name[TABLES][16];
    double ids[TABLES];
    neo_bags_desc bags;
    neo_plan_desc plan;
    neo_profile *profile;
    neo_tier *tier;
    int64_t offset[TABLES * BATCH + 1], *id;
} model;
static model m;

/* Tables of so many rows and columns; table t has ids[t] ids in each bag. */
static void model_make(int batch, int64_t dim, int tables, const int64_t *rows, const int *ids) {
    int64_t count = 0;
    memset(&m, 0, sizeof m);
    m.batch = batch;
    m.dim = dim;
    m.ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int t = 0; t < tables; t++) {
        snprintf(m.name[t], sizeof m.name[t], "t %d", t);
        m.table[t].name = m.name[t];
        m.table[t].rows = rows[t];
        m.table[t].dim = dim;
        m.ids[t] = ids[t];
        for (int b = 0; b < batch; b++) m.offset[t * batch + b + 1] = count += ids[t];
    }
    m.bags.tables = m.table;
    m.bags.table_count = tables;
    m.bags.max_batch = m.batch;
    m.bags.max_ids = count;
    m.plan.bags = &m.bags;
    m.plan.ids_per_sample = m.ids;
    m.plan.cluster.ranks = 1;
    m.id = malloc((size_t)count * sizeof *m.id);
    CHECK_OK(neo_profile_create(m.ctx, &m.bags, &m.profile));
}
static void model_free(void) {
    neo_profile_destroy(m.profile);
    free(m.id);
    neo_ctx_destroy(m.ctx);
}
static neo_jagged batch_of(void) {
    neo_jagged j;
    memset(&j, 0, sizeof j);
    j.batch = m.batch;
    j.feature_count = m.bags.table_count;
    j.id_dtype = NEO_I64;
    j.offsets = m.offset;
    j.ids = m.id;
    return j;
}
static int table_of(int64_t k) {
    int t = 0;
    while (k >= m.offset[(t + 1) * m.batch]) t++;
    return t;
}
static double uniform(void) { return ((double)test_random() + 0.5) / 2147483648.0; }
/* A row of a Zipf law, that of neo_zipf, whose most used rows lie scattered. What depends on rows
   alone is kept: to make it takes longer than to draw. */
static int64_t zipf_row(int64_t rows) {
    static int64_t of;
    static double most;
    if (of != rows) of = rows, most = pow((double)rows + 1.0, -0.05) - 1.0;
    const int64_t id = (int64_t)pow(1.0 + uniform() * most, -20.0) - 1;
    return (id < rows ? id : rows - 1) * 7919 % rows;
}

/* ---- counts and files ---- */
static int falling(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}
static void counts(void) {
    static const int64_t rows[2] = {3000, 11};
    static const int ids[2] = {2, 3};
    static int64_t count[2][3000];
    model_make(BATCH, 16, 2, rows, ids);
    memset(count, 0, sizeof count);
    for (int step = 0; step < 40; step++) {
        neo_jagged j = batch_of();
        for (int64_t k = 0; k < m.bags.max_ids; k++) {
            const int t = table_of(k);
            m.id[k] = zipf_row(rows[t]);
            if (step == 7 && k % 50 == 0) m.id[k] = k % 100 ? -1 : rows[t]; /* not counted */
            else count[t][m.id[k]]++;
        }
        CHECK_OK(neo_profile_add(m.profile, &j));
    }
    CHECK_OK(neo_profile_write(m.profile, text_file));
    neo_profile *read = NULL;
    CHECK_OK(neo_profile_read(m.ctx, text_file, &read));
    for (int t = 0; t < 2; t++) {
        int64_t groups[2], all[2], sum[2], at = 0, total = 0;
        const char *name = m.name[t];
        const neo_row_use *use = neo_profile_uses(m.profile, name, &groups[0], &all[0], &sum[0]),
                          *again = neo_profile_uses(read, name, &groups[1], &all[1], &sum[1]);
        qsort(count[t], (size_t)rows[t], sizeof **count, falling);
        CHECK(groups[0] > 1 && groups[0] == groups[1] && all[0] == all[1] && sum[0] == sum[1]);
        CHECK_INT(all[0], rows[t]);
        for (int64_t g = 0; g < groups[0]; g++) { /* a static placement of the first groups */
            int64_t hits = 0;
            for (int64_t i = 0; i < use[g].rows; i++) hits += count[t][at + i];
            CHECK_INT(use[g].ids, hits);
            CHECK(count[t][at] * 8 <= count[t][at + use[g].rows - 1] * 9);
            CHECK(count[t][at] >= 32 || count[t][at] == count[t][at + use[g].rows - 1]);
            CHECK(again[g].rows == use[g].rows && again[g].ids == use[g].ids);
            at += use[g].rows;
            total += hits;
        }
        CHECK_INT(total, sum[0]);
        CHECK(at == rows[t] || count[t][at] == 0);
    }
    int64_t none;
    CHECK(neo_profile_uses(read, "t 9", &none, NULL, NULL) == NULL && none == 0);
    neo_jagged j = batch_of();
    CHECK_ERR(neo_profile_add(read, &j), NEO_ERR_STATE, "was read from a file");
    j.feature_count = 1;
    CHECK_ERR(neo_profile_add(m.profile, &j), NEO_ERR_SHAPE, "1 features, the profile 2");
    neo_profile_destroy(read);
    model_free();
}
static void bad_files(void) {
    static const char *const bad[][2] = {
        {"", "begins with 'neo-profile 1'"},
        {"neo-profile 2\n", ":1: a profile begins"},
        {"neo-profile 1\ncable a 5\n", ":2: not a table: 'cable'"},
        {"neo-profile 1\ntable a x\n", ":2: not a number of rows: 'x'"},
        {"neo-profile 1\ntable a 5 1:9 2\n", "not rows of the table and as many ids at least"},
        {"neo-profile 1\ntable a 5 1:9 5:5\n", "not rows of the table and as many ids at least"},
        {"neo-profile 1\ntable a 5 2:1\n", "not rows of the table and as many ids at least"},
        {"neo-profile 1\ntable a 5 1:2 1:2\n", "used more than those before"},
        {"neo-profile 1\n\ntable a 5\ntable a 5 1:1\n", ":4: a second line for table 'a'"}};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_profile *profile = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *f = fopen(text_file, "wb");
        CHECK(f && fputs(bad[i][0], f) >= 0 && fclose(f) == 0);
        CHECK_ERR(neo_profile_read(ctx, text_file, &profile), NEO_ERR_FORMAT, bad[i][1]);
        CHECK(profile == NULL);
    }
    CHECK_ERR(neo_profile_read(ctx, "/nowhere/p", &profile), NEO_ERR_NOT_FOUND, "/nowhere/p");
    neo_ctx_destroy(ctx);
}

/* ---- the real tier ---- */
typedef struct counted {
    double misses, predicted; /* ids whose rows were not in memory, over all */
    int64_t in_file[TABLES];  /* bytes; 0: the table is in memory as a whole */
} counted;
/* A plan, and bags whose tier shares memory as it says: forwards of `passes` batches, the last
   `watched` of them counted. draw: an id of a table. */
static int reached;
static counted run_tier(neo_evict evict, int64_t memory, int known, int64_t (*draw)(int t),
                        int passes, int watched) {
    const neo_tier_desc tier = {file, memory, evict, 0, 1, 0, 0, 0};
    neo_plan *plan = NULL;
    neo_bags *bags = NULL;
    counted c = {0.0, 0.0, {0}};
    double hits = 0.0;
    CHECK_OK(neo_tier_create(m.ctx, &tier, &m.tier));
    m.bags.tier = m.tier;
    m.plan.profile = known ? m.profile : NULL;
    CHECK_OK(neo_plan_create(m.ctx, &m.plan, &plan));
    if (!plan) return c;
    const neo_plan_rank rank = neo_plan_rank_of(plan, 0);
    for (int t = 0; t < m.bags.table_count; t++) {
        const neo_plan_tier x = neo_plan_tier_of(plan, t);
        const int64_t ids = m.offset[(t + 1) * m.batch] - m.offset[t * m.batch];
        m.table[t].tier_share = inside_tier_share(plan, t);
        hits += x.hits * (double)ids / (double)m.bags.max_ids;
        CHECK(x.file_bytes ? x.rows < (double)m.table[t].rows : x.hits == 1.0);
        c.in_file[t] = x.file_bytes;
    }
    c.predicted = 1.0 - hits;
    const size_t before = neo_ctx_memory(m.ctx).bytes;
    CHECK_OK(neo_bags_create(m.ctx, &m.bags, &bags));
    if (!bags) return c;
    const int64_t has = (int64_t)(neo_ctx_memory(m.ctx).bytes - before);
    CHECK_INT(has + (int64_t)inside_shard_bytes(m.ctx, plan),
              rank.weight_bytes + rank.state_bytes + rank.buffer_bytes);
    CHECK(neo_tier_get_stats(m.tier).memory_bytes <= memory);
    int64_t width = m.dim * m.bags.table_count;
    float *out = malloc((size_t)(m.batch * width) * sizeof *out);
    for (int pass = 0; pass < passes; pass++) {
        neo_jagged j = batch_of();
        for (int t = 0; t < m.bags.table_count; t++)
            for (int64_t k = m.offset[t * m.batch]; k < m.offset[(t + 1) * m.batch]; k++)
                m.id[k] = draw(t);
        if (pass == passes - watched) neo_tier_reset_stats(m.tier);
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, m.batch, width)));
    }
    const neo_tier_stats s = neo_tier_get_stats(m.tier);
    int64_t tiered = 0; /* tables in memory as a whole have no lookups: hits of all */
    for (int t = 0; t < m.bags.table_count; t++)
        if (c.in_file[t]) tiered += m.offset[(t + 1) * m.batch] - m.offset[t * m.batch];
    CHECK_INT(s.lookups, tiered * watched);
    c.misses = (double)(s.lookups - s.hits) / (double)(m.bags.max_ids * watched);
    const int64_t least = rank.file_bytes; /* behind a block; the last one not whole */
    struct stat info;
    for (int t = 0; t < m.bags.table_count; t++) { /* the last row of each table */
        const int64_t row = m.table[t].rows - 1;
        CHECK_OK(neo_bags_get_rows(bags, t, row, 1, out));
        CHECK_OK(neo_bags_set_rows(bags, t, row, 1, out));
    }
    CHECK(stat(file, &info) == 0 && info.st_size <= least + 4096);
    reached += info.st_size > least; /* else the last row is in memory */
    free(out);
    neo_bags_destroy(bags);
    neo_plan_destroy(plan);
    neo_tier_destroy(m.tier);
    m.bags.tier = NULL;
    for (int t = 0; t < TABLES; t++) m.table[t].tier_share = 0.0;
    return c;
}

/* ---- predicted and counted hits ---- */
static const int64_t ROWS[4] = {40000, 40000, 6000, 500};
static const int IDS[4] = {1, 6, 2, 1};
static int64_t draw_zipf(int t) { return zipf_row(ROWS[t]); }
static int64_t draw_even(int t) { return (int64_t)(uniform() * (double)ROWS[t]); }
/* A profile counted over batches of ids that are drawn alike. */
static void count_profile(int64_t (*draw)(int t), int batches) {
    for (int step = 0; step < batches; step++) {
        neo_jagged j = batch_of();
        for (int64_t k = 0; k < m.bags.max_ids; k++) m.id[k] = draw(table_of(k));
        CHECK_OK(neo_profile_add(m.profile, &j));
    }
}
static void hits(void) {
    double misses[2] = {0.0, 0.0};
    for (int n = TEST_WATCHED ? 2 : 0; n < (TEST_WATCHED ? 4 : 6); n++) {
        const neo_evict evict = n % 2 ? NEO_EVICT_LFU : NEO_EVICT_LRU;
        int64_t (*draw)(int t) = n / 2 == 2 ? draw_even : draw_zipf;
        model_make(BATCH, 16, 4, ROWS, IDS);
        m.plan.skew = n / 2 == 0 ? 1.05 : 0.0; /* the law itself, a profile of it, an even one */
        if (n / 2) count_profile(draw, 1200);
        const counted c = run_tier(evict, 1200000, n / 2 > 0, draw, 1500, 300);
        const double error = c.misses - c.predicted;
        printf("  %s, %s: misses predicted %.4f, counted %.4f\n", n % 2 ? "LFU" : "LRU",
               n / 2 == 0 ? "skew" : n / 2 == 1 ? "profile" : "even", c.predicted, c.misses);
        CHECK(c.misses > 0.01 && !(error > 0.03) && !(error < -0.03));
        CHECK(c.in_file[0] && c.in_file[1] && !c.in_file[3]);
        if (n / 2 == 1) misses[0] += c.misses;
        model_free();
    }
    for (int n = 0; n < 2; n++) { /* the same memory in even shares */
        model_make(BATCH, 16, 4, ROWS, IDS);
        misses[1] += run_tier(n ? NEO_EVICT_LFU : NEO_EVICT_LRU, 1200000, 0, draw_zipf, 1500,
                              300).misses;
        model_free();
    }
    printf("  by use %.4f, evenly %.4f\n", misses[0] / 2, misses[1] / 2);
    CHECK(misses[0] < 0.95 * misses[1]);
    CHECK(reached > 1);
}

/* ---- ranks: what each takes is what the plan says, of memory and of its file ---- */
static int64_t rank_memory;
static int rank_pipeline;
static neo_status on_rank(neo_comm *comm, void *user) {
    const neo_placement placement = *(const neo_placement *)user;
    const int rank = neo_comm_rank(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_bags_desc bags = m.bags;
    neo_plan_desc desc = m.plan;
    neo_shard_memory memory;
    char path[3100];
    neo_tier_desc tier_desc = {path, rank_memory, NEO_EVICT_LFU, 0, 1, 1 + rank_pipeline, 0, 0};
    neo_tier *tier;
    neo_plan *plan;
    neo_shard *shard;
    snprintf(path, sizeof path, "%s.%d", file, rank);
    NEO__TRY(neo_tier_create(ctx, &tier_desc, &tier));
    bags.tier = tier;
    desc.bags = &bags;
    desc.cluster.ranks = neo_comm_size(comm);
    desc.pipeline = rank_pipeline;
    NEO__TRY(neo_profile_read(ctx, text_file, (neo_profile **)(uintptr_t)&desc.profile));
    NEO__TRY(placement == NEO_PLACEMENT_COUNT
                 ? neo_plan_create(ctx, &desc, &plan)
                 : neo_plan_create_uniform(ctx, &desc, placement, &plan));
    neo_profile_destroy((neo_profile *)(uintptr_t)desc.profile);
    const neo_plan_rank x = neo_plan_rank_of(plan, rank);
    NEO__TRY(neo_shard_bytes(ctx, plan, rank, &memory));
    const size_t before = neo_ctx_memory(ctx).bytes;
    NEO__TRY(neo_shard_create(comm, plan, &shard));
    const int64_t has = (int64_t)(neo_ctx_memory(ctx).bytes - before -
                                  inside_group_bytes(shard, comm, 4));
    CHECK_INT(has, x.weight_bytes + x.state_bytes + x.buffer_bytes);
    CHECK_INT(memory.file_bytes, x.file_bytes);
    CHECK(neo_tier_get_stats(tier).memory_bytes <= tier_desc.memory_bytes);
    CHECK(x.weight_bytes + x.state_bytes <= tier_desc.memory_bytes);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    neo_tier_destroy(tier);
    return NEO_OK;
}
static void ranks(void) {
    static const neo_placement placements[] = {NEO_ROW_WISE, NEO_TABLE_WISE, NEO_COLUMN_WISE,
                                               NEO_PLACEMENT_COUNT}; /* the last: searched */
    static const neo_bag_optim_kind optims[] = {NEO_BAG_SGD, NEO_BAG_ROWWISE_ADAGRAD,
                                                NEO_BAG_ADAM, NEO_BAG_ADAGRAD};
    model_make(BATCH, 16, 4, ROWS, IDS);
    count_profile(draw_zipf, 200);
    CHECK_OK(neo_profile_write(m.profile, text_file));
    for (int n = 0; n < 16; n++) {
        rank_pipeline = n % 3 * n;
        rank_memory = n / 8 ? 1700000 + test_random() % 4000000 : 900000;
        for (int t = 0; t < 4; t++) {
            m.table[t].row_buckets = n % 4 == 2 ? 0 : 4;
            m.table[t].dim = n / 8 ? 16 * (1 + test_random() % 5) : 16;
            m.table[t].optim.kind = optims[n / 8 ? test_random() % 4 : 0];
        }
        neo_comm_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.ctx.repro_shards = 4;
        desc.ctx.threads = 1;
        desc.timeout_ms = TEST_PATIENCE_MS;
        CHECK_OK(neo_comm_spawn(n / 4 % 2 ? 4 : 2, &desc, on_rank,
                                (void *)(uintptr_t)&placements[n % 4], NULL));
    }
    model_free();
}

/* A plan of 2 ranks by so much memory of each; NULL: there is none. */
static neo_status plan_within(int64_t memory, int copied, neo_plan **plan) {
    const neo_tier_desc desc = {file, memory, NEO_EVICT_LRU, 0, 1, 0, 0, 0};
    *plan = NULL;
    CHECK_OK(neo_tier_create(m.ctx, &desc, &m.tier));
    m.bags.tier = m.tier;
    const neo_status status =
        copied ? neo_plan_create_uniform(m.ctx, &m.plan, NEO_DATA_PARALLEL, plan)
               : neo_plan_create(m.ctx, &m.plan, plan);
    neo_tier_destroy(m.tier);
    return status;
}
/* The bytes that a refusal of a plan names are enough. */
static void named_bytes_are_enough(void) {
    static const int64_t widths[4] = {16, 48, 64, 8};
    for (int n = 0; n < 6; n++) {
        neo_plan *plan = NULL;
        model_make(BATCH, 16, 4, ROWS, IDS);
        for (int t = 0; t < 4; t++) {
            m.table[t].row_buckets = n % 2 ? 4 : 0;
            m.table[t].dim = n / 2 ? widths[(t + n) % 4] : 16;
        }
        m.plan.cluster.ranks = 2 + n % 3;
        CHECK_ERR(plan_within(1000, n == 5, &plan), NEO_ERR_CAPACITY, "memory_bytes is 1000, ");
        const char *said = strstr(neo_last_error(), "memory_bytes is 1000, ");
        const char *named = said ? strstr(said, " needs ") : NULL;
        const int64_t needs = named ? strtoll(named + 7, NULL, 10) : 0;
        CHECK(needs > 1000 && !strstr(neo_last_error(), "or more"));
        CHECK_OK(plan_within(needs, n == 5, &plan));
        neo_plan_destroy(plan);
        model_free();
    }
    neo_plan *plan = NULL; /* the tier's are, where ranks have no room then */
    model_make(BATCH, 16, 4, ROWS, IDS);
    m.plan.cluster.memory_bytes = 10;
    CHECK_ERR(plan_within(1000, 0, &plan), NEO_ERR_CAPACITY, "memory_bytes is 1000, ");
    CHECK(!strstr(neo_last_error(), "or more"));
    model_free();
}
/* Bytes of lines and copies of the rank with most. */
static int64_t held(const neo_plan *plan) {
    int64_t most = 0;
    for (int32_t r = 0; r < 2; r++) {
        const neo_plan_rank x = neo_plan_rank_of(plan, r);
        const int64_t bytes = x.weight_bytes + x.state_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}
/* Tables of few rows, of which every rank has a copy where there is room: none where there is not,
   and all plans are within the memory. */
static void copies(void) {
    static const int64_t rows[4] = {80, 30000, 9, 60};
    int64_t needs = 0, fewest = -1;
    int found = 1;
    neo_plan *plan;
    model_make(BATCH, 16, 4, rows, IDS);
    m.plan.cluster.ranks = 2;
    for (int t = 0; t < 4; t++) m.table[t].row_buckets = 4;
    m.plan.cluster.link[NEO_LEVEL_LOCAL].bandwidth = 1e6; /* rows are dear to send, */
    m.plan.cluster.file_row_us = 50.0;                    /* and to read */
    CHECK_ERR(plan_within(1000, 1, &plan), NEO_ERR_CAPACITY,
              "; of table 't 1', 1920000 bytes, every rank has a copy");
    const char *said = strstr(neo_last_error(), "a batch of these tables needs ");
    REQUIRE(said && sscanf(said, "a batch of these tables needs %lld", (long long *)&needs) == 1);
    CHECK(needs > (80 + 30000 + 9 + 60) * 64);
    CHECK_ERR(plan_within(needs - 1, 1, &plan), NEO_ERR_CAPACITY, "every rank has a copy");
    CHECK_OK(plan_within(needs, 1, &plan));
    if (plan) CHECK(held(plan) > needs / 12 && held(plan) <= needs);
    neo_plan_destroy(plan);
    for (int64_t memory = 2 * needs; found; memory = memory * 9 / 10) {
        const neo_status status = plan_within(memory, 0, &plan);
        int64_t of = 0;
        if (status != NEO_OK) { /* a batch alone has no room, without a copy */
            CHECK_ERR(status, NEO_ERR_CAPACITY, "a batch of these tables needs");
            CHECK(!strstr(neo_last_error(), "has a copy"));
            found = 0;
            continue;
        }
        for (int t = 0; t < 4; t++)
            of += neo_plan_placement(plan, t) == NEO_DATA_PARALLEL ? rows[t] : 0;
        CHECK(held(plan) <= memory);
        fewest = of;
        if (memory == 2 * needs) CHECK(of > 0);
        neo_plan_destroy(plan);
    }
    CHECK_INT(fewest, 0);
    model_free();
}

/* ---- training: rows of batches to come are read ahead, on one rank and on several ---- */
static struct {
    int depth; /* 0: no tier */
    neo_placement placement;
    int64_t ahead;
    uint32_t sum;
} trained;
enum { STEPS = 24 };
static neo_status train_on_rank(neo_comm *comm, void *user) {
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), n = BATCH / ranks;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_bags_desc bags = m.bags;
    neo_plan_desc desc = m.plan;
    char path[3100];
    const int64_t memory = ranks == 1 ? 1300000 : ranks == 2 ? 800000 : 620000;
    neo_tier_desc tier_desc = {path, memory, NEO_EVICT_LRU, 0, 2, trained.depth, 0, 0};
    neo_tier *tier = NULL;
    neo_plan *plan;
    neo_shard *shard;
    neo_jagged j[STEPS];
    int64_t told = 1;
    float *rows = malloc(sizeof(float) * 40000 * 16), *out = malloc(sizeof(float) * 64 * BATCH);
    (void)user;
    snprintf(path, sizeof path, "%s.%d", file, rank);
    for (int s = 0; s < STEPS; s++) { /* more ids from the middle on: memory of a shard grows */
        int64_t *id = malloc(sizeof *id * (size_t)m.bags.max_ids), k = 0;
        int64_t *offsets = calloc((size_t)(4 * n + 1), sizeof *offsets);
        memset(&j[s], 0, sizeof j[s]);
        for (int i = 0; i < 4 * n; offsets[++i] = k)
            for (int q = 0; q < (s < STEPS / 2 ? (IDS[i / n] + 1) / 2 : IDS[i / n]); q++) {
                const int64_t of = (s * BATCH + rank * n + i % n) * 32 + 8 * (i / n) + q;
                const uint64_t x = (uint64_t)of * 0x9E3779B97F4A7C15u >> 20;
                id[k++] = (int64_t)(x >> 1) % (x & 1 ? ROWS[i / n] : ROWS[i / n] / 40);
            }
        j[s].batch = n, j[s].feature_count = 4, j[s].id_dtype = NEO_I64;
        j[s].offsets = offsets, j[s].ids = id;
    }
    if (trained.depth) NEO__TRY(neo_tier_create(ctx, &tier_desc, &tier));
    bags.tier = tier;
    desc.bags = &bags;
    desc.cluster.ranks = ranks;
    desc.pipeline = trained.depth ? trained.depth : 1;
    NEO__TRY(neo_plan_create_uniform(ctx, &desc, trained.placement, &plan));
    NEO__TRY(neo_shard_create(comm, plan, &shard));
    const neo_tensor t = neo_tensor_2d(out, NEO_F32, n, 64);
    for (int s = 0; s < STEPS; s++) {
        const int64_t until = s + desc.pipeline;
        NEO__TRY(neo_shard_forward_begin(shard, &j[s], BATCH));
        for (; told < STEPS && told <= until && s % 2; told++)
            NEO__TRY(neo_shard_prefetch(shard, &j[told], BATCH));
        NEO__TRY(neo_shard_forward_end(shard, t));
        for (int i = 0; i < 64 * n; i++) out[i] = 0.1f * out[i] + 0.01f;
        for (; told < STEPS && told <= until; told++)
            NEO__TRY(neo_shard_prefetch(shard, &j[told], BATCH));
        NEO__TRY(neo_shard_backward_begin(shard, t));
        NEO__TRY(neo_shard_backward_end(shard, 0.1f));
    }
    uint32_t sum = 0;
    for (int32_t k = 0; k < 4; k++) {
        NEO__TRY(neo_shard_get_rows(shard, k, 0, ROWS[k], NEO_EVERY_RANK, rows));
        sum = neo_crc32c(sum, rows, sizeof(float) * 16 * (size_t)ROWS[k]);
    }
    if (rank == 0) trained.sum = sum;
    if (tier) {
        const neo_tier_stats s = neo_tier_get_stats(tier);
        __atomic_fetch_add(&trained.ahead, s.prefetched + s.late, __ATOMIC_RELAXED);
    }
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    neo_tier_destroy(tier);
    for (int s = 0; s < STEPS; s++) {
        free((void *)(uintptr_t)j[s].ids);
        free((void *)(uintptr_t)j[s].offsets);
    }
    free(rows), free(out);
    return NEO_OK;
}
static void read_ahead_on_ranks(void) {
    static const neo_placement placements[] = {NEO_TABLE_WISE, NEO_ROW_WISE, NEO_COLUMN_WISE};
    uint32_t want = 0;
    model_make(BATCH, 16, 4, ROWS, IDS);
    for (int t = 0; t < 4; t++) m.table[t].row_buckets = 4;
    m.table[0].optim.kind = NEO_BAG_ADAGRAD;
    for (int t = 0; t < 4; t++) m.ids[t] /= 2.0; /* that are planned for */
    static const int depths[16] = {0, 3, 3, 1, 1, 1, 1, 1, 1, 1, 3, 2, 4, 5, 6, 2};
    for (int n = 0; n < 16; n++) {
        neo_comm_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.ctx.repro_shards = 4;
        desc.ctx.threads = 1;
        desc.timeout_ms = TEST_PATIENCE_MS;
        memset(&trained, 0, sizeof trained);
        trained.depth = depths[n];
        trained.placement = placements[n % 3];
        const int ranks = n < 4 ? 1 : n < 7 || n > 12 ? 2 : 4;
        CHECK_OK(neo_comm_spawn(ranks, &desc, train_on_rank, NULL, NULL));
        if (n == 0) want = trained.sum;
        CHECK(trained.sum == want);
        CHECK((n > 0) == (trained.ahead > 50));
    }
    model_free();
}

/* Nothing is looked up, or only in one table: shares are still shares, of all that memory has. */
static void unused(void) {
    neo_tier_desc desc = {file, 900000, NEO_EVICT_LRU, 0, 1, 0, 0, 0};
    for (int n = 0; n < 4; n++) {
        neo_plan *plan = NULL;
        model_make(BATCH, 16, 4, ROWS, IDS);
        for (int t = 0; t < 4; t++) m.ids[t] = t == 1 && n % 2 ? 2.0 : 0.0;
        m.plan.skew = n / 2 ? 0.0 : 1.05;
        if (n / 2) m.plan.profile = m.profile; /* of no batch */
        CHECK_OK(neo_tier_create(m.ctx, &desc, &m.tier));
        m.bags.tier = m.tier;
        CHECK_OK(neo_plan_create(m.ctx, &m.plan, &plan));
        for (int t = 0; plan && t < 4; t++) {
            const neo_plan_tier x = neo_plan_tier_of(plan, t);
            CHECK(x.rows >= 1.0 && x.hits >= 0.0 && x.hits <= 1.0);
            CHECK(inside_tier_share(plan, t) >= 1.0 && inside_tier_share(plan, t) <= 1e9);
        }
        if (plan && n == 1) CHECK(inside_tier_share(plan, 1) > 100.0 * inside_tier_share(plan, 0));
        neo_plan_destroy(plan);
        neo_tier_destroy(m.tier);
        model_free();
    }
}

/* ---- rows by use against whole tables, on histograms of production's ----
   They do not say how many rows were not used: here 19 of 20. With none there would be no gain of
   50: the mean use of a row is 6.9 or 12.7, the least 1. */
enum { BINS = USE_BINS, UNUSED = 20, WIDE = 64 };
static int set; /* of USE_SETS */
/* Rows used of each table, and ids of a bag: tables that are used little and much. */
static const int64_t USED[TABLES] = {9000, 4000, 12000, 2000, 6000, 15000};
static const int USES[TABLES] = {3, 4, 2, 6, 12, 9};
static int64_t bin_first[TABLES][BINS + 1];
static int64_t draw_bins(int t) {
    double u = uniform(), ids = 0.0;
    int k = 0;
    for (ids = USE_SETS[set].of_ids[0]; k < BINS - 1 && u >= ids;) ids += USE_SETS[set].of_ids[++k];
    const int64_t first = bin_first[t][k], rows = bin_first[t][k + 1] - first;
    return (first + (int64_t)(uniform() * (double)rows)) * 1000003 % (UNUSED * USED[t]);
}
static void make_bins(void) {
    for (int t = 0; t < TABLES; t++) {
        double rows = 0.0;
        for (int k = 0; k < BINS; k++) {
            const double few = USE_SETS[set].of_ids[k] * USE_SETS[set].mean_use / (0.75 * (1 << k));
            const double each = k < 10 ? USE_SETS[set].of_rows[k] : few;
            rows += each * (double)USED[t];
            bin_first[t][k + 1] = (int64_t)fmax(rows, (double)bin_first[t][k] + 1.0);
        }
    }
}
/* Share of ids of the tables that are in the file where tables lie in one place as a whole, those
   that are used most for their bytes in memory. */
static double whole_tables(int64_t memory) {
    int placed[TABLES] = {0};
    double ids = 0.0, all = 0.0;
    for (int n = 0; n < TABLES; n++) {
        int best = -1;
        for (int t = 0; t < TABLES; t++)
            if (!placed[t] && (best < 0 || (double)USES[t] / (double)USED[t] >
                                               (double)USES[best] / (double)USED[best]))
                best = t;
        const int64_t bytes = UNUSED * USED[best] * WIDE * (int64_t)sizeof(float);
        placed[best] = 1;
        all += USES[best];
        if (bytes > memory) ids += USES[best];
        else memory -= bytes;
    }
    return ids / all;
}
/* The same where memory holds the rows that the law uses most, and nothing else: no cache, and no
   plan of rows, leaves less. Where memory is less than the rows used, those used a few times are
   what is missing, and which of them are used more no profile of this length tells. */
static double best_rows(int64_t memory) {
    int placed[TABLES][BINS] = {{0}};
    double left = (double)memory / (WIDE * sizeof(float)), ids = 0.0, all = 0.0;
    for (int n = 0; n < TABLES * BINS; n++) {
        double best = -1.0, rows = 0.0;
        int to[2] = {0, 0};
        for (int t = 0; t < TABLES; t++)
            for (int k = 0; k < BINS; k++) {
                const double has = (double)(bin_first[t][k + 1] - bin_first[t][k]);
                const double use = USES[t] * USE_SETS[set].of_ids[k] / has;
                if (!placed[t][k] && use > best) best = use, rows = has, to[0] = t, to[1] = k;
            }
        placed[to[0]][to[1]] = 1;
        ids += best * fmax(rows - left, 0.0);
        left = fmax(left - rows, 0.0);
    }
    for (int t = 0; t < TABLES; t++) all += USES[t];
    return ids / all;
}
static void rows_by_use(void) {
    int64_t rows[TABLES], bytes = 0;
    for (int t = 0; t < TABLES; t++) rows[t] = UNUSED * USED[t];
    for (int t = 0; t < TABLES; t++) bytes += rows[t] * WIDE * (int64_t)sizeof(float);
    for (int n = TEST_WATCHED ? 3 : 0; n < 2 * USE_SET_COUNT; n++) {
        const int percent = n % 2 ? 6 : 4;
        if (n == 2 && !getenv("NEO_FULL")) continue;
        set = n / 2;
        make_bins();
        model_make(32, WIDE, TABLES, rows, USES);
        count_profile(draw_bins, 1500);
        const int64_t memory = bytes * percent / 100;
        const counted c = run_tier(NEO_EVICT_LFU, memory, 1, draw_bins, 1800, 300);
        const double whole = whole_tables(memory), times = whole / fmax(c.misses, 1e-9);
        printf("  %d, memory of %d %% of the rows: ids in the file %.3f by whole tables, %.5f by "
               "rows (predicted %.5f): 1/%.0f; by the best rows %.5f\n", USE_SETS[set].year,
               percent, whole, c.misses, c.predicted, times, best_rows(memory));
        CHECK(!(times < (percent > 4 ? 50.0 : 20.0)));
        model_free();
    }
}

int main(int argc, char **argv) {
    (void)argc;
    snprintf(file, sizeof file, "%s.rows", argv[0]);
    snprintf(text_file, sizeof text_file, "%s.profile", argv[0]);
    RUN(counts);
    RUN(bad_files);
    RUN(ranks);
    RUN(copies);
    RUN(named_bytes_are_enough);
    RUN(read_ahead_on_ranks);
    RUN(unused);
    if (TEST_WATCHED < 2) { /* figures of one thread */
        RUN(hits);
        RUN(rows_by_use);
    }
    unlink(text_file);
    return test_end("tiers");
}
