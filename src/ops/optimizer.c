/* SPDX-License-Identifier: MIT
 *
 * One optimizer update of a flat buffer (optimizer.comp), for all rules. Values that change from
 * step to step are in the block of scalars (step_scalars.c); values that are fixed for a run are
 * specialization constants and push constants. A new rule is a row of the table here and a case of
 * shaders/optimizer_rules.h.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/optimizer.h"

#define PER_LANE 4 /* of optimizer.comp with views */
#define GRAIN 64   /* elements of a decay word, and of a division unit */

enum { BEYOND = RF_STATE_A }; /* the first state that optimizer_wide does not support */
_Static_assert(RF_STATE_COUNT - BEYOND <= 2, "push constants hold the addresses of so many");

/* FLAGS of optimizer.comp; the first are 1 << enum rf_optimizer_state. */
#define HAS(state) (1u << (state))
#define DECOUPLED 256u
#define EPS_INSIDE 512u
#define STOCHASTIC 1024u
#define PLACED 2048u
#define BEFORE 4096u
#define UNSIGNED_V 65536u
#define COPY_ALONE 255u /* KIND */

#define M HAS(RF_STATE_M)
#define V HAS(RF_STATE_V)
#define A HAS(RF_STATE_A)
#define U HAS(RF_STATE_U)

/* All properties of a rule except its arithmetic, which is in shaders/optimizer_rules.h. */
static const struct rule {
    struct rf_optimizer_info info;
    uint32_t states, with_momentum, centered; /* states it always has; states it has with options */
    uint8_t flops; /* per element: factor, decay, states, division by the root, step */
} rules[RF_OPTIMIZER_COUNT] = {
    [RF_ADAMW] = {{"adamw", 0.9f, 0.999f, 1e-8f, .decoupled = true, .corrects_bias = true},
                  M | V,
                  .flops = 17},
    [RF_SGD] = {{"sgd", .decoupled = true}, .flops = 5},
    [RF_MOMENTUM] = {{"momentum", .momentum = 0.9f, .takes_momentum = true,
                      .takes_dampening = true},
                     M,
                     .flops = 8},
    [RF_NESTEROV] = {{"nesterov", .momentum = 0.9f, .takes_momentum = true}, M, .flops = 10},
    [RF_ADAGRAD] = {{"adagrad", .eps = 1e-10f}, V, .flops = 10},
    [RF_RMSPROP] = {{"rmsprop", .beta2 = 0.99f, .eps = 1e-8f, .takes_momentum = true,
                     .takes_centered = true},
                    V,
                    .with_momentum = M,
                    .centered = A,
                    .flops = 12},
    [RF_ADAM] = {{"adam", 0.9f, 0.999f, 1e-8f, .corrects_bias = true}, M | V, .flops = 17},
    [RF_LION] = {{"lion", 0.9f, 0.99f, .decoupled = true}, M, .flops = 12},
};

const struct rf_optimizer_info *rf_optimizer_get_info(enum rf_optimizer kind)
{
    return (unsigned)kind < RF_OPTIMIZER_COUNT ? &rules[kind].info : NULL;
}

int rf_optimizer_find(const char *name)
{
    for (int kind = 0; name && kind < RF_OPTIMIZER_COUNT; kind++)
        if (strcmp(name, rules[kind].info.name) == 0)
            return kind;
    return -1;
}

const char *rf_optimizer_state_name(enum rf_optimizer_state state)
{
    static const char *const names[RF_STATE_COUNT] = {"m", "v", "a", "u"};
    return (unsigned)state < RF_STATE_COUNT ? names[state] : NULL;
}

static uint32_t states_of(const struct rf_optimizer_opts *opts)
{
    const struct rule *rule = &rules[opts->kind];
    return rule->states | (opts->momentum != 0 ? rule->with_momentum : 0) |
           (opts->centered ? rule->centered : 0);
}

