/* SPDX-License-Identifier: MIT
 *
 * adapter_config.json of PEFT. An accepted input is a valid adapter, and its written form reads
 * back the same.
 */
#include "adapter_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct adapter_config config, again;
    char *text = malloc(size + 1);
    REQUIRE(text);
    memcpy(text, data, size);
    text[size] = 0;
    if (adapter_config_parse(text, &config) == 0) {
        REQUIRE(model_adapter_check(&config.adapter) == 0);
        char *written = adapter_config_text(&config.adapter, config.fan_in_fan_out, NULL, NULL, 0);
        REQUIRE(written && adapter_config_parse(written, &again) == 0);
        REQUIRE(again.adapter.rank == config.adapter.rank);
        REQUIRE(strcmp(again.targets, config.targets) == 0);
        free(written);
    }
    free(text);
    return 0;
}
