/* SPDX-License-Identifier: MIT
 *
 * Chat templates and special tokens in the folder of a model, as transformers 5 reads them; see
 * chat.h. Files of templates win over those in tokenizer_config.json. chat_template.json is for
 * processors of images and audio; tokenizers do not read it.
 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "chat.h"
#include "file.h"

#define MAX_FILE ((size_t)64 << 20)

void rf_chat_files_free(struct rf_chat_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        rf_free(files->sources[i].name);
        rf_free(files->sources[i].where);
        rf_free(files->sources[i].text);
        rf_template_close(files->sources[i].open);
    }
    rf_free(files->sources);
    rf_specials_free(&files->specials);
    *files = (struct rf_chat_files){0};
}

/* ---- templates ------------------------------------------------------------------------------- */

/* A dangling link counts as present, so that reading it is an error. */
static bool is_there(const char *path)
{
    struct stat file;
    return lstat(path, &file) == 0 || errno != ENOENT;
}

/* Replaces a template of the same name, as a later entry of a dictionary does. The list takes
 * ownership of text. */
static int add(struct rf_chat_files *files, const char *name, const char *where, char *text,
               size_t bytes)
{
    size_t at = 0;
    while (at < files->count && strcmp(files->sources[at].name, name) != 0)
        at++;
    if (at == files->count) {
        struct rf_chat_source *grown =
            rf_realloc(files->sources, (files->count + 1) * sizeof(*grown));
        if (grown) {
            files->sources = grown;
            files->sources[files->count++] = (struct rf_chat_source){.name = rf_strdup(name)};
        }
        if (!grown || !files->sources[at].name) {
            files->count -= grown != NULL;
            rf_free(text);
            return rf_fail(RF_ENOMEM, "%s: out of memory", where);
        }
    }
    struct rf_chat_source *source = &files->sources[at];
    rf_free(source->where);
    rf_free(source->text);
    source->text = text;
    source->bytes = bytes;
    source->where = rf_strdup(where);
    return source->where ? 0 : rf_fail(RF_ENOMEM, "%s: out of memory", where);
}

static int add_file(struct rf_chat_files *files, const char *name, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_FILE, &text, &bytes));
    return add(files, name, path, text, bytes);
}

int rf_chat_files_add(struct rf_chat_files *files, const char *path)
{
    return add_file(files, "default", path);
}

/* additional_chat_templates/NAME.jinja */
static int add_folder(struct rf_chat_files *files, const char *folder)
{
    char path[4096], file[4096], name[256];
    int rc = 0;
    RETURN_IF_ERROR(rf_join_path(path, folder, "additional_chat_templates"));
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : rf_fail(RF_EIO, "%s: %s", path, strerror(errno));
    for (struct dirent *item; rc == 0 && (item = readdir(dir)) != NULL;) {
        const size_t length = strlen(item->d_name);
        if (length < 7 || length >= sizeof(name) ||
            strcmp(item->d_name + length - 6, ".jinja") != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(length - 6), item->d_name);
        rc = rf_join_path(file, path, item->d_name);
        if (rc == 0)
            rc = add_file(files, name, file);
    }
    closedir(dir);
    return rc;
}

static int add_text(struct rf_chat_files *files, const char *name, const char *path,
                    const cJSON *text)
{
    if (!cJSON_IsString(text))
        return rf_fail(RF_ECORRUPT,
                       "%s: chat_template is neither a text nor a list of templates "
                       "with names",
                       path);
    char *copy = rf_strdup(text->valuestring);
    return copy ? add(files, name, path, copy, strlen(copy))
                : rf_fail(RF_ENOMEM, "%s: out of memory", path);
}

/* chat_template of tokenizer_config.json: a text, or a list of objects with name and template. */
static int add_config(struct rf_chat_files *files, const char *path, const cJSON *config)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    if (!item || cJSON_IsNull(item))
        return 0;
    if (!cJSON_IsArray(item))
        return add_text(files, "default", path, item);
    for (const cJSON *one = item->child; one; one = one->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "name"));
        if (!name)
            return rf_fail(RF_ECORRUPT, "%s: chat_template has a template without a name", path);
        RETURN_IF_ERROR(
            add_text(files, name, path, cJSON_GetObjectItemCaseSensitive(one, "template")));
    }
    return 0;
}

/* ---- the files ------------------------------------------------------------------------------- */

/* *out NULL: there is no such file. */
static int read_object(const char *folder, const char *name, char path[4096], cJSON **out)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    RETURN_IF_ERROR(rf_join_path(path, folder, name));
    if (!is_there(path))
        return 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_FILE, &text, &bytes));
    cJSON *json = cJSON_ParseWithLength(text, bytes);
    rf_free(text);
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return rf_fail(RF_ECORRUPT, "%s is no JSON object", path);
    }
    *out = json;
    return 0;
}

/* Whether transformers uses a class of its own for this config.json, whatever class the tokenizer's
 * files name. */
static int read_type(const char *folder, bool *forced)
{
    char path[4096];
    cJSON *config = NULL;
    RETURN_IF_ERROR(read_object(folder, "config.json", path, &config));
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    *forced = type && strcmp(type, "qwen2") == 0;
    cJSON_Delete(config);
    return 0;
}

static int read_config(const char *folder, struct rf_chat_files *out)
{
    char path[4096], legacy[4096];
    bool forced = false;
    cJSON *config = NULL, *map = NULL;
    RETURN_IF_ERROR(read_object(folder, "tokenizer_config.json", path, &config));
    if (!config)
        return 0;
    int rc = read_type(folder, &forced);
    if (rc == 0 && !forced)
        rc = rf_specials_of_class(&out->specials, path, config);
    if (rc == 0)
        rc = rf_specials_read(&out->specials, path, config);
    /* An older file, used if the newer one does not list added tokens. */
    if (rc == 0 && !cJSON_HasObjectItem(config, "added_tokens_decoder"))
        rc = read_object(folder, "special_tokens_map.json", legacy, &map);
    if (rc == 0 && map)
        rc = rf_specials_read(&out->specials, legacy, map);
    if (rc == 0 && out->count == 0)
        rc = add_config(out, path, config);
    cJSON_Delete(config);
    cJSON_Delete(map);
    return rc;
}

int rf_chat_files_read(const char *folder, struct rf_chat_files *out)
{
    char path[4096];
    RETURN_IF_ERROR(rf_join_path(path, folder, "chat_template.json"));
    out->has_processor = is_there(path);
    RETURN_IF_ERROR(rf_join_path(path, folder, "chat_template.jinja"));
    if (is_there(path))
        RETURN_IF_ERROR(add_file(out, "default", path));
    RETURN_IF_ERROR(add_folder(out, folder));
    return read_config(folder, out);
}
