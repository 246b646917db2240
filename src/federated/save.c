/* SPDX-License-Identifier: MIT
 *
 * The state of a coordinator in a folder: one safetensors file, which is replaced atomically. It
 * has the parameters, the states of the outer optimizer, the number of rounds, and what must be
 * equal when it is continued. A hash covers all of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <unistd.h>

#include "base/base.h"
#include "coordinator.h"
#include "io/safetensors.h"
#include "transport/transport.h"

#define FORMAT "ringforge federated 1"
#define FILE_NAME "federated.safetensors"

static const char *const state_names[RF_STATE_COUNT] = {
    [RF_STATE_M] = "m", [RF_STATE_V] = "v", [RF_STATE_A] = "a", [RF_STATE_U] = "u"};

/* ---- what is kept ---------------------------------------------------------------------------- */

enum { MOST_ARRAYS = 1 + RF_STATE_COUNT, NOTES = 6 };

struct arrays {
    const char *names[MOST_ARRAYS];
    float *values[MOST_ARRAYS];
    int count;
};

static struct arrays arrays_of(const struct rf_coordinator *c)
{
    struct arrays all = {.names = {"parameters"}, .values = {c->params}, .count = 1};
    for (int s = 0; s < RF_STATE_COUNT; s++)
        if (rf_optimizer_has(&c->outer, (enum rf_optimizer_state)s)) {
            all.names[all.count] = state_names[s];
            all.values[all.count++] = c->state[s];
        }
    return all;
}

