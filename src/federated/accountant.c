/* SPDX-License-Identifier: MIT
 *
 * The accountant: Renyi differential privacy of the Gaussian mechanism on a Poisson sample
 * (Mironov, Talwar, Zhang 2019), composed, and converted to (epsilon, delta) (Canonne, Kamath,
 * Steinke 2020).
 */
#include <math.h>
#include <ringforge/federated.h>

#include "base/base.h"

/* log(exp(a) + exp(b)), and log(exp(a) - exp(b)) for a >= b. */
static double log_add(double a, double b)
{
    const double most = a > b ? a : b, least = a > b ? b : a;
    return isinf(least) ? most : most + log1p(exp(least - most));
}

static double log_subtract(double a, double b)
{
    return isinf(b) ? a : a > b ? a + log1p(-exp(b - a)) : -INFINITY;
}

/* log(erfc(x)), also if erfc(x) is too small for a number. */
static double log_erfc(double x)
{
    if (x < 20)
        return log(erfc(x));
    const double y = 1 / (2 * x * x); /* the asymptotic series */
    return -x * x - log(x) - log(M_PI) / 2 + log1p(-y + 3 * y * y - 15 * y * y * y);
}

static double log_binomial(double n, double k)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/* log A(order): the sum of binomial terms, if the order is a whole number. */
static double log_moment_whole(double rate, double noise, int order)
{
    double sum = -INFINITY;
    for (int k = 0; k <= order; k++)
        sum = log_add(sum, log_binomial(order, k) + k * log(rate) + (order - k) * log1p(-rate) +
                               (double)k * (k - 1) / (2 * noise * noise));
    return sum;
}

enum { MOST_TERMS = 1000 };

/* The same as two series, which part at the point z where both densities are equal. Infinite: they
 * converge too slowly, as at orders near 1, which is a bound, too. */
static double log_moment(double rate, double noise, double order)
{
    const double z = noise * noise * log(1 / rate - 1) + 0.5, scale = M_SQRT2 * noise;
    double sums[2] = {-INFINITY, -INFINITY}, binomial = 1;
    for (int i = 0; i < MOST_TERMS; i++) {
        const double j = order - i, size = log(fabs(binomial));
        const double terms[2] = {
            size + i * log(rate) + j * log1p(-rate) + (double)i * (i - 1) / (2 * noise * noise) +
                log(0.5) + log_erfc((z - i) / -scale),
            size + j * log(rate) + i * log1p(-rate) + j * (j - 1) / (2 * noise * noise) + log(0.5) +
                log_erfc((z - j) / scale)};
        for (int s = 0; s < 2; s++)
            sums[s] = binomial > 0 ? log_add(sums[s], terms[s]) : log_subtract(sums[s], terms[s]);
        if (i > order && terms[0] < -30 && terms[1] < -30)
            return log_add(sums[0], sums[1]);
        binomial *= (order - i) / (i + 1);
    }
    return INFINITY;
}

/* Of one release, at one order. */
static double divergence(const struct rf_privacy *p, double order)
{
    if (p->rate == 1)
        return order / (2 * p->noise * p->noise);
    return (order == floor(order) ? log_moment_whole(p->rate, p->noise, (int)order)
                                  : log_moment(p->rate, p->noise, order)) /
           (order - 1);
}

static double epsilon_at(const struct rf_privacy *p, double order)
{
    const double all = (double)p->releases * divergence(p, order);
    if (p->delta * p->delta + expm1(-all) > 0)
        return 0;
    return all + log1p(-1 / order) - log(p->delta * order) / (order - 1);
}

int rf_privacy_epsilon(const struct rf_privacy *p, double *out)
{
    static const int large[] = {128, 256, 512, 1024};
    double least = INFINITY;
    if (!p || !out || !(p->rate > 0 && p->rate <= 1) || !(p->noise > 0) || isinf(p->noise) ||
        p->releases < 0 || !(p->delta > 0 && p->delta < 1))
        return rf_fail(RF_EINVAL, "the accountant needs a rate above 0 and at most 1, noise above "
                                  "0, releases of 0 or more, and delta between 0 and 1");
    for (int k = 1; k < 100; k++)
        least = fmin(least, epsilon_at(p, 1 + k / 10.0));
    for (int order = 11; order < 64; order++)
        least = fmin(least, epsilon_at(p, order));
    for (size_t k = 0; k < sizeof large / sizeof *large; k++)
        least = fmin(least, epsilon_at(p, large[k]));
    *out = p->releases == 0 ? 0 : fmax(least, 0);
    return RF_OK;
}
