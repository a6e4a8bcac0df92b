/* options.h: the options of gpt, and the text that it trains on. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H
#include "step.h"

typedef struct options {
    char *data, *valid, *preset, *shard, *accumulate_mode, *dtype, *products, *gelu, *load, *prefix;
    char *residual, *tokenizer, *prompt, *cluster;
    int64_t vocabulary, layers, heads, width, context, batch, accumulate, steps, warmup, seed;
    int64_t summary, patience, factor, slots, eval_every, sample, top_k, recompute, memory;
    double lr, min_lr, weight_decay, beta2, clip, temperature;
    cli_machine machine;
    cli_board board;
    cli_saves saves;
} options;

#define DEFAULT_TEXT "examples/data/shakespeare/input.txt"
static const cli_option GPT_OPTIONS[] = {
    CLI_GROUP("Text and model"),
    CLI_TEXT("data", data, "FILES", DEFAULT_TEXT,
             "*a text, or tokens of a byte-pair vocabulary in files of llm.c, or of nanoGPT with "
             "--vocabulary: several, comma-separated, are one text; all of it lies in memory"),
    CLI_TEXT("valid", valid, "FILES", NULL,
             "*that validate; without them the last tenth of --data"),
    CLI_COUNT("vocabulary", vocabulary, "N", NULL, 0, 65536,
              "*tokens that there are, with a file of tokens, maybe rounded up (50304); 0: GPT-2's "
             "50257"),
    CLI_TEXT("preset", preset, "NAME", NULL,
             "*gpt2-124m: GPT-2's smallest model, on --data of tokens, trained as llm.c does it, "
             "but for weight decay, which is of all parameters"),
    CLI_COUNT("layers", layers, "N", "4", 1, MAX_LAYERS, "blocks"),
    CLI_COUNT("heads", heads, "N", "4", 1, 1024, "*of attention; divides the width"),
    CLI_COUNT("width", width, "N", "128", 1, 1e5, "of the embeddings"),
    CLI_COUNT("context", context, "N", "64", 1, 1e6, "*characters or tokens of a sequence"),
    CLI_COUNT("batch", batch, "B", "12", 1, 1e6,
              "*sequences of a micro-batch, on all ranks together"),
    CLI_TEXT("products", products, "T", "f32",
             "*numbers that linear layers, on a GPU attention too, multiply: f32 or bf16; sums "
             "and weights stay f32"),
    CLI_TEXT("gelu", gelu, "F", "erf",
             "*of blocks, by erf, or by tanh as GPT-2 has it: then a GPU with --products bf16 "
             "computes it in its products"),
    CLI_TEXT("residual", residual, "T", "f32",
             "*what blocks add to, and its gradient: f32, or bf16 with --products bf16 on a GPU "
             "without --exact, which reads and writes less then; heads have 8, 16 ... columns"),

    CLI_GROUP("Optimizer (AdamW)"),
    CLI_COUNT("steps", steps, "N", "2000", 0, 1e9, "of the optimizer, in all runs"),
    CLI_NUMBER("lr", lr, "X", "0.002", 1e9,
               "highest learning rate; below --min-lr, give --min-lr too"),
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
    CLI_TEXT("cluster", cluster, "FILE", NULL,
             "with --trace: print what the operations of a step take by the figures of FILE, as "
             "plan --calibrate prints them, and what they took"),

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
    CLI_COUNT("sample", sample, "N", "300", 0, 1e7, "characters or tokens to write at the end"),
    CLI_TEXT("tokenizer", tokenizer, "FILE", NULL,
             "the bytes of each token, as llm.c's gpt2_tokenizer.bin has them: the sample is text"),
    CLI_NUMBER("temperature", temperature, "X", "0.8", 1e6,
               "of the sample; 0: always the likeliest character or token"),
    CLI_COUNT("top-k", top_k, "K", NULL, 0, 65536,
              "the sample is drawn from the K likeliest; 0: from all"),
    CLI_TEXT("prompt", prompt, "TEXT", NULL,
             "that the sample continues, after training (to write alone: build/serve, or --resume "
             "of a run that has had its --steps); a new line, if none. Of tokens their numbers, "
             "\"464 995\"; the last one that there is (of --tokenizer), if none"),
};
/* scripts/run_gpt2_124M.sh of llm.c, on one GPU; beta2 as its train_gpt2.cu has it */
static const cli_preset GPT_PRESETS[] = {
    {"gpt2-124m",
     {"layers", "12", "heads", "12", "width", "768", "context", "1024", "batch", "64", "accumulate",
      "8", "products", "bf16", "gelu", "tanh", "steps", "18865", "lr", "0.0006", "min-lr", "0",
      "warmup", "700", "beta2", "0.95", NULL}},
    {NULL, {NULL}},
};
static const cli_program GPT = {"gpt", "train a small GPT on a text, on one rank or many",
                                GPT_OPTIONS, sizeof GPT_OPTIONS / sizeof GPT_OPTIONS[0],
                                GPT_PRESETS};

