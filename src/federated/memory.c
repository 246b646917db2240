/* SPDX-License-Identifier: MIT
 *
 * What all files of a coordinator use: its arrays, and its notes.
 */
#include "base/base.h"
#include "coordinator.h"

void federated_note(struct rf_coordinator *c, const char *format, ...)
{
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (c->opts.note)
        c->opts.note(c->opts.user, text);
    else
        rf_log("federated", 1, "%s", text);
}

int federated_make_room(struct rf_coordinator *c, int64_t count)
{
    float **arrays[2 + RF_STATE_COUNT] = {&c->params, &c->mean};
    int needed = 2;
    bool sound = true;
    for (int s = 0; s < RF_STATE_COUNT; s++)
        if (rf_optimizer_has(&c->outer, s))
            arrays[needed++] = &c->state[s];
    for (int k = 0; k < needed; k++) {
        rf_free(*arrays[k]); /* of an attempt that failed */
        sound = (*arrays[k] = rf_alloc((size_t)count * sizeof(float))) && sound;
    }
    rf_free(c->decay);
    c->decay = rf_alloc((size_t)(count / 64 + 1) * sizeof *c->decay);
    if (!sound || !c->decay)
        return rf_fail(RF_ENOMEM, "out of memory for %d arrays of %lld parameters", needed,
                       (long long)count);
    for (int64_t k = 0; k < count / 64 + 1; k++)
        c->decay[k] = 1;
    c->count = count;
    return RF_OK;
}