bool rf_optimizer_has(const struct rf_optimizer_opts *opts, enum rf_optimizer_state state)
{
    return (unsigned)opts->kind < RF_OPTIMIZER_COUNT && (states_of(opts) & HAS(state));
}

bool rf_optimizer_signed(const struct rf_optimizer_opts *opts, enum rf_optimizer_state state)
{
    return state != RF_STATE_V || !rf_optimizer_has(opts, RF_STATE_M);
}

bool rf_optimizer_can_store(const struct rf_optimizer_opts *opts, enum rf_dtype dtype)
{
    if ((unsigned)opts->kind >= RF_OPTIMIZER_COUNT)
        return false;
    if (dtype == RF_BF16 || dtype == RF_U8)
        return states_of(opts) != 0 && (dtype == RF_BF16 || !opts->centered);
    return dtype == RF_F32;
}

static uint64_t blocks_of(uint64_t count)
{
    return (count + RF_STATE_BLOCK - 1) / RF_STATE_BLOCK;
}

/* The elements of a tensor of states of `count` parameters. */
static int64_t state_elements(enum rf_dtype dtype, int64_t count)
{
    return dtype == RF_U8 ? (int64_t)blocks_of((uint64_t)count) * RF_STATE_BLOCK_BYTES : count;
}

void rf_optimizer_work(const struct rf_optimizer_opts *opts, uint64_t count,
                       struct rf_optimizer_types types, struct rf_work *out)
{
    const uint64_t words = count + GRAIN - 1;
    uint64_t updated = count * rf_dtype_bytes(types.param);
    *out = (struct rf_work){0};
    if (!opts || count == 0 || (unsigned)opts->kind >= RF_OPTIMIZER_COUNT)
        return;
    for (int i = 0; i < RF_STATE_COUNT; i++)
        if (states_of(opts) & HAS(i))
            updated +=
                (uint64_t)state_elements(types.state, (int64_t)count) * rf_dtype_bytes(types.state);
    *out = (struct rf_work){
        .launches = 1,
        .flops = count * rules[opts->kind].flops,
        .read = updated + count * sizeof(float) + words / GRAIN * sizeof(int32_t) +
                RF_SCALAR_WORDS * sizeof(float),
        .written = updated + (types.copy != RF_F32 ? count * rf_dtype_bytes(types.copy) : 0)};
}

static int check_types(const char *op, const struct rf_optimizer_part *part, int64_t count)
{
    char text[96];
    RETURN_IF_ERROR(rf_check_typed(op, "grad", part->grad, count));
    if (!part->copy.buffer)
        return 0;
    RETURN_IF_ERROR(rf_check_typed(op, "copy", part->copy, count));
    if (part->param.dtype != RF_F32 || part->copy.dtype == RF_F32)
        return rf_fail(
            RF_EINVAL, "%s: a copy is for f32 parameters, in f16 or bf16; param is %s, copy %s", op,
            rf_tensor_text(part->param, text, sizeof(text)), rf_dtype_name(part->copy.dtype));
    return 0;
}

/* Only stochastic rounding uses a table of places. */
static int check_places(const char *op, const struct rf_optimizer_part *part, int64_t count)
{
    if (part->first % GRAIN != 0 || part->first / GRAIN > UINT32_MAX)
        return rf_fail(RF_EINVAL, "%s: first is %llu; a buffer is cut at multiples of %d elements",
                       op, (unsigned long long)part->first, GRAIN);
    if (!part->places.buffer)
        return 0;
    RETURN_IF_ERROR(rf_check_operand(op, "places", part->places, RF_I32, -1));
    const int64_t blocks = (count + GRAIN - 1) / GRAIN;
    const int64_t run = (int64_t)(sizeof(struct rf_place_run) / sizeof(int32_t));
    if (rf_tensor_count(part->places) < 2 * blocks + run)
        return rf_fail(RF_EINVAL,
                       "%s: places has %lld words; it needs two for each of %lld blocks of %d "
                       "elements, and a run",
                       op, (long long)rf_tensor_count(part->places), (long long)blocks, GRAIN);
    return 0;
}

