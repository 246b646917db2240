/* SPDX-License-Identifier: MIT
 *
 * One optimizer update of a flat buffer in host memory: checks, selection of the instruction set,
 * and threads. host_block.h has the arithmetic.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "host_block.h"

static const char op[] = "host_step";

/* ---- instructions ---------------------------------------------------------------------------- */

static void update_plain(const struct update *u, int64_t from, int64_t end)
{
    update_blocks(u, from, end);
}

RF_ON_AVX2 static void update_avx2(const struct update *u, int64_t from, int64_t end)
{
    update_blocks(u, from, end);
}

RF_ON_AVX512 static void update_avx512(const struct update *u, int64_t from, int64_t end)
{
    update_blocks(u, from, end);
}

static void (*const updates[RF_HOST_PATHS])(const struct update *u, int64_t from, int64_t end) = {
    update_plain, update_avx2, update_avx512};

static void run_update(enum rf_host_path path, const struct update *update, int64_t from,
                       int64_t end)
{
    struct update u = *update;
    const uint64_t before = rf_flush_begin(u.part.flush);
    u.loops = &rf_code_loops[path];
    updates[path](&u, from, end);
    rf_flush_end(u.part.flush, before);
}

enum rf_host_path rf_host_best_path(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return RF_HOST_AVX512;
    if (__builtin_cpu_supports("avx2"))
        return RF_HOST_AVX2;
#endif
    return RF_HOST_PLAIN;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_16_bit(enum rf_dtype type)
{
    return type == RF_F16 || type == RF_BF16;
}

struct array {
    const char *name;
    const void *data;
    uint64_t bytes;
};

/* The first `written` arrays must not overlap any other. */
static int check_apart(const struct array *arrays, int count, int written)
{
    for (int i = 0; i < written; i++)
        for (int j = i + 1; j < count; j++) {
            const uintptr_t a = (uintptr_t)arrays[i].data, b = (uintptr_t)arrays[j].data;
            if (a && b && a < b + arrays[j].bytes && b < a + arrays[i].bytes)
                return rf_fail(RF_EINVAL, "%s: %s must not overlap %s", op, arrays[i].name,
                               arrays[j].name);
        }
    return 0;
}

static int check_arrays(const struct rf_optimizer_opts *opts, const struct rf_host_part *part)
{
    static const char *const names[RF_STATE_COUNT] = {"state m", "state v", "state a", "state u"};
    const uint64_t n = (uint64_t)part->count;
    struct array arrays[4 + RF_STATE_COUNT] = {
        {"param", part->param, n * rf_dtype_bytes(part->param_type)},
        {"copy", part->copy, n * rf_dtype_bytes(part->copy_type)},
        [2 + RF_STATE_COUNT] = {"grad", part->grad, n * rf_dtype_bytes(part->grad_type)},
        {"decay", part->decay, (n + GRAIN - 1) / GRAIN * sizeof(int32_t)}};
    const uint64_t bytes =
        part->state_type == RF_U8 ? rf_code_bytes(n) : n * rf_dtype_bytes(part->state_type);
    for (int k = 0; k < RF_STATE_COUNT; k++)
        arrays[2 + k] = (struct array){names[k], part->state[k], bytes};
    if (!part->param || !part->grad || !part->decay)
        return rf_fail(RF_EINVAL, "%s: %s is NULL; a part needs param, grad and decay", op,
                       !part->param  ? "param"
                       : !part->grad ? "grad"
                                     : "decay");
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(opts, (enum rf_optimizer_state)k) && !part->state[k])
            return rf_fail(RF_EINVAL, "%s: %s is NULL; %s needs it", op, names[k],
                           rf_optimizer_get_info(opts->kind)->name);
    return check_apart(arrays, 4 + RF_STATE_COUNT, 2 + RF_STATE_COUNT);
}

