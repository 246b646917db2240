/* SPDX-License-Identifier: MIT
 *
 * Dropout with a mask that is a function of (seed, site, index), and never stored.
 * shaders/dropout.comp.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/dropout.h"

#define UNROLL 4 /* of the shader */

int rf_dropout(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x, float p,
               const struct rf_random *random)
{
    static const char op[] = "dropout";
    static const struct rf_builds builds = RF_BUILDS(dropout);
    struct rf_tensor seed = {0};
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "x", x));
    if (!random)
        return rf_fail(RF_EINVAL, "%s: no random stream", op);
    if (!(p >= 0 && p < 1))
        return rf_fail(RF_EINVAL, "%s: p is %g, expected 0 <= p < 1", op, (double)p);
    if (random->device_seed) {
        seed = *random->device_seed;
        RETURN_IF_ERROR(rf_check_operand(op, "device_seed", seed, RF_I32, 2));
        RETURN_IF_ERROR(rf_check_alias(op, "out", out, "device_seed", seed));
    }
    int64_t count = rf_tensor_count(out);
    if (count == 0)
        return 0;

    bool vector = rf_pick_vector(count, (struct rf_tensor[]){out, x}, 2) && random->first % 4 == 0;
    struct rf_push_dropout push = {.out_ = rf_address_of(out),
                                   .x = rf_address_of(x),
                                   .device_seed = rf_address_of(seed),
                                   .seed = random->seed,
                                   .site = random->site,
                                   .first_word = random->first,
                                   .items = (uint32_t)(vector ? count / 4 : count),
                                   .threshold = (uint32_t)((double)p * 4294967296.0),
                                   .scale = (float)(1.0 / (1.0 - (double)p))};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = out.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{x}}, 1, push.first);
    rf_job_flat(&job, device, push.items, RF_FLAT_LANES, UNROLL);
    rf_job_reads(&job, x);
    rf_job_reads(&job, seed);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}
