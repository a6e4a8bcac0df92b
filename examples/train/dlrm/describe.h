/* describe.h: model.json of the checkpoints: layers and schema, from which neo_model_load
   (neo_serve.h) makes the model again. */
#ifndef DLRM_DESCRIBE_H
#define DLRM_DESCRIBE_H
#include "eval.h"

/* "bottom": [13, 64, 16]: the widths of an MLP, by the shapes of its weights. Returns the end. */
static char *put_widths(char *p, const neo_params *params, const char *mlp) {
    char name[64];
    for (int i = 0;; i += 2) {
        snprintf(name, sizeof name, "%s.%d.weight", mlp, i);
        const neo_param *w = neo_params_find(params, name);
        if (!w) break;
        if (!i)
            p += sprintf(p, ",\n \"%s\": [%lld", mlp[0] == 't' ? "top" : "bottom",
                         (long long)w->value.shape[1]);
        p += sprintf(p, ", %lld", (long long)w->value.shape[0]);
    }
    return p + sprintf(p, "]");
}

/* The text, of malloc; NULL: there is no memory. */
static char *describe_model(const model *m, const options *o) {
    char coded[8];
    snprintf(coded, sizeof coded, "i%d", (int)o->checkpoint_bits);
    size_t schema = neo_schema_describe(m->schema, NULL, 0);
    const size_t features = (size_t)neo_schema_feature_count(m->schema);
    char *text = malloc(schema + 4096 + 40 * features), *p = text;
    const char *size = m->cross ? o->cross ? o->cross : CROSS : o->wukong ? o->wukong : WUKONG;
    const neo_param *v = neo_params_find(m->params[TOP], "cross.V_kernels.0");
    const char *second = strchr(size, 'x');
    neo_keys keys;
    if (!text || parse_keys(o, &keys) != NEO_OK) return free(text), NULL;
    p += sprintf(p, "{\"neo_model\": 1,\n \"model\": \"%s\", \"dim\": %lld, \"dtype\": \"%s\",\n "
                    "\"rows_dtype\": \"%s\", \"row_buckets\": %d", o->model, (long long)o->dim,
                 o->dtype, o->checkpoint_bits ? coded : o->rows_dtype, (int)row_buckets(m->ctx, o));
    if (o->keys)
        p += sprintf(p, ",\n \"keys\": {\"rows\": %lld, \"evict\": \"%s\", \"period\": %lld, "
                        "\"seed\": %llu}", (long long)o->key_rows, EVICT_NAMES[keys.evict],
                     (long long)keys.period,
                     (unsigned long long)neo_ctx_seed(m->ctx));
    for (int c = 0; c < CLASSES; c++) {
        for (size_t t = 0; t < m->hot.tables && (c == HOT || m->hot.warm); t++)
            p += sprintf(p, "%s%lld", t ? ", " : c == HOT ? ",\n \"hot_rows\": ["
                                                          : ",\n \"warm_rows\": [",
                         (long long)m->hot.count[c][t]);
        if (m->hot.tables && (c == HOT || m->hot.warm)) p += sprintf(p, "]");
    }
    for (int32_t t = 0; m->tower && t < neo_schema_feature_count(m->schema); t++)
        p += sprintf(p, "%s%d", t ? ", " : ",\n \"towers\": [", (int)m->tower[t]);
    if (m->tower) p += sprintf(p, "]");
    p = put_widths(p, m->params[BOTTOM], m->kind->bottom);
    if (m->top) p = put_widths(p, m->params[TOP], "top");
    if (m->cross)
        p += sprintf(p, ",\n \"cross\": {\"layers\": %ld, \"rank\": %lld}", strtol(size, NULL, 10),
                     v ? (long long)v->value.shape[0] : 0);
    if (m->wukong)
        p += sprintf(p, ",\n \"wukong\": {\"layers\": %ld, \"hidden\": %ld}",
                     strtol(size, NULL, 10), strtol(second + 1, NULL, 10));
    p += sprintf(p, ",\n \"schema\": ");
    p += neo_schema_describe(m->schema, p, schema + 1);
    (void)strcpy(p, "}\n");
    return text;
}
#endif
