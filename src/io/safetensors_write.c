/* SPDX-License-Identifier: MIT
 *
 * Writes safetensors files: header, then each tensor's bytes in the order given, with no holes.
 * Called by checkpoint.c.
 */
#include <cjson/cJSON.h>

#include "../base/base.h"
#include "safetensors.h"
#include "safetensors_names.h"

static bool add_tensor(cJSON *root, const struct rf_file_tensor *tensor, uint64_t begin,
                       uint64_t end)
{
    cJSON *entry = cJSON_AddObjectToObject(root, tensor->name);
    cJSON *shape = NULL, *offsets = NULL;
    if (!entry ||
        !cJSON_AddStringToObject(entry, "dtype", rf_safetensors_dtype_name(tensor->dtype)))
        return false;
    shape = cJSON_AddArrayToObject(entry, "shape");
    offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    if (!shape || !offsets)
        return false;
    for (int d = 0; d < tensor->shape.ndim; d++)
        if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape.dim[d])))
            return false;
    return cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin)) &&
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end));
}

static uint64_t tensor_bytes(const struct rf_file_tensor *tensor)
{
    return (uint64_t)rf_shape_count(tensor->shape) * rf_dtype_bytes(tensor->dtype);
}

static char *make_header(const struct rf_file_content *content)
{
    char *text = NULL;
    uint64_t at = 0;
    cJSON *root = cJSON_CreateObject();
    bool ok = root != NULL;
    if (ok && content->note_count > 0) {
        cJSON *notes = cJSON_AddObjectToObject(root, "__metadata__");
        ok = notes != NULL;
        for (int i = 0; ok && i < content->note_count; i++)
            ok = cJSON_AddStringToObject(notes, content->notes[i].key, content->notes[i].value);
    }
    for (int i = 0; ok && i < content->tensor_count; i++) {
        uint64_t bytes = tensor_bytes(&content->tensors[i]);
        ok = add_tensor(root, &content->tensors[i], at, at + bytes);
        at += bytes;
    }
    if (ok)
        text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

static int write_header(struct rf_out_file *file, const struct rf_file_content *content)
{
    char *text = make_header(content);
    if (!text)
        return rf_fail(RF_ENOMEM, "cannot write %s: out of memory", file->path);
    /* Padded with spaces, so that the data begins at a multiple of 8. */
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    int rc = rf_out_write(file, prefix, sizeof(prefix));
    if (rc == 0)
        rc = rf_out_write(file, text, length);
    if (rc == 0)
        rc = rf_out_write(file, "       ", padded - length);
    cJSON_free(text);
    return rc;
}

int rf_safetensors_write(const char *path, const struct rf_file_content *content, char hex[65])
{
    struct rf_out_file file = {.fd = -1};
    uint64_t most = 1;
    for (int i = 0; i < content->tensor_count; i++)
        if (tensor_bytes(&content->tensors[i]) > most)
            most = tensor_bytes(&content->tensors[i]);
    void *data = rf_alloc(most);
    if (!data)
        return rf_fail(RF_ENOMEM, "cannot write %s: out of memory", path);
    int rc = rf_out_open(&file, path);
    if (rc == 0)
        rc = write_header(&file, content);
    for (int i = 0; rc == 0 && i < content->tensor_count; i++) {
        uint64_t bytes = tensor_bytes(&content->tensors[i]);
        rc = content->read(content->user, i, data, bytes);
        if (rc == 0)
            rc = rf_out_write(&file, data, bytes);
    }
    if (rc == 0)
        rc = rf_out_close(&file, hex);
    rf_out_abandon(&file);
    rf_free(data);
    return rc;
}
