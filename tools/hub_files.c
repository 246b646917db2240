/* SPDX-License-Identifier: MIT
 *
 * The files of a hub's folder beside config.json and the weights.
 */
#include "from.h"

int export_copy_others(struct rf_export *to, const char *from)
{
    static const char *const names[] = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(names) / sizeof(names[0]); i++)
        rc = rf_export_copy(to, from, names[i]);
    return rc;
}