static int check_part(const struct rf_optimizer_opts *opts, const struct rf_host_part *part)
{
    if (part->count < 0)
        return rf_fail(RF_EINVAL, "%s: a part has %lld elements; it must have 0 or more", op,
                       (long long)part->count);
    if (part->first % GRAIN != 0)
        return rf_fail(RF_EINVAL, "%s: first is %llu; it must be a multiple of %d elements", op,
                       (unsigned long long)part->first, GRAIN);
    if ((part->param_type != RF_F32 && !is_16_bit(part->param_type)) ||
        (part->grad_type != RF_F32 && !is_16_bit(part->grad_type)))
        return rf_fail(RF_EINVAL, "%s: param is %s and grad %s; both must be f32, f16 or bf16", op,
                       rf_dtype_name(part->param_type), rf_dtype_name(part->grad_type));
    if (part->state_type != RF_F32 && !rf_optimizer_can_store(opts, part->state_type))
        return rf_fail(RF_ENOTSUP, "%s: %s with these options has no states in %s", op,
                       rf_optimizer_get_info(opts->kind)->name, rf_dtype_name(part->state_type));
    if (part->copy && (part->param_type != RF_F32 || !is_16_bit(part->copy_type)))
        return rf_fail(RF_EINVAL,
                       "%s: a copy is for f32 parameters, in f16 or bf16; param is %s, copy %s", op,
                       rf_dtype_name(part->param_type), rf_dtype_name(part->copy_type));
    if (part->flush && !rf_can_flush())
        return rf_fail(RF_ENOTSUP, "%s: this processor cannot flush subnormal numbers; omit flush",
                       op);
    return part->count > 0 ? check_arrays(opts, part) : 0;
}

/* ---- the update ------------------------------------------------------------------------------ */

static struct terms terms_of(const struct rf_optimizer_opts *opts,
                             const struct rf_step_scalars *scalars)
{
    const bool dampens = rf_optimizer_get_info(opts->kind)->takes_dampening;
    return (struct terms){.prescale = scalars->prescale == 0 ? 1 : scalars->prescale,
                          .factor = scalars->factor,
                          .lr = scalars->lr,
                          .weight_decay = opts->weight_decay,
                          .beta1 = opts->beta1,
                          .beta2 = opts->beta2,
                          .rest1 = 1 - opts->beta1,
                          .rest2 = 1 - opts->beta2,
                          .bias1 = scalars->bias1,
                          .bias2 = scalars->bias2,
                          .inverse1 = 1 / (double)scalars->bias1,
                          .inverse2 = 1 / (double)scalars->bias2,
                          .eps = opts->eps,
                          .momentum = opts->momentum,
                          .rest = 1 - (dampens ? opts->dampening : 0),
                          .extra = {opts->extra[0], opts->extra[1]},
                          .first = scalars->updates <= 1};
}

/* The grain at which a part is cut: whole blocks of states. */
static int64_t grain_of(const struct rf_host_part *part)
{
    return part->state_type == RF_U8 ? RF_STATE_BLOCK : GRAIN;
}

/* Checks everything except the range, and prepares the loops' arguments. codes: memory for the
 * tables of states in 8 bits, with signs and without. */
static int prepare(const struct rf_optimizer_opts *opts, const struct rf_host_part *part,
                   const struct rf_step_scalars *scalars, struct rf_codes codes[2],
                   struct update *out)
{
    if (!opts || !part || !scalars || (unsigned)opts->kind >= RF_OPTIMIZER_COUNT)
        return rf_fail(RF_EINVAL, "%s: a part, scalars and a known kind of optimizer are needed",
                       op);
    struct update u = {.part = *part,
                       .terms = terms_of(opts, scalars),
                       .kind = opts->kind,
                       .decoupled = rf_optimizer_get_info(opts->kind)->decoupled,
                       .eps_inside = opts->eps_inside,
                       .stochastic =
                           opts->stochastic_rounding && (part->copy || part->param_type != RF_F32),
                       .seed = (uint64_t)scalars->seed[1] << 32 | scalars->seed[0],
                       .updates = scalars->updates};
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (!rf_optimizer_has(opts, (enum rf_optimizer_state)k))
            u.part.state[k] = NULL;
    RETURN_IF_ERROR(check_part(opts, &u.part));
    bool made[2] = {false, false};
    for (int k = 0; u.part.state_type == RF_U8 && k < RF_STATE_COUNT; k++) {
        const bool bare = !rf_optimizer_signed(opts, (enum rf_optimizer_state)k);
        if (!u.part.state[k])
            continue;
        if (!made[bare])
            rf_codes_make(!bare, &codes[bare]);
        made[bare] = true;
        u.codes[k] = &codes[bare];
    }
    *out = u;
    return 0;
}