static const char *const state_texts[RF_STATE_COUNT] = {"state m", "state v", "state a", "state u"};

/* The type of a part's states: that of the first. */
static enum rf_dtype state_type(const struct rf_optimizer_part *part)
{
    for (int i = 0; i < RF_STATE_COUNT; i++)
        if (part->state[i].buffer)
            return part->state[i].dtype;
    return RF_F32;
}

/* Any other type of states is refused as not f32. */
static int check_states(const char *op, const struct rf_optimizer_opts *opts, uint32_t has,
                        const struct rf_optimizer_part *part, int64_t count)
{
    enum rf_dtype type = state_type(part);
    if (type == RF_U8 && !rf_optimizer_can_store(opts, type))
        return rf_fail(RF_ENOTSUP, "%s: %s with these options has no states of 8 bits", op,
                       rules[opts->kind].info.name);
    if (type != RF_BF16 && type != RF_U8)
        type = RF_F32;
    for (int i = 0; i < RF_STATE_COUNT; i++)
        if (has & HAS(i))
            RETURN_IF_ERROR(rf_check_operand(op, state_texts[i], part->state[i], type,
                                             state_elements(type, count)));
    return 0;
}

static int check_part(const char *op, const struct rf_optimizer_opts *opts, uint32_t has,
                      const struct rf_optimizer_part *part, struct rf_tensor scalars)
{
    RETURN_IF_ERROR(rf_check_typed(op, "param", part->param, -1));
    int64_t count = rf_tensor_count(part->param);
    RETURN_IF_ERROR(check_types(op, part, count));
    struct rf_named_tensor written[2 + RF_STATE_COUNT] = {{"param", part->param},
                                                          {"copy", part->copy}};
    RETURN_IF_ERROR(check_states(op, opts, has, part, count));
    for (int i = 0; i < RF_STATE_COUNT; i++)
        written[2 + i] = (struct rf_named_tensor){state_texts[i], part->state[i]};
    RETURN_IF_ERROR(
        rf_check_operand(op, "decay", part->decay, RF_I32, (count + GRAIN - 1) / GRAIN));
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, RF_SCALAR_WORDS));
    RETURN_IF_ERROR(check_places(op, part, count));
    return rf_check_apart(op, written, 2 + RF_STATE_COUNT,
                          (struct rf_named_tensor[]){{"grad", part->grad},
                                                     {"decay", part->decay},
                                                     {"scalars", scalars},
                                                     {"places", part->places}},
                          4);
}

/* TYPE_... of common.glsl. */
static uint32_t type_of(struct rf_tensor tensor)
{
    return !tensor.buffer || tensor.dtype == RF_F32 ? 0 : tensor.dtype == RF_F16 ? 1 : 2;
}

/* Whether all tensors that an update touches by element consist of whole quads. */
static bool is_vector(const struct rf_optimizer_part *part)
{
    struct rf_tensor all[3 + RF_STATE_COUNT] = {part->param, part->grad, part->copy};
    const int states = state_type(part) == RF_U8 ? 0 : RF_STATE_COUNT;
    memcpy(all + 3, part->state, sizeof(part->state));
    return rf_pick_vector(rf_tensor_count(part->param), all, 3 + (size_t)states);
}

/* A workgroup updates several blocks of 8-bit states, because it fills tables first. A CPU device
 * runs few workgroups at once. */
static uint64_t coded_groups(const struct rf_device *device, int64_t count)
{
    const bool gpu = rf_device_teams(device);
    const uint64_t blocks = blocks_of((uint64_t)count), enough = gpu ? 1024 : 32;
    const uint64_t most_blocks = gpu ? 16 : 4096;
    const uint64_t least = (blocks + most_blocks - 1) / most_blocks;
    const uint64_t most = blocks < enough ? blocks : enough;
    return least > most ? least : most;
}

