/* SPDX-License-Identifier: MIT
 *
 * config.json of a hub. An accepted input has sizes in their ranges, and a text that can be
 * written.
 */
#include "fuzz.h"
#include "models/hub_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char fault[HUB_FAULT_BYTES] = "";
    struct hub hub = {.text = malloc(size + 1)};
    REQUIRE(hub.text);
    memcpy(hub.text, data, size);
    hub.text[size] = 0;
    if (hub_parse(hub.text, &hub, fault) == 0) {
        const struct hub_values *v = hub_values(&hub);
        struct llama_config llama = {0};
        REQUIRE(v->layers > 0 && v->channels > 0 && v->heads > 0 && v->kv_heads > 0);
        REQUIRE(v->vocab > 0 && v->positions > 0);
        hub_set_llama(&hub, &llama);
        (void)llama_config_fault(&llama);
        char *text = hub_config_text(&hub, RF_BF16);
        REQUIRE(text);
        free(text);
    } else {
        REQUIRE(fault[0] && strlen(fault) < sizeof(fault));
    }
    free(hub.text);
    return 0;
}
