/* SPDX-License-Identifier: MIT
 *
 * `ringforge merge`: adds adapters in PEFT's format to the weights of a hub's folder. It needs no
 * device.
 */
#include <string.h>

#include "from.h"

static int merge_main(const struct tool_command *command, int argc, char **argv)
{
    struct merge_options o = {NULL};
    int merged = 0;
    struct tool_option table[] = {
        {"from", TOOL_TEXT, &o.from, "DIR",
         "base model as a hub's folder: config.json, model.safetensors or shards",
         .path = TOOL_READS},
        {"adapter", TOOL_TEXT, &o.adapter, "DIR",
         "low-rank adapters as PEFT's folder: adapter_config.json, adapter_model.safetensors",
         .path = TOOL_READS},
        {"export", TOOL_TEXT, &o.export.dir, "DIR", "folder for the merged model",
         .path = TOOL_REPLACES},
        {"allow-nan", TOOL_FLAG, &o.allow_nan, NULL,
         "acceptance of weights that are not finite numbers"},
        {NULL}};
    int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status == TOOL_DONE ? TOOL_OK : status;
    if (!o.from || !o.adapter || !o.export.dir)
        return tool_usage_error(command, "it needs --from DIR, --adapter DIR and --export DIR");
    if (adapter_file_open(o.adapter, &o.file) < 0)
        return tool_error(command, "--adapter %s: %s", o.adapter, rf_last_error()->message);
    status = merge_weights(command, &o, &merged);
    adapter_file_close(o.file);
    if (status == TOOL_OK)
        printf("merged the adapters of %d modules into %s\n", merged, o.export.dir);
    return status;
}

const struct tool_command tool_merge = {
    .name = "merge",
    .summary = "add low-rank adapters to the weights of a model",
    .usage = "--from DIR --adapter DIR --export DIR",
    .main = merge_main,
    .notes = "W + scale B A, as merge_and_unload of PEFT, rounded once to the type of W.\n",
};
