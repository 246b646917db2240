/* SPDX-License-Identifier: MIT
 *
 * Error messages of the checker: they name the rank, the instruction, and its parameters.
 */
#include "check.h"

#include <stdarg.h>

#include "../../base/base.h"

/* The piece of all operands that have one; -1: none, or several. */
static int only_piece(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *operands = rf_plan_operands(plan, i);
    int piece = -1;
    for (int k = 0; k < i->ins + i->outs; k++) {
        const int other = plan->values[operands[k]].piece;
        if (piece >= 0 && other >= 0 && other != piece)
            return -1;
        piece = other >= 0 ? other : piece;
    }
    return piece;
}

static bool is_in(const struct rf_plan *plan, int param, int piece)
{
    const struct rf_plan_param *p = &plan->params[param];
    const int use = plan->pieces[piece].use;
    return use >= 0 ? use == param : p->owner == param && p->piece == piece;
}

/* " (wte.weight and 3 more)"; "" for no piece. */
static const char *params_text(const struct rf_plan *plan, int piece, char *text, size_t bytes)
{
    int first = -1, count = 0;
    text[0] = 0;
    for (int k = 0; piece >= 0 && piece < plan->piece_count && k < plan->param_count; k++) {
        const bool in = is_in(plan, k, piece);
        first = first < 0 && in ? k : first;
        count += in;
    }
    if (count == 1)
        snprintf(text, bytes, " (%.100s)", plan->params[first].desc->name);
    else if (count > 1)
        snprintf(text, bytes, " (%.100s and %d more)", plan->params[first].desc->name, count - 1);
    return text;
}

int rf_check_fail(const struct rf_plan *plan, const struct rf_instruction *i, const char *format,
                  ...)
{
    char text[96], params[128], why[320];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof(why), format, list);
    va_end(list);
    return rf_fail(RF_EINVAL, "plan of rank %d: %s%s: %s", plan->rank,
                   rf_instruction_text(plan, i, text, sizeof(text)),
                   params_text(plan, only_piece(plan, i), params, sizeof(params)), why);
}

const char *rf_check_piece(const struct rf_plan *plan, const struct rf_instruction *i, int piece,
                           char text[RF_CHECK_TEXT])
{
    char params[128];
    const bool said = i && only_piece(plan, i) >= 0;
    snprintf(text, RF_CHECK_TEXT, "piece %d%s", piece,
             params_text(plan, said ? -1 : piece, params, sizeof(params)));
    return text;
}

const char *rf_check_value(const struct rf_plan *plan, const struct rf_instruction *i, int value,
                           char text[RF_CHECK_TEXT])
{
    const struct rf_value *v = &plan->values[value];
    char of[96], params[128];
    const bool said = i && only_piece(plan, i) >= 0;
    snprintf(text, RF_CHECK_TEXT, "%s%s", rf_value_text(v, of, sizeof(of)),
             params_text(plan, said ? -1 : v->piece, params, sizeof(params)));
    return text;
}
