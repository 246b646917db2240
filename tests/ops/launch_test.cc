/* SPDX-License-Identifier: MIT
 *
 * The declarations of a launcher about its launch.
 */
#include "op_fixture.h"

extern "C" {
#include "ops/pick.h"
}

namespace
{
class Launch : public OpTest
{
  protected:
    /* A launch without workgroups that declares this number of ranges, the last one written. */
    int declare(rf_tensor out, rf_tensor in, int ranges)
    {
        const uint32_t push[10] = {}; /* of elementwise.comp */
        rf_job job = {};
        job.op = "declare";
        job.shader = RF_BUILD(elementwise_s);
        job.push = push;
        job.push_bytes = sizeof(push);
        for (int i = 0; i < ranges - 1; i++)
            rf_job_reads(&job, in);
        rf_job_writes(&job, out);
        return rf_job_run(stream, &job);
    }
};

TEST_F(Launch, MoreRangesThanAJobHoldsAreRefusedByName)
{
    rf_tensor x = f32(rf_shape1(4), {1, 2, 3, 4}), y = blank(rf_shape1(4));
    EXPECT_OK(declare(y, x, RF_MAX_RANGES));
    EXPECT_FAILS(RF_EINVAL, "declare: the launch declares 13 ranges of memory and a job holds 12",
                 declare(y, x, RF_MAX_RANGES + 1));
}
} // namespace
