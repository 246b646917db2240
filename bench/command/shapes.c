/* SPDX-License-Identifier: MIT
 *
 * The shapes of kernel benchmarks: those of models, and those given as text. Called by kernel.c and
 * tune.c.
 */
#include <string.h>

#include "kernel.h"

/* P: parameters of GPT-2, and of a layer of the Llama. If the CPU does all operations: fewer
 * tokens, and the parameters of a layer of GPT-2, and of the Llama's attention. */
const struct bench_model bench_models[2][2] = {
    {{"gpt2-124m", 4096, 1024, 768, 12, 12, 50257, 3072, 124439808},
     {"llama-1b", 4096, 2048, 2048, 32, 8, 128256, 8192, 60817408}},
    {{"gpt2-124m", 256, 256, 768, 12, 12, 50257, 3072, 7087872},
     {"llama-1b", 128, 128, 2048, 32, 8, 32000, 8192, 10485760}},
};

static int64_t size_of(const struct bench_model *m, char letter)
{
    switch (letter) {
    case 'n':
        return m->n;
    case 'B':
        return m->n / m->T;
    case 'T':
        return m->T;
    case 'C':
        return m->C;
    case 'H':
        return m->H;
    case 'K':
        return m->K;
    case 'D':
        return m->C / m->H;
    case 'V':
        return m->V;
    case 'F':
        return m->F;
    default: /* P */
        return m->P;
    }
}

int bench_count_dims(const char *text)
{
    int count = 1;
    for (; *text; text++)
        count += *text == 'x';
    return count;
}

bool bench_read_dims(const char **text, const struct bench_model *m, int want,
                     int64_t dims[BENCH_DIMS])
{
    const char *p = *text;
    for (int d = 0; d < want; d++) {
        const size_t length = strspn(p, "0123456789");
        int64_t number = 1;
        bool digits = length > 0;
        if (digits && tool_read_int(p, length, 1, 1ll << 31, &number) != TOOL_NUMBER_OK)
            return false;
        p += length;
        if (m && *p >= 'B' && *p <= 'n' && *p != 'x') {
            number *= size_of(m, *p++);
            digits = true;
        }
        if (!digits || number < 1 || number > (1ll << 31))
            return false;
        dims[d] = number;
        if (d + 1 < want && *p++ != 'x')
            return false;
    }
    if (*p && *p != ' ')
        return false;
    *text = *p ? p + 1 : p;
    return true;
}

bool bench_read_product(const char *text, int64_t dims[3])
{
    int64_t all[BENCH_DIMS] = {0};
    if (!bench_read_dims(&text, NULL, 3, all) || *text)
        return false;
    memcpy(dims, all, 3 * sizeof(*dims));
    return true;
}

void bench_print_dims(const struct bench_kernel *kernel, const int64_t *dims, char *text,
                      size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < bench_count_dims(kernel->dims) && used < size; d++)
        used +=
            (size_t)snprintf(text + used, size - used, d ? "x%lld" : "%lld", (long long)dims[d]);
}