/* --trace is the only file that is written under a name of its own. */
static neo_status check_trace(const options *o) {
    const char *trace = o->machine.trace, *files[] = {o->load, o->tokenizer, o->cluster};
    int read = trace && (is_in_list(o->data, trace) || is_in_list(o->valid, trace));
    for (int i = 0; i < 3; i++) read |= trace && files[i] && is_same_file(files[i], trace);
    if (read) REFUSE("--trace %s is both read and written", trace);
    return NEO_OK;
}
static neo_status check_options(const options *o) {
    if (o->width % o->heads)
        REFUSE("--width %lld: must be a multiple of the %lld of --heads", (long long)o->width,
               (long long)o->heads);
    if (o->min_lr > o->lr)
        REFUSE("--min-lr %g: above --lr %g: give a lower --min-lr", o->min_lr, o->lr);
    if (o->beta2 >= 1) REFUSE("--beta2 must be less than 1");
    TRY(cli_check_either("accumulate-mode", o->accumulate_mode, "each", "end"));
    TRY(cli_check_either("dtype", o->dtype, "f32", "bf16"));
    TRY(cli_check_either("products", o->products, "f32", "bf16"));
    TRY(cli_check_either("gelu", o->gelu, "erf", "tanh"));
    TRY(cli_check_either("residual", o->residual, "f32", "bf16"));
    TRY(cli_check_machine(&o->machine));
    if (o->factor && strcmp(o->shard, "hybrid")) REFUSE("--factor needs --shard hybrid");
    TRY(cli_check_saves(&o->saves));
    TRY(cli_check_board(&o->board, &o->machine));
    TRY(check_trace(o));
    if (o->cluster && !o->machine.trace) REFUSE("--cluster needs --trace: what a step took");
    if (o->patience && !o->eval_every) REFUSE("--patience needs --eval-every");
    if (o->load && o->saves.resume)
        REFUSE("--load and --resume would both give the weights: leave one out");
    return cli_check_load(o->load);
}

/* ---- text ---- */

/* Appends a file to the *bytes of *data. */
static neo_status read_file(const char *option, const char *path, unsigned char **data,
                            size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--%s %s: cannot open: %s%s", option, path,
                            strerror(errno), strcmp(path, DEFAULT_TEXT) ? "" :
                            " (the default, a file of neo's own folder: name a text by --data)");
    size_t have = *bytes, room = have + (1 << 20);
    unsigned char *more;
    while (!feof(f) && !ferror(f) && (more = realloc(*data, room *= 2)) != NULL) {
        *data = more;
        have += fread(*data + have, 1, room - have, f);
    }
    int failed = ferror(f), whole = feof(f);
    fclose(f);
    *bytes = have;
    if (failed)
        return neo_fail(NEO_ERR_IO, "--%s %s: cannot be read: %s", option, path, strerror(errno));
    if (!whole)
        return neo_fail(NEO_ERR_MEMORY, "--%s %s: no memory for more than %zu bytes", option, path,
                        have);
    return NEO_OK;
}

