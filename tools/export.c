/* SPDX-License-Identifier: MIT
 *
 * --export DIR: the parameters of a run as a folder of a hub. Every rank takes part in reading a
 * parameter that is spread over ranks, even after rank 0 has failed to write.
 */
#include <string.h>

#include "from.h"

static int dtype_of(const struct tool_command *command, const struct export_options *o,
                    const struct hub *hub, enum rf_dtype *out)
{
    *out = hub ? hub_dtype(hub) : RF_F32;
    if (!o->dtype)
        return TOOL_OK;
    const int status = tool_read_dtype(command, o->dtype, out);
    if (status != TOOL_OK)
        return status;
    return *out == RF_F32 || *out == RF_F16 || *out == RF_BF16
               ? TOOL_OK
               : tool_usage_error(command, "--export-dtype %s: use f32, f16 or bf16", o->dtype);
}

int export_check(const struct tool_command *command, const struct export_options *o)
{
    enum rf_dtype dtype;
    if (!o->dir)
        return TOOL_OK;
    if (rf_export_check(o->dir) < 0)
        return tool_library_error(command, -1);
    return dtype_of(command, o, NULL, &dtype);
}

enum { PIECE = 1 << 20 }; /* elements that are converted and written at once */

/* The state of one export. */
struct job {
    const struct tool_command *command;
    const struct setup *setup;
    const struct hub *hub;
    struct hub_tensors tensors;
    enum rf_dtype dtype;
    struct rf_export *file; /* rank 0's */
    float *param;           /* a whole parameter */
    float *piece;           /* PIECE elements of one of its tensors */
    int failed;             /* an exit status: rank 0 writes nothing more */
};

static int begin(struct job *job, const struct export_options *o)
{
    const struct hub_tensors *tensors = &job->tensors;
    struct rf_weight *weights = calloc((size_t)tensors->count, sizeof(*weights));
    if (!weights)
        return tool_error(job->command, "out of memory");
    for (int i = 0; i < tensors->count; i++)
        weights[i] = (struct rf_weight){.name = tensors->list[i].name,
                                        .dtype = job->dtype,
                                        .shape = hub_tensor_shape(&tensors->list[i])};
    const struct rf_export_opts opts = {
        .weights = weights, .count = tensors->count, .shard_bytes = (uint64_t)o->shard_bytes};
    int rc = rf_export_open(o->dir, &opts, &job->file);
    free(weights);
    return rc < 0 ? tool_library_error(job->command, 0) : TOOL_OK;
}

/* Tensors [from, to) are parts of one parameter. */
static int write_param(struct job *job, int from, int to)
{
    for (int k = from; k < to; k++) {
        const struct hub_tensor *t = &job->tensors.list[k];
        const int64_t all = t->rows * t->columns;
        for (int64_t at = 0, n; at < all; at += n) {
            n = all - at < PIECE ? all - at : PIECE;
            hub_take(t, job->param, at, n, job->piece);
            if (rf_export_write(job->file, job->piece, (uint64_t)n) < 0)
                return tool_library_error(job->command, 0);
        }
    }
    return TOOL_OK;
}

static int write_all(struct job *job, struct rf_run *run, bool writes)
{
    const struct hub_tensors *tensors = &job->tensors;
    for (int from = 0, to; from < tensors->count; from = to) {
        const struct rf_param_desc *param = tensors->list[from].param;
        const uint64_t count = (uint64_t)rf_shape_count(param->shape);
        for (to = from + 1; to < tensors->count; to++)
            if (tensors->list[to].param != param)
                break;
        if (rf_run_read_param(run, param->name, job->param, count * sizeof(float)) < 0)
            return tool_library_error(job->command, -1);
        if (writes && job->failed == TOOL_OK)
            job->failed = write_param(job, from, to);
    }
    return TOOL_OK;
}

/* The tokenizer of a model that came from no hub. */
static int write_tokenizer(struct job *job)
{
    if (job->setup->from || hub_values(job->hub)->vocab != RF_BYTE_VOCABULARY)
        return TOOL_OK;
    char *text = byte_tokenizer_text();
    if (!text)
        return tool_error(job->command, "out of memory");
    int rc = rf_export_text(job->file, "tokenizer.json", text);
    if (rc == 0)
        rc = rf_export_text(job->file, "tokenizer_config.json", byte_tokenizer_config);
    free(text);
    return rc < 0 ? tool_library_error(job->command, 0) : TOOL_OK;
}

static int write_others(struct job *job)
{
    char *text = hub_config_text(job->hub, job->dtype);
    if (!text)
        return tool_error(job->command, "out of memory");
    int rc = rf_export_text(job->file, "config.json", text);
    free(text);
    if (rc == 0 && job->setup->from)
        rc = export_copy_others(job->file, job->setup->from);
    return rc < 0 ? tool_library_error(job->command, 0) : write_tokenizer(job);
}

static int make_buffers(struct job *job)
{
    uint64_t most = 1;
    for (int i = 0; i < job->tensors.count; i++) {
        const uint64_t count = (uint64_t)rf_shape_count(job->tensors.list[i].param->shape);
        most = count > most ? count : most;
    }
    job->param = malloc(most * sizeof(float));
    job->piece = malloc(PIECE * sizeof(float));
    return job->param && job->piece ? TOOL_OK
                                    : tool_error(job->command, "out of memory for a parameter");
}

/* Rank 0's status becomes that of all. */
static int end(struct job *job, struct rf_run *run, int status, bool writes)
{
    if (writes && status == TOOL_OK && job->failed == TOOL_OK)
        job->failed = write_others(job);
    if (writes && rf_export_close(job->file, status == TOOL_OK && job->failed == TOOL_OK) < 0)
        job->failed = tool_library_error(job->command, 0);
    if (status == TOOL_OK && rf_run_share(run, &job->failed, sizeof(job->failed)) < 0)
        status = tool_library_error(job->command, -1);
    return status == TOOL_OK ? job->failed : status;
}

int export_run(const struct tool_command *command, const struct setup *setup,
               const struct export_options *o, const struct model *model, struct rf_run *run,
               int rank, bool together)
{
    struct job job = {.command = command, .setup = setup, .hub = setup->hub};
    const bool writes = rank == 0;
    struct hub *described = NULL;
    int status = TOOL_OK;
    if (!setup->hub && model_describe(setup, &described) < 0)
        status = tool_error(command, "--export: %s", rf_last_error()->message);
    job.hub = setup->hub ? setup->hub : described;
    if (status == TOOL_OK)
        status = dtype_of(command, o, job.hub, &job.dtype);
    if (status == TOOL_OK && hub_list(job.hub, model->blocks, model->count, true, &job.tensors) < 0)
        status = tool_error(command, "--export %s: %s", o->dir, rf_last_error()->message);
    if (status == TOOL_OK)
        status = make_buffers(&job);
    if (status == TOOL_OK && writes)
        job.failed = begin(&job, o);
    if (status == TOOL_OK && (writes || together))
        status = write_all(&job, run, writes);
    status = end(&job, run, status, writes);
    hub_tensors_free(&job.tensors);
    hub_destroy(described);
    free(job.param);
    free(job.piece);
    return status;
}
