/* SPDX-License-Identifier: MIT
 *
 * `ringforge train`: what has to be the same on all ranks of a job, as the lines that a newcomer's
 * are held against: every option but those that each rank may have its own of, and the text.
 */
#include <ctype.h>
#include <string.h>

#include "train.h"

/* Of each rank alone, or told apart in train_terms_of_job and train_terms_of_newcomer. */
static const char *const own[] = {"data",  "log",           "plot", "device",  "peak",
                                  "ranks", "provider",      "join", "timeout", "batch",
                                  "mesh",  "micro-batches", NULL};

/* A line holds no line. */
static void write_text(FILE *to, const char *text)
{
    for (; text && *text; text++)
        if (iscntrl((unsigned char)*text) || *text == '\\')
            fprintf(to, "\\x%02x", (unsigned char)*text);
        else
            fputc(*text, to);
}

static void write_option(FILE *to, const struct tool_option *o)
{
    fprintf(to, "--%s=", o->name);
    switch (o->kind) {
    case TOOL_FLAG:
        fputs(*(const bool *)o->value ? "yes" : "no", to);
        break;
    case TOOL_INT:
        fprintf(to, "%lld", (long long)*(const int64_t *)o->value);
        break;
    case TOOL_COUNT:
    case TOOL_REAL:
        fprintf(to, "%.17g", *(const double *)o->value);
        break;
    case TOOL_LIST:
        for (int i = 0; i < ((const struct tool_list *)o->value)->count; i++)
            write_text(to, ((const struct tool_list *)o->value)->item[i]);
        break;
    default:
        write_text(to, *(const char *const *)o->value);
        break;
    }
    fputc('\n', to);
}

int train_terms(const struct tool_command *command, const struct tool_option *table,
                const struct rf_dataset *dataset, char **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return tool_error(command, "out of memory");
    fprintf(to, "vocabulary=%d\ntext=%lld tokens, hash %016llx\n", RF_BYTE_VOCABULARY,
            (long long)(rf_dataset_train_tokens(dataset) + rf_dataset_held_out_tokens(dataset)),
            (unsigned long long)rf_dataset_hash(dataset));
    for (const struct tool_option *o = table; o->name; o++)
        if (tool_choice(o->name, own) < 0)
            write_option(to, o);
    if (fclose(to) != 0) {
        free(text);
        return tool_error(command, "out of memory");
    }
    *out = text;
    return TOOL_OK;
}

/* The same, and lines of what follows from the ranks at the start where it is not given: only_given
 * leaves those out. */
static char *with_sizes(const struct train_options *o, bool only_given)
{
    char mesh[64], *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    fputs(o->terms, to);
    if (!only_given || o->batch_given)
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
