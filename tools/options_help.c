/* SPDX-License-Identifier: MIT
 *
 * Shared by the options of all commands: their letters, the groups in which the help lists them,
 * and the help itself. Called by options.c and options_json.c.
 */
#include <string.h>

#include "tool.h"

enum { NOTE_INDENT = 2, INDENT = 31, COLUMNS = 100 };

/* A letter means one thing in every command that has the option. Most are those of nccl-tests. */
static const struct {
    char letter;
    const char *name;
} letters[] = {
    {'a', "algorithm"}, {'b', "minbytes"},    {'c', "count"},        {'d', "dtype"},
    {'e', "maxbytes"},  {'f', "stepfactor"},  {'i', "stepbytes"},    {'m', "agg_iters"},
    {'n', "iters"},     {'o', "op"},          {'p', "prompt"},       {'r', "root"},
    {'s', "seed"},      {'t', "temperature"}, {'w', "warmup_iters"},
};

/* Every option by name, in the order of the help; and a note for commands that have --mesh. */
static const struct {
    const char *title, *names, *note;
} groups[] = {
    {"Model",
     "from allow-nan model layers channels heads kv-heads reversible params freeze adapter lora"},
    {"Data and batch",
     "data packing chat date seq batch micro-batches head-rows steps seed eval-every "
     "eval-sequences raw"},
    {"Precision", "dtype matmul-precision order residual quantize no-masters stochastic-rounding "
                  "reduce-dtype compress "
                  "wire-dtype loss-scale"},
    {"Call", "op count counts root algorithm shared segment rank in-place private-buffers"},
    {"Parallelism",
     "ranks mesh hosts tensor-parts sequence-parallel zero keep-gathered no-prefetch update "
     "schedule stages sync coordinator client update-clip update-noise "
     "secure-aggregation peers identity clients rounds min-clients deadline wait provider "
     "port no-prefix elastic accept join timeout",
     "--ranks N and --mesh dp=N mean the same: N data-parallel ranks. With other parts in --mesh "
     "the "
     "number of ranks is the product dp * tp * cp * pp."},
    {"Memory",
     "offload disk disk-slowdown recompute update-in-backward device-bytes workspace length"},
    {"Optimizer", "optimizer optimizer-state lr warmup lr-decay beta1 beta2 eps eps-inside "
                  "no-bias-correction momentum "
                  "dampening centered clip weight-decay"},
    {"Text",
     "prompt prompts prompt-ids message messages tools sample max-new temperature top-k top-p "
     "repetition-penalty stop stop-id ignore-end"},
    {"Speed", "peak memory launch host-memory disk-rate link-gbps latency links search top explain "
              "compare fits"},
    {"Sizes and times",
     "minbytes maxbytes stepfactor stepbytes shape form split path iters warmup_iters agg_iters "
     "seconds scale times check one-clock rewrite"},
    {"Files", "save save-every keep resume scale-lr change export export-adapter export-dtype "
              "export-shard-bytes out log trace trace-kernels plot plot-staleness "
              "json"},
    {"Run", "device audit record-each-step dry-run algorithms list measure markdown help"},
};
enum { GROUPS = sizeof(groups) / sizeof(groups[0]) };

char tool_option_letter(const char *name)
{
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (strcmp(letters[i].name, name) == 0)
            return letters[i].letter;
    return 0;
}

/* The length of the next word, to which *at moves; 0: no more words. */
static size_t next_name(const char **at)
{
    *at += strspn(*at, " ");
    return strcspn(*at, " ");
}

const char *tool_option_group(const char *name)
{
    for (int g = 0; g < GROUPS; g++)
        for (const char *at = groups[g].names;; at += strcspn(at, " ")) {
            const size_t bytes = next_name(&at);
            if (bytes == 0)
                break;
            if (strlen(name) == bytes && memcmp(at, name, bytes) == 0)
                return groups[g].title;
        }
    return NULL;
}

/* Text from column `at` on, in lines of at most COLUMNS that begin at `indent`. */
static void print_wrapped(const char *text, int at, int indent)
{
    for (;;) {
        text += strspn(text, " ");
        const int bytes = (int)strcspn(text, " ");
        if (bytes == 0)
            break;
        if (at > indent && at + 1 + bytes > COLUMNS) {
            printf("\n%*s", indent, "");
            at = indent;
        }
        at += printf("%s%.*s", at > indent ? " " : "", bytes, text);
        text += bytes;
    }
    printf("\n");
}

static void print_option(const char *name, enum tool_kind kind, const char *what, const char *help)
{
    const char letter = tool_option_letter(name);
    const bool optional = kind == TOOL_FILE;
    int at = letter ? printf("  -%c, --%s", letter, name) : printf("      --%s", name);
    if (what)
        at += printf(optional ? " [%s]" : " %s", what);
    if (at + 1 < INDENT)
        at += printf("%*s", INDENT - at, "");
    else
        printf("\n%*s", at = INDENT, "");
    print_wrapped(help, at, INDENT);
}

/* The options of a group that the command has; false: it has none. */
static bool print_group(const struct tool_option *table, int g, bool real)
{
    bool any = false;
    for (const char *at = groups[g].names;; at += strcspn(at, " ")) {
        const size_t bytes = next_name(&at);
        if (bytes == 0)
            return any;
        for (const struct tool_option *o = table; o->name; o++) {
            if (o->operand || strlen(o->name) != bytes || memcmp(at, o->name, bytes) != 0)
                continue;
            any = true;
            if (real)
                print_option(o->name, o->kind, o->what, o->help);
        }
        if (real && bytes == 4 && memcmp(at, "help", 4) == 0)
            print_option("help", TOOL_FLAG, NULL, "this text");
    }
}

static bool has(const struct tool_option *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return true;
    return false;
}

void tool_options_help(const struct tool_command *command, const struct tool_option *table)
{
    printf("Usage: ringforge %s %s\n\n%s\n", command->name, command->usage, command->summary);
    for (int g = 0; g < GROUPS; g++) {
        if (g + 1 < GROUPS && !print_group(table, g, false))
            continue;
        printf("\n%s:\n", groups[g].title);
        if (groups[g].note && has(table, "mesh")) {
            printf("%*s", NOTE_INDENT, "");
            print_wrapped(groups[g].note, NOTE_INDENT, NOTE_INDENT);
        }
        print_group(table, g, true);
    }
    if (command->notes)
        printf("\n%s", command->notes);
}
