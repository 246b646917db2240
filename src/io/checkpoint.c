/* SPDX-License-Identifier: MIT
 *
 * Finds checkpoints and verifies them. See checkpoint.h.
 */
#include "checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../base/base.h"

#define READ_BYTES ((size_t)256 << 10)

int rf_checkpoint_part_path(const char *folder, enum rf_checkpoint_part part, char out[4096])
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    return rf_join_path(out, folder, files[part]);
}

static int step_path(const char *dir, const char *name, char out[4096])
{
    if (*name)
        return rf_join_path(out, dir, name);
    if (snprintf(out, 4096, "%s", dir) >= 4096)
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", dir);
    return 0;
}

int rf_checkpoint_find(const char *dir, char name[64])
{
    char latest[4096], *text = NULL;
    struct stat about;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_join_path(latest, dir, "state.json"));
    if (stat(latest, &about) == 0) {
        *name = 0;
        return 0;
    }
    RETURN_IF_ERROR(rf_join_path(latest, dir, "latest"));
    if (stat(latest, &about) < 0)
        return rf_fail(RF_EIO,
                       "there is no checkpoint in %s: neither a file named latest nor state.json",
                       dir);
    RETURN_IF_ERROR(rf_read_file(latest, 63, &text, &bytes));
    text[strcspn(text, "\n")] = 0;
    bool fits = strncmp(text, "step-", 5) == 0 && text[5] &&
                strspn(text + 5, "0123456789") == strlen(text + 5);
    int rc = fits ? 0 : rf_fail(RF_ECORRUPT, "%s does not name a checkpoint step-N", latest);
    if (rc == 0)
        snprintf(name, 64, "%s", text);
    rf_free(text);
    return rc;
}

/* A folder named step-N must hold a checkpoint of step N. */
static int check_step(const char *folder, const char *path, const struct rf_checkpoint_state *state)
{
    const char *name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return 0; /* moved elsewhere */
    const long long step = strtoll(name + 5, &end, 10);
    if (*end || step == (long long)state->step)
        return 0;
    return rf_fail(RF_ECORRUPT, "%s is the state of step %lld, and its folder is called %s", path,
                   (long long)state->step, name);
}

int rf_checkpoint_read_state(const char *dir, const char *name, struct rf_state_file *out)
{
    struct rf_state_file file;
    char folder[4096], path[4096];
    RETURN_IF_ERROR(step_path(dir, name, folder));
    RETURN_IF_ERROR(rf_join_path(path, folder, "state.json"));
    RETURN_IF_ERROR(rf_state_read(path, &file));
    const int rc = check_step(folder, path, &file.state);
    if (rc < 0) {
        rf_free(file.config);
        rf_free(file.settings);
        return rc;
    }
    *out = file;
    return 0;
}

bool rf_checkpoint_is(const char *dir, const char *name, const char *hash)
{
    struct rf_state_file file;
    if (rf_checkpoint_read_state(dir, name, &file) < 0)
        return false;
    rf_free(file.config);
    rf_free(file.settings);
    return strcmp(file.own, hash) == 0;
}

/* Format 2 has one hash for each file, so there is one piece. */
static int open_part(const struct rf_state_file *state, const char *folder,
                     enum rf_checkpoint_part part, struct rf_checkpoint_data *out)
{
    static const char *const hashes[] = {"model.hashes", "optimizer.hashes"};
    char path[4096];
    RETURN_IF_ERROR(rf_checkpoint_part_path(folder, part, out->path));
    RETURN_IF_ERROR(rf_safetensors_open(out->path, false, &out->tensors));
    const uint64_t bytes = rf_safetensors_bytes(out->tensors);
    if (state->format > 2) {
        RETURN_IF_ERROR(rf_join_path(path, folder, hashes[part]));
        return rf_pieces_read(path, state->hex[part], bytes, state->format == 3, &out->pieces);
    }
    struct rf_piece whole = {.run = bytes, .runs = 1};
    if (sodium_hex2bin(whole.hash, sizeof(whole.hash), state->hex[part], 64, NULL, NULL, NULL) != 0)
        return rf_fail(RF_ECORRUPT, "the SHA-256 of %s in state.json is not a hash", out->path);
    return rf_pieces_add(&out->pieces, &whole, 1);
}

int rf_checkpoint_open(const char *dir, const char *name, struct rf_checkpoint *out)
{
    struct rf_checkpoint c = {0};
    struct rf_state_file state;
    RETURN_IF_ERROR(step_path(dir, name, c.path));
    RETURN_IF_ERROR(rf_checkpoint_read_state(dir, name, &state));
    c.state = state.state;
    c.config = state.config;
    rf_free(state.settings);
    memcpy(c.hash, state.own, sizeof(c.hash));
    int rc = 0;
    for (int part = 0; rc == 0 && part < RF_PART_COUNT; part++)
        rc = open_part(&state, c.path, (enum rf_checkpoint_part)part, &c.parts[part]);
    if (rc < 0)
        rf_checkpoint_close(&c);
    else
        *out = c;
    return rc;
}

int rf_checkpoint_identity(const struct rf_checkpoint *c, uint8_t out[32])
{
    crypto_hash_sha256_state hash;
    crypto_hash_sha256_init(&hash);
    crypto_hash_sha256_update(&hash, (const unsigned char *)c->hash, sizeof(c->hash));
    for (int part = 0; part < RF_PART_COUNT; part++) {
        struct stat about;
        if (fstat(rf_safetensors_fd(c->parts[part].tensors), &about) < 0)
            return rf_fail(RF_EIO, "cannot read %s: %s", c->parts[part].path, strerror(errno));
        /* A copy has different change times. */
        const int64_t facts[] = {(int64_t)about.st_ino,         (int64_t)about.st_size,
                                 (int64_t)about.st_mtim.tv_sec, (int64_t)about.st_mtim.tv_nsec,
                                 (int64_t)about.st_ctim.tv_sec, (int64_t)about.st_ctim.tv_nsec};
        crypto_hash_sha256_update(&hash, (const unsigned char *)facts, sizeof(facts));
    }
    crypto_hash_sha256_final(&hash, out);
    return 0;
}

/* *at: the index of the part's first group; on return, of the next part's first group. */
static int verify_part(const struct rf_checkpoint_data *data, size_t first, size_t stride,
                       uint8_t *buffer, size_t *at)
{
    const struct rf_piece_reader reader = {
        .fd = rf_safetensors_fd(data->tensors), .path = data->path, buffer, READ_BYTES};
    for (size_t i = 0, count; i < data->pieces.count; i += count, ++*at) {
        count = rf_pieces_group(&data->pieces, i);
        if (*at % stride == first)
            RETURN_IF_ERROR(rf_pieces_verify(&data->pieces, i, count, &reader));
    }
    return 0;
}

int rf_checkpoint_verify(const struct rf_checkpoint *c, size_t first, size_t stride)
{
    uint8_t *buffer = rf_alloc(READ_BYTES);
    size_t at = 0;
    int rc = buffer ? 0 : rf_fail(RF_ENOMEM, "cannot read %s: out of memory", c->path);
    for (int part = 0; rc == 0 && part < RF_PART_COUNT; part++)
        rc = verify_part(&c->parts[part], first, stride, buffer, &at);
    rf_free(buffer);
    return rc;
}

void rf_checkpoint_close(struct rf_checkpoint *c)
{
    for (int part = 0; part < RF_PART_COUNT; part++) {
        rf_safetensors_close(c->parts[part].tensors);
        rf_pieces_free(&c->parts[part].pieces);
        c->parts[part].tensors = NULL;
    }
    rf_free(c->config);
    c->config = NULL;
}