/* Files of llm.c begin with 256 numbers of 32 bits: what they are, a version, a count. */
enum { HEADER_BYTES = 1024, TOKENS_MAGIC = 20240520, TOKENIZER_MAGIC = 20240328, GPT2 = 50257 };
static int64_t header_word(const unsigned char *file, int i) {
    const unsigned char *p = file + 4 * i;
    return (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}
/* Their first number is a date, which no text begins with. */
static int has_header(const unsigned char *file, size_t bytes) {
    return bytes >= 4 && header_word(file, 0) / 100000 == 202;
}
static neo_status check_header(const char *option, const char *path, const unsigned char *file,
                               size_t bytes, int64_t magic, int64_t versions) {
    if (header_word(file, 0) != magic)
        REFUSE("--%s %s: begins with %lld, not %lld: another kind of llm.c's files", option, path,
               (long long)header_word(file, 0), (long long)magic);
    if (bytes < HEADER_BYTES) REFUSE("--%s %s: is cut off in its header", option, path);
    if (header_word(file, 1) < 1 || header_word(file, 1) > versions)
        REFUSE("--%s %s: is of version %lld, not %s", option, path,
               (long long)header_word(file, 1), versions == 1 ? "1" : "1 or 2");
    return NEO_OK;
}

/* Appends the characters or tokens of a file. */
static neo_status read_part(const options *o, const char *option, const char *path, text *t) {
    const int64_t first = t->length;
    const size_t begin = (size_t)first << t->is_tokens;
    size_t end = begin;
    TRY(read_file(option, path, &t->data, &end));
    unsigned char *file = t->data + begin;
    const int header = has_header(file, end - begin);
    const unsigned char *zero = header ? NULL : memchr(file, 0, end - begin); /* a text has none */
    const int is_tokens = header || (zero && o->vocabulary);
    if (zero && !is_tokens)
        REFUSE("--%s %s: byte %lld is 0, so it is no text (unpack it if it is compressed; of "
               "UTF-16 iconv makes UTF-8): if it holds tokens of 16 bits without a header, as "
               "nanoGPT writes them, say how many there are by --vocabulary", option, path,
               (long long)(zero - file));
    if (first && is_tokens != t->is_tokens)
        REFUSE("--%s %s: %s, unlike what was read before", option, path,
               is_tokens ? "tokens" : "a text");
    t->is_tokens = is_tokens;
    t->length = (int64_t)end >> is_tokens;
    if (!is_tokens) return NEO_OK;
    if (header) {
        TRY(check_header(option, path, file, end - begin, TOKENS_MAGIC, 1));
        const int64_t count = header_word(file, 2), there = (int64_t)(end - begin) - HEADER_BYTES;
        if (there != 2 * count)
            REFUSE("--%s %s: its header says %lld tokens, behind it are %lld bytes", option, path,
                   (long long)count, (long long)there);
        memmove(file, file + HEADER_BYTES, (size_t)there);
        t->length = first + count;
    } else if ((end - begin) % 2) {
        REFUSE("--%s %s: has %zu bytes: half a token at its end", option, path, end - begin);
    }
    t->vocabulary = o->vocabulary ? (int)o->vocabulary : GPT2;
    for (int64_t i = first; i < t->length; i++)
        if (token_at(t, i) >= t->vocabulary)
            REFUSE("--%s %s: token %lld is %lld: not below the %d of --vocabulary", option, path,
                   (long long)(i - first), (long long)token_at(t, i), t->vocabulary);
    return NEO_OK;
}

static neo_status read_parts(const options *o, const char *option, const char *paths, text *t) {
    char path[4096];
    for (size_t length;; paths += length + 1) {
        length = strcspn(paths, ",");
        snprintf(path, sizeof path, "%.*s", (int)length, paths);
        TRY(read_part(o, option, path, t));
        if (!paths[length]) return NEO_OK;
    }
}

static neo_status read_tokenizer(const char *path, text *t) {
    size_t bytes = 0, at = HEADER_BYTES;
    if (!t->is_tokens) REFUSE("--tokenizer is for tokens, and --data is a text");
    TRY(read_file("tokenizer", path, &t->pieces, &bytes));
    if (!has_header(t->pieces, bytes)) REFUSE("--tokenizer %s: no file of llm.c's", path);
    TRY(check_header("tokenizer", path, t->pieces, bytes, TOKENIZER_MAGIC, 2));
    const int64_t count = header_word(t->pieces, 2);
    if (count > t->vocabulary || (count + 127) / 128 * 128 < t->vocabulary)
        REFUSE("--tokenizer %s: has %lld tokens, not the %d of --vocabulary", path,
               (long long)count, t->vocabulary);
    t->piece_count = (int)count;
    t->piece = malloc((size_t)count * sizeof *t->piece);
    if (!t->piece) return out_of_memory();
    for (int i = 0; i < t->piece_count; i++) {
        t->piece[i] = (uint32_t)at;
        if (at >= bytes || (at += 1u + t->pieces[at]) > bytes)
            REFUSE("--tokenizer %s: is cut off in token %d", path, i);
    }
    return NEO_OK;
}

/* Moves *at behind the next character or number of the prompt, and returns its token; -1: there is
   no such; -2: nothing is left. */
static int64_t next_of_prompt(const text *t, const char **at) {
    char *end;
    if (!t->is_tokens) return **at ? t->number[(unsigned char)*(*at)++] : -2;
    *at += strspn(*at, " ,");
    if (!**at) return -2;
    int64_t token = strtoll(*at, &end, 10);
    if (end == *at || token < 0 || token >= t->vocabulary || !strchr(" ,", *end)) return -1;
    *at = end;
    return token;
}
static neo_status check_prompt(const options *o, const text *t) {
    const char *at = o->prompt ? o->prompt : "";
    int64_t token;
    while ((token = next_of_prompt(t, &at)) >= 0) continue;
    if (token == -2) return NEO_OK;
    if (t->is_tokens)
        REFUSE("--prompt %s: '%s' does not begin with a token, a number below %d", o->prompt, at,
               t->vocabulary);
    const char *from = at - 1; /* of UTF-8 a character has several bytes, each a token */
    const int byte = (int)(at - o->prompt);
    while (from > o->prompt && (*from & 0xC0) == 0x80) from--;
    while ((*at & 0xC0) == 0x80) at++;
    REFUSE("--prompt %s: the character %d, '%.*s', is not in the vocabulary: %s has none",
           o->prompt, byte, (int)(at - from), from, o->data);
}

static void number_characters(text *t) {
    t->vocabulary = 0; /* an empty file of tokens may have come before */
    for (int c = 0; c < 256; c++) t->number[c] = -1;
    for (int64_t i = 0; i < t->length; i++) t->number[t->data[i]] = 0;
    for (int c = 0; c < 256; c++)
        if (t->number[c] == 0) t->letter[t->number[c] = t->vocabulary++] = (unsigned char)c;
}

static neo_status read_text(const options *o, text *t) {
    const char *last = o->valid ? o->valid : o->data;
    TRY(read_parts(o, "data", o->data, t));
    const char *what = t->is_tokens ? "tokens" : "characters";
    t->train = t->length / 10 * 9 + t->length % 10 * 9 / 10;
    if (o->valid) {
        t->train = t->length;
        TRY(read_parts(o, "valid", o->valid, t));
    }
    if ((o->vocabulary || o->preset) && !t->is_tokens)
        REFUSE("--%s is of tokens, and --data %s is a text: it has not the header of llm.c's "
               "files", o->vocabulary ? "vocabulary" : "preset", o->data);
    if (t->train <= o->context || t->length - t->train <= o->context)
        REFUSE("--%s %s: %lld %s, of which the last %lld are for validation: too few for "
               "a --context of %lld", o->valid ? "valid" : "data", last, (long long)t->length,
               what, (long long)(t->length - t->train), (long long)o->context);
    if (!t->is_tokens) number_characters(t);
    t->checksum = neo_crc32c(0, t->data, (size_t)t->length << t->is_tokens);
    if (o->tokenizer) TRY(read_tokenizer(o->tokenizer, t));
    return check_prompt(o, t);
}
#endif
