/* SPDX-License-Identifier: MIT
 *
 * The result of ringforge plan --fits, for people and as JSON.
 */
#include <string.h>

#include "plan_fits.h"

const char *fits_change_text(const struct fits *fits, const struct fits_row *row,
                             char text[FITS_OPTIONS + 32])
{
    const bool more = row->micro_batches != fits->setup->policy.micro_batches;
    int at = more ? snprintf(text, 32, "--micro-batches %lld%s", (long long)row->micro_batches,
                             row->options[0] ? " " : "")
                  : 0;
    snprintf(text + at, FITS_OPTIONS, "%s", row->options);
    return text;
}

static void print_row(const struct fits_row *row)
{
    char text[3][24];
    if (row->reason[0]) {
        printf("%60s  %s: %s\n", "refused", row->options[0] ? row->options : "(as given)",
               row->reason);
        return;
    }
    snprintf(text[2], sizeof(text[2]), row->flops ? "%.0f %%" : "-",
             100.0 * (double)row->repeated / (double)(row->flops ? row->flops : 1));
    printf("%10s %10s %8s %4s %10lld %12lld  %s\n",
           row->flops ? tool_bytes_text(row->device_bytes, text[0], sizeof(text[0])) : "-",
           row->flops ? tool_bytes_text(row->host_bytes, text[1], sizeof(text[1])) : "-", text[2],
           row->flops ? row->fits ? "yes" : "no" : "-", (long long)row->max_batch,
           (long long)row->max_seq, row->options[0] ? row->options : "(as given)");
}

void fits_print(const struct fits *fits)
{
    const struct rf_policy *p = &fits->setup->policy;
    char text[FITS_OPTIONS + 32], bytes[24];
    printf("In %s of device memory, batch %lld of %lld tokens in %lld micro-batches:\n\n",
           tool_bytes_text(fits->limit, bytes, sizeof(bytes)), (long long)p->batch,
           (long long)p->seq, (long long)p->micro_batches);
    printf("%10s %10s %8s %4s %10s %12s  %s\n", "on device", "with host", "repeated", "fits",
           "most batch", "most seq", "options");
    for (int k = 0; k < fits->count; k++)
        print_row(&fits->rows[k]);
    printf("\nmost batch: of sequences of %lld tokens in %lld micro-batches; most seq: with "
           "micro-batches of one sequence\n",
           (long long)p->seq, (long long)p->micro_batches);
    if (!fits->best)
        return;
    if (fits->best == fits->rows && fits->best->micro_batches == p->micro_batches)
        printf("It fits as given\n");
    else
        printf("The cheapest change with which the batch fits: %s (%s on the device)\n",
               fits_change_text(fits, fits->best, text),
               tool_bytes_text(fits->best->cut_bytes, bytes, sizeof(bytes)));
}

static cJSON *row_json(const struct fits_row *row)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "options", row->options);
    if (row->reason[0]) {
        cJSON_AddStringToObject(json, "reason", row->reason);
        return json;
    }
    if (row->flops) {
        tool_json_put(json, "device_bytes=%g host=%g flops=%g repeated_flops=%g sent=%g",
                      (double)row->device_bytes, (double)row->host_bytes, (double)row->flops,
                      (double)row->repeated, (double)row->sent);
    }
    tool_json_put(json, "fits=%hhd max_batch=%g max_seq=%g", row->fits, (double)row->max_batch,
                  (double)row->max_seq);
    return json;
}

cJSON *fits_json(const struct fits *fits)
{
    const struct rf_policy *p = &fits->setup->policy;
    char text[FITS_OPTIONS + 32];
    cJSON *json = tool_json_new("ranks=%d param_count=%g limit=%g batch=%g seq=%g micro_batches=%g",
                                setup_ranks(fits->setup), (double)fits->params, (double)fits->limit,
                                (double)p->batch, (double)p->seq, (double)p->micro_batches);
    cJSON *list = cJSON_AddArrayToObject(json, "fits");
    for (int k = 0; k < fits->count; k++)
        cJSON_AddItemToArray(list, row_json(&fits->rows[k]));
    if (!fits->best)
        return json;
    cJSON *change = cJSON_AddObjectToObject(json, "change");
    tool_json_put(change, "options=%s device_bytes=%g host=%g",
                  fits_change_text(fits, fits->best, text), (double)fits->best->cut_bytes,
                  (double)fits->best->cut_host);
    return json;
}
