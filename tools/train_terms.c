/* SPDX-License-Identifier: MIT
 *
 * `ringforge train`: settings that must be the same on all ranks of a job, at its start and for
 * newcomers: the lines of the table of options, and the text.
 */
#include <string.h>

#include "train.h"

int train_terms(const struct tool_command *command, const struct train_options *options,
                const struct rf_dataset *dataset, char **terms)
{
    char shown[64];
    int status = TOOL_OK;
    for (const struct tool_option *o = options->table; o->name && status == TOOL_OK; o++)
        if (o->ranks == TOOL_CONTENT && strcmp(o->name, "data") != 0)
            status = tool_terms_add_content(command, terms, o);
    snprintf(shown, sizeof(shown), "%lld tokens",
             (long long)(rf_dataset_train_tokens(dataset) + rf_dataset_held_out_tokens(dataset)));
    if (status == TOOL_OK)
        status = tool_terms_add(command, terms, "data", shown, options->data_hash);
    if (status != TOOL_OK)
        return status;
    snprintf(shown, sizeof(shown), "%d", RF_BYTE_VOCABULARY);
    return tool_terms_add(command, terms, "vocabulary", shown, 0);
}

char *train_terms_at_start(const struct train_options *o)
{
    const size_t bytes = strlen(o->terms) + strlen(o->terms_of_job) + 1;
    char *text = malloc(bytes);
    if (text)
        snprintf(text, bytes, "%s%s", o->terms, o->terms_of_job);
    return text;
}

/* The same, plus lines of settings that follow from the ranks at the start unless given: only_given
 * omits those. */
static char *with_sizes(const struct train_options *o, bool only_given)
{
    char mesh[64], *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    fputs(o->terms, to);
    if (!only_given || o->setup.batch_given)
        fprintf(to, "--batch=%lld\n", (long long)o->setup.policy.batch);
    if (!only_given || o->setup.micro_batches)
        fprintf(to, "--micro-batches=%lld\n", (long long)o->setup.policy.micro_batches);
    if (!only_given || o->setup.mesh_text)
        fprintf(to, "--mesh=%s\n", setup_mesh_text(&o->setup, mesh));
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

char *train_terms_of_job(const struct train_options *o)
{
    return with_sizes(o, false);
}

char *train_terms_of_newcomer(const struct train_options *o)
{
    return with_sizes(o, true);
}
