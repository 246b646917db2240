/* SPDX-License-Identifier: MIT
 *
 * Opens and closes runs. This is the only file of training that allocates device memory: exactly
 * the regions that the plan lists. It also returns planned and measured bytes.
 */
#include "run.h"

#include <ringforge/ringforge.h>
#include <unistd.h>

#include "../base/base.h"
#include "../device/device.h"
#include "../parallel/plan/traffic.h"
#include "compress.h"

static int check_ranks(const struct rf_run *run)
{
    int size = run->comm ? rf_comm_size(run->comm) : 1;
    int rank = run->comm ? rf_comm_rank(run->comm) : 0;
    const struct rf_mesh *mesh = &run->plan->mesh;
    const int ranks = rf_plan_ranks(run->plan);
    char context[24] = "";
    if (mesh->cp > 1)
        snprintf(context, sizeof(context), ",cp=%d", mesh->cp);
    if (ranks != size)
        return rf_fail(RF_EINVAL,
                       "the mesh dp=%d,tp=%d%s,pp=%d needs %d ranks, but there are %d: use dp=%d, "
                       "or start %d ranks",
                       mesh->dp, mesh->tp, context, mesh->pp, ranks, size, size, ranks);
    if (run->plan->rank != rank)
        return rf_fail(RF_EINVAL, "the plan is of rank %d, but this is rank %d: build it for %d",
                       run->plan->rank, rank, rank);
    return 0;
}

static int check_size(const struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    if (plan->regions[RF_REGION_GRADS].bytes / sizeof(float) > UINT32_MAX * (uint64_t)plan->slots ||
        rf_plan_param_elements(plan, plan->shard) > UINT32_MAX)
        return rf_fail(RF_ENOTSUP,
                       "%lld parameters: this version holds at most 4294967295 on one rank; use a "
                       "smaller model",
                       (long long)plan->logical_elements);
    return check_ranks(run);
}

static int open_arenas(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    int rc = 0;
    uint64_t *bytes = rf_alloc((size_t)plan->region_count * sizeof(*bytes));
    run->regions = rf_alloc((size_t)plan->region_count * sizeof(*run->regions));
    if (!bytes || !run->regions) {
        rf_free(bytes);
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    }
    for (int c = 0; rc == 0 && c < RF_CATEGORY_COUNT; c++)
        for (int memory = 0; rc == 0 && memory < 2; memory++) {
            uint64_t total = 0;
            for (int i = 0; i < plan->region_count; i++) {
                const struct rf_plan_region *region = &plan->regions[i];
                bool ours = (int)region->category == c && (int)region->memory == memory;
                bytes[i] = ours ? region->bytes : 0;
                total += bytes[i];
            }
            if (total == 0)
                continue;
            rc = rf_arena_create(run->device, rf_category_name((enum rf_category)c),
                                 (enum rf_memory)memory, (enum rf_category)c, bytes,
                                 plan->region_count, &run->arenas[c][memory]);
            for (int i = 0; rc == 0 && i < plan->region_count; i++)
                if (bytes[i])
                    run->regions[i] = rf_arena_piece(run->arenas[c][memory], i);
        }
    rf_free(bytes);
    return rc;
}

static int open_disk(struct rf_run *run, const char *folder)
{
    const struct rf_plan *plan = run->plan;
    uint64_t *offsets = rf_alloc((size_t)plan->region_count * sizeof(*offsets));
    if (!offsets)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    const int rc = rf_disk_open(plan, run->device, folder, offsets, &run->disk);
    for (int i = 0; rc == 0 && i < plan->region_count; i++)
        if (plan->regions[i].memory == RF_MEMORY_DISK)
            run->regions[i] =
                (struct rf_tensor){.offset = offsets[i],
                                   .shape = rf_shape1((int64_t)plan->regions[i].bytes),
                                   .dtype = RF_U8};
    rf_free(offsets);
    return rc;
}

static int make_views(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    size_t params = (size_t)plan->param_count + 1;
    run->call_params = rf_alloc(params * sizeof(*run->call_params));
    run->call_grads = rf_alloc(params * sizeof(*run->call_grads));
    run->call_overwrite_grad = rf_alloc(params * sizeof(*run->call_overwrite_grad));
    if (!run->call_params || !run->call_grads || !run->call_overwrite_grad)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    run->tokens = rf_tensor_map(run->regions[RF_REGION_TOKENS]);
    run->targets = rf_tensor_map(run->regions[RF_REGION_TARGETS]);
    run->losses = rf_tensor_map(run->regions[RF_REGION_LOSSES]);
    if (plan->policy.packed)
        run->starts = rf_tensor_map(run->regions[RF_REGION_STARTS]);
    for (int id = 0; id < RF_LIST_COUNT; id++) {
        RETURN_IF_ERROR(rf_plan_list_sent(plan, (enum rf_list_id)id, &run->list_sent[id]));
        run->list_disk[id] = rf_plan_list_disk(plan, (enum rf_list_id)id);
    }
    return rf_run_reserve_loss_sums(run, plan->policy.micro_batches);
}

