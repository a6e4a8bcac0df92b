/* risk.h: what chance makes of a step and of a week: quantiles of the step where tasks take longer
   and ranks lag, and the share of the week in which a job gets on whose ranks fail, and which then
   goes back to its last checkpoint. */
#ifndef PLAN_RISK_H
#define PLAN_RISK_H
#include "sets.h"
#include "show.h"
#include <math.h>

enum { RISK_STEPS = 2000, RISK_WEEKS = 400, RISK_LEAST = 10 }; /* seconds between failures */
#define RISK_WEEK (7 * 86400.0)

static double risk_even(uint64_t *state) { /* above 0, up to 1 */
    return (double)((plan_set_random(state) >> 11) + 1) * 0x1p-53;
}
/* Failures come by chance, at any time, in a restart too. What is not saved is done again. */
static double risk_week(const risk *r, int ranks, uint64_t *state) {
    const double mean = r->mtbf * 3600 / ranks, every = r->every > 0 ? r->every : RISK_WEEK;
    double now = 0, done = 0;
    double fails = r->mtbf > 0 ? -log(risk_even(state)) * mean : 2 * RISK_WEEK;
    while (now < RISK_WEEK) { /* up to the last checkpoint before a failure */
        const double saved = floor((fmin(fails, RISK_WEEK) - now) / (every + r->takes));
        now += saved * (every + r->takes), done += saved * every;
        if (fails >= RISK_WEEK) { /* the week is over first */
            done += fmin(RISK_WEEK - now, every);
            break;
        }
        do {
            now = fails + r->restart;
            fails += -log(risk_even(state)) * mean;
        } while (fails < now && now < RISK_WEEK);
    }
    return done / RISK_WEEK;
}
static int risk_order(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
static double risk_quantile(const double *sorted, int count, double q) {
    return sorted[(int)(q * (count - 1) + 0.5)];
}
/* timeline: of the step as it runs. */
static neo_status print_risk(const job *j, const neo_timeline *timeline) {
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    static double step[RISK_STEPS], week[RISK_WEEKS];
    const double fails = j->risk.mtbf * 3600 / j->desc.cluster.ranks;
    uint64_t state = 1;
    double each = 0, mean = 0;
    if (fails > 0 && fails < RISK_LEAST)
        return neo_fail(NEO_ERR_ARG, "a rank fails every %.3g s: no week with so many failures",
                        fails);
    neo_status status = neo_timeline_sample(timeline, &j->risk.jitter, 1, RISK_STEPS, step);
    if (status != NEO_OK) return status;
    for (int i = 0; i < RISK_STEPS; i++) each += step[i] / RISK_STEPS;
    for (int i = 0; i < RISK_WEEKS; i++) {
        week[i] = risk_week(&j->risk, j->desc.cluster.ranks, &state);
        mean += week[i] / RISK_WEEKS;
    }
    qsort(week, RISK_WEEKS, sizeof *week, risk_order);
    printf("\nby chance: a step takes %s in the mean,", seconds(each));
    for (int i = 0; i < 4; i++)
        printf(" %g %% of them at most %s%s", 100 * quantiles[i],
               seconds(risk_quantile(step, RISK_STEPS, quantiles[i])), i < 3 ? "," : "\n");
    printf("    a week: %.2f %% of it count in the mean, %.2f %% or more in 19 weeks of 20; %.4g "
           "samples/s\n",
           100 * mean, 100 * risk_quantile(week, RISK_WEEKS, 0.05),
           (double)j->bags.max_batch / each * mean);
    const neo_jitter *jitter = &j->risk.jitter;
    if (!(jitter->compute > 0 || jitter->link > 0 || jitter->straggler > 0 || j->risk.mtbf > 0 ||
          j->risk.every > 0))
        printf("    (nothing is left to chance: the cluster has no jitter, failures, "
               "checkpoint)\n");
    return NEO_OK;
}
#endif
