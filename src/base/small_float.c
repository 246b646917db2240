/* SPDX-License-Identifier: MIT
 *
 * The functions of shaders/small_float.h for the host.
 */
#include "small_float.h"

#include <string.h>

typedef uint32_t uint;

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

#define BITS_OF_FLOAT bits_of
#include "shaders/small_float.h"

static const struct small_float rows[RF_SMALL_FLOAT_COUNT] = {SMALL_FLOATS(SMALL_FLOAT_ROW)};

#define TEXT_OF(name, text, ...) text,
static const char *const names[RF_SMALL_FLOAT_COUNT] = {SMALL_FLOATS(TEXT_OF)};

const char *rf_small_float_name(enum rf_small_float format)
{
    return (unsigned)format < RF_SMALL_FLOAT_COUNT ? names[format] : NULL;
}

float rf_small_float_value(enum rf_small_float format, uint8_t code)
{
    const uint32_t bits = small_float_value(rows[format], code);
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

uint8_t rf_small_float_code(enum rf_small_float format, float x, enum rf_rounding rounding,
                            bool saturate, uint32_t random)
{
    return (uint8_t)small_float_code(rows[format], bits_of(x), rounding, saturate, random);
}
