/* SPDX-License-Identifier: MIT
 *
 * Rules as text: a preset, the local steps of a round, and keys that change it,
 * "diloco:50,form=nf4,lr=0.7". Presets and keys are tables.
 */
#include <errno.h>
#include <math.h>
#include <ringforge/rounds.h>
#include <stddef.h>

#include "base/base.h"

static const struct preset {
    const char *name;
    struct rf_rounds_rule rule;
    struct rf_optimizer_opts outer;
    bool has_outer;
} presets[] = {
    {.name = "local"},
    {.name = "diloco",
     .rule = {.difference = true, .outer_lr = 0.7f},
     .outer = {.kind = RF_NESTEROV, .momentum = 0.9f},
     .has_outer = true},
    {.name = "gossip", .rule = {.mixing = {.graph = RF_GRAPH_RING}}},
    {.name = "fedavg", .rule = {.difference = true, .weighted = true}},
    {.name = "fedopt",
     .rule = {.difference = true, .weighted = true, .outer_lr = 0.1f},
     .outer =
         {.kind = RF_ADAM, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-3f, .no_bias_correction = true},
     .has_outer = true},
    {.name = "fedprox", .rule = {.difference = true, .weighted = true, .proximal = 0.01f}},
};
enum { PRESETS = sizeof presets / sizeof *presets };

/* ---- keys ------------------------------------------------------------------------------------ */

struct key {
    const char *name, *wanted; /* what the key takes, for messages */
    int (*take)(const struct key *key, const char *value, struct rf_rounds_text *out);
    size_t offset;
    double least, most;
    bool is_outer; /* makes an outer optimizer of a rule that has none */
};

static int refuse(const struct key *key, const char *value)
{
    return rf_fail(RF_EINVAL, "%s=%.60s: it takes %s", key->name, value, key->wanted);
}

static bool number_of(const char *text, double least, double most, double *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && *end == 0 && errno == 0 && *out >= least && *out <= most &&
           strspn(text, "+-.0123456789eE") == strlen(text);
}

static int take_real(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    double number;
    if (!number_of(value, key->least, key->most, &number))
        return refuse(key, value);
    *(float *)((char *)out + key->offset) = number == 0 ? RF_ZERO : (float)number;
    return RF_OK;
}

static int take_whole(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    double number;
    if (!number_of(value, key->least, key->most, &number) || number != floor(number))
        return refuse(key, value);
    *(int64_t *)((char *)out + key->offset) = (int64_t)number;
    return RF_OK;
}

static int take_parts(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    double number;
    if (!number_of(value, key->least, key->most, &number) || number != floor(number))
        return refuse(key, value);
    out->rule.parts = (int)number;
    return RF_OK;
}

static int take_graph(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    const int graph = rf_graph_find(value);
    if (graph < 0 || graph == RF_GRAPH_WEIGHTS)
        return refuse(key, value);
    out->rule.mixing.graph = graph;
    return RF_OK;
}

int rf_form_read(const char *text, enum rf_form *form, float *fraction, int *rank)
{
    char name[32];
    double number = 0;
    const char *colon = text ? strchr(text, ':') : NULL;
    if (text)
        snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - text : 31), text);
    const int found = text && (!colon || colon - text < 31) ? rf_form_find(name) : -1;
    const bool top = found == RF_FORM_TOP, power = found == RF_FORM_POWERSGD;
    if (found < 0 || (colon && !top && !power) ||
        (colon && !number_of(colon + 1, top ? 1e-9 : 1, top ? 1 : RF_FORM_MOST_RANK, &number)) ||
        (power && number != floor(number)))
        return rf_fail(RF_EINVAL,
                       "there is no form \"%.60s\"; use f32, bf16, int8, nf4, sign, top or "
                       "top:SHARE (above 0, at most 1), powersgd or powersgd:RANK (1 to %d)",
                       text ? text : "", RF_FORM_MOST_RANK);
    *form = found;
    *fraction = top ? (float)number : 0;
    *rank = power ? (int)number : 0;
    return RF_OK;
}

static int take_form(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    struct rf_rounds_rule *rule = &out->rule;
    const float fraction = rule->fraction;
    if (rf_form_read(value, &rule->form, &rule->fraction, &rule->form_rank) < 0)
        return refuse(key, value);
    if (fraction != 0 && rule->fraction != 0)
        return rf_fail(RF_EINVAL, "fraction is given twice");
    rule->fraction = fraction != 0 ? fraction : rule->fraction;
    return RF_OK;
}

