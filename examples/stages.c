/* stages.c: two models behind one another, as in ranking: a cheap one scores all candidates, a dear
   one those that the first finds best. Candidates are lines of the training format.

     make build/dlrm build/stages
     a=examples/data/adult/adult; data="--format adult --data $a.data"
     build/dlrm $data --model lr --checkpoint build/cheap
     build/dlrm $data --dim 16 --epochs 3 --optimizer adagrad --checkpoint build/dear
     build/stages build/cheap build/dear 1000 5 <$a.test

   build/neo.a has no neo_serve.h in it; by hand, with an implementation of its own:

     cc -O2 -I. -DNEO_INFERENCE -DNEO_IMPLEMENTATION examples/stages.c -o build/stages \
         -lm -lpthread
   Expect five lines, each the number of a candidate and its probability by the dear model, the
   largest first, and behind them how many each model has scored: 16281 and 1000. */
#include "neo_serve.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 256 };
#define DO(call) do if (call) return fprintf(stderr, "stages: %s\n", neo_last_error()), 1; while (0)

typedef struct candidate {
    int64_t number;     /* of its line, from 1 */
    size_t begin, size; /* of its text */
    float score;
} candidate;
typedef struct stage {
    neo_model *model;
    neo_scratch *scratch;
    int64_t scored;
} stage;
static struct {
    char *text;
    size_t size;
    candidate *list;
    size_t count;
} all;

static int open_stage(const char *dir, stage *s) {
    DO(neo_model_load(&(neo_model_desc){.dir = dir}, &s->model));
    DO(neo_scratch_create(s->model, &(neo_scratch_desc){.max_batch = BATCH}, &s->scratch));
    if (neo_model_get_info(s->model).outputs == 1) return 0;
    return fprintf(stderr, "stages: %s: has several labels\n", dir), 1;
}
static void close_stage(stage *s) {
    neo_scratch_destroy(s->scratch);
    neo_model_free(s->model);
}

/* The whole of standard input, and where its lines are. */
static int read_candidates(void) {
    size_t room = 0, lines = 0;
    for (size_t n = 1; n > 0; all.size += n) {
        if (all.size == room && !(all.text = realloc(all.text, room = room ? 2 * room : 1 << 20)))
            return fprintf(stderr, "stages: no memory\n"), 1;
        n = fread(all.text + all.size, 1, room - all.size, stdin);
    }
    for (size_t i = 0; i < all.size; i++) lines += all.text[i] == '\n';
    if (!(all.list = calloc(lines + 1, sizeof *all.list)))
        return fprintf(stderr, "stages: no memory\n"), 1;
    for (size_t begin = 0, end; begin < all.size; begin = end + 1) {
        for (end = begin; end < all.size && all.text[end] != '\n';) end++;
        all.list[all.count] = (candidate){(int64_t)all.count + 1, begin, end - begin, 0};
        all.count++;
    }
    return 0;
}

/* Scores the first `count` candidates of the list. */
static int score(stage *s, size_t count) {
    float out[BATCH];
    for (size_t i = 0; i < count;) {
        int64_t n = 0;
        neo_scratch_clear(s->scratch);
        for (; n < BATCH && i + (size_t)n < count; n++) {
            const candidate *c = &all.list[i + (size_t)n];
            neo_status status = neo_scratch_add_line(s->scratch, all.text + c->begin, c->size);
            if (status == NEO_ERR_CAPACITY && n) break; /* of ids: with the next batch */
            if (status)
                return fprintf(stderr, "stages: line %lld: %s\n", (long long)c->number,
                               neo_last_error()), 1;
        }
        DO(neo_scratch_predict(s->scratch, out));
        for (int64_t k = 0; k < n; k++) all.list[i + (size_t)k].score = out[k];
        i += (size_t)n, s->scored += n;
    }
    return 0;
}

/* The best first, of equal ones the first line. */
static int by_score(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return a->number < b->number ? -1 : 1;
}
static int whole(const char *text, size_t *number) {
    char *end;
    *number = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static int find_best(stage *cheap, stage *dear, size_t kept, size_t shown) {
    if (score(cheap, all.count)) return 1;
    qsort(all.list, all.count, sizeof *all.list, by_score);
    if (kept > all.count) kept = all.count;
    if (score(dear, kept)) return 1;
    qsort(all.list, kept, sizeof *all.list, by_score);
    for (size_t i = 0; i < kept && i < shown; i++)
        printf("%lld %.9g\n", (long long)all.list[i].number, (double)all.list[i].score);
    printf("scored: %lld by %s, %lld by %s\n", (long long)cheap->scored,
           neo_model_get_info(cheap->model).kind, (long long)dear->scored,
           neo_model_get_info(dear->model).kind);
    return 0;
}

int main(int argc, char **argv) {
    stage cheap = {0}, dear = {0};
    size_t kept, shown;
    if (argc != 5 || !whole(argv[3], &kept) || !whole(argv[4], &shown))
        return fprintf(stderr, "stages CHEAP DEAR KEPT SHOWN <lines\n"), 2;
    int failed = open_stage(argv[1], &cheap) || open_stage(argv[2], &dear) || read_candidates() ||
                 find_best(&cheap, &dear, kept, shown);
    close_stage(&cheap), close_stage(&dear);
    free(all.list), free(all.text);
    return failed;
}
