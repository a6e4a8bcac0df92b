/* plan.c: plan files. One that is accepted has every element of every table
   once, and its pieces make the same plan again. And profiles: groups of one that is accepted are
   of rows that its tables have, in falling order. */

static const fuzz_seed plan_seeds[] = {
    FUZZ_TEXT(
        "neo-plan 1\nranks 4 2\ntable a 100x64 grid 0-1/2-3\ntable b 10x20 dp\ntable c 7x5 tw 3\n"),
    FUZZ_TEXT(
        "neo-plan 1\nranks 4 2\ntable a 100x64 pieces 3\npiece 0 0+100 0+16\npiece 1 0+25 16+48\n"
        "piece 3 25+75 16+48\ntable b 10x20 tw 0\ntable c 7x5 rw 0,2-3\n"),
    FUZZ_TEXT("# a plan\r\nneo-plan 1\r\nranks 4 2\r\ntable %61 100x64 cw 3,2,1\ntable b 10x20 cw "
              "0,1\ntable c 7x5 dp\n"),
    FUZZ_TEXT("neo-profile 1\ntable a 100 1:900 3:900 50:50 # most\ntable %62 10\ntable c 7 7:8\n"),
};

static void fuzz_profile(neo_ctx *ctx, char *text, size_t size) {
    neo_profile *profile = NULL;
    NEO__ZERO(neo__arena, work);
    work.ctx = ctx;
    FUZZ_CHECK(neo__profile_new(ctx, "fuzz", &profile) == NEO_OK);
    const neo_status st = neo__profile_parse(profile, &work, "profile", text, size);
    FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT);
    for (int32_t t = 0; st == NEO_OK && t < profile->tables; t++) {
        int64_t count, rows, ids, used = 0, sum = 0;
        const neo_row_use *use =
            neo_profile_uses(profile, profile->table[t].name, &count, &rows, &ids);
        FUZZ_CHECK(use && rows > 0);
        for (int64_t i = 0; i < count; i++) used += use[i].rows, sum += use[i].ids;
        FUZZ_CHECK(used <= rows && sum == ids && sum >= used);
    }
    neo__arena_free(&work);
    neo_profile_destroy(profile);
}

static neo_plan_desc fuzz_desc(void) {
    static neo_table_desc tables[3];
    static neo_bags_desc bags;
    static const char *const names[] = {"a", "b", "c"};
    static const int64_t shapes[3][2] = {{100, 64}, {10, 20}, {7, 5}};
    NEO__ZERO(neo_plan_desc, d);
    for (int i = 0; i < 3; i++) {
        tables[i].name = names[i];
        tables[i].rows = shapes[i][0];
        tables[i].dim = shapes[i][1];
        tables[i].row_buckets = 4 - i;
    }
    bags.tables = tables;
    bags.table_count = 3;
    bags.max_batch = bags.max_ids = 16;
    d.bags = &bags;
    d.cluster.ranks = 4;
    d.cluster.ranks_per_node = 2;
    return d;
}
static void fuzz_check(const neo_plan *plan) {
    int64_t count;
    const neo_piece *p = neo_plan_pieces(plan, &count);
    for (int32_t t = 0; t < 3; t++) {
        static uint8_t seen[100][64];
        int64_t area = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < count; i++) {
            if (p[i].table != t) continue;
            area += p[i].rows * p[i].cols;
            for (int64_t r = p[i].first_row; r < p[i].first_row + p[i].rows; r++)
                for (int64_t c = p[i].first_col; c < p[i].first_col + p[i].cols; c++)
                    FUZZ_CHECK(!seen[r][c]++);
        }
        FUZZ_CHECK(area == plan->table[t].rows * plan->table[t].dim);
    }
}
static int plan_input(const uint8_t *data, size_t size) {
    neo_ctx *ctx = fuzz_ctx();
    neo_plan_desc d = fuzz_desc();
    neo_plan *plan = NULL, *again = NULL;
    if (size > 16384) return 0;
    char *text =
        (char *)malloc(size + 1); /* the reader is given a NUL behind the text, and no byte more */
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = 0;
    if (strncmp(text, "neo-profile", 11) == 0) {
        fuzz_profile(ctx, text, size);
        free(text);
        return 0;
    }
    FUZZ_CHECK(neo__plan_new(ctx, &d, "fuzz", &plan) == NEO_OK);
    neo_status st = neo__plan_parse(plan, "plan", text, size);
    FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT || st == NEO_ERR_MISMATCH || st == NEO_ERR_ARG);
    FUZZ_CHECK(st == NEO_OK || strlen(neo_last_error()) > 0);
    if (st == NEO_OK) {
        const neo_piece *p;
        int64_t count;
        fuzz_check(plan);
        p = neo_plan_pieces(plan, &count);
        FUZZ_CHECK(neo_plan_create_from(ctx, &d, p, count, &again) == NEO_OK);
        FUZZ_CHECK(neo_plan_digest(plan) == neo_plan_digest(again));
        neo_plan_destroy(again);
    }
    neo_plan_destroy(plan);
    free(text);
    return 0;
}
