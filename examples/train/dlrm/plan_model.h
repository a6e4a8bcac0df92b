/* plan_model.h: --save-plan-model: the batch, the layers and the tables as a model file of
   build/plan, whose format examples/plan/read.h has. */
#ifndef DLRM_PLAN_MODEL_H
#define DLRM_PLAN_MODEL_H
#include "describe.h"

/* As in the files of plans and profiles. */
static void put_name(FILE *f, const char *name) {
    for (; *name; name++) {
        const int c = (unsigned char)*name;
        fprintf(f, c <= ' ' || c == 127 || strchr("\"#%", c) ? "%%%02X" : "%c", c);
    }
}
static void put_unit(FILE *f, const neo_dense_unit *u) {
    if (!(u->flops > 0)) return;
    fprintf(f, "unit %s %s", u->name, u->after ? "after" : "beside");
    for (int32_t i = 0; i < u->width_count; i++)
        fprintf(f, "%c%lld", i ? '-' : ' ', (long long)u->widths[i]);
    if (u->dots[0]) fprintf(f, " dots=%lldx%lld", (long long)u->dots[0], (long long)u->dots[1]);
    else if (!u->width_count)
        fprintf(f, " flops=%.9g params=%lld", u->flops, (long long)u->params);
    fprintf(f, "\n");
}
static void put_table(FILE *f, const neo_table_desc *t, double ids) {
    fprintf(f, "table ");
    put_name(f, t->name);
    fprintf(f, " %lldx%lld %.9g", (long long)t->rows, (long long)t->dim, ids);
    if (t->row_buckets > 1) fprintf(f, " buckets=%d", (int)t->row_buckets);
    if (t->dtype != NEO_F32) fprintf(f, " dtype=%s", neo_dtype_name(t->dtype));
    fprintf(f, "\n");
}
/* The samples of the training data, and ids: [tables], and of all tables those that are sent. */
typedef struct counted {
    int64_t samples, *ids, sent;
} counted;
static neo_status write_plan_model(const model *m, const options *o, const neo_bags_desc *bags,
                                   const counted *c) {
    double all = 0;
    int64_t widths[MLPS][MOST_WIDTHS];
    neo_dense_unit units[UNITS];
    FILE *f = fopen(o->save_plan_model, "wb");
    const int open_error = errno;
    describe_units(m, bags->table_count, widths, units);
    if (f) {
        fprintf(f, "# dlrm --model %s: ids are those of %lld samples\nbatch %lld\n", o->model,
                (long long)c->samples, (long long)o->batch);
        for (int i = 0; i < UNITS; i++) put_unit(f, &units[i]);
        fprintf(f, "wire %s %s\n", o->wire_forward, o->wire_backward);
        if (neo_schema_is_weighted(m->schema)) fprintf(f, "weighted on\n");
        for (int32_t t = 0; t < bags->table_count; t++) all += (double)c->ids[t];
        if (o->dedup && c->sent)
            fprintf(f, "distinct %.9g\n", o->distinct > 0 ? o->distinct : (double)c->sent / all);
        if (bags->table_count)
            fprintf(f, "optimizer %s\n", OPTIMIZERS[bags->tables[0].optim.kind]);
        for (int32_t t = 0; t < bags->table_count; t++)
            put_table(f, &bags->tables[t], (double)c->ids[t] / (double)(c->samples + !c->samples));
    }
    int lost = !f || ferror(f) != 0, error = f ? 0 : open_error;
    if (f && fclose(f) != 0) lost = 1, error = errno;
    if (!lost) return NEO_OK;
    return neo_fail(NEO_ERR_IO, "--save-plan-model: %s%s", o->save_plan_model, why_lost(error));
}
#endif
