/* SPDX-License-Identifier: MIT
 *
 * state.json of a checkpoint: progress, the model's configuration, the caller's settings, and the
 * hashes of the other files. Numbers that need more than 53 bits are strings. Its own hash covers
 * every value, so a single changed digit is detected. Format 5 is written; formats 2 to 4 can be
 * read, too.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>

#include "../base/base.h"
#include "checkpoint.h"

#define OLD_FORMAT "ringforge checkpoint 1" /* it had no config */

/* The names of the hashes: format 2 hashes whole files, later formats hash the hash files. */
static const struct {
    const char *name, *model, *optimizer;
} formats[] = {[2] = {"ringforge checkpoint 2", "model_sha256", "optimizer_sha256"},
               [3] = {"ringforge checkpoint 3", "model_hashes_sha256", "optimizer_hashes_sha256"},
               [4] = {"ringforge checkpoint 4", "model_hashes_sha256", "optimizer_hashes_sha256"},
               [5] = {"ringforge checkpoint 5", "model_hashes_sha256", "optimizer_hashes_sha256"}};
enum { SETTINGS_FORMAT = 5 }; /* the first format with settings */
/* No run reaches this many steps; sums with it do not overflow. */
#define MOST_COUNTED ((uint64_t)1 << 62)

static void hash_state(const struct rf_state_file *f, char hex[65])
{
    const struct rf_checkpoint_state *s = &f->state;
    crypto_hash_sha256_state hash;
    unsigned char digest[crypto_hash_sha256_BYTES];
    char text[512];
    int n = snprintf(text, sizeof(text), "%lld %lld %lld %lld %lld %llu %s %s", (long long)s->step,
                     (long long)s->samples, (long long)s->updates, (long long)s->batch,
                     (long long)s->seq, (unsigned long long)s->seed, f->hex[RF_PART_MODEL],
                     f->hex[RF_PART_OPTIMIZER]);
    crypto_hash_sha256_init(&hash);
    crypto_hash_sha256_update(&hash, (const unsigned char *)text, (unsigned long long)n);
    crypto_hash_sha256_update(&hash, (const unsigned char *)f->config, strlen(f->config));
    if (f->format >= SETTINGS_FORMAT) { /* with the end of the text before */
        crypto_hash_sha256_update(&hash, (const unsigned char *)"", 1);
        crypto_hash_sha256_update(&hash, (const unsigned char *)f->settings, strlen(f->settings));
    }
    crypto_hash_sha256_final(&hash, digest);
    sodium_bin2hex(hex, 65, digest, sizeof(digest));
}

static bool add_whole(cJSON *root, const char *name, unsigned long long value)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", value);
    return cJSON_AddStringToObject(root, name, text) != NULL;
}