static int take_fraction(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    return out->rule.fraction != 0 ? rf_fail(RF_EINVAL, "fraction is given twice")
                                   : take_real(key, value, out);
}

static int take_outer(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    const int kind = rf_optimizer_find(value);
    if (kind < 0)
        return refuse(key, value);
    const struct rf_optimizer_info *info = rf_optimizer_get_info(kind);
    out->outer = (struct rf_optimizer_opts){.kind = kind,
                                            .beta1 = info->beta1,
                                            .beta2 = info->beta2,
                                            .eps = info->eps,
                                            .momentum = info->momentum};
    for (int k = 0; k < RF_OPTIMIZER_EXTRA; k++)
        out->outer.extra[k] = info->extra[k];
    return RF_OK;
}

static int take_order(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    if (strcmp(value, "mix-first") != 0 && strcmp(value, "step-first") != 0)
        return refuse(key, value);
    out->rule.mix_first = strcmp(value, "mix-first") == 0;
    return RF_OK;
}

static int take_feedback(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return refuse(key, value);
    out->rule.no_feedback = strcmp(value, "off") == 0;
    return RF_OK;
}

/* A file of ranks^2 numbers, row by row. */
static int take_weights(const struct key *key, const char *value, struct rf_rounds_text *out)
{
    const size_t entries = (size_t)out->workers * (size_t)out->workers;
    const char *why = NULL;
    char word[64];
    FILE *file = rf_open_input(value, &why);
    if (!file)
        return rf_fail(RF_EINVAL, "weights=%.200s: %s", value, why);
    rf_free(out->weights);
    out->weights = rf_alloc(entries * sizeof *out->weights);
    size_t count = 0;
    bool sound = out->weights != NULL;
    while (sound && fscanf(file, "%63s", word) == 1) {
        double number;
        sound = count < entries && number_of(word, 0, 1, &number);
        if (sound)
            out->weights[count++] = number;
    }
    fclose(file);
    if (!out->weights)
        return rf_fail(RF_ENOMEM, "out of memory for the weights of %d workers", out->workers);
    if (!sound || count != entries)
        return rf_fail(RF_EINVAL,
                       "weights=%.200s: the file has %d rows of %d numbers from 0 to 1, one for "
                       "each worker; number %zu is missing or none of them",
                       value, out->workers, out->workers, count + 1);
    out->rule.mixing.graph = RF_GRAPH_WEIGHTS;
    return RF_OK;
}

#define IN(member) offsetof(struct rf_rounds_text, member)