/* Lists the storage buffers of optimizer_wide; the parameters stand in for an absent state. */
static uint32_t list_written(const struct rf_optimizer_part *part,
                             struct rf_tensor written[RF_MAX_WRITTEN])
{
    written[0] = part->param;
    written[1] = part->state[RF_STATE_M].buffer ? part->state[RF_STATE_M] : part->param;
    written[2] = part->state[RF_STATE_V].buffer ? part->state[RF_STATE_V] : part->param;
    return 3;
}

/* The kernel's word for the place of a part's elements. */
static uint32_t place_word(const struct rf_optimizer_part *part)
{
    return part->places.buffer ? (uint32_t)rf_tensor_count(part->places)
                               : (uint32_t)(part->first / GRAIN);
}

/* One launch; wide: the build that writes by whole subgroups. */
static int run_part(struct rf_stream *stream, const struct rf_optimizer_opts *opts, uint32_t flags,
                    const struct rf_optimizer_part *part, struct rf_tensor scalars,
                    struct rf_push_optimizer *push, bool wide)
{
    static const struct rf_builds f32 = {.aligned = RF_BUILD(optimizer_v),
                                         .any = RF_BUILD(optimizer_s),
                                         .aligned_views = RF_BUILD(optimizer_views),
                                         .wide = RF_BUILD(optimizer_wide)};
    static const struct rf_builds typed = {.aligned = RF_BUILD(optimizer_v),
                                           .any = RF_BUILD(optimizer_s)};
    static const struct rf_builds bf16 = {.aligned = RF_BUILD(optimizer_bf16_v),
                                          .any = RF_BUILD(optimizer_bf16_s)};
    static const struct rf_builds coded = {.aligned = RF_BUILD(optimizer_8bit_v),
                                           .any = RF_BUILD(optimizer_8bit_s)};
    const struct rf_tensor *state = part->state;
    const enum rf_dtype stored = state_type(part);
    const struct rf_builds *builds = stored == RF_U8                               ? &coded
                                     : stored == RF_BF16                           ? &bf16
                                     : type_of(part->param) || type_of(part->grad) ? &typed
                                                                                   : &f32;
    const bool vector = is_vector(part);
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = "optimizer_step", .push = push, .push_bytes = RF_PUSH_BYTES(*push)};
    push->param = rf_address_of(part->param);
    push->grad = rf_address_of(part->grad);
    push->m = rf_address_of(state[RF_STATE_M]);
    push->v = rf_address_of(state[RF_STATE_V]);
    push->copy = rf_address_of(part->copy);
    push->decay = rf_address_of(part->decay);
    push->places = rf_address_of(part->places);
    push->first_block = place_word(part);
    rf_job_build(&job, device, builds, vector,
                 (struct rf_source[]){{part->param}, {part->grad}, {state[0]}, {state[1]}},
                 flags & (HAS(RF_STATE_M) | HAS(RF_STATE_V)) ? 4 : 2, push->first);
    push->items =
        (uint32_t)(vector ? rf_tensor_count(part->param) / 4 : rf_tensor_count(part->param));
    if (wide && job.view_count > 0) {
        struct rf_tensor written[RF_MAX_WRITTEN];
        job.shader = f32.wide;
        rf_job_wide(&job, device, push->items, PER_LANE, written, list_written(part, written),
                    push->digits);
    } else {
        for (int i = BEYOND; i < RF_STATE_COUNT; i++)
            push->more[i - BEYOND] = rf_address_of(state[i]);
        if (stored == RF_U8)
            rf_job_flat(&job, device,
                        coded_groups(device, rf_tensor_count(part->param)) * RF_FLAT_LANES,
                        RF_FLAT_LANES, 1);
        else
            rf_job_flat(&job, device, push->items, RF_FLAT_LANES, job.view_count ? PER_LANE : 1);
    }
    rf_job_spec(&job, 1, (uint32_t)opts->kind);
    rf_job_spec(&job, 2, flags);
    rf_job_spec(&job, 3, type_of(part->param));
    rf_job_spec(&job, 4, type_of(part->grad));
    rf_job_spec(&job, 5, type_of(part->copy));
    for (uint32_t i = 0; i < RF_OPTIMIZER_EXTRA && rules[opts->kind].info.takes_extra; i++) {
        uint32_t bits;
        memcpy(&bits, &opts->extra[i], sizeof(bits));
        rf_job_spec(&job, 6 + i, bits);
    }
    job.work.flops = (uint64_t)rf_tensor_count(part->param) * rules[opts->kind].flops;
    rf_job_reads(&job, part->grad);
    rf_job_reads(&job, part->decay);
    rf_job_reads(&job, scalars);
    rf_job_reads(&job, part->places);
    rf_job_updates(&job, part->param);
    rf_job_writes(&job, part->copy);
    for (int i = 0; i < RF_STATE_COUNT; i++)
        rf_job_updates(&job, state[i]);
    return rf_job_run(stream, &job);
}

