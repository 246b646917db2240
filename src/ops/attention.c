/* SPDX-License-Identifier: MIT
 *
 * Attention, forward and backward: checks and the choice of a path (attention_paths.c). The
 * backward pass walks the keys for dQ, then the queries for dK and dV. Neither needs a T*T tensor
 * or atomics.
 */
#include "attention.h"

#include "../base/base.h"
#include "attention_forms.h"

static int check_counts(const struct rf_attention_call *call)
{
    const struct rf_attention_args *a = call->args;
    const struct rf_device_info *info = rf_device_get_info(call->device);
    if (a->q.size > 256)
        return rf_fail(RF_ENOTSUP, "%s: heads of %lld elements; up to 256 are supported", call->op,
                       (long long)a->q.size);
    if (a->q.heads > info->max_workgroup_count[1] || a->q.batch > info->max_workgroup_count[2])
        return rf_fail(RF_ENOTSUP, "%s: this device takes batches up to %u and up to %u heads",
                       call->op, info->max_workgroup_count[2], info->max_workgroup_count[1]);
    return 0;
}

static int check_lse(const struct rf_attention_call *call, const char *what,
                     struct rf_tensor tensor)
{
    const struct rf_heads *q = &call->args->q;
    return rf_check_operand(call->op, what, tensor, RF_F32, q->batch * q->heads * q->rows);
}

static int check_starts(const struct rf_attention_call *call)
{
    const struct rf_attention_args *a = call->args;
    if (!a->starts.buffer)
        return 0;
    if (a->full || a->q.rows != a->k.rows)
        return rf_fail(RF_EINVAL,
                       "%s: starts of documents need causal attention of as many queries as keys",
                       call->op);
    return rf_check_operand(call->op, "starts", a->starts, RF_I32, a->q.batch * a->q.rows);
}

static int check_args(const struct rf_attention_call *call)
{
    const char *op = call->op;
    const struct rf_attention_args *a = call->args;
    const struct rf_heads *q = &a->q, *k = &a->k;
    enum rf_dtype type = q->tensor.dtype;
    RETURN_IF_ERROR(rf_check_heads(op, "q", q));
    RETURN_IF_ERROR(rf_check_heads_like(op, "k", k, type, (int64_t[]){q->batch, -1, -1, q->size}));
    RETURN_IF_ERROR(rf_check_heads_like(op, "v", &a->v, type,
                                        (int64_t[]){k->batch, k->rows, k->heads, k->size}));
    RETURN_IF_ERROR(rf_check_heads_like(op, "out", &a->out, type,
                                        (int64_t[]){q->batch, q->rows, q->heads, q->size}));
    if (q->heads % k->heads != 0)
        return rf_fail(RF_EINVAL, "%s: %lld heads of q are not a multiple of %lld heads of k and v",
                       op, (long long)q->heads, (long long)k->heads);
    if ((q->rows == 0) != (k->rows == 0))
        return rf_fail(RF_EINVAL, "%s: %lld queries and %lld keys; both or neither must be empty",
                       op, (long long)q->rows, (long long)k->rows);
    if (!a->full && k->rows < q->rows)
        return rf_fail(RF_EINVAL,
                       "%s: %lld queries and %lld keys; causal attention ends both together, so it "
                       "needs at least as many keys",
                       op, (long long)q->rows, (long long)k->rows);
    if (!(a->scale == a->scale))
        return rf_fail(RF_EINVAL, "%s: the scale is not a number", op);
    RETURN_IF_ERROR(check_counts(call));
    RETURN_IF_ERROR(check_starts(call));
    return check_lse(call, "lse", a->lse);
}

/* A gradient must have the strides of its operand: the kernels' push constants hold one set. */
static int check_grad(const struct rf_attention_call *call, const char *what,
                      const struct rf_heads *grad, const char *of, const struct rf_heads *h)
{
    RETURN_IF_ERROR(rf_check_heads_like(call->op, what, grad, h->tensor.dtype,
                                        (int64_t[]){h->batch, h->rows, h->heads, h->size}));
    if (!rf_heads_same_strides(grad, h))
        return rf_fail(RF_EINVAL, "%s: %s must have the strides of %s", call->op, what, of);
    return 0;
}