/* The text of the whole file; freed with cJSON_free. NULL: out of memory. */
static char *state_text(const struct rf_state_file *f)
{
    const struct rf_checkpoint_state *s = &f->state;
    char own[65], *text = NULL;
    hash_state(f, own);
    cJSON *root = cJSON_CreateObject();
    if (root && cJSON_AddStringToObject(root, "format", formats[f->format].name) &&
        add_whole(root, "step", (unsigned long long)s->step) &&
        add_whole(root, "samples", (unsigned long long)s->samples) &&
        add_whole(root, "updates", (unsigned long long)s->updates) &&
        add_whole(root, "batch", (unsigned long long)s->batch) &&
        add_whole(root, "seq", (unsigned long long)s->seq) && add_whole(root, "seed", s->seed) &&
        cJSON_AddStringToObject(root, "config", f->config) &&
        (f->format < SETTINGS_FORMAT || cJSON_AddStringToObject(root, "settings", f->settings)) &&
        cJSON_AddStringToObject(root, formats[f->format].model, f->hex[RF_PART_MODEL]) &&
        cJSON_AddStringToObject(root, formats[f->format].optimizer, f->hex[RF_PART_OPTIMIZER]) &&
        cJSON_AddStringToObject(root, "state_sha256", own))
        text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

int rf_state_write(const char *path, const struct rf_state_file *f)
{
    struct rf_out_file file = {.fd = -1};
    char *text = state_text(f);
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

static bool take_state(const cJSON *root, struct rf_state_file *f)
{
    struct rf_checkpoint_state *s = &f->state;
    uint64_t step, samples, updates, batch, seq;
    if (!get_whole(root, "step", MOST_COUNTED, &step) ||
        !get_whole(root, "samples", MOST_COUNTED, &samples) ||
        !get_whole(root, "updates", MOST_COUNTED, &updates) ||
        !get_whole(root, "batch", MOST_COUNTED, &batch) ||
        !get_whole(root, "seq", MOST_COUNTED, &seq) ||
        !get_whole(root, "seed", UINT64_MAX, &s->seed))
        return false;
    s->step = (int64_t)step;
    s->samples = (int64_t)samples;
    s->updates = (int64_t)updates;
    s->batch = (int64_t)batch;
    s->seq = (int64_t)seq;
    return get_hex(root, formats[f->format].model, f->hex[RF_PART_MODEL]) &&
           get_hex(root, formats[f->format].optimizer, f->hex[RF_PART_OPTIMIZER]) &&
           get_hex(root, "state_sha256", f->own);
}

/* The text must equal what would be written, so every byte of it is checked. */
static bool same_text(const char *text, const struct rf_state_file *f)
{
    char *wanted = state_text(f);
    size_t length = wanted ? strlen(wanted) : 0;
    bool same = wanted && strncmp(text, wanted, length) == 0 && strcmp(text + length, "\n") == 0;
    cJSON_free(wanted);
    return same;
}

/* The number of a later format, which this version cannot read; otherwise 0. */
static int later_format(const char *format)
{
    static const char begin[] = "ringforge checkpoint ";
    const size_t length = sizeof(begin) - 1;
    if (!format || strncmp(format, begin, length) != 0)
        return 0;
    const size_t digits = strspn(format + length, "0123456789");
    const int number =
        digits > 0 && digits < 9 && !format[length + digits] ? atoi(format + length) : 0;
    return number > RF_STATE_FORMAT ? number : 0;
}

/* Copies the texts, which belong to the parsed file. */
static int keep_texts(const char *path, struct rf_state_file *f)
{
    const bool settings = f->format >= SETTINGS_FORMAT;
    f->config = rf_strdup(f->config);
    f->settings = settings ? rf_strdup(f->settings) : NULL;
    if (f->config && (f->settings || !settings))
        return 0;
    rf_free(f->config);
    rf_free(f->settings);
    return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", path);
}

/* Reads all values from the text of a valid file. */
static int take_text(const char *path, const char *text, struct rf_state_file *f)
{
    cJSON *root = cJSON_ParseWithOpts(text, NULL, 1);
    const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "format"));
    int rc = 0;
    f->config = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "config"));
    for (int k = 2; format && k <= RF_STATE_FORMAT; k++)
        if (strcmp(format, formats[k].name) == 0)
            f->format = k;
    f->settings = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "settings"));
    const bool told = f->format < SETTINGS_FORMAT || f->settings;
    const bool parsed = f->format > 0 && f->config && told && take_state(root, f);
    if (format && strcmp(format, OLD_FORMAT) == 0)
        rc = rf_fail(RF_ENOTSUP,
                     "%s does not name its model, because an earlier version saved it: this "
                     "version cannot continue from it",
                     path);
    else if (later_format(format) > 0)
        rc = rf_fail(RF_ENOTSUP,
                     "%s has format %d, because a later version saved it: this version reads "
                     "formats 2 to %d; continue with the later version",
                     path, later_format(format), RF_STATE_FORMAT);
    else if (!parsed || !same_text(text, f))
        rc = rf_fail(RF_ECORRUPT, "%s is not the state of a checkpoint: %s", path,
                     parsed ? "its text does not match its hash" : "damaged or cut off");
    else
        rc = keep_texts(path, f);
    cJSON_Delete(root);
    return rc;
}

int rf_state_read(const char *path, struct rf_state_file *out)
{
    struct rf_state_file f = {0};
    char *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_read_file(path, 1u << 16, &text, &bytes));
    int rc = strlen(text) == bytes
                 ? take_text(path, text, &f)
                 : rf_fail(RF_ECORRUPT, "%s is not the state of a checkpoint: damaged", path);
    rf_free(text);
    if (rc == 0)
        *out = f;
    return rc;
}
