/* digests.h: --digests PREFIX: after every --digest-every steps a line "<step> <whole or part>
   <digest> <name>" in PREFIX.<rank> for each tensor of the state that the rank holds. build/diff
   (examples/diff.c) reads the files of two runs. */
#ifndef EXAMPLE_DIGESTS_H
#define EXAMPLE_DIGESTS_H
#include "job.h"

static int cli_digests_at(const cli_saves *saves, int64_t step) {
    return saves->digests && step % saves->digest_every == 0;
}
static const char *cli_digests_path(const cli_saves *saves, int rank, char path[4096]) {
    snprintf(path, 4096, "%s.%d", saves->digests, rank);
    return path;
}
static neo_status cli_digests_failed(const char *path, int failed) {
    return failed ? neo_fail(NEO_ERR_IO, "--digests: %s: %s", path, strerror(errno)) : NEO_OK;
}

/* Lines of steps up to `last`; not one that a killed run left half. Returns 1 if one is lost. */
static int cli_digests_copy(FILE *from, FILE *to, int64_t last) {
    char line[4096];
    while (fgets(line, sizeof line, from)) {
        if (!strchr(line, '\n')) break;
        if (strtoll(line, NULL, 10) <= last) fputs(line, to);
    }
    return ferror(from) || ferror(to);
}
/* A rank's file as a run goes on after step `last`, which makes later steps again; without one if
   last < 0. *found: there was a file. */
static neo_status cli_digests_cut(const cli_saves *saves, int rank, int64_t last, int *found) {
    char path[4096], partial[4096 + 8];
    FILE *from = fopen(cli_digests_path(saves, rank, path), "r");
    *found = from != NULL;
    if (!from) return NEO_OK; /* or writing to it will say why not */
    if (last < 0) {
        fclose(from);
        return cli_digests_failed(path, remove(path) != 0);
    }
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *to = fopen(partial, "w");
    int failed = !to || cli_digests_copy(from, to, last);
    if (to) failed |= fclose(to) != 0;
    fclose(from);
    return cli_digests_failed(path, failed || replace_file(partial, path) != 0);
}

/* After every step: see above. Collective. */
static neo_status cli_digest(const cli_rank *me, const cli_saves *saves, const neo_state *state,
                             int64_t step) {
    char path[4096];
    uint64_t digest;
    if (!cli_digests_at(saves, step)) return NEO_OK;
    FILE *f = fopen(cli_digests_path(saves, me->rank, path), "a");
    for (int i = 0; f && i < neo_state_count(state); i++) {
        const int kind = neo_state_digest_entry(state, i, &digest);
        if (kind)
            fprintf(f, "%lld %s %016llx %s\n", (long long)step, kind == 1 ? "whole" : "part",
                    (unsigned long long)digest, neo_state_name(state, i));
    }
    int lost = !f || ferror(f) != 0;
    if (f) lost |= fclose(f) != 0;
    return agree(me->comm, cli_digests_failed(path, lost));
}
/* Before the first step that this run makes, `step` are made: what files have of later steps, also
   those of ranks that this run does not have, goes. Collective. */
static neo_status cli_digests_begin(const cli_rank *me, const cli_saves *saves,
                                    const neo_state *state, int64_t step) {
    const int64_t last = step ? step : -1;
    int found = 1;
    if (!saves->digests) return NEO_OK;
    neo_status mine = cli_digests_cut(saves, me->rank, last, &found);
    found = me->rank == 0;
    for (int rank = neo_comm_size(me->comm); found && mine == NEO_OK; rank++)
        mine = cli_digests_cut(saves, rank, last, &found);
    TRY(agree(me->comm, mine));
    return step ? NEO_OK : cli_digest(me, saves, state, 0);
}
#endif
