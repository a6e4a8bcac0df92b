/* make_npy.c PREFIX ROWS: writes <PREFIX>{dense,sparse,labels}.npy as TorchRec's scripts name them,
   with the format written out by hand so that neo's reader meets files neo did not write; and the
   same samples as Criteo lines, <PREFIX>lines.tsv, as records <PREFIX>raw.bin and, their integers,
   <PREFIX>int.bin, and without dense numbers as <PREFIX>lines.svm and <PREFIX>lines.ffm. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE = 13, SPARSE = 26 };
static uint32_t seed = 12345;
static uint32_t next(void) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

/* Version 1.0: magic, header length (little endian), header padded with blanks to a multiple of 64.
   */
static void write_npy(const char *prefix, const char *part, const char *descr, long rows, int cols,
                      const void *data) {
    char path[1024], header[128];
    snprintf(path, sizeof path, "%s%s.npy", prefix, part);
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    int n = snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%ld, %d), }", descr, rows,
                     cols);
    while ((10 + n + 1) % 64) header[n++] = ' ';
    header[n++] = '\n';
    fwrite("\x93NUMPY\x01\x00", 1, 8, f);
    fputc(n & 255, f);
    fputc(n >> 8, f);
    fwrite(header, 1, (size_t)n, f);
    fwrite(data, 4, (size_t)(rows * cols), f);
    fclose(f);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long rows = atol(argv[2]);
    float *dense = malloc(sizeof(float) * DENSE * (size_t)(rows + 1));
    int32_t *sparse = malloc(4 * SPARSE * (size_t)(rows + 1)),
            *labels = malloc(4 * (size_t)(rows + 1));
    char path[1024];
    snprintf(path, sizeof path, "%slines.tsv", argv[1]);
    FILE *tsv = fopen(path, "w");
    snprintf(path, sizeof path, "%slines.svm", argv[1]);
    FILE *svm = fopen(path, "w");
    snprintf(path, sizeof path, "%slines.ffm", argv[1]);
    FILE *ffm = fopen(path, "w");
    snprintf(path, sizeof path, "%sraw.bin", argv[1]);
    FILE *raw = fopen(path, "wb");
    snprintf(path, sizeof path, "%sint.bin", argv[1]);
    FILE *whole = fopen(path, "wb");
    if (!dense || !sparse || !labels || !tsv || !svm || !ffm || !raw || !whole) return 1;
    for (long i = 0; i < rows; i++) {
        labels[i] = next() % 4 == 0;
        fprintf(tsv, "%d", (int)labels[i]);
        fprintf(svm, "%s", labels[i] ? "+1" : "-1");
        fprintf(ffm, "%d", (int)labels[i]);
        fwrite(labels + i, 4, 1, raw);
        fwrite(labels + i, 4, 1, whole);
        for (int k = 0; k < DENSE; k++) {
            int x = (int)(next() % 100) - 3;
            dense[i * DENSE + k] = (float)(x < 0 ? 0 : x) / 100.0f;
            fwrite(dense + i * DENSE + k, 4, 1, raw);
            fwrite(&x, 4, 1, whole);
            if (next() % 10 == 0) fprintf(tsv, "\t"); /* empty fields are allowed */
            else fprintf(tsv, "\t%d", x);
        }
        for (int k = 0; k < SPARSE; k++) {
            sparse[i * SPARSE + k] = (int32_t)(next() % (uint32_t)(3 + 7 * k));
            if (next() % 20 == 0) fprintf(tsv, "\t");
            else fprintf(tsv, "\t%08x", (unsigned)sparse[i * SPARSE + k] * 2654435761u);
            fprintf(svm, " %d:%g", 100 * k + (int)sparse[i * SPARSE + k], 0.5 + 0.1 * k);
            fprintf(ffm, " %d:%d:1", k, (int)sparse[i * SPARSE + k]);
        }
        fwrite(sparse + i * SPARSE, 4, SPARSE, raw);
        fwrite(sparse + i * SPARSE, 4, SPARSE, whole);
        fprintf(tsv, "\n");
        fprintf(svm, "\n");
        fprintf(ffm, "\n");
    }
    FILE *files[5] = {tsv, svm, ffm, raw, whole};
    for (int i = 0; i < 5; i++) fclose(files[i]);
    write_npy(argv[1], "dense", "<f4", rows, DENSE, dense);
    write_npy(argv[1], "sparse", "<i4", rows, SPARSE, sparse);
    write_npy(argv[1], "labels", "<i4", rows, 1, labels);
    free(dense);
    free(sparse);
    free(labels);
    return 0;
}
