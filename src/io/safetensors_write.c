/* SPDX-License-Identifier: MIT
 *
 * Computes the layout of safetensors files: the header, and the place of each tensor's bytes.
 * train/ calls it with the same arguments on every rank.
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

static int place_tensors(const struct rf_file_content *content, struct rf_safetensors_layout *out)
{
    out->begin = rf_alloc(((size_t)content->tensor_count + 1) * sizeof(*out->begin));
    if (!out->begin)
        return rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    out->bytes = out->header_bytes;
    for (int i = 0; i < content->tensor_count; i++) {
        out->begin[i] = out->bytes;
        out->bytes += tensor_bytes(&content->tensors[i]);
    }
    return 0;
}

int rf_safetensors_lay_out(const struct rf_file_content *content, struct rf_safetensors_layout *out)
{
    struct rf_safetensors_layout layout = {0};
    char *text = make_header(content);
    if (!text)
        return rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    /* Padded with spaces, which the format allows. */
    const uint64_t length = strlen(text), align = RF_SAFETENSORS_ALIGN;
    layout.header_bytes = (8 + length + align - 1) / align * align;
    layout.header = rf_alloc(layout.header_bytes);
    int rc = layout.header ? place_tensors(content, &layout)
                           : rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    if (rc == 0) {
        for (int i = 0; i < 8; i++)
            layout.header[i] = (char)((layout.header_bytes - 8) >> (8 * i));
        memcpy(layout.header + 8, text, length);
        memset(layout.header + 8 + length, ' ', layout.header_bytes - 8 - length);
        *out = layout;
    } else {
        rf_safetensors_layout_free(&layout);
    }
    cJSON_free(text);
    return rc;
}

void rf_safetensors_layout_free(struct rf_safetensors_layout *layout)
{
    rf_free(layout->header);
    rf_free(layout->begin);
    *layout = (struct rf_safetensors_layout){0};
}
