/* SPDX-License-Identifier: MIT
 *
 * Saves a run. Every rank writes its spans. Rank 0 creates the files and completes the checkpoint.
 * All ranks get the status of every rank, so all return the same.
 *
 * All communication is on the caller's thread, at the begin and at the end of a save. A background
 * thread only writes files, so the communication of a save cannot come between the collectives of
 * training.
 */
#include "save.h"

#include "../base/base.h"
#include "compress.h"
#include "states.h"

/* ---- checks before anything is written ------------------------------------------------------- */

static int lay_out(struct rf_save *save)
{
    const struct rf_run *run = save->run;
    const struct rf_policy *policy = &run->plan->policy;
    const struct rf_step_scalars *scalars =
        policy->forward_only ? NULL : rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    char updates[24], scale[24], good[24], parts[16];
    snprintf(parts, sizeof(parts), "%d",
             rf_plan_shares_sequences(run->plan) ? 1 : rf_plan_all_parts(run->plan));
    snprintf(scale, sizeof(scale), "%.9g", scalars ? (double)scalars->loss_scale : 0.0);
    snprintf(good, sizeof(good), "%u", scalars ? scalars->good_steps : 0);
    snprintf(updates, sizeof(updates), "%lld", (long long)run->updates);
    const struct rf_file_note notes[] = {
        {"format", "ringforge"},
        {"updates", updates},
        {"optimizer", rf_optimizer_get_info(policy->optimizer.kind)->name},
        {"loss_scale", scale},
        {"good_steps", good},
        {RF_STATES_NOTE, parts}};
    const int note_count = rf_plan_codes(run->plan) ? 6 : 5;
    for (int p = 0; p < RF_PART_COUNT; p++) {
        struct rf_save_part *part = &save->parts[p];
        const enum rf_checkpoint_part id = (enum rf_checkpoint_part)p;
        RETURN_IF_ERROR(rf_listing_open(run, id, &part->listing));
        RETURN_IF_ERROR(rf_spans_to_save(run, id, &part->listing, &part->spans));
        if (id == RF_PART_OPTIMIZER) {
            RETURN_IF_ERROR(rf_kept_list(run, &part->listing));
            RETURN_IF_ERROR(rf_kept_spans(run, &part->listing, true, &part->spans));
            RETURN_IF_ERROR(rf_compress_list(run, &part->listing));
            RETURN_IF_ERROR(rf_compress_spans(run, &part->listing, &part->spans));
        }
        RETURN_IF_ERROR(
            rf_safetensors_lay_out(&(struct rf_file_content){.tensors = part->listing.tensors,
                                                             .tensor_count = part->listing.count,
                                                             .notes = notes,
                                                             .note_count = id ? note_count : 1},
                                   &part->layout));
        save->bytes += rf_spans_bytes(&part->spans);
    }
    return 0;
}

/* Rank 0 creates the folder, and the files with their full size and their headers. */
static int make_files(struct rf_save *save, const char *dir)
{
    const struct rf_run *run = save->run;
    char path[4096];
    if (!rf_folder_locked(dir, &run->lock))
        RETURN_IF_ERROR(rf_folder_lock(dir, &save->lock));
    RETURN_IF_ERROR(rf_checkpoint_begin(dir, save->state.step, &run->files.saves, &save->draft));
    for (int p = 0; p < RF_PART_COUNT; p++) {
        struct rf_save_part *part = &save->parts[p];
        RETURN_IF_ERROR(
            rf_checkpoint_part_path(save->draft.folder, (enum rf_checkpoint_part)p, path));
        RETURN_IF_ERROR(rf_shared_create(&part->file, path, part->layout.bytes));
        RETURN_IF_ERROR(
            rf_shared_put(&part->file, 0, part->layout.header, part->layout.header_bytes));
    }
    save->sees = true;
    return 0;
}