/* Opens a communicator with its own connections for each of this rank's groups. The group of all
 * ranks, and messages, use the job's communicator. */
static int open_groups(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    if (run->comm)
        rf_comm_set_track(run->comm, rf_lane_name(rf_plan_loss_lane(plan)));
    for (int lane = RF_LANE_DATA; run->comm && lane < RF_LANE_COUNT; lane++) {
        const struct rf_plan_group *group = &plan->groups[lane];
        const bool all = group->size == rf_comm_size(run->comm);
        const bool used = rf_lane_collects(lane) ? group->size > 0 : plan->mesh.pp > 1;
        if (!rf_lane_transfers(lane) || !used)
            continue;
        if (all || !rf_lane_collects(lane)) {
            run->comms[lane] = run->comm;
            continue;
        }
        RETURN_IF_ERROR(rf_comm_split(run->comm, group->first, plan->rank, &run->comms[lane]));
        rf_comm_set_track(run->comms[lane], rf_lane_name((enum rf_lane)lane));
    }
    return 0;
}

static void close_groups(struct rf_run *run)
{
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
        if (run->comms[lane] && run->comms[lane] != run->comm &&
            rf_comm_close(run->comms[lane]) < 0)
            rf_log("train", 2, "a group's communicator: %s", rf_last_error()->message);
}

/* Opens a stream for each lane that copies between host and device. */
static int open_copies(struct rf_run *run)
{
    static const bool copies[RF_LANE_COUNT] = {[RF_LANE_FETCH] = true, [RF_LANE_EVICT] = true};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    run->host_threads = cores < 1 ? 1 : cores > RF_HOST_THREADS ? RF_HOST_THREADS : (int)cores;
    for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
        bool used = false;
        for (int id = 0; id < RF_LIST_COUNT; id++)
            used |= run->plan->lists[id].positions[lane] > 0;
        if (used && copies[lane])
            RETURN_IF_ERROR(rf_stream_create(run->device, rf_lane_name((enum rf_lane)lane),
                                             &run->copies[lane]));
    }
    return 0;
}

/* An execution waits for its streams at its end, so its submissions bound those in flight.
 * For very long lists only the first ones are made here; the others are made on demand. */
#define MOST_SUBMISSIONS 256

static int reserve_submissions(const struct rf_run *run, struct rf_stream *stream, int lane)
{
    const struct rf_plan *plan = run->plan;
    int most = 0;
    for (int id = 0; stream && id < RF_LIST_COUNT; id++) {
        const struct rf_list *list = &plan->lists[id];
        int count = 2; /* before the first instruction, and after the last one */
        for (int i = 0; i < list->count; i++)
            count += list->instructions[i].lane == (enum rf_lane)lane &&
                     (lane != RF_LANE_COMPUTE || list->instructions[i].posts);
        most = count > most ? count : most;
    }
    most = most < MOST_SUBMISSIONS ? most : MOST_SUBMISSIONS;
    return stream ? rf_stream_reserve(stream, most, RF_LANE_COUNT) : 0;
}

static int open_local(struct rf_run *run, const struct rf_run_opts *opts)
{
    rf_device_memory_reset_peak(run->device);
    rf_device_memory(run->device, &run->memory_before);
    RETURN_IF_ERROR(open_arenas(run));
    RETURN_IF_ERROR(open_disk(run, opts ? opts->disk : NULL));
    RETURN_IF_ERROR(make_views(run));
    RETURN_IF_ERROR(rf_stream_create(run->device, rf_lane_name(RF_LANE_COMPUTE), &run->stream));
    RETURN_IF_ERROR(open_copies(run));
    RETURN_IF_ERROR(rf_segments_open(run));
    RETURN_IF_ERROR(rf_stalls_open(run));
    RETURN_IF_ERROR(rf_run_upload_tables(run));
    RETURN_IF_ERROR(rf_run_init_params(run));
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        RETURN_IF_ERROR(reserve_submissions(
            run, lane == RF_LANE_COMPUTE ? run->stream : run->copies[lane], lane));
    return 0;
}

/* Arithmetic on the host in place of the device must have the device's bits. */
static int follow_device(struct rf_run *run)
{
    if (rf_run_ranks(run) > 1) {
        RETURN_IF_ERROR(rf_comm_follow_device(run->comm, run->device));
        run->flush = rf_comm_flushes_subnormals(run->comm);
        return 0;
    }
    return run->plan->policy.offload & RF_OFFLOAD_OPTIMIZER
               ? rf_device_flushes_subnormals(run->device, &run->flush)
               : 0;
}

static void log_stage(void *user, const char *stage)
{
    rf_log("io", 3, "a save: %s", stage);
}

