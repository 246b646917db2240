/* SPDX-License-Identifier: MIT
 *
 * Instructions and values as text, for printed plans, labels and tests.
 */
#include "../../base/base.h"
#include "verbs.h"

#define NAME(verb, name, checker, work) [RF_VERB_##verb] = (name),
static const char *const verbs[RF_VERB_COUNT] = {RF_VERBS(NAME)};
#undef NAME

static const char *const lanes[RF_LANE_COUNT] = {
    [RF_LANE_HOST] = "host",
    [RF_LANE_COMPUTE] = "compute",
    [RF_LANE_DATA] = "data",
    [RF_LANE_SHARD] = "shard",
    [RF_LANE_REPLICATE] = "replicate",
    [RF_LANE_TENSOR] = "tensor",
    [RF_LANE_PIPELINE] = "pipeline",
    [RF_LANE_JOB] = "job",
    [RF_LANE_SEND_OUT] = "send outputs",
    [RF_LANE_RECV_OUT] = "receive outputs",
    [RF_LANE_SEND_GRAD] = "send gradients",
    [RF_LANE_RECV_GRAD] = "receive gradients",
    [RF_LANE_SEND_OUT_BACK] = "send outputs back",
    [RF_LANE_RECV_OUT_BACK] = "receive outputs back",
    [RF_LANE_SEND_GRAD_BACK] = "send gradients back",
    [RF_LANE_RECV_GRAD_BACK] = "receive gradients back",
    [RF_LANE_FETCH] = "fetch",
    [RF_LANE_EVICT] = "evict",
    [RF_LANE_DISK] = "disk",
};

static const char *const bounds[RF_BOUND_COUNT] = {
    [RF_BOUND_COMPUTE] = "compute", [RF_BOUND_MEMORY] = "memory",   [RF_BOUND_LAUNCH] = "launches",
    [RF_BOUND_HOST] = "host",       [RF_BOUND_NETWORK] = "network", [RF_BOUND_DISK] = "disk",
};

static const char *const kinds[RF_VALUE_KINDS] = {
    [RF_VALUE_PARAM] = "parameters",
    [RF_VALUE_COPY] = "16-bit parameters",
    [RF_VALUE_PARAM_SHARD] = "shard of parameters",
    [RF_VALUE_COPY_SHARD] = "shard of 16-bit parameters",
    [RF_VALUE_GRAD_SHARD] = "shard of gradients",
    [RF_VALUE_GRAD_PART] = "partial sums of gradients",
    [RF_VALUE_GRAD_NARROW] = "16-bit gradients",
    [RF_VALUE_GRAD_NARROW_SHARD] = "shard of 16-bit gradients",
    [RF_VALUE_GRAD_TIED] = "shard of tied gradients",
    [RF_VALUE_HOST_GRAD] = "gradients with the host",
    [RF_VALUE_STATE] = "state",
    [RF_VALUE_HOST_STATE] = "state with the host",
    [RF_VALUE_GRAD] = "gradients",
    [RF_VALUE_TOKENS] = "tokens",
    [RF_VALUE_TARGETS] = "targets",
    [RF_VALUE_LOSSES] = "losses",
    [RF_VALUE_OUT] = "output",
    [RF_VALUE_DOUT] = "output gradient",
    [RF_VALUE_SAVED] = "saved",
    [RF_VALUE_SAVED_FOR_WEIGHT] = "saved_for_weight",
    [RF_VALUE_EXCHANGE] = "exchange",
    [RF_VALUE_HOST_OUT] = "output with the host",
    [RF_VALUE_HOST_SAVED] = "saved with the host",
    [RF_VALUE_SCALARS] = "scalars",
    [RF_VALUE_NORM] = "norm",
    [RF_VALUE_PARTIALS] = "partial norms",
    [RF_VALUE_SQUARES] = "sums of squares",
    [RF_VALUE_CHUNKS] = "norm chunks",
    [RF_VALUE_DECAY] = "decay",
    [RF_VALUE_PLACES] = "places",
    [RF_VALUE_SCRATCH] = "scratch",
    [RF_VALUE_WORKSPACE] = "workspace",
};

