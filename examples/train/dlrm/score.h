/* score.h: --evict score: a key whose samples had the smallest sum of labels leaves first. After a
   batch the ranks tell each other the keys of their samples whose label is not 0, and what each
   adds to its score, 12 bytes each: all add the same numbers, in the order of the samples, on any
   ranks. */
#ifndef DLRM_SCORE_H
#define DLRM_SCORE_H
#include "step.h"

/* Room for twice as many keys of a table: of this rank, and of all. */
static neo_status grow_scores(key_scores *s, int64_t need) {
    for (int i = 0; i < 2; i++) {
        free(s->keys[i]), free(s->worth[i]);
        s->keys[i] = malloc((size_t)(2 * need) * sizeof *s->keys[i]);
        s->worth[i] = malloc((size_t)(2 * need) * sizeof *s->worth[i]);
        if (!s->keys[i] || !s->worth[i]) return out_of_memory();
    }
    s->room = 2 * need;
    return NEO_OK;
}
static void destroy_scores(key_scores *s) {
    for (int i = 0; i < 2; i++) free(s->keys[i]), free(s->worth[i]);
    free(s->counts);
}

/* What a sample adds: its labels, times their weights as in the loss; those of the host. */
static float worth_of(const model *m, const neo_batch *batch, int64_t sample) {
    const float *label = m->tasks > 1 ? m->task_label : batch->label.data;
    const float *weight = m->tasks > 1 ? m->task_weight : batch->weight.data;
    float sum = 0;
    for (int64_t i = sample * m->tasks; i < (sample + 1) * m->tasks; i++)
        sum += weight ? label[i] * weight[i] : label[i];
    return sum;
}
/* The keys of table t in this rank's samples; returns how many. keys NULL: counts them alone. A sum
   that is no number (0 inf) adds nothing: the check of the loss tells of it. */
static int64_t list_keys(const model *m, const neo_batch *batch, int32_t t, uint64_t *keys,
                         float *worth) {
    const neo_jagged *j = &batch->sparse;
    const int64_t *ids = j->ids;
    int64_t n = 0;
    for (int64_t i = 0; i < batch->size; i++) {
        const float add = worth_of(m, batch, i);
        int64_t bag = t * batch->size + i;
        if (j->inverse) bag = j->feature_bags[t] + j->inverse[bag];
        for (int64_t k = j->offsets[bag]; (add < 0 || add > 0) && k < j->offsets[bag + 1]; k++, n++)
            if (keys) keys[n] = (uint64_t)ids[k], worth[n] = add;
    }
    return n;
}
/* The keys of table t in the samples of all ranks; each: of each rank. */
static int64_t count_keys(const key_scores *s, int32_t tables, int32_t t, int ranks,
                          int64_t *each) {
    int64_t all = 0;
    for (int r = 0; r < ranks; r++) all += each[r] = s->counts[(int64_t)r * tables + t];
    return all;
}
/* After a batch has trained: its new keys have rows. Collective. */
static neo_status score_keys(model *m, const neo_batch *batch) {
    key_scores *s = &m->scores;
    const int32_t tables = neo_schema_feature_count(m->schema);
    const int ranks = neo_comm_size(m->comm), rank = neo_comm_rank(m->comm);
    if (!s->on) return NEO_OK;
    if (!s->counts) {
        s->counts = calloc((size_t)(tables + 1) * (size_t)ranks, sizeof *s->counts);
        TRY(neo_comm_agree(m->comm, s->counts ? NEO_OK : out_of_memory()));
    }
    int64_t *each = s->counts + (int64_t)tables * ranks, *mine = s->counts + (int64_t)rank * tables;
    int64_t most = 1;
    for (int32_t t = 0; t < tables; t++) mine[t] = list_keys(m, batch, t, NULL, NULL);
    TRY(neo_comm_all_gather(m->comm, mine, s->counts, tables, NULL, NEO_I64, NULL));
    for (int32_t t = 0; t < tables; t++) {
        const int64_t all = count_keys(s, tables, t, ranks, each);
        most = all > most ? all : most;
    }
    if (most > s->room) TRY(neo_comm_agree(m->comm, grow_scores(s, most)));
    for (int32_t t = 0; t < tables; t++) {
        const int64_t all = count_keys(s, tables, t, ranks, each);
        list_keys(m, batch, t, s->keys[0], s->worth[0]);
        TRY(neo_comm_all_gather(m->comm, s->keys[0], s->keys[1], 0, each, NEO_I64, NULL));
        TRY(neo_comm_all_gather(m->comm, s->worth[0], s->worth[1], 0, each, NEO_F32, NULL));
        TRY(neo_shard_score_keys(m->tables, t, s->keys[1], s->worth[1], all));
    }
    return NEO_OK;
}
#endif