int rf_run_open(struct rf_device *device, struct rf_comm *comm, const struct rf_plan *plan,
                const struct rf_run_opts *opts, struct rf_run **out)
{
    if (!device || !plan || !out)
        return rf_fail(RF_EINVAL, "run: a device, a plan and a pointer for the result are needed");
    struct rf_run *run = rf_alloc(sizeof(*run));
    if (!run)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    run->device = device;
    run->comm = comm;
    run->plan = plan;
    run->seed = opts ? opts->seed : 0;
    run->record_each_step = opts && opts->record_each_step;
    run->one_by_one = plan->policy.no_overlap || rf_device_checks_ranges(device);
    run->stop = opts ? opts->stop : NULL;
    run->other_batch = opts && opts->other_batch;
    run->files = (struct rf_run_files){.piece_bytes = (size_t)4 << 20,
                                       .saves = {log_stage, NULL},
                                       .sees = rf_checkpoint_sees,
                                       .has = rf_checkpoint_is};
    int rc = check_size(run);
    if (rc == 0)
        rc = rf_config_merge(plan->blocks, plan->block_count, &run->config);
    rc = rf_run_agree(run, rc);
    if (rc == 0)
        rc = follow_device(run);
    if (rc < 0)
        goto fail;
    rc = rf_run_agree_status(run, open_local(run, opts), "opening the run");
    if (rc < 0)
        goto fail;
    rc = open_groups(run);
    if (rc == 0)
        rc = rf_compress_open(run);
    if (rc < 0)
        goto fail;
    run->sent_before = rf_run_sent(run);
    run->planned_sent = 0;
    *out = run;
    return 0;

fail:
    rf_run_close(run);
    return rc;
}

void rf_run_close(struct rf_run *run)
{
    if (!run)
        return;
    rf_save_close(run->save);
    rf_compress_close(run);
    close_groups(run);
    rf_segments_close(run);
    rf_stalls_close(run);
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        rf_stream_destroy(run->copies[lane]);
    rf_stream_destroy(run->stream);
    rf_disk_close(run->disk);
    for (int c = 0; c < RF_CATEGORY_COUNT; c++)
        for (int memory = 0; memory < 2; memory++)
            rf_arena_destroy(run->arenas[c][memory]);
    rf_free(run->regions);
    rf_free(run->call_params);
    rf_free(run->call_grads);
    rf_free(run->call_overwrite_grad);
    rf_free(run->loss_sums);
    rf_free(run->config);
    rf_free(run->kept);
    rf_folder_unlock(&run->lock);
    rf_free(run);
}

void rf_run_measured(const struct rf_run *run, struct rf_bytes *out)
{
    const struct rf_disk_use disk = rf_disk_used(run->disk);
    struct rf_memory_stats now;
    uint64_t used[RF_CATEGORY_COUNT], host = 0;
    rf_device_memory(run->device, &now);
    for (int c = 0; c < RF_CATEGORY_COUNT; c++)
        if (run->arenas[c][RF_MEMORY_HOST])
            host += rf_arena_bytes(run->arenas[c][RF_MEMORY_HOST]);
    for (int c = 0; c < RF_CATEGORY_COUNT; c++)
        used[c] = now.peak[c] - run->memory_before.now[c];
    *out = (struct rf_bytes){
        .params = used[RF_CATEGORY_PARAMS],
        .grads = used[RF_CATEGORY_GRADS],
        .optimizer = used[RF_CATEGORY_OPTIMIZER],
        .activations = used[RF_CATEGORY_ACTIVATIONS],
        .comm = used[RF_CATEGORY_COMM],
        .scratch = used[RF_CATEGORY_SCRATCH],
        .host = host,
        .sent = run->comm ? rf_run_sent(run) - run->sent_before : 0,
        .disk = disk.bytes,
        .disk_moved = disk.moved,
    };
}

/* Whether a transfer uses memory that the host cannot map. Empty shards have no memory. */
static bool is_staged(const struct rf_run *run, const struct rf_instruction *i)
{
    const int *operands = rf_plan_operands(run->plan, i);
    for (int k = 0; k < i->ins + i->outs; k++) {
        const int region = run->plan->values[operands[k]].region;
        if (region >= 0 && run->regions[region].buffer)
            return !rf_tensor_map(run->regions[region]);
    }
    return false;
}

/* Memory that the host cannot map is transferred through staging buffers. Each communicator needs
 * as much as its largest transfer. This depends on the device, so the plan does not include it. */
static uint64_t staging_bytes(const struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_list *list = &plan->lists[RF_LIST_STEP];
    uint64_t most[RF_LANE_COUNT] = {0}, sum = 0;
    for (int k = 0; run->step > 0 && k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        const struct rf_transfer *transfer = rf_plan_transfer(plan, i);
        uint64_t bytes = 0;
        if (!transfer || i->verb == RF_VERB_LOSS || !is_staged(run, i) ||
            rf_transfer_staging(plan, transfer, &bytes) < 0)
            continue;
        most[i->lane] = bytes > most[i->lane] ? bytes : most[i->lane];
    }
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        sum += most[lane];
    return sum;
}

void rf_run_planned(const struct rf_run *run, struct rf_bytes *out)
{
    rf_plan_bytes(run->plan, out);
    out->comm += staging_bytes(run);
    out->sent = run->planned_sent;
    out->disk_moved = run->planned_disk;
}