/* The elements from `first` on, a multiple of GRAIN. */
static struct rf_optimizer_part part_of(const struct rf_optimizer_part *whole, int64_t first,
                                        int64_t count)
{
    struct rf_optimizer_part part = *whole;
    part.param = rf_elements(whole->param, first, count);
    part.grad = rf_elements(whole->grad, first, count);
    part.copy = rf_elements(whole->copy, first, count);
    for (int i = 0; i < RF_STATE_COUNT; i++)
        part.state[i] = rf_elements(whole->state[i], first, count);
    part.decay = rf_elements(whole->decay, first / GRAIN, (count + GRAIN - 1) / GRAIN);
    part.first += (uint64_t)first;
    return part;
}

/* Runs as much as possible in the build that writes by whole subgroups, then the rest. */
static int run_parts(struct rf_stream *stream, const struct rf_optimizer_opts *opts, uint32_t flags,
                     const struct rf_optimizer_part *whole, struct rf_tensor scalars,
                     struct rf_push_optimizer *push)
{
    struct rf_device *device = rf_stream_device(stream);
    const int64_t count = rf_tensor_count(whole->param);
    int64_t done = 0, items = 0;
    struct rf_optimizer_part part;
    bool wide = whole->param.dtype == RF_F32 && whole->grad.dtype == RF_F32 &&
                !whole->copy.buffer && state_type(whole) == RF_F32 && is_vector(whole);
    for (int i = BEYOND; i < RF_STATE_COUNT; i++)
        wide = wide && !whole->state[i].buffer;
    for (; wide && done < count; done += items) {
        struct rf_tensor written[RF_MAX_WRITTEN];
        part = part_of(whole, done, count - done);
        items = 4 * (int64_t)rf_wide_quads(device, (uint64_t)(count - done) / 4, PER_LANE, written,
                                           list_written(&part, written));
        if (items == 0)
            break;
        part = part_of(whole, done, items);
        RETURN_IF_ERROR(run_part(stream, opts, flags, &part, scalars, push, true));
    }
    if (done == count)
        return 0;
    part = done ? part_of(whole, done, count - done) : *whole;
    return run_part(stream, opts, flags, &part, scalars, push, false);
}

