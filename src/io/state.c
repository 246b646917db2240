/* SPDX-License-Identifier: MIT
 *
 * state.json of a checkpoint: progress, the model's configuration, and the hashes of the other
 * files. Numbers are strings where 53 bits do not hold them. Its own hash covers every value, so
 * that one flipped digit is noticed.
 */
#include <cjson/cJSON.h>
#include <errno.h>

#include "../base/base.h"
#include "checkpoint.h"

#define FORMAT "ringforge checkpoint 2"
#define OLD_FORMAT "ringforge checkpoint 1" /* had no config */

static void hash_state(const struct rf_checkpoint_state *s, const char *config, const char *model,
                       const char *optim, char hex[65])
{
    crypto_hash_sha256_state hash;
    unsigned char digest[crypto_hash_sha256_BYTES];
    char text[512];
    int n = snprintf(text, sizeof(text), "%lld %lld %lld %lld %lld %llu %s %s", (long long)s->step,
                     (long long)s->samples, (long long)s->updates, (long long)s->batch,
                     (long long)s->seq, (unsigned long long)s->seed, model, optim);
    crypto_hash_sha256_init(&hash);
    crypto_hash_sha256_update(&hash, (const unsigned char *)text, (unsigned long long)n);
    crypto_hash_sha256_update(&hash, (const unsigned char *)config, strlen(config));
    crypto_hash_sha256_final(&hash, digest);
    sodium_bin2hex(hex, 65, digest, sizeof(digest));
}

static bool add_whole(cJSON *root, const char *name, unsigned long long value)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", value);
    return cJSON_AddStringToObject(root, name, text) != NULL;
}

/* The whole file; free with cJSON_free. NULL: out of memory. */
static char *state_text(const struct rf_checkpoint_state *s, const char *config,
                        const char *model_hex, const char *optimizer_hex)
{
    char own[65], *text = NULL;
    hash_state(s, config, model_hex, optimizer_hex, own);
    cJSON *root = cJSON_CreateObject();
    if (root && cJSON_AddStringToObject(root, "format", FORMAT) &&
        add_whole(root, "step", (unsigned long long)s->step) &&
        add_whole(root, "samples", (unsigned long long)s->samples) &&
        add_whole(root, "updates", (unsigned long long)s->updates) &&
        add_whole(root, "batch", (unsigned long long)s->batch) &&
        add_whole(root, "seq", (unsigned long long)s->seq) && add_whole(root, "seed", s->seed) &&
        cJSON_AddStringToObject(root, "config", config) &&
        cJSON_AddStringToObject(root, "model_sha256", model_hex) &&
        cJSON_AddStringToObject(root, "optimizer_sha256", optimizer_hex) &&
        cJSON_AddStringToObject(root, "state_sha256", own))
        text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

int rf_state_write(const char *path, const struct rf_checkpoint_state *s, const char *config,
                   const char *model_hex, const char *optimizer_hex)
{
    struct rf_out_file file = {.fd = -1};
    char *text = state_text(s, config, model_hex, optimizer_hex);
    if (!text)
        return rf_fail(RF_ENOMEM, "cannot write %s: out of memory", path);
    int rc = rf_out_open(&file, path);
    if (rc == 0)
        rc = rf_out_write(&file, text, strlen(text));
    if (rc == 0)
        rc = rf_out_write(&file, "\n", 1);
    if (rc == 0)
        rc = rf_out_close(&file, NULL);
    rf_out_abandon(&file);
    cJSON_free(text);
    return rc;
}

static bool get_whole(const cJSON *root, const char *name, uint64_t limit, uint64_t *out)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, name));
    char *end = NULL;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && *end == 0 && *out <= limit;
}

static bool get_hex(const cJSON *root, const char *name, char hex[65])
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, name));
    if (!text || strlen(text) != 64)
        return false;
    memcpy(hex, text, 65);
    return true;
}

static bool take_state(const cJSON *root, struct rf_checkpoint_state *s, char model[65],
                       char optim[65], char own[65])
{
    uint64_t step, samples, updates, batch, seq;
    if (!get_whole(root, "step", INT64_MAX, &step) ||
        !get_whole(root, "samples", INT64_MAX, &samples) ||
        !get_whole(root, "updates", INT64_MAX, &updates) ||
        !get_whole(root, "batch", INT64_MAX, &batch) || !get_whole(root, "seq", INT64_MAX, &seq) ||
        !get_whole(root, "seed", UINT64_MAX, &s->seed))
        return false;
    s->step = (int64_t)step;
    s->samples = (int64_t)samples;
    s->updates = (int64_t)updates;
    s->batch = (int64_t)batch;
    s->seq = (int64_t)seq;
    return get_hex(root, "model_sha256", model) && get_hex(root, "optimizer_sha256", optim) &&
           get_hex(root, "state_sha256", own);
}

/* The text is the one that would be written: nothing in it is left unchecked. */
static bool same_text(const char *text, const struct rf_checkpoint_state *s, const char *config,
                      const char *model_hex, const char *optimizer_hex)
{
    char *wanted = state_text(s, config, model_hex, optimizer_hex);
    size_t length = wanted ? strlen(wanted) : 0;
    bool same = wanted && strncmp(text, wanted, length) == 0 && strcmp(text + length, "\n") == 0;
    cJSON_free(wanted);
    return same;
}

/* Of the text of a sound file: all that it says. */
static int take_text(const char *path, const char *text, struct rf_checkpoint_state *s,
                     char **config, char model_hex[65], char optimizer_hex[65])
{
    char own[65];
    cJSON *root = cJSON_ParseWithOpts(text, NULL, 1);
    const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "format"));
    const char *said = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "config"));
    const bool parsed = root && said && take_state(root, s, model_hex, optimizer_hex, own);
    int rc = 0;
    if (format && strcmp(format, OLD_FORMAT) == 0)
        rc = rf_fail(RF_ENOTSUP,
                     "%s does not say of which model it is, because an earlier version saved it: "
                     "this version cannot go on from it",
                     path);
    else if (!parsed || !same_text(text, s, said, model_hex, optimizer_hex))
        rc = rf_fail(RF_ECORRUPT, "%s is not the state of a checkpoint: %s", path,
                     parsed ? "its text does not match its hash" : "damaged or cut off");
    else if (!(*config = rf_strdup(said)))
        rc = rf_fail(RF_ENOMEM, "cannot read %s: out of memory", path);
    cJSON_Delete(root);
    return rc;
}

int rf_state_read(const char *path, struct rf_checkpoint_state *state, char **config,
                  char model_hex[65], char optimizer_hex[65])
{
    struct rf_checkpoint_state s = {0};
    char *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_read_file(path, 1u << 16, &text, &bytes));
    int rc = strlen(text) == bytes
                 ? take_text(path, text, &s, config, model_hex, optimizer_hex)
                 : rf_fail(RF_ECORRUPT, "%s is not the state of a checkpoint: damaged", path);
    rf_free(text);
    if (rc == 0)
        *state = s;
    return rc;
}
