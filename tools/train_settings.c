/* SPDX-License-Identifier: MIT
 *
 * What `ringforge train` takes from a checkpoint besides the state of the model: the options
 * of the table that are kept, the end of a cosine, and the text. A checkpoint has them as lines
 * "NAME=VALUE" (rf_progress.settings). What is not given on the command line is the checkpoint's;
 * what is given and differs is refused, unless --change names it. docs/checkpoints.md.
 */
#include <math.h>
#include <string.h>

#include "train.h"

enum { VALUE_BYTES = 1024 };
static const char rate_end[] = "rate-end", data_name[] = "data";

/* Numbers and flags of a rule; those of another one are meaningless. */
static const char *const of_rule[] = {
    "beta1",    "beta2",     "eps",      "eps-inside", "no-bias-correction",
    "momentum", "dampening", "centered", NULL};

/* ---- lines ----------------------------------------------------------------------------------- */

/* The value of a line, as written; false: none. */
static bool find_line(const char *text, const char *name, char *value, size_t bytes)
{
    const size_t length = strlen(name);
    for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(value, bytes, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
            return true;
        }
    return false;
}

bool train_settings_changed(const struct train_options *o, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = o->change; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == length && memcmp(at, name, length) == 0)
            return true;
    return false;
}

/* "--lr 0.01 --packing", or "without --packing". */
static void add_words(char *text, size_t bytes, const struct tool_option *row, const char *value)
{
    const size_t used = strlen(text);
    const bool flag = row->kind == TOOL_FLAG;
    snprintf(text + used, bytes - used, "%s%s--%s%s%.200s", used ? ", " : "",
             flag && strcmp(value, "yes") != 0 ? "without " : "", row->name, flag ? "" : " ",
             flag ? "" : value);
}

/* The value in use, even if it is not given. */
static void text_in_use(const struct train_options *o, const struct tool_option *row,
                        char text[VALUE_BYTES])
{
    float in_use;
    tool_option_text(row, text, VALUE_BYTES);
    if (strcmp(text, "not given") == 0 && setup_in_use(&o->setup, row->value, &in_use))
        (void)tool_float_text(in_use, text);
}

/* ---- writing the settings of a checkpoint
 * --------------------------------------------------------------
 */

static void data_line(const struct train_options *o, const struct rf_dataset *dataset,
                      char text[96])
{
    snprintf(text, 96, "%lld tokens %016llx",
             (long long)(rf_dataset_train_tokens(dataset) + rf_dataset_held_out_tokens(dataset)),
             (unsigned long long)o->data_hash);
}

void train_settings_hash(struct train_options *o, const struct rf_dataset *dataset)
{
    struct rf_launcher_info launched;
    const bool ranks = rf_launcher_find(&launched) == 0 && launched.size > 1;
    o->data_hash = ranks || o->accept || o->save || o->resume ? rf_dataset_hash(dataset) : 0;
}

char *train_settings_text(const struct train_options *o, const struct rf_dataset *dataset,
                          double lr)
{
    char *text = NULL, value[VALUE_BYTES];
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    for (const struct tool_option *row = o->table; row->name; row++) {
        if (!row->kept || row->ranks == TOOL_CONTENT)
            continue;
        text_in_use(o, row, value);
        if (row->value == &o->lr && (double)(float)lr == lr) /* like a scaled one */
            (void)tool_float_text((float)lr, value);
        else if (row->value == &o->lr)
            (void)tool_real_text(lr, value);
        if (strcmp(value, "not given") != 0)
            fprintf(to, "%s=%s\n", row->name, value);
    }
    if (strcmp(o->decay, "cosine") == 0)
        fprintf(to, "%s=%lld\n", rate_end, (long long)o->rate_end);
    if (dataset) {
        data_line(o, dataset, value);
        fprintf(to, "%s=%s\n", data_name, value);
    }
    return fclose(to) == 0 ? text : NULL;
}

/* ---- resuming the settings --------------------------------------------------------------------
 */

/* Whether an option can be kept; checks that each name in --change can be changed. */
static int check_changes(const struct tool_command *command, const struct train_options *o)
{
    for (const char *at = o->change; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const int bytes = (int)strcspn(at, ",");
        const struct tool_option *row = o->table;
        while (row->name &&
               ((int)strlen(row->name) != bytes || memcmp(row->name, at, (size_t)bytes) != 0))
            row++;
        const bool steps = row->name && row->value == &o->steps;
        if (!row->name || (!row->kept && !steps))
            return tool_usage_error(command,
                                    "there is no --change \"%.*s\"; use names of what a checkpoint "
                                    "keeps, such as lr, warmup, lr-decay or data, or steps",
                                    bytes, at);
        if (!row->said && row->kind != TOOL_FLAG)
            return tool_usage_error(command, "--change %s needs the new --%s", row->name,
                                    row->name);
    }
    return TOOL_OK;
}

/* Numbers are computed with as floats. */
static bool is_same(const struct tool_option *row, const char *a, const char *b)
{
    const bool number = row->kind == TOOL_REAL || row->kind == TOOL_COUNT;
    return strcmp(a, b) == 0 || (number && strtof(a, NULL) == strtof(b, NULL)) ||
           (row->same && row->same(a, b));
}

