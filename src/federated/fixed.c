/* SPDX-License-Identifier: MIT
 *
 * Updates as integers, whose sum is exact in any order. Weights and their products are rounded to
 * W bits behind the point. The mean x of K members, whose weights have the sum n, is wrong by at
 * most 2^-(W + 1) (1 + max |x(k) - x|) K / n, and by the rounding of f64.
 */
#include <math.h>

#include "base/base.h"
#include "secure.h"

static int bits(bool weighted)
{
    return weighted ? SECURE_BITS_WEIGHTED : SECURE_BITS;
}

static double whole_weight(double weight, bool weighted)
{
    return rint(ldexp(weight, bits(weighted)));
}

int federated_fixed_check(const float *values, int64_t count, double weight, bool weighted)
{
    const double range = ldexp(1, SECURE_RANGE_BITS), whole = whole_weight(weight, weighted);
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabsf(values[i]) > most ? fabsf(values[i]) : most;
    if (weight != 0 && weight < SECURE_LEAST_WEIGHT)
        return rf_fail(RF_EINVAL,
                       "a weight of %g is too small for secure aggregation: multiply those of all "
                       "clients by one number, that they are 0 or at least %g",
                       weight, SECURE_LEAST_WEIGHT);
    if (whole <= range && (double)most * whole <= range)
        return RF_OK;
    return rf_fail(
        RF_EINVAL,
        "a value of %g with the weight %g is outside the range of secure aggregation, in "
        "which the weight and its product are at most %g: nothing is sent",
        (double)most, weight, ldexp(range, -bits(weighted)));
}

void federated_fixed(const float *values, int64_t count, double weight, bool weighted,
                     int64_t first, int64_t n, uint64_t *out)
{
    const double whole = whole_weight(weight, weighted);
    const int64_t params = first + n > count ? count - first : n;
    for (int64_t i = 0; i < params; i++)
        out[i] = (uint64_t)llrint((double)values[first + i] * whole);
    if (params < n)
        out[params] = (uint64_t)llrint(whole);
}

double federated_fixed_number(uint64_t sum, bool weighted)
{
    return ldexp((double)(int64_t)sum, -bits(weighted));
}

int federated_check_threshold(int threshold, int clients)
{
    if (threshold == 0 || (clients <= FEDERATED_MEMBERS && threshold >= 2 && threshold <= clients &&
                           2 * threshold > clients))
        return RF_OK;
    return rf_fail(RF_EINVAL,
                   "secure aggregation with the threshold %d of %d clients: there are at most %d, "
                   "and the threshold is at least 2 and more than half of them",
                   threshold, clients, FEDERATED_MEMBERS);
}
