/* SPDX-License-Identifier: MIT
 *
 * Checkpoints that are there whole or not at all: written beside, synced, renamed into place, and
 * verified in full before anybody uses them. See checkpoint.h.
 */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};

static void remove_step(const char *folder)
{
    char path[4096];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (rf_join_path(path, folder, files[i]) == 0)
            unlink(path);
    rmdir(folder);
}

static void stage(const struct rf_checkpoint_hook *hook, const char *name)
{
    if (hook && hook->fn)
        hook->fn(hook->user, name);
}

static int write_files(const char *folder, const struct rf_checkpoint_state *state,
                       const char *config, const struct rf_file_content *model,
                       const struct rf_file_content *optimizer,
                       const struct rf_checkpoint_hook *hook)
{
    char path[4096], model_hex[65], optimizer_hex[65];
    if (mkdir(folder, 0755) < 0)
        return rf_fail(RF_EIO, "cannot create the folder %s: %s", folder, strerror(errno));
    stage(hook, "folder made");
    RETURN_IF_ERROR(rf_join_path(path, folder, files[0]));
    RETURN_IF_ERROR(rf_safetensors_write(path, model, model_hex));
    stage(hook, "model written");
    RETURN_IF_ERROR(rf_join_path(path, folder, files[1]));
    RETURN_IF_ERROR(rf_safetensors_write(path, optimizer, optimizer_hex));
    stage(hook, "optimizer written");
    RETURN_IF_ERROR(rf_join_path(path, folder, files[2]));
    RETURN_IF_ERROR(rf_state_write(path, state, config, model_hex, optimizer_hex));
    stage(hook, "state written");
    return rf_sync_folder(folder);
}

/* A step that was saved before is exchanged in one go, then the old one, now under the temporary
 * name, is removed. */
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

static int point_latest(const char *dir, const char *name, const struct rf_checkpoint_hook *hook)
{
    struct rf_out_file file = {.fd = -1};
    char latest[4096], beside[4096];
    RETURN_IF_ERROR(rf_join_path(latest, dir, "latest"));
    RETURN_IF_ERROR(rf_join_path(beside, dir, "latest.tmp"));
    int rc = rf_out_open(&file, beside);
    if (rc == 0)
        rc = rf_out_write(&file, name, strlen(name));
    if (rc == 0)
        rc = rf_out_write(&file, "\n", 1);
    if (rc == 0)
        rc = rf_out_close(&file, NULL);
    rf_out_abandon(&file);
    stage(hook, "latest written");
    if (rc == 0 && rename(beside, latest) < 0)
        rc = rf_fail(RF_EIO, "cannot rename %s to %s: %s", beside, latest, strerror(errno));
    if (rc < 0)
        unlink(beside);
    return rc < 0 ? rc : rf_sync_folder(dir);
}

int rf_checkpoint_write(const char *dir, const struct rf_checkpoint_state *state,
                        const char *config, const struct rf_file_content *model,
                        const struct rf_file_content *optimizer,
                        const struct rf_checkpoint_hook *hook)
{
    char name[64], beside[80], folder[4096], final[4096];
    if (state->step < 0 || state->samples < 0)
        return rf_fail(RF_EINVAL, "save: step and samples must not be negative");
    snprintf(name, sizeof(name), "step-%lld", (long long)state->step);
    snprintf(beside, sizeof(beside), "%s.tmp", name);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return rf_fail(RF_EIO, "cannot create the folder %s: %s", dir, strerror(errno));
    RETURN_IF_ERROR(rf_join_path(folder, dir, beside));
    RETURN_IF_ERROR(rf_join_path(final, dir, name));
    remove_step(folder); /* left by an interrupted save */
    int rc = write_files(folder, state, config, model, optimizer, hook);
    if (rc == 0)
        rc = move_into_place(folder, final);
    if (rc < 0) {
        remove_step(folder);
        return rc;
    }
    stage(hook, "renamed");
    RETURN_IF_ERROR(rf_sync_folder(dir));
    RETURN_IF_ERROR(point_latest(dir, name, hook));
    stage(hook, "done");
    return 0;
}

static int resolve(const char *dir, char out[4096])
{
    char latest[4096], *text = NULL;
    struct stat about;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_join_path(latest, dir, "state.json"));
    if (stat(latest, &about) == 0)
        return snprintf(out, 4096, "%s", dir) < 4096 ? 0 : RF_EINVAL;
    RETURN_IF_ERROR(rf_join_path(latest, dir, "latest"));
    if (stat(latest, &about) < 0)
        return rf_fail(RF_EIO,
                       "there is no checkpoint in %s: neither a file named latest nor state.json",
                       dir);
    RETURN_IF_ERROR(rf_read_file(latest, 256, &text, &bytes));
    text[strcspn(text, "\n")] = 0;
    bool fits = strncmp(text, "step-", 5) == 0 && text[5] &&
                strspn(text + 5, "0123456789") == strlen(text + 5);
    int rc = fits ? rf_join_path(out, dir, text)
                  : rf_fail(RF_ECORRUPT, "%s does not name a checkpoint step-N", latest);
    rf_free(text);
    return rc;
}

static int verify(const char *folder, const char *name, const char *hex,
                  struct rf_safetensors **out)
{
    char path[4096], found[65];
    RETURN_IF_ERROR(rf_join_path(path, folder, name));
    /* The header first: its message is the better one for a file that was cut off. */
    RETURN_IF_ERROR(rf_safetensors_open(path, out));
    RETURN_IF_ERROR(rf_hash_file(path, found));
    if (strcmp(found, hex) != 0)
        return rf_fail(RF_ECORRUPT, "%s is damaged: its SHA-256 is not the one in state.json",
                       path);
    return 0;
}

int rf_checkpoint_open(const char *dir, struct rf_checkpoint *out)
{
    struct rf_checkpoint c = {0};
    char path[4096], model_hex[65], optimizer_hex[65];
    RETURN_IF_ERROR(resolve(dir, c.path));
    RETURN_IF_ERROR(rf_join_path(path, c.path, files[2]));
    RETURN_IF_ERROR(rf_state_read(path, &c.state, &c.config, model_hex, optimizer_hex));
    int rc = verify(c.path, files[0], model_hex, &c.model);
    if (rc == 0)
        rc = verify(c.path, files[1], optimizer_hex, &c.optimizer);
    if (rc < 0) {
        rf_checkpoint_close(&c);
        return rc;
    }
    *out = c;
    return 0;
}

void rf_checkpoint_close(struct rf_checkpoint *checkpoint)
{
    rf_safetensors_close(checkpoint->model);
    rf_safetensors_close(checkpoint->optimizer);
    rf_free(checkpoint->config);
    checkpoint->model = checkpoint->optimizer = NULL;
    checkpoint->config = NULL;
}
