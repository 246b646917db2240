/* SPDX-License-Identifier: MIT
 *
 * Text from the model: one byte after the other, drawn from its own prediction.
 */
#include <math.h>
#include <string.h>

#include "train.h"

/* SplitMix64 (Steele, Lea, Flood 2014): the same text for the same seed. */
static double uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static int draw(const float *logits, double temperature, uint64_t *state)
{
    double weight[RF_BYTE_VOCABULARY], total = 0, best = logits[0];
    for (int i = 1; i < RF_BYTE_VOCABULARY; i++)
        best = logits[i] > best ? logits[i] : best;
    for (int i = 0; i < RF_BYTE_VOCABULARY; i++)
        total += weight[i] = exp(((double)logits[i] - best) / temperature);
    double at = uniform(state) * total;
    for (int i = 0; i < RF_BYTE_VOCABULARY; i++) {
        at -= weight[i];
        if (at <= 0)
            return i;
    }
    return RF_BYTE_VOCABULARY - 1;
}

static void show(char c)
{
    putchar(c);
    fflush(stdout);
}

int train_sample(const struct tool_command *command, const struct train_options *o,
                 struct rf_run *run, bool print)
{
    const struct rf_policy *p = &o->setup.policy;
    int64_t seq = p->seq, rows = p->batch / p->micro_batches * seq;
    uint64_t bytes = (uint64_t)rows * RF_BYTE_VOCABULARY * sizeof(float);
    int32_t *tokens = calloc((size_t)rows, sizeof(*tokens));
    float *logits = malloc(bytes);
    uint64_t state = (uint64_t)o->seed;
    int status = TOOL_OK;
    int64_t used = 0;
    if (!tokens || !logits)
        status = tool_error(command, "out of memory for a sample");
    for (const char *at = o->prompt; *at && status == TOOL_OK; at++) {
        if (used == seq)
            memmove(tokens, tokens + 1, (size_t)(--used) * sizeof(*tokens));
        tokens[used++] = (uint8_t)*at;
    }
    if (used == 0 && status == TOOL_OK)
        tokens[used++] = RF_END_OF_TEXT;
    if (status == TOOL_OK && print)
        printf("sample:\n%s", o->prompt);
    for (int64_t i = 0; i < o->sample && status == TOOL_OK; i++) {
        if (rf_run_forward(run, tokens, logits, bytes) < 0) {
            status = tool_library_error(command, -1);
            break;
        }
        int next = draw(logits + (used - 1) * RF_BYTE_VOCABULARY, o->temperature, &state);
        if (print) /* control characters do not reach the terminal */
            show(next == RF_END_OF_TEXT                                        ? '\n'
                 : next == '\n' || next == '\t' || (next >= 32 && next != 127) ? (char)next
                                                                               : '?');
        if (used == seq)
            memmove(tokens, tokens + 1, (size_t)(--used) * sizeof(*tokens));
        tokens[used++] = next;
    }
    if (status == TOOL_OK && print)
        printf("\n");
    free(logits);
    free(tokens);
    return status;
}
