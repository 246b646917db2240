/* SPDX-License-Identifier: MIT
 *
 * A schedule as text, one step a line. For people who debug an algorithm; called by tests.
 */
#include "sched.h"

static const char *const verb_names[] = {[RF_STEP_SEND] = "send",
                                         [RF_STEP_RECV] = "recv",
                                         [RF_STEP_REDUCE] = "reduce",
                                         [RF_STEP_COPY] = "copy",
                                         [RF_STEP_DIVIDE] = "divide",
                                         [RF_STEP_JOIN] = "join",
                                         [RF_STEP_FETCH] = "fetch",
                                         [RF_STEP_STORE] = "store",
                                         [RF_STEP_ADDRESSES] = "addresses",
                                         [RF_STEP_AGREE] = "agree",
                                         [RF_STEP_REDUCE_ALL] = "reduce_all"};

const char *rf_step_verb_name(enum rf_step_verb verb)
{
    return (unsigned)verb <= RF_STEP_REDUCE_ALL ? verb_names[verb] : "?";
}

static void print_operand(FILE *file, struct rf_operand operand)
{
    static const char *const spaces[] = {"in", "out", "tmp", "?"};
    fprintf(file, " %s+%llu", spaces[operand.space], (unsigned long long)operand.offset);
    if (operand.level)
        fprintf(file, "^%u", (unsigned)operand.level);
}

static void print_reduce(const struct rf_sched *sched, const struct rf_step *step, FILE *file)
{
    print_operand(file, step->dst);
    fprintf(file, " =%s%s", step->tree ? " tree" : "", step->divide ? " divided" : "");
    for (uint32_t i = 0; i < step->list_count; i++)
        print_operand(file, sched->operands[step->list + i]);
    if (step->list_count == 0) {
        print_operand(file, step->a);
        print_operand(file, step->b);
    }
}

void rf_sched_print(const struct rf_sched *sched, FILE *file)
{
    fprintf(file, "%s by %s, rank %d of %d: %u steps, sends %llu bytes, needs %zu\n",
            rf_coll_op_name(sched->op), sched->algorithm, sched->rank, sched->ranks, sched->count,
            (unsigned long long)sched->sent_bytes, sched->temp_bytes);
    for (uint32_t i = 0; i < sched->count; i++) {
        const struct rf_step *step = &sched->steps[i];
        fprintf(file, "%5u %-6s %8llu", i, rf_step_verb_name(step->verb),
                (unsigned long long)step->bytes);
        if (step->verb == RF_STEP_SEND || step->verb == RF_STEP_RECV) {
            fprintf(file, " peer %d tag %u", step->peer, step->tag);
            print_operand(file, step->verb == RF_STEP_SEND ? step->a : step->dst);
        } else if (step->verb == RF_STEP_REDUCE) {
            print_reduce(sched, step, file);
        } else if (step->verb == RF_STEP_FETCH || step->verb == RF_STEP_STORE) {
            for (uint32_t m = 0; m < step->list_count; m++) {
                const struct rf_move *move = &sched->moves[step->list + m];
                fprintf(file, " %s+%llu:%llu slot+%llu",
                        step->dst.space == RF_SPACE_IN ? "in" : "out",
                        (unsigned long long)move->tensor, (unsigned long long)move->bytes,
                        (unsigned long long)move->slot);
            }
        } else if (step->verb == RF_STEP_REDUCE_ALL) {
            print_operand(file, step->dst);
            fprintf(file, " of all =%s%s from rank %d on", step->tree ? " tree" : "",
                    step->divide ? " divided" : "", step->peer);
        } else if (step->verb != RF_STEP_JOIN && step->verb != RF_STEP_AGREE) {
            print_operand(file, step->dst);
            if (step->verb == RF_STEP_COPY)
                print_operand(file, step->a);
        }
        fprintf(file, "  after %u, before", step->need);
        for (uint32_t n = 0; n < step->next_count; n++)
            fprintf(file, " %u", sched->successors[step->next + n]);
        fprintf(file, "\n");
    }
}
