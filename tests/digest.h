/* digest.h: the digest of a neo_bags by itself. */
#ifndef TEST_DIGEST_H
#define TEST_DIGEST_H

#include "neo_state.h"
#include "test.h"

static inline uint64_t bags_digest(neo_ctx *ctx, neo_bags *bags) {
    neo_state *state;
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_bags(state, bags));
    const uint64_t digest = neo_state_digest(state);
    neo_state_destroy(state);
    return digest;
}
#endif
