/* SPDX-License-Identifier: MIT
 *
 * Learning rates: a schedule over steps, and the scaling for another batch size.
 */
#include <math.h>
#include <ringforge/data.h>

float rf_lr_cosine(int64_t step, int64_t warmup, int64_t steps, float lr, float min_lr)
{
    if (step < warmup)
        return (float)((double)lr * (double)(step + 1) / (double)warmup);
    if (step >= steps || steps <= warmup)
        return min_lr;
    const double pi = 3.14159265358979323846;
    double part = (double)(step - warmup) / (double)(steps - warmup);
    return (float)(min_lr + 0.5 * (1.0 + cos(pi * part)) * ((double)lr - min_lr));
}

float rf_lr_scale_linear(float lr, int64_t batch_from, int64_t batch_to)
{
    return (float)((double)lr * (double)batch_to / (double)batch_from);
}

float rf_lr_scale_sqrt(float lr, int64_t batch_from, int64_t batch_to)
{
    return (float)((double)lr * sqrt((double)batch_to / (double)batch_from));
}
