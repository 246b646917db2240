/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json for models of bytes (ringforge/data.h): a BPE without merges, whose ids are the
 * bytes, followed by the end of text. Other programs load such a model like any other.
 */
#include <ringforge/data.h>
#include <stdarg.h>

#include "from.h"

#define TEXT_BYTES 8192
#define END "<|endoftext|>"

/* The character of GPT-2's alphabet for a byte: itself if it is printable, otherwise one from 256
 * on. */
static int letter_of(int byte)
{
    int hidden = 0;
    for (int b = 0; b <= byte; b++) {
        const bool shown = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte && shown)
            return byte;
        hidden += !shown;
    }
    return 255 + hidden;
}

static void add(char *text, size_t *used, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    *used += (size_t)vsnprintf(text + *used, TEXT_BYTES - *used, format, values);
    va_end(values);
}

char *byte_tokenizer_text(void)
{
    char *text = malloc(TEXT_BYTES);
    size_t used = 0;
    if (!text)
        return NULL;
    add(text, &used,
        "{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
        "  \"added_tokens\": [{\"id\": %d, \"content\": \"" END "\", \"single_word\": false, "
        "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],\n"
        "  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": true},\n"
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": true},\n"
        "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false, "
        "\"byte_fallback\": false, \"merges\": [], \"vocab\": {\n",
        RF_END_OF_TEXT);
    for (int byte = 0; byte < RF_END_OF_TEXT; byte++)
        add(text, &used, "\"\\u%04x\": %d,%s", (unsigned)letter_of(byte), byte,
            byte % 8 == 7 ? "\n" : " ");
    add(text, &used, "\"" END "\": %d}}\n}\n", RF_END_OF_TEXT);
    return text;
}

const char byte_tokenizer_config[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                                     "\"bos_token\": \"" END "\", \"eos_token\": \"" END "\", "
                                     "\"clean_up_tokenization_spaces\": false}\n";
