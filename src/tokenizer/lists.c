/* SPDX-License-Identifier: MIT
 *
 * Growing lists of ids and texts; see tokenizer.h. Used by every file of this layer.
 */
#include "lists.h"

#include "../base/base.h"

/* Reserves `more` elements of `size` bytes after `count`. */
static int grow(void **memory, size_t count, size_t *capacity, size_t more, size_t size)
{
    if (more <= *capacity - count)
        return 0;
    size_t wanted = *capacity + *capacity / 2 + 64;
    wanted = wanted - count < more ? count + more : wanted;
    void *grown = wanted > SIZE_MAX / 2 / size ? NULL : rf_realloc(*memory, wanted * size);
    if (!grown)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for %zu tokens or bytes", wanted);
    *memory = grown;
    *capacity = wanted;
    return 0;
}

int rf_token_list_reserve(struct rf_token_list *list, size_t more)
{
    return grow((void **)&list->ids, list->count, &list->capacity, more, sizeof(*list->ids));
}

int rf_token_list_add(struct rf_token_list *list, int32_t id)
{
    RETURN_IF_ERROR(rf_token_list_reserve(list, 1));
    list->ids[list->count++] = id;
    return 0;
}

int rf_text_reserve(struct rf_text *text, size_t more)
{
    return grow((void **)&text->bytes, text->count, &text->capacity, more + 1, 1);
}

int rf_text_add(struct rf_text *text, const char *bytes, size_t count)
{
    RETURN_IF_ERROR(rf_text_reserve(text, count));
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = 0;
    return 0;
}

void rf_token_list_free(struct rf_token_list *list)
{
    rf_free(list->ids);
    *list = (struct rf_token_list){0};
}

void rf_text_free(struct rf_text *text)
{
    rf_free(text->bytes);
    *text = (struct rf_text){0};
}
