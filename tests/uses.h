/* uses.h: how often the rows of tables are used in production, as histograms. */
#ifndef USES_H
#define USES_H

/* Of a batch of 65536 samples over 856 tables, and of 131072 over 788: locality_stats of
   https://github.com/facebookresearch/dlrm_datasets, embedding_bag/2021 and 2022 (Copyright (c)
   Meta Platforms, Inc. and affiliates; MIT licence, as at the end of neo.h). Bin k has rows that
   are used more than 2^(k-1) and at most 2^k times; the shares of all rows used, and of all ids. */
enum { USE_BINS = 17, USE_SET_COUNT = 2 };
static const struct {
    int year;
    double of_rows[USE_BINS], of_ids[USE_BINS], mean_use;
} USE_SETS[USE_SET_COUNT] = {
    {2021,
     {0.473, 0.152, 0.139, 0.112, 0.072, 0.032, 0.011, 0.005, 0.002, 0.001, 0, 0, 0, 0, 0, 0, 0},
     {0.069, 0.044, 0.068, 0.101, 0.121, 0.104, 0.073, 0.058, 0.052, 0.050, 0.049, 0.048, 0.048,
      0.043, 0.031, 0.023, 0.019},
     6.9},
    {2022,
     {0.342, 0.144, 0.149, 0.138, 0.112, 0.068, 0.029, 0.010, 0.004, 0.002, 0, 0, 0, 0, 0, 0, 0},
     {0.027, 0.023, 0.040, 0.068, 0.105, 0.120, 0.099, 0.070, 0.059, 0.054, 0.040, 0.072, 0.064,
      0.047, 0.021, 0.017, 0.076},
     12.7}};
#endif