static int prepare(struct rf_save *save, const char *dir, const struct rf_progress *progress)
{
    const struct rf_policy *policy = &save->run->plan->policy;
    save->state = (struct rf_checkpoint_state){.step = progress->step,
                                               .samples = progress->samples,
                                               .updates = save->run->updates,
                                               .batch = policy->batch,
                                               .seq = policy->seq,
                                               .seed = progress->seed};
    for (int p = 0; p < RF_PART_COUNT; p++)
        save->parts[p].file.fd = -1;
    if (progress->step < 0 || progress->samples < 0)
        return rf_fail(RF_EINVAL, "save: step and samples must not be negative");
    if (progress->settings && strlen(progress->settings) > RF_MOST_SETTINGS)
        return rf_fail(RF_EINVAL, "save: settings have at most %d bytes", RF_MOST_SETTINGS);
    save->settings = rf_strdup(progress->settings ? progress->settings : "");
    if (!save->settings)
        return rf_fail(RF_ENOMEM, "save: out of host memory");
    RETURN_IF_ERROR(lay_out(save));
    save->buffer = rf_alloc(save->run->files.piece_bytes);
    if (!save->buffer)
        return rf_fail(RF_ENOMEM, "save: out of host memory");
    int rc = save->run->plan->rank == 0 ? make_files(save, dir) : 0;
    if (rc < 0)
        rf_checkpoint_discard(&save->draft); /* before the other ranks learn of the failure */
    return rc;
}

/* ---- the ranks that see the folder --------------------------------------------------------------
 */

static int open_files(struct rf_save *save, const char *folder)
{
    char path[4096];
    for (int p = 0; p < RF_PART_COUNT; p++) {
        struct rf_save_part *part = &save->parts[p];
        RETURN_IF_ERROR(rf_checkpoint_part_path(folder, (enum rf_checkpoint_part)p, path));
        RETURN_IF_ERROR(rf_shared_open(&part->file, path, part->layout.bytes));
    }
    return 0;
}

/* Ranks other than 0 open rank 0's files if they see them. */
static int join_files(struct rf_run *run, struct rf_save *save, const char *dir)
{
    struct {
        char name[64], token[128];
    } draft;
    char folder[4096];
    memcpy(draft.name, save->draft.name, sizeof(draft.name));
    memcpy(draft.token, save->draft.token, sizeof(draft.token));
    RETURN_IF_ERROR(rf_run_broadcast(run, &draft, sizeof(draft), 0, "save folder"));
    if (run->plan->rank == 0)
        return 0;
    rf_checkpoint_stage(&run->files.saves, "folder announced");
    save->sees = run->files.sees(dir, draft.name, draft.token, folder);
    return save->sees ? open_files(save, folder) : 0;
}

