/* SPDX-License-Identifier: MIT
 *
 * config.json of a hub. An accepted input has sizes in their ranges, and a text that can be
 * written.
 */
#include "fuzz.h"
#include "models/hub_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub hub = {.text = malloc(size + 1)};
    REQUIRE(hub.text);
    memcpy(hub.text, data, size);
    hub.text[size] = 0;
    if (hub_parse(hub.text, &hub) == 0) {
        const struct hub_values *v = hub_values(&hub);
        struct llama_config llama = {0};
        REQUIRE(v->layers > 0 && v->channels > 0 && v->heads > 0 && v->kv_heads > 0);
        REQUIRE(v->vocab > 0 && v->positions > 0);
        hub_set_llama(&hub, &llama);
        struct llama *model = NULL;
        if (v->layers <= 4 && llama_create(&llama, &model) == 0)
            llama_destroy(model);
        char *text = hub_config_text(&hub, RF_BF16);
        REQUIRE(text);
        free(text);
    } else {
        REQUIRE(rf_last_error()->message[0]);
    }
    free(hub.text);
    return 0;
}