static const char *const roles[RF_ROLE_COUNT] = {
    [RF_ROLE_INPUT] = "input",
    [RF_ROLE_OUTPUT] = "output",
    [RF_ROLE_OUTPUT_GRAD] = "gradient of output",
    [RF_ROLE_INPUT_GRAD] = "gradient of input",
    [RF_ROLE_SAVED] = "saved",
    [RF_ROLE_SAVED_FOR_WEIGHT] = "saved for weight",
    [RF_ROLE_EXCHANGED] = "exchanged",
    [RF_ROLE_EXCHANGE] = "exchange",
    [RF_ROLE_TARGETS] = "targets",
    [RF_ROLE_LOSSES] = "losses",
    [RF_ROLE_SCRATCH] = "scratch",
    [RF_ROLE_WORKSPACE] = "workspace",
    [RF_ROLE_PARAM] = "parameters",
    [RF_ROLE_COPY] = "16-bit parameters",
    [RF_ROLE_GRAD] = "gradients",
    [RF_ROLE_SCALARS] = "scalars",
    [RF_ROLE_STEP_SCALARS] = "scalars of the loaded step",
    [RF_ROLE_STATE] = "state",
    [RF_ROLE_STATE + 1] = "second state",
    [RF_ROLE_STATE + 2] = "third state",
    [RF_ROLE_STATE_END] = "fourth state",
    [RF_ROLE_PARAM_BEFORE] = "parameters before",
    [RF_ROLE_COPY_BEFORE] = "16-bit parameters before",
    [RF_ROLE_DECAY] = "decay",
    [RF_ROLE_PLACES] = "places",
    [RF_ROLE_CHUNKS] = "norm chunks",
    [RF_ROLE_SQUARES] = "squares",
    [RF_ROLE_PARTIALS] = "partial norms",
    [RF_ROLE_NORM] = "norm",
    [RF_ROLE_SUM] = "sum",
    [RF_ROLE_TERM] = "term",
    [RF_ROLE_SHARD_TERM] = "term of a shard",
    [RF_ROLE_USE_TERM] = "term of a tied use",
    [RF_ROLE_SENT] = "sent",
    [RF_ROLE_RECEIVED] = "received",
    [RF_ROLE_FROM] = "from",
    [RF_ROLE_TO] = "to",
};

const char *rf_verb_name(enum rf_verb verb)
{
    return (unsigned)verb < RF_VERB_COUNT ? verbs[verb] : "?";
}

const char *rf_role_name(enum rf_role role)
{
    return (unsigned)role < RF_ROLE_COUNT && roles[role] ? roles[role] : "?";
}

const char *rf_lane_name(enum rf_lane lane)
{
    return (unsigned)lane < RF_LANE_COUNT ? lanes[lane] : "?";
}

const char *rf_bound_name(enum rf_bound bound)
{
    return (unsigned)bound < RF_BOUND_COUNT ? bounds[bound] : "?";
}

struct text {
    char *at;
    size_t left;
};

