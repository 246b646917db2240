/* SPDX-License-Identifier: MIT
 *
 * Checks of the options of `ringforge train` before a rank is started, and the text to learn from.
 */
#include <string.h>
#include <unistd.h>

#include "svg.h"
#include "train.h"

static int adapter_options(const struct tool_command *command, const struct train_options *o)
{
    if (o->setup.adapter_file && (o->resume || o->join || o->elastic))
        return tool_usage_error(command,
                                "--adapter is what training begins with; leave it out, or "
                                "%s",
                                o->resume ? "--resume (--lora continues a checkpoint)"
                                          : "--join and --elastic");
    if (o->export_adapter && rf_export_check(o->export_adapter) < 0)
        return tool_library_error(command, -1);
    return TOOL_OK;
}

int train_check(const struct tool_command *command, struct train_options *o)
{
    int ranks = 0;
    int status = tool_ranks_count(command, &o->ranks, &ranks);
    if (status == TOOL_OK)
        status = setup_check(command, &o->setup, o->join || train_sync_on(o) ? 1 : ranks);
    if (status != TOOL_OK)
        return status;
    o->setup.policy.packed = o->packing;
    if (o->packing && o->setup.mesh.cp > 1)
        return tool_usage_error(command, "--packing is not for ranks of cp in this version");
    int wanted = setup_ranks(&o->setup);
    const int servers = train_store_servers(o);
    if (train_sync_on(o) && !o->join && (ranks - servers) % wanted != 0)
        return tool_usage_error(command,
                                "--mesh %s is a grid of %d ranks for each worker of --sync; %d "
                                "ranks are no multiple of it",
                                o->setup.mesh_text, wanted, ranks - servers);
    o->workers = train_sync_on(o) && !o->join ? (ranks - servers) / wanted : 1;
    if (train_sync_on(o) && (status = train_sync_check(command, o, o->workers)) != TOOL_OK)
        return status;
    if (o->setup.compression.form != RF_FORM_F32 && (o->elastic || o->accept || o->join))
        return tool_usage_error(command,
                                "--compress is not for --elastic, --accept and --join: what each "
                                "rank has lost of its gradients would be lost with it");
    if (o->setup.on_disk && !o->disk)
        return tool_usage_error(command, "--offload optimizer=disk needs a folder on a disk: use "
                                         "--disk DIR with it");
    if (o->disk && !o->setup.on_disk)
        return tool_usage_error(command, "--disk is for --offload optimizer=disk; use both, or "
                                         "neither");
    if (o->disk_slowdown != 0 && o->disk_slowdown < 1)
        return tool_usage_error(command,
                                "--disk-slowdown %g: a step with a disk cannot be faster "
                                "than without; use 1 or more, or 0 for any",
                                o->disk_slowdown);
    if (o->disk && (o->elastic || o->accept || o->join))
        return tool_usage_error(command,
                                "--disk is not for --elastic, --accept and --join, which copy "
                                "optimizer states to host memory: use --save-every, and --resume");
    if (wanted != ranks && !o->join && !train_sync_on(o))
        return tool_usage_error(command,
                                "--mesh %s is a grid of %d ranks, but there %s %d; start "
                                "as many, or change the mesh",
                                o->setup.mesh_text, wanted, ranks == 1 ? "is" : "are", ranks);
    if (o->plot_staleness && servers == 0)
        return tool_usage_error(command, "--plot-staleness is for a store on servers: use it with "
                                         "--sync server, server:async or server:stale=S");
    if (!o->data)
        return tool_usage_error(command, "--data names the text file or folder to learn from");
    if (strcmp(o->decay, "none") != 0 && strcmp(o->decay, "cosine") != 0)
        return tool_usage_error(command, "there is no --lr-decay \"%s\"; use none or cosine",
                                o->decay);
    if (strcmp(o->scale_lr, "none") != 0 && strcmp(o->scale_lr, "linear") != 0 &&
        strcmp(o->scale_lr, "sqrt") != 0)
        return tool_usage_error(command, "there is no --scale-lr \"%s\"; use linear or sqrt",
                                o->scale_lr);
    if (o->sample > 0 && o->setup.head_rows)
        return tool_usage_error(command, "--sample needs all logits of a sequence: leave out "
                                         "--head-rows");
    if (o->sample > 0 && o->setup.mesh.cp > 1)
        return tool_usage_error(command, "--sample needs all logits of a sequence, of which ranks "
                                         "of cp have parts: leave it out, or use another mesh");
    if (o->sample > 0 && o->setup.hub && hub_values(o->setup.hub)->vocab != RF_BYTE_VOCABULARY)
        return tool_usage_error(command, "--sample is for models of bytes: leave it out");
    tool_today(o->today);
    status = tool_read_date(command, o->date ? o->date : o->today, &o->now);
    if (status != TOOL_OK)
        return status;
    status = adapter_options(command, o);
    if (status == TOOL_OK && o->export.dir && o->setup.reversible)
        return tool_usage_error(command, "--export: no hub has an architecture with reversible "
                                         "layers; use --save, or leave out --reversible");
    if (status == TOOL_OK)
        status = export_check(command, &o->export);
    if (status == TOOL_OK && o->export.dir && o->setup.from &&
        export_copy_others(NULL, o->setup.from) < 0)
        status = tool_library_error(command, -1);
    if (status == TOOL_OK && o->plot_staleness)
        status = svg_check(command, o->plot_staleness);
    return status == TOOL_OK && o->plot_path ? svg_check(command, o->plot_path) : status;
}

/* Opens --data: as bytes, or through the tokenizer of --from if that folder has one. */
int train_open_data(const struct tool_command *command, const struct train_options *o,
                    struct rf_dataset **out)
{
    struct rf_tokenizer *tokenizer = NULL;
    char path[TOOL_PATH_BYTES] = "";
    if (o->setup.from)
        snprintf(path, sizeof(path), "%s/tokenizer.json", o->setup.from);
    int rc = path[0] && access(path, R_OK) == 0 ? rf_tokenizer_open(o->setup.from, &tokenizer) : 0;
    if (rc == 0)
        rc = rf_dataset_open_as(o->data,
                                &(struct rf_data_opts){.tokenizer = tokenizer,
                                                       .pack = o->packing ? o->setup.seq : 0,
                                                       .seq = o->setup.seq,
                                                       .chat = o->chat,
                                                       .model = o->setup.from,
                                                       .now = o->now},
                                out);
    rf_tokenizer_close(tokenizer);
    if (rc < 0)
        return tool_library_error(command, -1);
    const int64_t most = o->setup.hub ? hub_values(o->setup.hub)->vocab : RF_BYTE_VOCABULARY;
    if (rf_dataset_vocabulary(*out) > most)
        return tool_error(
            command,
            "%s has token %lld; the vocabulary of the model has %lld tokens: the text "
            "was encoded for another model",
            o->data, (long long)rf_dataset_vocabulary(*out) - 1, (long long)most);
    if (rf_dataset_documents(*out) == 0 && rf_dataset_train_tokens(*out) <= o->setup.seq)
        return tool_error(command,
                          "%s has %lld tokens to train on, fewer than one sequence of "
                          "%lld: more text, or a smaller --seq, is needed",
                          o->data, (long long)rf_dataset_train_tokens(*out),
                          (long long)o->setup.seq);
    return TOOL_OK;
}