/* One option: its own value, or the checkpoint's. */
static int take_row(const struct tool_command *command, struct train_options *o,
                    struct tool_option *row, const char *text, char *differing, size_t bytes)
{
    char theirs[VALUE_BYTES], own[VALUE_BYTES];
    const bool known = find_line(text, row->name, theirs, sizeof(theirs));
    const bool changed = train_settings_changed(o, row->name);
    text_in_use(o, row, own);
    if (!known) { /* the kept rule does not have it */
        if (!row->said && row->kind == TOOL_REAL && tool_choice(row->name, of_rule) >= 0)
            *(double *)row->value = -1;
        return TOOL_OK;
    }
    if (is_same(row, own, theirs) || changed)
        return TOOL_OK;
    if (row->said) {
        add_words(differing, bytes, row, theirs);
        return TOOL_OK;
    }
    char *copy = strdup(theirs); /* texts are referenced for the rest of the program */
    if (!copy)
        return tool_error(command, "out of memory");
    if (!tool_option_set(row, copy))
        return tool_error(command, "%s has --%s %s, which this version does not know", o->resume,
                          row->name, theirs);
    if (row->kind != TOOL_TEXT)
        free(copy);
    add_words(o->inherited, sizeof(o->inherited), row, theirs);
    return TOOL_OK;
}

/* Names that a later version may have added. */
static int check_names(const struct tool_command *command, const struct train_options *o,
                       const char *text)
{
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        const int bytes = (int)strcspn(at, "=\n");
        const struct tool_option *row = o->table;
        while (row->name &&
               ((int)strlen(row->name) != bytes || memcmp(row->name, at, (size_t)bytes) != 0))
            row++;
        if (row->name || strncmp(at, rate_end, sizeof(rate_end) - 1) == 0 ||
            strncmp(at, TRAIN_SYNC_LINE "=", sizeof(TRAIN_SYNC_LINE)) == 0)
            continue;
        return tool_error(
            command,
            "%s was trained with \"%.*s\", which this version does not know; continue "
            "with the version that saved it",
            o->resume, (int)strcspn(at, "\n"), at);
    }
    return TOOL_OK;
}

int train_settings_take(const struct tool_command *command, struct train_options *o,
                        const char *text)
{
    char differing[1024] = "", rule[64], end[32];
    int64_t number = 0;
    o->inherited[0] = 0;
    int status = check_names(command, o, text);
    const bool other_rule = find_line(text, "optimizer", rule, sizeof(rule)) &&
                            train_settings_changed(o, "optimizer") &&
                            strcmp(rule, o->setup.optimizer) != 0;
    for (struct tool_option *row = o->table; row->name && status == TOOL_OK; row++)
        if (row->kept && row->ranks != TOOL_CONTENT &&
            !(other_rule && tool_choice(row->name, of_rule) >= 0))
            status = take_row(command, o, row, text, differing, sizeof(differing));
    if (status != TOOL_OK)
        return status;
    if (differing[0])
        return tool_usage_error(command,
                                "%s was trained with %s; give the same or leave it out, or say by "
                                "--change NAME,... what you change",
                                o->resume, differing);
    if (!train_settings_changed(o, "steps") && find_line(text, rate_end, end, sizeof(end)) &&
        tool_read_int(end, strlen(end), 1, INT64_MAX, &number) == TOOL_NUMBER_OK)
        o->rate_end = number;
    return TOOL_OK;
}

int train_settings_resume(const struct tool_command *command, struct train_options *o)
{
    o->rate_end = o->steps;
    int status = check_changes(command, o);
    if (status != TOOL_OK || !o->resume)
        return status;
    /* rf_run_load, which rank 0 begins, reports faults of the folder. */
    if (rf_checkpoint_settings(o->resume, &o->settings) < 0)
        return TOOL_OK;
    o->has_settings = o->settings != NULL;
    return o->settings ? train_settings_take(command, o, o->settings) : TOOL_OK;
}

int train_settings_check_data(const struct tool_command *command, const struct train_options *o,
                              const struct rf_dataset *dataset)
{
    char theirs[96], own[96];
    if (!o->settings || train_settings_changed(o, data_name) ||
        !find_line(o->settings, data_name, theirs, sizeof(theirs)))
        return TOOL_OK;
    data_line(o, dataset, own);
    if (strcmp(own, theirs) == 0)
        return TOOL_OK;
    return tool_error(command,
                      "%s was trained on another text than %s (%lld tokens, this one has %lld); "
                      "give that text, or say by --change data that you change it",
                      o->resume, o->data, strtoll(theirs, NULL, 10), strtoll(own, NULL, 10));
}

void train_settings_print(const struct train_options *o)
{
    const bool cosine = strcmp(o->decay, "cosine") == 0;
    if (o->resume && !o->has_settings)
        printf("%s does not say with which rate, rule and text it was trained, as an earlier "
               "version saved it: going on with what is given\n",
               o->resume);
    if (o->inherited[0])
        printf("%s was trained with %s: going on with that\n", o->resume, o->inherited);
    if (o->resume && cosine && o->rate_end != o->steps)
        printf("the cosine of the learning rate ends at step %lld, as it did before; --change "
               "steps ends it at step %lld\n",
               (long long)o->rate_end, (long long)o->steps);
}