static const struct key keys[] = {
    {"graph", "all, ring, torus, exponential, one-peer or matching", take_graph},
    {"weights", "a file with the matrix W", take_weights},
    {"seed", "a whole number from 0 to 2^53", take_whole, IN(rule.mixing.seed), 0,
     9007199254740992},
    {"form", "f32, bf16, int8, nf4, top, sign or powersgd:R, a rank of 1 to 64", take_form},
    {"fraction", "a number above 0, at most 1", take_fraction, IN(rule.fraction), 1e-9, 1},
    {"feedback", "on or off", take_feedback},
    {"order", "step-first or mix-first", take_order},
    {"parts", "a whole number from 1 to 65536", take_parts, 0, 1, 65536},
    {"delay", "a whole number from 0 to 10^9", take_whole, IN(rule.delay), 0, 1e9},
    {"outer", "the name of an optimizer, as --optimizer takes it", take_outer, .is_outer = true},
    {"lr", "a number from 0 to 1000", take_real, IN(rule.outer_lr), 0, 1000, true},
    {"momentum", "a number from 0 to below 1", take_real, IN(outer.momentum), 0, 0.9999999, true},
    {"beta1", "a number from 0 to below 1", take_real, IN(outer.beta1), 0, 0.9999999, true},
    {"beta2", "a number from 0 to below 1", take_real, IN(outer.beta2), 0, 0.9999999, true},
    {"eps", "a number from 0 to 1", take_real, IN(outer.eps), 0, 1, true},
    {"mu", "a number from 0 to 1000", take_real, IN(rule.proximal), 0, 1000},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Whether the outer optimizer has what a key sets. */
static int check_outer(const struct rf_rounds_text *out, const bool *given)
{
    const struct rf_optimizer_info *info = rf_optimizer_get_info(out->outer.kind);
    for (int k = 0; k < KEYS; k++) {
        const bool takes = strcmp(keys[k].name, "momentum") == 0 ? info->takes_momentum
                           : strcmp(keys[k].name, "beta1") == 0  ? info->beta1 != 0
                           : strcmp(keys[k].name, "beta2") == 0  ? info->beta2 != 0
                           : strcmp(keys[k].name, "eps") == 0    ? info->eps != 0
                                                                 : true;
        if (given[k] && !takes)
            return rf_fail(RF_EINVAL, "%s has no effect: the outer optimizer %s has none",
                           keys[k].name, info->name);
    }
    return RF_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static int take_preset(const char *word, struct rf_rounds_text *out, bool *has_outer)
{
    const char *colon = strchr(word, ':');
    const size_t bytes = colon ? (size_t)(colon - word) : strlen(word);
    double every = 1;
    for (int k = 0; k < PRESETS; k++) {
        if (strlen(presets[k].name) != bytes || strncmp(presets[k].name, word, bytes) != 0)
            continue;
        if (!colon || !number_of(colon + 1, 1, 1e9, &every) || every != floor(every))
            return rf_fail(RF_EINVAL, "%.60s: write %s:H, with H local steps in a round, 1 to 10^9",
                           word, presets[k].name);
        out->rule = presets[k].rule;
        out->outer = presets[k].outer;
        out->rule.every = (int64_t)every;
        *has_outer = presets[k].has_outer;
        return RF_OK;
    }
    return rf_fail(RF_EINVAL,
                   "there is no rule \"%.60s\"; use local:H, diloco:H, gossip:H, "
                   "fedavg:H, fedopt:H or fedprox:H, with H local steps in a round",
                   word);
}

static int take_key(char *word, struct rf_rounds_text *out, bool *given, bool *has_outer)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals = 0;
    for (int k = 0; k < KEYS; k++) {
        if (!equals || strcmp(keys[k].name, word) != 0)
            continue;
        if (given[k])
            return rf_fail(RF_EINVAL, "%s is given twice", word);
        given[k] = true;
        if (keys[k].take == take_weights && out->rule.mixing.graph != RF_GRAPH_ALL && given[0])
            return rf_fail(RF_EINVAL, "graph=%s and weights= name two graphs: omit one",
                           rf_graph_name(out->rule.mixing.graph));
        if (keys[k].take == take_outer)
            for (int other = 0; other < KEYS; other++)
                if (given[other] && keys[other].is_outer && other != k &&
                    keys[other].offset >= IN(outer))
                    return rf_fail(RF_EINVAL,
                                   "outer=%.60s comes behind %s, which it would replace: "
                                   "write it first",
                                   equals + 1, keys[other].name);
        *has_outer = *has_outer || keys[k].is_outer;
        return keys[k].take(keys + k, equals + 1, out);
    }
    return rf_fail(
        RF_EINVAL,
        "a rule has no key \"%.60s\"; keys are graph, weights, seed, form, fraction, "
        "feedback, order, parts, delay, outer, lr, momentum, beta1, beta2, eps and mu, each "
        "as key=value",
        word);
}

static int read_words(char *text, struct rf_rounds_text *out)
{
    bool given[KEYS] = {0}, has_outer = false, first = true;
    for (char *word = text, *next; word; word = next, first = false) {
        next = strchr(word, ',');
        if (next)
            *next++ = 0;
        RETURN_IF_ERROR(first ? take_preset(word, out, &has_outer)
                              : take_key(word, out, given, &has_outer));
    }
    if (out->weights && out->rule.mixing.graph != RF_GRAPH_WEIGHTS)
        return rf_fail(RF_EINVAL, "graph=%s and weights= name two graphs: omit one",
                       rf_graph_name(out->rule.mixing.graph));
    if (has_outer)
        RETURN_IF_ERROR(check_outer(out, given));
    out->rule.outer = has_outer ? &out->outer : NULL;
    out->rule.mixing.weights = out->weights;
    return rf_rounds_check(&out->rule, out->workers);
}

int rf_rounds_text_read(const char *text, int workers, struct rf_rounds_text *out)
{
    if (!text || !out || workers < 1)
        return rf_fail(RF_EINVAL, "a rule is read from a text, for 1 worker or more");
    char *copy = rf_strdup(text);
    if (!copy)
        return rf_fail(RF_ENOMEM, "out of memory for a rule");
    *out = (struct rf_rounds_text){.workers = workers};
    const int status = read_words(copy, out);
    rf_free(copy);
    if (status < 0)
        rf_rounds_text_free(out);
    return status;
}

void rf_rounds_text_free(struct rf_rounds_text *text)
{
    rf_free(text->weights);
    *text = (struct rf_rounds_text){0};
}
