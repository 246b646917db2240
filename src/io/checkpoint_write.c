/* SPDX-License-Identifier: MIT
 *
 * Writes checkpoints atomically: drafted in a temporary folder, synced, renamed into place. See
 * checkpoint.h. train/save_*.c creates and fills the tensors' files.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ringforge/ringforge.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"
#include "checkpoint.h"

static const char *const hashes[] = {"model.hashes", "optimizer.hashes"};
static const char *const files[] = {"model.safetensors", "model.hashes", "optimizer.safetensors",
                                    "optimizer.hashes",  "state.json",   "probe"};

static void remove_step(const char *folder)
{
    char path[4096];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (rf_join_path(path, folder, files[i]) == 0)
            unlink(path);
    rmdir(folder);
}

void rf_checkpoint_stage(const struct rf_checkpoint_hook *hook, const char *stage)
{
    if (hook->fn)
        hook->fn(hook->user, stage);
}

/* ---- the draft ------------------------------------------------------------------------------- */

static int write_text(const char *path, const char *text)
{
    struct rf_out_file file = {.fd = -1};
    int rc = rf_out_open(&file, path);
    if (rc == 0)
        rc = rf_out_write(&file, text, strlen(text));
    if (rc == 0)
        rc = rf_out_close(&file, NULL);
    rf_out_abandon(&file);
    return rc;
}

static int make_folder(struct rf_checkpoint_draft *d)
{
    char path[4096], host[64] = "";
    remove_step(d->folder); /* left by an interrupted save */
    if (mkdir(d->folder, 0755) < 0)
        return rf_fail(RF_EIO, "cannot create the folder %s: %s", d->folder, strerror(errno));
    gethostname(host, sizeof(host) - 1);
    snprintf(d->token, sizeof(d->token), "%s %ld %llu", host, (long)getpid(),
             (unsigned long long)rf_now_ns());
    RETURN_IF_ERROR(rf_join_path(path, d->folder, "probe"));
    return write_text(path, d->token);
}

int rf_checkpoint_begin(const char *dir, int64_t step, const struct rf_checkpoint_hook *hook,
                        struct rf_checkpoint_draft *out)
{
    struct rf_checkpoint_draft d = {.hook = *hook};
    char beside[80];
    snprintf(d.name, sizeof(d.name), "step-%lld", (long long)step);
    snprintf(beside, sizeof(beside), "%s.tmp", d.name);
    if (snprintf(d.dir, sizeof(d.dir), "%s", dir) >= (int)sizeof(d.dir))
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", dir);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return rf_fail(RF_EIO, "cannot create the folder %s: %s", dir, strerror(errno));
    RETURN_IF_ERROR(rf_join_path(d.folder, dir, beside));
    int rc = make_folder(&d);
    if (rc < 0) {
        remove_step(d.folder);
        return rc;
    }
    rf_checkpoint_stage(hook, "folder made");
    *out = d;
    return 0;
}

bool rf_checkpoint_sees(const char *dir, const char *name, const char *token, char folder[4096])
{
    char beside[80], path[4096], *text = NULL;
    size_t bytes = 0;
    snprintf(beside, sizeof(beside), "%s.tmp", name);
    if (rf_join_path(folder, dir, beside) < 0 || rf_join_path(path, folder, "probe") < 0 ||
        rf_read_file(path, 256, &text, &bytes) < 0)
        return false;
    bool same = strcmp(text, token) == 0;
    rf_free(text);
    return same;
}

void rf_checkpoint_discard(struct rf_checkpoint_draft *draft)
{
    if (draft->folder[0])
        remove_step(draft->folder);
    draft->folder[0] = 0;
}

/* ---- completion ------------------------------------------------------------------------------ */

static int write_rest(struct rf_checkpoint_draft *d, const struct rf_checkpoint_state *state,
                      const char *config, const char *settings,
                      struct rf_pieces pieces[RF_PART_COUNT], const uint64_t bytes[RF_PART_COUNT])
{
    struct rf_state_file file = {.format = RF_STATE_FORMAT,
                                 .state = *state,
                                 .config = (char *)config,
                                 .settings = (char *)settings};
    char path[4096];
    for (int part = 0; part < RF_PART_COUNT; part++) {
        RETURN_IF_ERROR(rf_checkpoint_part_path(d->folder, (enum rf_checkpoint_part)part, path));
        RETURN_IF_ERROR(rf_pieces_check(&pieces[part], path, bytes[part]));
        RETURN_IF_ERROR(rf_join_path(path, d->folder, hashes[part]));
        RETURN_IF_ERROR(rf_pieces_write(&pieces[part], path, file.hex[part]));
    }
    RETURN_IF_ERROR(rf_join_path(path, d->folder, "state.json"));
    RETURN_IF_ERROR(rf_state_write(path, &file));
    RETURN_IF_ERROR(rf_join_path(path, d->folder, "probe"));
    unlink(path);
    rf_checkpoint_stage(&d->hook, "state written");
    return rf_sync_folder(d->folder);
}