static int check_grads(const struct rf_attention_call *call)
{
    const struct rf_attention_args *a = call->args;
    const struct rf_attention_grads *g = call->grads;
    RETURN_IF_ERROR(check_grad(call, "dout", &g->dout, "out", &a->out));
    RETURN_IF_ERROR(check_grad(call, "dq", &g->dq, "q", &a->q));
    RETURN_IF_ERROR(check_grad(call, "dk", &g->dk, "k", &a->k));
    RETURN_IF_ERROR(check_grad(call, "dv", &g->dv, "v", &a->v));
    return check_lse(call, "delta", g->delta);
}

/* Whether `name` is the path's, as "tiled", or as "tiled:2" for its form 2. */
static bool is_named(const struct rf_attention_path *path, const char *name)
{
    const size_t length = strlen(path->name);
    if (strncmp(path->name, name, length) != 0)
        return false;
    return name[length] == 0 ||
           (name[length] == ':' && path->has_forms && rf_attention_form_named(name) >= 0);
}

static int run_path(struct rf_stream *stream, const struct rf_attention_call *call)
{
    const struct rf_attention_args *a = call->args;
    if (a->q.batch == 0 || a->q.rows == 0)
        return 0;
    for (size_t i = 0; i < rf_attention_path_count; i++) {
        const struct rf_attention_path *path = &rf_attention_paths[i];
        bool wanted = a->path && is_named(path, a->path);
        if (!wanted && (a->path || !path->suits(call)))
            continue;
        if (path->can)
            RETURN_IF_ERROR(path->can(call));
        return path->run(stream, call);
    }
    return rf_fail(RF_EINVAL, "%s: there is no path \"%s\"", call->op, a->path);
}

static int forward(struct rf_stream *stream, const char *op, const struct rf_attention_args *a)
{
    struct rf_attention_call call = {op, rf_stream_device(stream), a, NULL};
    RETURN_IF_ERROR(check_args(&call));
    RETURN_IF_ERROR(
        rf_check_heads_apart(op,
                             (struct rf_named_heads[]){{"out", a->out},
                                                       {"lse", rf_heads_flat(a->lse)},
                                                       {"q", a->q},
                                                       {"k", a->k},
                                                       {"v", a->v},
                                                       {"starts", rf_heads_flat(a->starts)}},
                             2, a->starts.buffer ? 6 : 5));
    return run_path(stream, &call);
}

static int backward(struct rf_stream *stream, const char *op, const struct rf_attention_args *a,
                    const struct rf_attention_grads *g)
{
    struct rf_attention_call call = {op, rf_stream_device(stream), a, g};
    RETURN_IF_ERROR(check_args(&call));
    RETURN_IF_ERROR(check_grads(&call));
    RETURN_IF_ERROR(
        rf_check_heads_apart(op,
                             (struct rf_named_heads[]){{"dq", g->dq},
                                                       {"dk", g->dk},
                                                       {"dv", g->dv},
                                                       {"delta", rf_heads_flat(g->delta)},
                                                       {"dout", g->dout},
                                                       {"out", a->out},
                                                       {"lse", rf_heads_flat(a->lse)},
                                                       {"q", a->q},
                                                       {"k", a->k},
                                                       {"v", a->v},
                                                       {"starts", rf_heads_flat(a->starts)}},
                             4, a->starts.buffer ? 11 : 10));
    return run_path(stream, &call);
}

int rf_attend(struct rf_stream *stream, const struct rf_attention_args *args)
{
    return forward(stream, "attend", args);
}

int rf_attend_backward(struct rf_stream *stream, const struct rf_attention_args *args,
                       const struct rf_attention_grads *grads)
{
    return backward(stream, "attend_backward", args, grads);
}

int rf_attention_choose(struct rf_device *device, enum rf_dtype type, int64_t head_size)
{
    static const char op[] = "attention_choose";
    if (!device || !rf_is_float_type(type) || head_size < 1 || head_size > INT32_MAX / 4)
        return rf_fail(RF_EINVAL,
                       "%s needs a device, f32, f16 or bf16, and a head size of 1 or more", op);
    if (rf_device_get_info(device)->kind == RF_DEVICE_CPU)
        return 0;
    /* Without memory. */
    const struct rf_heads heads = rf_heads_in(
        (struct rf_tensor){.shape = rf_shape3(1, 1, head_size), .dtype = type}, head_size, 0, 1);
    const struct rf_attention_args args = {.q = heads, .k = heads, .v = heads, .out = heads};
    const struct rf_attention_grads grads = {.dout = heads, .dq = heads, .dk = heads, .dv = heads};
    RETURN_IF_ERROR(run_path(NULL, &(struct rf_attention_call){op, device, &args, NULL}));
    return run_path(NULL, &(struct rf_attention_call){op, device, &args, &grads});
}