/* Of every text and value; the lengths of the texts separate them. */
static void hash(const char *const texts[], int count, const struct arrays *all, int64_t values,
                 char hex[65])
{
    crypto_generichash_state state;
    unsigned char digest[32];
    crypto_generichash_init(&state, NULL, 0, sizeof digest);
    for (int i = 0; i < count; i++)
        crypto_generichash_update(&state, (const unsigned char *)texts[i], strlen(texts[i]) + 1);
    for (int i = 0; i < all->count; i++)
        crypto_generichash_update(&state, (const unsigned char *)all->values[i],
                                  (unsigned long long)values * sizeof(float));
    crypto_generichash_final(&state, digest, sizeof digest);
    sodium_bin2hex(hex, 65, digest, sizeof digest);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int write_file(const char *path, const struct rf_file_content *content,
                      const struct arrays *all, int64_t count)
{
    struct rf_safetensors_layout layout = {0};
    struct rf_out_file file = {.fd = -1};
    RETURN_IF_ERROR(rf_safetensors_lay_out(content, &layout));
    int rc = rf_out_open(&file, path);
    if (rc == 0)
        rc = rf_out_write(&file, layout.header, layout.header_bytes);
    for (int i = 0; i < all->count && rc == 0; i++)
        rc = rf_out_write(&file, all->values[i], (size_t)count * sizeof(float));
    if (rc == 0)
        rc = rf_out_close(&file, NULL);
    rf_out_abandon(&file);
    rf_safetensors_layout_free(&layout);
    return rc;
}

int federated_save(struct rf_coordinator *c)
{
    const struct arrays all = arrays_of(c);
    struct rf_file_tensor tensors[MOST_ARRAYS];
    char round[24], updates[24], hex[65], beside[4096], path[4096];
    const char *terms = c->terms ? c->terms : "";
    snprintf(round, sizeof round, "%" PRId64, c->round);
    snprintf(updates, sizeof updates, "%u", c->scalars.updates);
    hash((const char *const[]){FORMAT, round, updates, c->rule_text, terms}, 5, &all, c->count,
         hex);
    const struct rf_file_note notes[NOTES] = {{"format", FORMAT},   {"rounds", round},
                                              {"updates", updates}, {"rule", c->rule_text},
                                              {"terms", terms},     {"blake2b", hex}};
    for (int i = 0; i < all.count; i++)
        tensors[i] = (struct rf_file_tensor){all.names[i], RF_F32, rf_shape1(c->count)};
    const struct rf_file_content content = {tensors, all.count, notes, NOTES};
    RETURN_IF_ERROR(rf_join_path(beside, c->folder, FILE_NAME ".tmp"));
    RETURN_IF_ERROR(rf_join_path(path, c->folder, FILE_NAME));
    RETURN_IF_ERROR(write_file(beside, &content, &all, c->count));
    if (rename(beside, path) < 0)
        return rf_fail(RF_EIO, "cannot rename %s: %s", beside, strerror(errno));
    c->saved = c->round;
    return rf_sync_folder(c->folder);
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool whole_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return end && *end == 0 && errno == 0 && *out <= most;
}

static int damaged(const char *path, const char *what)
{
    return rf_fail(RF_ECORRUPT, "%s is damaged: %s; restore it from a copy", path, what);
}

static int read_arrays(struct rf_coordinator *c, struct rf_safetensors *file, const char *path)
{
    const int first = rf_safetensors_find(file, "parameters");
    if (first < 0)
        return damaged(path, "it has no parameters");
    RETURN_IF_ERROR(
        federated_make_room(c, rf_shape_count(rf_safetensors_tensor(file, first)->shape)));
    const struct arrays all = arrays_of(c);
    for (int i = 0; i < all.count; i++) {
        const int at = rf_safetensors_find(file, all.names[i]);
        const struct rf_file_tensor *tensor = at < 0 ? NULL : rf_safetensors_tensor(file, at);
        if (!tensor || tensor->dtype != RF_F32 || rf_shape_count(tensor->shape) != c->count)
            return damaged(path, "an array is missing, or has another size");
        RETURN_IF_ERROR(
            rf_safetensors_read(file, at, 0, all.values[i], (uint64_t)c->count * sizeof(float)));
    }
    return rf_safetensors_count(file) == all.count ? RF_OK : damaged(path, "it has further arrays");
}

static int take(struct rf_coordinator *c, struct rf_safetensors *file, const char *path)
{
    static const char *const names[NOTES] = {"format", "rounds", "updates",
                                             "rule",   "terms",  "blake2b"};
    const char *texts[NOTES];
    char hex[65], why[400];
    uint64_t rounds, updates;
    for (int i = 0; i < NOTES; i++)
        if (!(texts[i] = rf_safetensors_note(file, names[i])))
            return damaged(path, "a note is missing");
    if (strcmp(texts[0], FORMAT) != 0 || !whole_number(texts[1], INT64_MAX / 2, &rounds) ||
        !whole_number(texts[2], UINT32_MAX, &updates) || strlen(texts[4]) >= FEDERATED_TERMS_BYTES)
        return damaged(path, "a note is none of this format");
    if (!rf_terms_agree(texts[3], c->rule_text, why, sizeof why))
        return rf_fail(RF_EINVAL, "%s is of another rule: %s", path, why);
    RETURN_IF_ERROR(read_arrays(c, file, path));
    const struct arrays all = arrays_of(c);
    hash(texts, NOTES - 1, &all, c->count, hex);
    if (strcmp(hex, texts[5]) != 0)
        return damaged(path, "its hash is another one");
    if (!(c->terms = rf_strdup(texts[4])))
        return rf_fail(RF_ENOMEM, "out of memory for a coordinator");
    c->round = c->saved = (int64_t)rounds;
    c->scalars.updates = (uint32_t)updates;
    c->has_params = true;
    return RF_OK;
}

int federated_load(struct rf_coordinator *c)
{
    char path[4096];
    struct rf_safetensors *file = NULL;
    RETURN_IF_ERROR(rf_join_path(path, c->folder, FILE_NAME));
    const bool there = access(path, F_OK) == 0;
    if (!c->opts.resume && there)
        return rf_fail(RF_EINVAL, "%s has the state of a training: continue it, or save elsewhere",
                       path);
    if (!c->opts.resume)
        return RF_OK;
    if (!there)
        return rf_fail(RF_EINVAL, "there is no state to continue from: %s does not exist", path);
    RETURN_IF_ERROR(rf_safetensors_open(path, false, &file));
    const int rc = take(c, file, path);
    rf_safetensors_close(file);
    return rc;
}