int rf_optimizer_step(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                      const struct rf_optimizer_part *whole, struct rf_tensor scalars)
{
    static const char op[] = "optimizer_step";
    if (!opts || !whole || (unsigned)opts->kind >= RF_OPTIMIZER_COUNT)
        return rf_fail(RF_EINVAL, "%s: a part and a known kind of optimizer are needed", op);
    const uint32_t has = states_of(opts);
    struct rf_optimizer_part part = *whole;
    for (int i = 0; i < RF_STATE_COUNT; i++)
        if (!(has & HAS(i)))
            part.state[i] = (struct rf_tensor){0};
    RETURN_IF_ERROR(check_part(op, opts, has, &part, scalars));
    if (rf_tensor_count(part.param) == 0)
        return 0;
    if (!opts->stochastic_rounding || (part.param.dtype == RF_F32 && !part.copy.buffer))
        part.places = (struct rf_tensor){0};
    uint32_t flags = has | (rules[opts->kind].info.decoupled ? DECOUPLED : 0) |
                     (opts->eps_inside ? EPS_INSIDE : 0) |
                     (opts->stochastic_rounding ? STOCHASTIC : 0) |
                     (part.places.buffer ? PLACED : 0) |
                     (rf_optimizer_signed(opts, RF_STATE_V) ? 0 : UNSIGNED_V);
    struct rf_push_optimizer push = {
        .scalars = rf_address_of(scalars),
        .beta1 = opts->beta1,
        .beta2 = opts->beta2,
        .eps = opts->eps,
        .weight_decay = opts->weight_decay,
        .momentum = opts->momentum,
        .dampening = rules[opts->kind].info.takes_dampening ? opts->dampening : 0};
    return run_parts(stream, opts, flags, &part, scalars, &push);
}

static int check_copy(const char *op, const struct rf_optimizer_part *part,
                      struct rf_tensor scalars)
{
    const int64_t count = rf_tensor_count(part->param);
    RETURN_IF_ERROR(rf_check_operand(op, "param", part->param, RF_F32, -1));
    RETURN_IF_ERROR(rf_check_typed(op, "copy", part->copy, count));
    if (part->copy.dtype == RF_F32)
        return rf_fail(RF_EINVAL, "%s: a copy is in f16 or bf16", op);
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, RF_SCALAR_WORDS));
    RETURN_IF_ERROR(check_places(op, part, count));
    return rf_check_apart(op, (struct rf_named_tensor[]){{"copy", part->copy}}, 1,
                          (struct rf_named_tensor[]){{"param", part->param},
                                                     {"scalars", scalars},
                                                     {"places", part->places}},
                          3);
}

int rf_optimizer_copy(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                      const struct rf_optimizer_part *part, struct rf_tensor scalars, bool before)
{
    static const char op[] = "optimizer_copy";
    static const struct rf_builds builds = {.aligned = RF_BUILD(optimizer_v),
                                            .any = RF_BUILD(optimizer_s)};
    if (!opts || !part)
        return rf_fail(RF_EINVAL, "%s: options and a part are needed", op);
    if (!opts->stochastic_rounding)
        return rf_cast(stream, part->copy, part->param);
    RETURN_IF_ERROR(check_copy(op, part, scalars));
    const int64_t count = rf_tensor_count(part->param);
    const bool vector = rf_pick_vector(count, (struct rf_tensor[]){part->param, part->copy}, 2);
    struct rf_push_optimizer push = {.param = rf_address_of(part->param),
                                     .copy = rf_address_of(part->copy),
                                     .scalars = rf_address_of(scalars),
                                     .places = rf_address_of(part->places),
                                     .items = (uint32_t)(vector ? count / 4 : count),
                                     .first_block = place_word(part)};
    struct rf_job job = {.op = op, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    if (count == 0)
        return 0;
    rf_job_build(&job, rf_stream_device(stream), &builds, vector,
                 (struct rf_source[]){{part->param}}, 1, push.first);
    rf_job_flat(&job, rf_stream_device(stream), push.items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, COPY_ALONE);
    rf_job_spec(&job, 2, STOCHASTIC | (part->places.buffer ? PLACED : 0) | (before ? BEFORE : 0));
    rf_job_spec(&job, 5, type_of(part->copy));
    rf_job_reads(&job, part->param);
    rf_job_reads(&job, scalars);
    rf_job_reads(&job, part->places);
    rf_job_writes(&job, part->copy);
    return rf_job_run(stream, &job);
}
