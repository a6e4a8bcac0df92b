/* diff.c: where the bits of two runs part. Reads what dlrm or gpt wrote with --digests PREFIX (a
   file for each rank) of both, on any number of ranks each, and names the first step and tensor
   that differ.

     cc -O2 examples/diff.c -o build/diff
     build/dlrm --synthetic 20000 --digests a && build/dlrm --synthetic 20000 --lr 0.02 --digests b
     build/diff a b

   Exit status 0: all common steps are equal; 1: they are not; 2: a file cannot be used. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 4096, LINE_BYTES = 4096, NAME_BYTES = 256 };

/* A tensor after a step, or a part of it, as one rank has it. */
typedef struct record {
    long long step;
    int rank, is_part, order; /* order: its line in the rank's step */
    uint64_t digest;
    char name[NAME_BYTES];
} record;
typedef struct run {
    const char *prefix;
    record *records; /* sorted by step, name, rank */
    size_t count, capacity;
    int ranks;
} run;

static void die(const char *path, long long line, const char *what) {
    if (line) fprintf(stderr, "diff: %s:%lld: %s\n", path, line, what);
    else fprintf(stderr, "diff: %s: %s\n", path, what);
    exit(2);
}

static void add(run *r, record one) {
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 1024;
        r->records = realloc(r->records, r->capacity * sizeof *r->records);
        if (!r->records) die(r->prefix, 0, "no memory");
    }
    r->records[r->count++] = one;
}

/* A line that a killed run left half is the last one, and is not read. */
static void read_rank(run *r, FILE *f, const char *path, int rank) {
    char line[LINE_BYTES], kind[8];
    long long number = 0, last_step = -1;
    int order = 0;
    while (fgets(line, sizeof line, f)) {
        record one = {.rank = rank};
        unsigned long long digest;
        size_t bytes = strlen(line);
        number++;
        if (!bytes || (line[bytes - 1] != '\n' && !feof(f)))
            die(path, number, bytes ? "the line is too long" : "is no text");
        if (line[bytes - 1] != '\n') break;
        if (sscanf(line, "%lld %7s %16llx %255s", &one.step, kind, &digest, one.name) != 4 ||
            (strcmp(kind, "whole") && strcmp(kind, "part")) || strlen(one.name) == NAME_BYTES - 1)
            die(path, number, "expected: step, whole or part, digest, name");
        one.is_part = kind[0] == 'p';
        one.digest = digest;
        one.order = order = one.step == last_step ? order + 1 : 0;
        last_step = one.step;
        add(r, one);
    }
    if (ferror(f)) die(path, 0, "cannot be read");
}
static int compare(const void *x, const void *y) {
    const record *a = x, *b = y;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    int names = strcmp(a->name, b->name);
    return names ? names : a->rank - b->rank;
}

static run read_run(const char *prefix) {
    char path[LINE_BYTES];
    run r = {.prefix = prefix};
    for (; r.ranks < RANKS_MAX; r.ranks++) {
        snprintf(path, sizeof path, "%s.%d", prefix, r.ranks);
        FILE *f = fopen(path, "r");
        if (!f) break;
        read_rank(&r, f, path, r.ranks);
        fclose(f);
    }
    snprintf(path, sizeof path, "%s.0", prefix);
    if (!r.count)
        die(path, 0, r.ranks ? "is empty" : "cannot be opened; --digests PREFIX writes PREFIX.0");
    qsort(r.records, r.count, sizeof *r.records, compare);
    return r;
}

/* A tensor after a step, records of one name: the sum of its parts; of a whole one, the first
   rank's. */
typedef struct tensor {
    const record *first;
    size_t count;
    uint64_t digest;
    int odd; /* a rank that has other bits than the first; or -1 */
} tensor;
static tensor next_tensor(const run *r, size_t *at) {
    tensor t = {.first = &r->records[*at], .odd = -1};
    for (; *at < r->count; ++*at, t.count++) {
        const record *one = &r->records[*at];
        if (one->step != t.first->step || strcmp(one->name, t.first->name)) break;
        if (one->is_part || t.count == 0) t.digest += one->digest;
        else if (one->digest != t.first->digest && t.odd < 0) t.odd = one->rank;
    }
    return t;
}