/* A step that was saved before is exchanged atomically with the new one. The old one, now under the
 * temporary name, is removed. */
static int move_into_place(const char *folder, const char *final)
{
    if (rename(folder, final) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return rf_fail(RF_EIO, "cannot rename %s to %s: %s", folder, final, strerror(errno));
    if (renameat2(AT_FDCWD, folder, AT_FDCWD, final, RENAME_EXCHANGE) < 0)
        return rf_fail(RF_EIO, "cannot replace %s: %s", final, strerror(errno));
    remove_step(folder);
    return 0;
}

static int point_latest(const struct rf_checkpoint_draft *d)
{
    char latest[4096], beside[4096], line[80];
    RETURN_IF_ERROR(rf_join_path(latest, d->dir, "latest"));
    RETURN_IF_ERROR(rf_join_path(beside, d->dir, "latest.tmp"));
    snprintf(line, sizeof(line), "%s\n", d->name);
    int rc = write_text(beside, line);
    rf_checkpoint_stage(&d->hook, "latest written");
    if (rc == 0 && rename(beside, latest) < 0)
        rc = rf_fail(RF_EIO, "cannot rename %s to %s: %s", beside, latest, strerror(errno));
    if (rc < 0)
        unlink(beside);
    return rc < 0 ? rc : rf_sync_folder(d->dir);
}

/* ---- removal of old checkpoints -------------------------------------------------------------- */

/* The N of a name step-N, or of step-N.tmp with that suffix; otherwise -1. */
static int64_t step_of(const char *name, const char *suffix)
{
    const char *digits = name + 5;
    if (strncmp(name, "step-", 5) != 0 || digits[0] < '0' || digits[0] > '9')
        return -1;
    const size_t count = strspn(digits, "0123456789");
    return count <= 18 && strcmp(digits + count, suffix) == 0 ? strtoll(digits, NULL, 10) : -1;
}

/* Renamed first, so that a step's folder never exists with only some of its files. */
static void remove_whole(const char *dir, const char *name)
{
    char from[4096], to[4096], beside[300];
    snprintf(beside, sizeof(beside), "%.255s.tmp", name);
    if (rf_join_path(from, dir, name) < 0 || rf_join_path(to, dir, beside) < 0)
        return;
    remove_step(to);
    if (rename(from, to) < 0)
        rf_log("io", 0, "the old checkpoint %s cannot be removed: %s", from, strerror(errno));
    else
        remove_step(to);
}

/* The highest step below `limit` of a folder, or -1. */
static int64_t newest_below(const char *dir, int64_t limit, const char *suffix, char name[256])
{
    int64_t best = -1;
    DIR *list = opendir(dir);
    for (struct dirent *item; list && (item = readdir(list)) != NULL;) {
        const int64_t step = step_of(item->d_name, suffix);
        if (step < limit && step > best) {
            best = step;
            snprintf(name, 256, "%s", item->d_name);
        }
    }
    if (list)
        closedir(list);
    return best;
}

/* Later steps belong to another training, and stay. */
static void keep_last(const struct rf_checkpoint_draft *d, int64_t step, int keep)
{
    char name[256], path[4096];
    int64_t at = step;
    for (int kept = 1; at >= 0 && kept < keep; kept++)
        at = newest_below(d->dir, at, "", name);
    while ((at = newest_below(d->dir, at, "", name)) >= 0) {
        remove_whole(d->dir, name);
        rf_checkpoint_stage(&d->hook, "old one removed");
    }
    for (at = step; (at = newest_below(d->dir, at, ".tmp", name)) >= 0;)
        if (rf_join_path(path, d->dir, name) == 0)
            remove_step(path);
}

int rf_checkpoint_end(struct rf_checkpoint_draft *d, const struct rf_checkpoint_state *state,
                      const char *config, const char *settings,
                      struct rf_pieces pieces[RF_PART_COUNT], const uint64_t bytes[RF_PART_COUNT],
                      int keep)
{
    char final[4096];
    RETURN_IF_ERROR(rf_join_path(final, d->dir, d->name));
    RETURN_IF_ERROR(write_rest(d, state, config, settings, pieces, bytes));
    RETURN_IF_ERROR(move_into_place(d->folder, final));
    d->folder[0] = 0;
    rf_checkpoint_stage(&d->hook, "renamed");
    RETURN_IF_ERROR(rf_sync_folder(d->dir));
    RETURN_IF_ERROR(point_latest(d));
    rf_checkpoint_stage(&d->hook, "done");
    if (keep > 0)
        keep_last(d, state->step, keep);
    return 0;
}
