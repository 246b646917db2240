/* SPDX-License-Identifier: MIT
 *
 * Chat templates and their variables. The input up to a zero byte is the template, and the rest is
 * a JSON object.
 */
#include "template/template.h"

#include "fuzz.h"
#include "template/json.h"
#include "tokenizer/utf8.h"

static const struct rf_template_limits limits = {4 << 20, 20000};

static const char example[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be  brief.\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \" Hi <b>\"}], \"name\": \"Bo\"}, {\"role\": "
    "\"assistant\", \"content\": \"\", \"reasoning_content\": \"1\\n2\", \"tool_calls\": [{\"id\": "
    "\"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.0, "
    "\"y\": [null, true, -3, \"\\u00e9\\ud83d\\ude00\"]}}}]}], \"tools\": [{\"type\": "
    "\"function\", "
    "\"function\": {\"name\": \"f\", \"parameters\": {}}}], \"add_generation_prompt\": true, "
    "\"bos_token\": \"<s>\"}";

/* Rendering twice gives the same text, spans are in order, and UTF-8 stays UTF-8. */
static void render(struct rf_template *t, struct rf_dict *variables)
{
    static struct rf_rendered out, again;
    if (rf_template_render(t, variables, 0, &out) < 0) {
        REQUIRE(rf_template_render(t, variables, 0, &again) < 0);
        return;
    }
    REQUIRE(rf_utf8_valid(out.text.bytes, out.text.count) == out.text.count);
    REQUIRE(out.text.bytes[out.text.count] == 0);
    for (size_t i = 0; i < out.marked_count; i++)
        REQUIRE(out.marked[i].begin <= out.marked[i].end);
    REQUIRE(rf_template_render(t, variables, 0, &again) == 0);
    REQUIRE(again.text.count == out.text.count && again.marked_count == out.marked_count &&
            memcmp(again.text.bytes, out.text.bytes, out.text.count) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rf_room room = {0};
    struct rf_value variables;
    struct rf_template *t = NULL;
    size_t at = 0;
    const uint8_t *end = memchr(data, 0, size);
    const size_t length = end ? (size_t)(end - data) : size;
    const char *json = end ? (const char *)end + 1 : example;
    const size_t bytes = end ? size - length - 1 : sizeof(example) - 1;
    rf_room_init(&room, "variables", &limits);
    if (rf_utf8_valid(json, bytes) == bytes &&
        rf_json_read(&room, json, bytes, &at, &variables) == 0 && variables.kind == RF_V_DICT &&
        rf_template_open("template", (const char *)data, length, &limits, &t) == 0)
        render(t, variables.dict);
    rf_template_close(t);
    rf_room_free(&room);
    return 0;
}