typedef struct finding {
    long long step, last_equal; /* the first step that differs, and the last one before */
    int steps, tensors, differ; /* common steps; tensors of that step, and those that differ */
    int order;                  /* of the tensor that stands first in its rank's list */
    tensor a, b;                /* count 0: this run lacks it */
} finding;

static void note(finding *f, tensor a, tensor b) {
    const record *first = a.count ? a.first : b.first;
    const int same = a.count && b.count && a.digest == b.digest && a.odd < 0 && b.odd < 0;
    if (f->step >= 0 && first->step > f->step) return;
    f->tensors++;
    if (same) return;
    f->differ++;
    if (f->step >= 0 && first->order >= f->order) return;
    f->step = first->step, f->order = first->order;
    f->a = a, f->b = b;
}

/* Steps that both runs have, one after another, tensor by tensor. */
static finding compare_runs(const run *a, const run *b) {
    finding f = {.step = -1, .last_equal = -1};
    size_t i = 0, k = 0;
    while (i < a->count && k < b->count && f.step < 0) {
        const long long step = a->records[i].step;
        while (i < a->count && a->records[i].step < b->records[k].step) i++;
        while (i < a->count && k < b->count && b->records[k].step < a->records[i].step) k++;
        if (i == a->count || k == b->count || a->records[i].step != step) continue;
        f.steps++;
        f.tensors = 0;
        while ((i < a->count && a->records[i].step == step) ||
               (k < b->count && b->records[k].step == step)) {
            const int more_a = i < a->count && a->records[i].step == step,
                      more_b = k < b->count && b->records[k].step == step;
            const int names = more_a && more_b ? strcmp(a->records[i].name, b->records[k].name)
                                               : more_b - more_a;
            tensor x = {0}, y = {0};
            if (names <= 0) x = next_tensor(a, &i);
            if (names >= 0) y = next_tensor(b, &k);
            note(&f, x, y);
        }
        if (f.step < 0) f.last_equal = step;
    }
    return f;
}

static int tell_equal(const finding *f) {
    printf("equal: %d tensors, %d common steps to step %lld\n", f->tensors, f->steps,
           f->last_equal);
    if (f->last_equal == 0)
        printf("  step 0 is what they begin with: --digest-every N writes later ones\n");
    return 0;
}
static void tell(const run *r, const tensor *t) {
    if (!t->count) printf("  %s: has no such tensor\n", r->prefix);
    else if (t->odd >= 0)
        printf("  %s: %016llx on rank %d, other bits on rank %d\n", r->prefix,
               (unsigned long long)t->digest, t->first->rank, t->odd);
    else printf("  %s: %016llx\n", r->prefix, (unsigned long long)t->digest);
}

static int tell_difference(const run *a, const run *b, const finding *f) {
    const tensor *known = f->a.count ? &f->a : &f->b;
    printf("step %lld: %s differs (with it %d of %d tensors)\n", f->step, known->first->name,
           f->differ, f->tensors);
    tell(a, &f->a);
    tell(b, &f->b);
    /* With as many ranks, parts that lie alike show where. */
    for (size_t i = 0; a->ranks == b->ranks && f->a.count == f->b.count && i < f->a.count; i++)
        if (f->a.first[i].is_part && f->a.first[i].rank == f->b.first[i].rank &&
            f->a.first[i].digest != f->b.first[i].digest) {
            printf("  in the part of rank %d\n", f->a.first[i].rank);
            break;
        }
    if (f->last_equal >= 0) printf("  equal to step %lld\n", f->last_equal);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) die("usage", 0, "diff PREFIX PREFIX: what --digests PREFIX of two runs wrote");
    run a = read_run(argv[1]), b = read_run(argv[2]);
    finding f = compare_runs(&a, &b);
    if (!f.steps) die(b.prefix, 0, "has no step that the other has");
    const int status = f.step < 0 ? tell_equal(&f) : tell_difference(&a, &b, &f);
    free(a.records), free(b.records);
    return status;
}
