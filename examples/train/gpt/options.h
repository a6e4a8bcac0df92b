/* options.h: the options of gpt, and the text that it trains on. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H
#include "step.h"

typedef struct options {
    char *data, *shard, *accumulate_mode, *dtype, *products, *load, *prefix, *prompt;
    int64_t layers, heads, width, context, batch, accumulate, steps, warmup, seed;
    int64_t summary, patience, factor, slots, eval_every, sample, top_k, recompute, memory;
    double lr, min_lr, weight_decay, beta2, clip, temperature;
    cli_machine machine;
    cli_board board;
    cli_saves saves;
} options;

static const cli_option GPT_OPTIONS[] = {
    CLI_GROUP("Text and model"),
    CLI_TEXT("data", data, "FILE", "examples/data/shakespeare/input.txt",
             "*a text, of which the last tenth validates"),
    CLI_COUNT("layers", layers, "N", "4", 1, MAX_LAYERS, "blocks"),
    CLI_COUNT("heads", heads, "N", "4", 1, 1024, "*of attention; divides the width"),
    CLI_COUNT("width", width, "N", "128", 1, 1e5, "of the embeddings"),
    CLI_COUNT("context", context, "N", "64", 1, 1e6, "*characters of a sequence"),
    CLI_COUNT("batch", batch, "B", "12", 1, 1e6,
              "*sequences of a micro-batch, on all ranks together"),
    CLI_TEXT("products", products, "T", "f32",
             "*numbers that linear layers multiply: f32 or bf16; sums and weights stay f32"),

    CLI_GROUP("Optimizer (AdamW)"),
    CLI_COUNT("steps", steps, "N", "2000", 0, 1e9, "of the optimizer, in all runs"),
    CLI_NUMBER("lr", lr, "X", "0.002", 1e9, "highest learning rate"),
    CLI_NUMBER("min-lr", min_lr, "X", "0.0001", 1e9, "at the last step, by a cosine"),
    CLI_COUNT("warmup", warmup, "N", "100", 0, 1e9, "steps of linear warm-up"),
    CLI_NUMBER("weight-decay", weight_decay, "X", "0.1", 1e9, "of all parameters"),
    CLI_NUMBER("beta2", beta2, "X", "0.99", 1, "decay of the mean of squared gradients"),
    CLI_NUMBER("clip", clip, "X", "1", 1e9, "limit of the norm of the gradients; 0: none"),
    CLI_COUNT("accumulate", accumulate, "K", "1", 1, 1e6, "*micro-batches of a step"),
    CLI_TEXT("accumulate-mode", accumulate_mode, "M", "each",
             "*gradients are summed over the ranks after each micro-batch (each), or at the end of "
             "the step (end)"),
    CLI_COUNT("seed", seed, "N", "1", 0, 1e15,
              "*of initial weights, windows of the text, and the sample"),

    CLI_GROUP("Shards"),
    CLI_TEXT("shard", shard, "S", "full",
             "none (every rank has all); cut over the ranks: zero1 (optimizer state), zero2 "
             "(gradients too), full (weights too); hybrid (full in groups of ranks)"),
    CLI_COUNT("factor", factor, "F", NULL, 0, 1024,
              "ranks of a group of --shard hybrid; 0: half of all"),
    CLI_COUNT("slots", slots, "N", NULL, 0, 1024, "gathered blocks in memory; 0: 2"),
    CLI_TEXT("dtype", dtype, "T", "f32", "*weights and gradients travel as f32 or bf16"),
    CLI_FLAG("recompute", recompute,
             "keep only the input of each block, and compute the rest again in the backward"),
    CLI_FLAG("memory", memory,
             "print predicted memory and traffic (neo_fsdp_predict), and what was counted"),

    CLI_MACHINE,
    CLI_SAVES,
    CLI_TEXT("load", load, "FILE", NULL,
             "start from the weights of a safetensors file, by PyTorch's names of GPT-2; weights "
             "are [out][in], as of torch.nn.Linear"),
    CLI_TEXT("prefix", prefix, "P", "transformer.",
             "of the names there, if wte.weight is not found"),

    CLI_GROUP("Validation and sample"),
    CLI_BOARD,
    CLI_FLAG("summary", summary, "print the model's layers, sizes and work, and stop"),
    CLI_COUNT("eval-every", eval_every, "N", NULL, 0, 1e12,
              "steps between validations, of which best/ of --checkpoint keeps the best; 0: at the "
              "end only"),
    CLI_COUNT("patience", patience, "N", NULL, 0, 1e6,
              "stop after N validations of --eval-every without a better loss; 0: never"),
    CLI_COUNT("sample", sample, "N", "300", 0, 1e7, "characters to write at the end"),
    CLI_NUMBER("temperature", temperature, "X", "0.8", 1e6,
               "of the sample; 0: always the likeliest character"),
    CLI_COUNT("top-k", top_k, "K", NULL, 0, 256,
              "the sample is drawn from the K likeliest characters; 0: from all"),
    CLI_TEXT("prompt", prompt, "TEXT", NULL, "that the sample continues; a new line, if none"),
};
static const cli_program GPT = {"gpt", "train a small GPT on a text, on one rank or many",
                                GPT_OPTIONS, sizeof GPT_OPTIONS / sizeof GPT_OPTIONS[0], NULL};

static neo_status check_options(const options *o) {
    if (o->width % o->heads)
        REFUSE("--width %lld: must be a multiple of the %lld of --heads", (long long)o->width,
               (long long)o->heads);
    if (o->beta2 >= 1) REFUSE("--beta2 must be less than 1");
    TRY(cli_check_either("accumulate-mode", o->accumulate_mode, "each", "end"));
    TRY(cli_check_either("dtype", o->dtype, "f32", "bf16"));
    TRY(cli_check_either("products", o->products, "f32", "bf16"));
    TRY(cli_check_either("graph", o->machine.graph, "on", "off"));
    if (o->factor && strcmp(o->shard, "hybrid")) REFUSE("--factor needs --shard hybrid");
    TRY(cli_check_saves(&o->saves));
    TRY(cli_check_board(&o->board, &o->machine));
    if (o->patience && !o->eval_every) REFUSE("--patience needs --eval-every");
    if (o->load && o->saves.resume)
        REFUSE("--load and --resume would both give the weights: leave one out");
    return cli_check_load(o->load);
}

/* ---- text ---- */