static void put(struct text *t, const char *word, int number)
{
    int n = number < 0 ? snprintf(t->at, t->left, "%s", word)
                       : snprintf(t->at, t->left, " %s %d", word, number);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static void put_if(struct text *t, const char *word, int number)
{
    if (number >= 0)
        put(t, word, number);
}

const char *rf_value_text(const struct rf_value *v, char *text, size_t bytes)
{
    struct text t = {text, bytes};
    put(&t, (unsigned)v->kind < RF_VALUE_KINDS ? kinds[v->kind] : "unknown value", -1);
    put_if(&t, "block", v->block);
    put_if(&t, "micro-batch", v->micro_batch);
    put_if(&t, "piece", v->piece);
    put_if(&t, "slot", v->slot);
    return text;
}

/* The first gradient among these operands; its slot is printed. NULL: none. */
static const struct rf_value *gradient(const struct rf_plan *plan, const int *operands, int count)
{
    for (int k = 0; k < count; k++)
        if (plan->values[operands[k]].kind == RF_VALUE_GRAD ||
            plan->values[operands[k]].kind == RF_VALUE_GRAD_SHARD ||
            plan->values[operands[k]].kind == RF_VALUE_GRAD_NARROW ||
            plan->values[operands[k]].kind == RF_VALUE_GRAD_NARROW_SHARD ||
            plan->values[operands[k]].kind == RF_VALUE_GRAD_PART)
            return &plan->values[operands[k]];
    return NULL;
}

/* The piece of an update, if it has one. */
static int only_piece(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *operands = rf_plan_operands(plan, i);
    return rf_plan_updates_pieces(plan) ? plan->values[operands[0]].piece : -1;
}

const char *rf_instruction_text(const struct rf_plan *plan, const struct rf_instruction *i,
                                char *text, size_t bytes)
{
    struct text t = {text, bytes};
    const int *operands = rf_plan_operands(plan, i);
    const struct rf_value *in = gradient(plan, operands, i->ins);
    const struct rf_value *last = gradient(plan, operands + i->ins - (i->ins > 0), i->ins > 0);
    const struct rf_value *out = gradient(plan, operands + i->ins, i->outs);

    put(&t, (unsigned)i->verb < RF_VERB_COUNT ? verbs[i->verb] : "unknown instruction", -1);
    if (rf_verb_calls_block(i->verb)) {
        put_if(&t, "block", i->block);
        put_if(&t, "micro-batch", i->micro_batch);
        put_if(&t, "phase", i->phase > 0 ? i->phase : -1);
        put(&t, i->behind ? " of the step before" : "", -1);
    }
    switch (i->verb) {
    case RF_VERB_ZERO:
    case RF_VERB_ZERO_WHOLE:
    case RF_VERB_BACKWARD_WEIGHT:
        put_if(&t, "slot", out ? out->slot : -1);
        break;
    case RF_VERB_MERGE:
        put_if(&t, "slot", out ? out->slot : -1);
        put_if(&t, "+= slot", last ? last->slot : -1);
        put_if(&t, "piece", i->outs == 1 && out ? out->piece : -1);
        break;
    case RF_VERB_TIE:
        put_if(&t, "piece", out ? out->piece : -1);
        put_if(&t, "+= piece", last ? last->piece : -1);
        break;
    case RF_VERB_REDUCE:
    case RF_VERB_HOLD:
        put_if(&t, "piece", in ? in->piece : -1);
        break;
    case RF_VERB_HOST_STEP:
        put_if(&t, "piece", i->ins > 0 ? plan->values[operands[0]].piece : -1);
        break;
    case RF_VERB_STEP:
        put_if(&t, "piece", i->ins > 0 ? only_piece(plan, i) : -1);
        break;
    case RF_VERB_EXCHANGE:
        put(&t, " of ", -1);
        put(&t, rf_verb_name(i->call), -1);
        put_if(&t, "block", i->block);
        put_if(&t, "micro-batch", i->micro_batch);
        put_if(&t, "phase", i->phase);
        break;
    case RF_VERB_SEND:
    case RF_VERB_RECV:
    case RF_VERB_GATHER:
    case RF_VERB_FETCH:
    case RF_VERB_EVICT:
    case RF_VERB_READ:
    case RF_VERB_WRITE:
    case RF_VERB_BROADCAST:
    case RF_VERB_CAST:
        put(&t, " of ", -1);
        rf_value_text(&plan->values[operands[0]], t.at, t.left);
        break;
    default:
        break;
    }
    return text;
}