int rf_host_step_by(enum rf_host_path path, const struct rf_optimizer_opts *opts,
                    const struct rf_host_part *part, const struct rf_step_scalars *scalars)
{
    struct update u;
    struct rf_codes codes[2];
    RETURN_IF_ERROR(prepare(opts, part, scalars, codes, &u));
    if (!scalars->skipped)
        run_update(path, &u, 0, part->count);
    return 0;
}

int rf_host_step(const struct rf_optimizer_opts *opts, const struct rf_host_part *part,
                 int64_t from, int64_t count, const struct rf_step_scalars *scalars)
{
    struct update u;
    struct rf_codes codes[2];
    RETURN_IF_ERROR(prepare(opts, part, scalars, codes, &u));
    if (from < 0 || count < 0 || from > part->count || count > part->count - from)
        return rf_fail(RF_EINVAL, "%s: %lld elements from %lld on are not within a part of %lld",
                       op, (long long)count, (long long)from, (long long)part->count);
    const int64_t grain = grain_of(part);
    if (from % grain != 0 || (count % grain != 0 && from + count != part->count))
        return rf_fail(
            RF_EINVAL,
            "%s: %lld elements from %lld on: a part of %lld can only be cut at multiples of %lld",
            op, (long long)count, (long long)from, (long long)part->count, (long long)grain);
    if (!scalars->skipped)
        run_update(rf_host_best_path(), &u, from, from + count);
    return 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Threads take the next piece when they are idle, so a thread that starts late delays no other. */
enum { PIECE = 512 * GRAIN };
struct work {
    const struct update *update;
    int64_t piece;
    _Atomic int64_t next;
};

static void *run_pieces(void *user)
{
    struct work *w = user;
    const int64_t count = w->update->part.count;
    for (;;) {
        const int64_t from = atomic_fetch_add(&w->next, w->piece);
        if (from >= count)
            return NULL;
        const int64_t end = count - from < w->piece ? count : from + w->piece;
        run_update(rf_host_best_path(), w->update, from, end);
    }
}

int rf_host_step_threads(const struct rf_optimizer_opts *opts, const struct rf_host_part *part,
                         const struct rf_step_scalars *scalars, int threads)
{
    struct update u;
    struct rf_codes codes[2];
    pthread_t helpers[RF_HOST_THREADS];
    RETURN_IF_ERROR(prepare(opts, part, scalars, codes, &u));
    if (threads < 1 || threads > RF_HOST_THREADS)
        return rf_fail(RF_EINVAL, "%s: %d threads; use 1 to %d", op, threads, RF_HOST_THREADS);
    if (scalars->skipped)
        return 0;
    const int64_t grain = grain_of(part);
    const int64_t share = (part->count / threads + grain - 1) / grain * grain;
    struct work work = {.update = &u,
                        .piece = share < grain   ? grain
                                 : share < PIECE ? share
                                                 : PIECE};
    const int64_t pieces = (part->count + work.piece - 1) / work.piece;
    int started = 0;
    while (started + 1 < threads && started + 1 < pieces &&
           pthread_create(&helpers[started], NULL, run_pieces, &work) == 0)
        started++;
    run_pieces(&work);
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    return 0;
}