static neo_status read_file(const char *path, text *t) {
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--data %s: cannot open: %s", path, strerror(errno));
    size_t have = 0, room = 1 << 20;
    unsigned char *more;
    while (!feof(f) && !ferror(f) && (more = realloc(t->data, room *= 2)) != NULL) {
        t->data = more;
        have += fread(t->data + have, 1, room - have, f);
    }
    int failed = ferror(f), whole = feof(f);
    fclose(f);
    t->length = (int64_t)have;
    if (failed)
        return neo_fail(NEO_ERR_IO, "--data %s: cannot be read: %s", path, strerror(errno));
    if (!whole)
        return neo_fail(NEO_ERR_MEMORY, "--data %s: no memory for more than %zu characters", path,
                        have);
    return NEO_OK;
}

static neo_status check_prompt(const options *o, const text *t) {
    for (const char *p = o->prompt; p && *p; p++)
        if (t->number[(unsigned char)*p] < 0)
            REFUSE("--prompt %s: the character %d, '%c', is not in the vocabulary: %s has none",
                   o->prompt, (int)(p - o->prompt) + 1, *p, o->data);
    return NEO_OK;
}

static neo_status read_text(const options *o, text *t) {
    TRY(read_file(o->data, t));
    t->train = t->length / 10 * 9 + t->length % 10 * 9 / 10;
    if (t->length - t->train <= o->context)
        REFUSE("--data %s: %lld characters, of which the last %lld are for validation: too few for "
               "a --context of %lld", o->data, (long long)t->length,
               (long long)(t->length - t->train), (long long)o->context);
    for (int c = 0; c < 256; c++) t->number[c] = -1;
    for (int64_t i = 0; i < t->length; i++) t->number[t->data[i]] = 0;
    for (int c = 0; c < 256; c++)
        if (t->number[c] == 0) t->letter[t->number[c] = t->vocabulary++] = (unsigned char)c;
    t->checksum = neo_crc32c(0, t->data, (size_t)t->length);
    return check_prompt(o, t);
}
#endif
