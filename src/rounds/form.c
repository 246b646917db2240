/* SPDX-License-Identifier: MIT
 *
 * The table of forms; each is in a file of its own, form_NAME.c. What a form loses is the business
 * of the caller, who adds it to what is sent next (error feedback, Seide et al. 2014).
 */
#include "form.h"

#include "base/base.h"

static const struct rf_form_row *const forms[RF_FORM_COUNT] = {
    [RF_FORM_F32] = &rf_form_f32,           [RF_FORM_BF16] = &rf_form_bf16,
    [RF_FORM_INT8] = &rf_form_int8,         [RF_FORM_NF4] = &rf_form_nf4,
    [RF_FORM_TOP] = &rf_form_top,           [RF_FORM_SIGN] = &rf_form_sign,
    [RF_FORM_POWERSGD] = &rf_form_powersgd,
};

const char *rf_form_name(enum rf_form form)
{
    return (unsigned)form < RF_FORM_COUNT ? forms[form]->name : NULL;
}

int rf_form_find(const char *name)
{
    for (int form = 0; name && form < RF_FORM_COUNT; form++)
        if (strcmp(forms[form]->name, name) == 0)
            return form;
    return -1;
}

bool rf_form_is_exact(enum rf_form form)
{
    return forms[form]->is_exact;
}

uint64_t rf_form_bytes(enum rf_form form, float fraction, int64_t count)
{
    return count > 0 ? forms[form]->bytes(fraction, count) : 0;
}

int rf_form_encode(enum rf_form form, float fraction, const float *values, int64_t count, void *to,
                   float *scratch)
{
    return count > 0 ? forms[form]->encode(fraction, values, count, to, scratch) : RF_OK;
}

int rf_form_decode(enum rf_form form, float fraction, const void *from, int64_t count,
                   float *values)
{
    return count > 0 ? forms[form]->decode(fraction, from, count, values) : RF_OK;
}

bool rf_form_has_factors(enum rf_form form)
{
    return forms[form]->phase != NULL;
}

int64_t rf_form_factor_values(enum rf_form form, const struct rf_form_factors *factors, int phase)
{
    return forms[form]->factor_values(factors, phase);
}

int rf_form_phase(enum rf_form form, const struct rf_form_factors *factors, int phase)
{
    return forms[form]->phase(factors, phase);
}