/* The spans of ranks that do not see the folder are written by rank 0, one rank after the other. */
static int send_unseen(struct rf_run *run, struct rf_save *save)
{
    const int ranks = rf_run_ranks(run);
    const uint8_t mine = save->sees;
    uint8_t *sees = rf_alloc((size_t)ranks);
    int rc =
        rf_run_agree_status(run, sees ? 0 : rf_fail(RF_ENOMEM, "save: out of host memory"), "save");
    if (rc == 0)
        rc = rf_run_all_gather(run, &mine, sees, 1, "save folder");
    for (int r = 1; rc == 0 && r < ranks; r++) {
        if (sees[r])
            continue;
        if (run->plan->rank == 0)
            rc = rf_save_receive(run, save, r);
        else if (run->plan->rank == r)
            rc = rf_save_send(run, save);
    }
    rf_free(sees);
    return rc;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Stops the background thread before its files are discarded. */
void rf_save_close(struct rf_save *save)
{
    if (!save)
        return;
    atomic_store(&save->give_up, true);
    rf_save_join(save);
    for (int p = 0; p < RF_PART_COUNT; p++) {
        rf_shared_close(&save->parts[p].file);
        rf_listing_close(&save->parts[p].listing);
        rf_safetensors_layout_free(&save->parts[p].layout);
        rf_spans_free(&save->parts[p].spans);
    }
    rf_checkpoint_discard(&save->draft);
    rf_folder_unlock(&save->lock);
    rf_free(save->buffer);
    rf_free(save->settings);
    rf_free(save->snapshot);
    rf_free(save);
}

static int begin(struct rf_run *run, const char *dir, const struct rf_progress *progress, int keep,
                 bool background)
{
    RETURN_IF_ERROR(rf_run_check_idle(run, "save"));
    RETURN_IF_ERROR(rf_run_save_wait(run));
    RETURN_IF_ERROR(rf_run_begin_call(run, "save"));
    struct rf_save *save = rf_alloc(sizeof(*save));
    int rc = save ? 0 : rf_fail(RF_ENOMEM, "save: out of host memory");
    if (save) {
        save->run = run;
        save->keep = keep;
        rc = prepare(save, dir, progress);
    }
    rc = rf_run_agree_status(run, rc, "save");
    if (rc == 0)
        rc = rf_run_agree_status(run, join_files(run, save, dir), "save");
    if (rc == 0)
        rc = send_unseen(run, save);
    if (rc < 0) {
        const struct rf_error error = *rf_last_error();
        rf_save_close(save);
        return rf_fail_error(&error);
    }
    if (background && save->sees && !run->disk) /* a copy may need more than host memory */
        rf_save_note(save, rf_save_snapshot(save));
    rf_save_write(save);
    run->save = save;
    return 0;
}

int rf_run_save_begin(struct rf_run *run, const char *dir, const struct rf_progress *progress,
                      const struct rf_save_opts *opts)
{
    if (!run || !dir || !progress || (opts && opts->keep < 0))
        return rf_fail(
            RF_EINVAL,
            "save: a run, a folder and the progress are needed, and keep must not be negative");
    return begin(run, dir, progress, opts ? opts->keep : 0, true);
}

int rf_run_save(struct rf_run *run, const char *dir, const struct rf_progress *progress)
{
    if (!run || !dir || !progress)
        return rf_fail(RF_EINVAL, "save: a run, a folder and the progress are needed");
    RETURN_IF_ERROR(begin(run, dir, progress, 0, false));
    return rf_run_save_wait(run);
}

void rf_run_save_abandon(struct rf_run *run)
{
    if (!run)
        return;
    rf_save_close(run->save);
    run->save = NULL;
}

static int complete(struct rf_run *run, struct rf_save *save)
{
    struct rf_pieces pieces[RF_PART_COUNT];
    uint64_t bytes[RF_PART_COUNT];
    RETURN_IF_ERROR(save->status < 0 ? rf_fail_error(&save->error) : 0);
    for (int p = 0; p < RF_PART_COUNT; p++) {
        pieces[p] = save->parts[p].file.pieces;
        bytes[p] = save->parts[p].layout.bytes;
    }
    int rc = rf_checkpoint_end(&save->draft, &save->state, run->config, save->settings, pieces,
                               bytes, save->keep);
    if (rc < 0)
        rf_checkpoint_discard(&save->draft); /* before the other ranks learn of the failure */
    return rc;
}

int rf_run_save_wait(struct rf_run *run)
{
    if (!run)
        return rf_fail(RF_EINVAL, "save: a run is needed");
    struct rf_save *save = run->save;
    if (!save)
        return 0;
    run->save = NULL;
    rf_save_join(save);
    int rc = rf_run_begin_call(run, "end of the save");
    if (rc == 0)
        rc = rf_run_agree_status(run, save->status < 0 ? rf_fail_error(&save->error) : 0, "save");
    if (rc == 0)
        rc = rf_save_gather_pieces(run, save);
    if (rc == 0) {
        rc = run->plan->rank == 0 ? complete(run, save) : 0;
        rc = rf_run_status_of(run, rc, 0, "save");
    }
    const struct rf_error error = *rf_last_error();
    rf_save_close(save);
    return rc < 0 ? rf_fail_error(&error) : 0;
}

int rf_run_save_test(struct rf_run *run, struct rf_save_progress *progress)
{
    struct word {
        uint64_t ended, written, bytes;
    } mine, *all;
    if (!run || !progress)
        return rf_fail(RF_EINVAL, "save: a run and a pointer for the progress are needed");
    *progress = (struct rf_save_progress){.ended = true};
    struct rf_save *save = run->save;
    if (!save)
        return 0;
    const int ranks = rf_run_ranks(run);
    all = rf_alloc((size_t)ranks * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "save: out of host memory");
    mine = (struct word){atomic_load(&save->ended), atomic_load(&save->written),
                         save->sees ? save->bytes : 0};
    int rc = rf_run_all_gather(run, &mine, all, sizeof(mine), "save progress");
    for (int r = 0; rc == 0 && r < ranks; r++) {
        progress->ended &= all[r].ended != 0;
        progress->written += all[r].written;
        progress->bytes += all[r].bytes;
    }
    rf_free(all);
    return rc == 0 && progress->ended ? rf_run_save_wait(run) : rc;
}
