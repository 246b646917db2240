/* SPDX-License-Identifier: MIT
 *
 * The one interpreter of schedules. Called by comm, one run at a time per rf_exec; several rf_exec
 * may share a transport. It knows verbs and operands, no algorithm, and allocates nothing once it
 * has seen its largest schedule.
 *
 * Order: one completion at a time, depth first, so that what was received is reduced and passed on
 * while it is still in the cache. Receives are posted before sends.
 */
#include <assert.h>

#include "../base/base.h"
#include "reduce.h"
#include "sched.h"

/* A posted send or receive; its address is the context of the completion. */
struct message {
    unsigned char provider[64]; /* the transport's while posted */
    struct rf_exec *exec;
    uint32_t step; /* RF_NO_STEP = not posted */
};

/* Steps in the order they became ready. A step enters once per run, so the arrays never wrap. */
struct queue {
    uint32_t *steps;
    uint32_t head, tail;
};

/* Moves of one direction that have been started, oldest first, and those that wait. */
struct moves {
    struct {
        uint32_t step;
        uint64_t ticket;
    } started[RF_STAGING_SLOTS];
    uint32_t first, count;
    struct queue ready;
};

/* What a receive brought and left where it was; at its place in temporary memory / 64. */
struct loan {
    const void *data;
    uint32_t loan; /* 0 = none: the data are in temporary memory */
    int peer;
};

struct buffers {
    unsigned char *in, *out;
};

struct rf_exec {
    struct rf_transport *transport; /* may be NULL: one rank, no network */
    const struct rf_sched *sched;   /* NULL = idle */
    struct rf_exec_args args;
    unsigned char *base[RF_SPACE_COUNT];

    uint32_t *need; /* [step] predecessors that have not finished */
    struct queue recvs, sends;
    uint32_t *work; /* a stack: depth first */
    uint32_t work_count;
    struct moves moves[2]; /* fetches, stores */
    uint32_t left;         /* steps that have not finished */
    int status;            /* of a failed run, until reset */
    int mismatch_peer;
    uint64_t activity;
    uint32_t sealed_step, sealed; /* the last send's contract on the wire */

    uint32_t step_capacity; /* of need, ..., work, moves: one allocation at `need` */
    struct message *messages;
    uint32_t *free_messages; /* a stack: the same few stay in the cache */
    uint32_t message_capacity, free_count;
    struct rf_fold_part *parts;
    uint32_t part_capacity;
    void *temp, *temp_handle;
    size_t temp_capacity;

    bool shares; /* ranks reach each other's memory */
    struct loan *loans;
    uint32_t borrowed;
    struct buffers *all;    /* [rank], once all have met */
    unsigned char **places; /* [rank]: one allocation with all */
    int all_capacity;
    int64_t other_bytes;
};

enum { TEMP_PAGE = 4096 };

int rf_exec_create(struct rf_transport *transport, struct rf_exec **out)
{
    struct rf_exec *exec = rf_alloc(sizeof(*exec));
    if (!exec)
        return rf_fail(RF_ENOMEM, "out of memory for an executor of collectives");
    exec->transport = transport;
    exec->shares = rf_wire_shares(transport);
    exec->mismatch_peer = -1;
    *out = exec;
    return 0;
}

static void free_temp(struct rf_exec *exec)
{
    if (exec->temp_handle)
        exec->transport->ops->deregister_memory(exec->transport, exec->temp_handle);
    rf_free(exec->temp);
    rf_free(exec->loans);
    exec->loans = NULL;
    exec->temp = exec->temp_handle = NULL;
    exec->temp_capacity = 0;
}

void rf_exec_destroy(struct rf_exec *exec)
{
    if (!exec)
        return;
    free_temp(exec);
    rf_free(exec->need);
    rf_free(exec->messages);
    rf_free(exec->free_messages);
    rf_free(exec->parts);
    rf_free(exec->all);
    rf_free(exec);
}

/* ---- memory for the largest schedule so far -------------------------------------------------- */

static void free_all_messages(struct rf_exec *exec)
{
    exec->free_count = exec->message_capacity;
    for (uint32_t i = 0; i < exec->message_capacity; i++) {
        exec->messages[i].exec = exec;
        exec->messages[i].step = RF_NO_STEP;
        exec->free_messages[i] = exec->message_capacity - 1 - i;
    }
}

static bool grow_messages(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->messages);
    rf_free(exec->free_messages);
    exec->message_capacity = exec->free_count = 0;
    exec->messages = rf_alloc_aligned(count * sizeof(*exec->messages), 64);
    exec->free_messages = rf_alloc(count * sizeof(uint32_t));
    if (!exec->messages || !exec->free_messages)
        return false;
    exec->message_capacity = count;
    free_all_messages(exec);
    return true;
}

static bool grow_steps(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->need);
    exec->step_capacity = 0;
    exec->need = rf_alloc(6 * (size_t)count * sizeof(uint32_t));
    if (!exec->need)
        return false;
    exec->recvs.steps = exec->need + count;
    exec->sends.steps = exec->recvs.steps + count;
    exec->work = exec->sends.steps + count;
    exec->moves[0].ready.steps = exec->work + count;
    exec->moves[1].ready.steps = exec->moves[0].ready.steps + count;
    exec->step_capacity = count;
    return true;
}

static bool grow_parts(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->parts);
    exec->part_capacity = 0;
    exec->parts = rf_alloc(count * sizeof(*exec->parts));
    if (!exec->parts)
        return false;
    exec->part_capacity = count;
    return true;
}

static int grow_temp(struct rf_exec *exec, size_t bytes)
{
    free_temp(exec);
    exec->temp = rf_alloc_aligned(bytes, TEMP_PAGE);
    if (exec->shares)
        exec->loans = rf_alloc((bytes / RF_TEMP_ALIGNMENT + 1) * sizeof(*exec->loans));
    if (!exec->temp || (exec->shares && !exec->loans))
        return rf_fail(RF_ENOMEM, "%s: out of memory for %zu bytes of temporary data",
                       rf_coll_op_name(exec->sched->op), bytes);
    exec->temp_capacity = bytes;
    struct rf_transport *transport = exec->transport;
    if (!transport || !transport->ops->register_memory)
        return 0;
    int status = transport->ops->register_memory(transport, exec->temp, bytes, &exec->temp_handle);
    if (status < 0)
        free_temp(exec);
    return status;
}

static bool grow_all(struct rf_exec *exec, int ranks)
{
    rf_free(exec->all);
    exec->all_capacity = 0;
    exec->all = rf_alloc((size_t)ranks * (sizeof(*exec->all) + sizeof(*exec->places)));
    if (!exec->all)
        return false;
    exec->places = (unsigned char **)(exec->all + ranks);
    exec->all_capacity = ranks;
    return true;
}

static int make_room(struct rf_exec *exec, const struct rf_sched *sched)
{
    if (sched->instead)
        RETURN_IF_ERROR(make_room(exec, sched->instead));
    if ((sched->count > exec->step_capacity && !grow_steps(exec, sched->count)) ||
        (sched->message_count > exec->message_capacity &&
         !grow_messages(exec, sched->message_count)) ||
        (sched->longest_list > exec->part_capacity && !grow_parts(exec, sched->longest_list)) ||
        (sched->instead && sched->ranks > exec->all_capacity && !grow_all(exec, sched->ranks)))
        return rf_fail(RF_ENOMEM, "%s: out of memory to run a schedule of %u steps",
                       rf_coll_op_name(sched->op), sched->count);
    return sched->temp_bytes > exec->temp_capacity ? grow_temp(exec, sched->temp_bytes) : 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void *address(const struct rf_exec *exec, struct rf_operand operand)
{
    return exec->base[operand.space] + operand.offset;
}

static struct loan *loan_of(const struct rf_exec *exec, struct rf_operand operand)
{
    if (exec->borrowed == 0 || operand.space != RF_SPACE_TMP ||
        operand.offset % RF_TEMP_ALIGNMENT != 0)
        return NULL;
    struct loan *loan = &exec->loans[operand.offset / RF_TEMP_ALIGNMENT];
    return loan->loan ? loan : NULL;
}

/* Where an operand is read: where it was received, or where it was left. */
static const void *source(const struct rf_exec *exec, struct rf_operand operand)
{
    const struct loan *loan = loan_of(exec, operand);
    return loan ? loan->data : address(exec, operand);
}

static void give_back(struct rf_exec *exec, struct rf_operand operand)
{
    struct loan *loan = loan_of(exec, operand);
    if (!loan)
        return;
    exec->transport->ops->give_back(exec->transport, loan->peer, loan->loan);
    loan->loan = 0;
    exec->borrowed--;
}

static void push(struct queue *queue, uint32_t step)
{
    queue->steps[queue->tail++] = step;
}

static void make_ready(struct rf_exec *exec, uint32_t step)
{
    uint8_t verb = exec->sched->steps[step].verb;
    if (verb == RF_STEP_RECV)
        push(&exec->recvs, step);
    else if (verb == RF_STEP_SEND)
        push(&exec->sends, step);
    else if (verb == RF_STEP_FETCH || verb == RF_STEP_STORE)
        push(&exec->moves[verb == RF_STEP_STORE].ready, step);
    else
        exec->work[exec->work_count++] = step;
}

static void finish(struct rf_exec *exec, const struct rf_step *step)
{
    const uint32_t *next = exec->sched->successors + step->next;
    for (uint32_t i = 0; i < step->next_count; i++)
        if (--exec->need[next[i]] == 0)
            make_ready(exec, next[i]);
    exec->left--;
}

/* What goes with a message besides its data. With checksums the part of the contract that must be
 * equal becomes one over contract, link and data; that the calls are equal is in the tag, too. */
static uint32_t seal(const struct rf_exec *exec, const struct rf_step *step, int from, int to,
                     const void *data)
{
    const uint32_t contract = exec->args.contract;
    if (!exec->args.checksum)
        return contract;
    uint32_t seed = (contract & 0xffffffu) ^ step->tag * 0x85ebca77u ^
                    ((uint32_t)from << 16 ^ (uint32_t)to) * 0xc2b2ae3du;
    uint32_t sum = rf_checksum(data, step->bytes, seed) * 0x9e3779b1u;
    return (contract & 0xff000000u) | sum >> 8;
}

/* Once for a step, though its post may be tried often. */
static uint32_t seal_to_send(struct rf_exec *exec, uint32_t number)
{
    const struct rf_step *step = &exec->sched->steps[number];
    if (exec->sealed_step != number) {
        exec->sealed = seal(exec, step, exec->transport->rank, step->peer, address(exec, step->a));
        exec->sealed_step = number;
    }
    return exec->sealed;
}

/* 0, also when the transport has no room now: then the step stays at the head of its queue. */
static int post_all(struct rf_exec *exec, struct queue *queue)
{
    struct rf_transport *transport = exec->transport;
    while (queue->head < queue->tail) {
        const struct rf_step *step = &exec->sched->steps[queue->steps[queue->head]];
        uint64_t tag = RF_TAG(exec->args.comm_id, exec->args.sequence, step->tag);
        struct message *message = &exec->messages[exec->free_messages[exec->free_count - 1]];
        int status;
        if (step->verb == RF_STEP_SEND)
            status = transport->ops->post_send(transport, step->peer, tag,
                                               seal_to_send(exec, queue->steps[queue->head]),
                                               address(exec, step->a), step->bytes, message);
        else
            status = (step->may_borrow && exec->shares ? transport->ops->post_borrow
                                                       : transport->ops->post_recv)(
                transport, step->peer, tag, address(exec, step->dst), step->bytes, message);
        if (status == RF_EAGAIN)
            return 0;
        if (status < 0)
            return status;
        message->step = queue->steps[queue->head++];
        exec->free_count--;
        exec->activity++;
    }
    return 0;
}

static int post_ready(struct rf_exec *exec)
{
    if (exec->recvs.head < exec->recvs.tail)
        RETURN_IF_ERROR(post_all(exec, &exec->recvs));
    if (exec->sends.head < exec->sends.tail)
        RETURN_IF_ERROR(post_all(exec, &exec->sends));
    return 0;
}

static void run_fold(struct rf_exec *exec, const struct rf_step *step, size_t count)
{
    const struct rf_sched *sched = exec->sched;
    const struct rf_operand *list = sched->operands + step->list;
    for (uint32_t i = 0; i < step->list_count; i++)
        exec->parts[i] =
            (struct rf_fold_part){.data = source(exec, list[i]), .level = (int)list[i].level};
    rf_fold(address(exec, step->dst),
            &(struct rf_fold){.parts = exec->parts,
                              .part_count = step->list_count,
                              .dtype = sched->dtype,
                              .redop = sched->redop,
                              .custom = exec->args.reduction,
                              .tree = step->tree,
                              .divisor = step->divide ? sched->ranks : 1},
            count);
    for (uint32_t i = 0; i < step->list_count; i++)
        give_back(exec, list[i]);
}

static void run_reduce_all(struct rf_exec *exec, const struct rf_step *step, size_t count)
{
    const struct rf_sched *sched = exec->sched;
    for (int i = 0; i < sched->ranks; i++) {
        int rank = step->tree ? i : (step->peer + i) % sched->ranks;
        exec->parts[i] = (struct rf_fold_part){.data = exec->all[rank].in + step->a.offset};
    }
    struct rf_fold fold = {.parts = exec->parts,
                           .part_count = (uint32_t)sched->ranks,
                           .dtype = sched->dtype,
                           .redop = sched->redop,
                           .custom = exec->args.reduction,
                           .tree = step->tree,
                           .divisor = step->divide ? sched->ranks : 1};
    for (int rank = 0; rank < sched->ranks; rank++)
        exec->places[rank] = exec->all[rank].out + step->dst.offset;
    rf_fold_to_all(exec->places, sched->ranks, &fold, count, sched->buffer_bytes >= RF_PAST_CACHES);
    exec->activity++;
}

static void run_show(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_transport_ops *ops = exec->transport->ops;
    size_t bytes = exec->sched->buffer_bytes;
    struct rf_shown shown = {0};
    shown.can = ops->locate(exec->transport, exec->args.in, bytes, &shown.in) &&
                ops->locate(exec->transport, exec->args.out, bytes, &shown.out);
    memcpy(address(exec, step->dst), &shown, sizeof(shown));
}

/* 1: all can be reached; 0: not all; negative: somebody has shown what is not there. */
static int meet(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    const unsigned char *place = address(exec, step->a);
    for (int rank = 0; rank < sched->ranks; rank++, place += RF_TEMP_ALIGNMENT) {
        struct rf_shown shown;
        memcpy(&shown, place, sizeof(shown));
        if (!shown.can)
            return 0;
        exec->all[rank] = (struct buffers){exec->base[RF_SPACE_IN], exec->base[RF_SPACE_OUT]};
        if (rank == sched->rank)
            continue;
        struct rf_transport *t = exec->transport;
        exec->all[rank].in = t->ops->reach(t, rank, shown.in, sched->buffer_bytes);
        exec->all[rank].out = t->ops->reach(t, rank, shown.out, sched->buffer_bytes);
        if (!exec->all[rank].in || !exec->all[rank].out)
            return rf_fail_rank(RF_ECORRUPT, rank,
                                "%s: rank %d has shown buffers that are not in what it shares",
                                rf_coll_op_name(sched->op), rank);
    }
    return 1;
}

static void begin(struct rf_exec *exec, const struct rf_sched *sched);

/* Everything that was posted has ended: another schedule can take over. */
static int run_meet(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    int met = meet(exec, step);
    if (met < 0)
        return met;
    exec->other_bytes -= (int64_t)sched->shown_bytes;
    if (met)
        exec->other_bytes += (int64_t)sched->instead->sent_bytes;
    else
        begin(exec, sched->instead);
    return met;
}

static void run_local(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    void *dst = address(exec, step->dst);
    size_t count = step->bytes / sched->element_bytes;
    switch (step->verb) {
    case RF_STEP_REDUCE:
        if (step->list_count > 0) {
            run_fold(exec, step, count);
            break;
        }
        if (exec->args.reduction)
            exec->args.reduction->combine(dst, source(exec, step->a), source(exec, step->b), count,
                                          exec->args.reduction->user);
        else
            rf_combine(dst, source(exec, step->a), source(exec, step->b), count, sched->dtype,
                       sched->redop);
        give_back(exec, step->a);
        give_back(exec, step->b);
        break;
    case RF_STEP_DIVIDE:
        rf_divide(dst, count, sched->dtype, sched->ranks);
        break;
    case RF_STEP_COPY:
        if (dst != address(exec, step->a))
            rf_copy_bytes(dst, address(exec, step->a), step->bytes, step->bytes);
        break;
    case RF_STEP_SHOW:
        run_show(exec, step);
        break;
    case RF_STEP_REDUCE_ALL:
        run_reduce_all(exec, step, count);
        break;
    default:
        break; /* a join */
    }
}

/* One piece of work that takes time, and whatever joins stand before it. */
static void run_one(struct rf_exec *exec)
{
    while (exec->work_count > 0) {
        const struct rf_step *step = &exec->sched->steps[exec->work[--exec->work_count]];
        if (step->verb == RF_STEP_MEET) {
            int met = run_meet(exec, step);
            if (met < 0)
                exec->status = met;
            if (met <= 0)
                return;
        }
        run_local(exec, step);
        finish(exec, step);
        if (step->verb != RF_STEP_JOIN)
            return;
    }
}

/* ---- moves between tensors and staging memory -------------------------------------------------
 */

static int start_moves(struct rf_exec *exec, bool store)
{
    struct moves *moves = &exec->moves[store];
    struct rf_mover *mover = exec->args.mover;
    while (moves->ready.head < moves->ready.tail && moves->count < RF_STAGING_SLOTS) {
        const uint32_t index = moves->ready.steps[moves->ready.head++];
        const struct rf_step *step = &exec->sched->steps[index];
        const uint32_t at = (moves->first + moves->count) % RF_STAGING_SLOTS;
        moves->started[at].step = index;
        RETURN_IF_ERROR(mover->start(mover, store, step->dst.space == RF_SPACE_OUT,
                                     exec->sched->moves + step->list, step->list_count,
                                     &moves->started[at].ticket));
        moves->count++;
        exec->activity++;
    }
    return 0;
}

static int end_moves(struct rf_exec *exec, bool store)
{
    struct moves *moves = &exec->moves[store];
    while (moves->count > 0) {
        const uint32_t at = moves->first;
        int status = exec->args.mover->ended(exec->args.mover, store, moves->started[at].ticket);
        if (status <= 0)
            return status;
        moves->first = (at + 1) % RF_STAGING_SLOTS;
        moves->count--;
        exec->activity++;
        finish(exec, &exec->sched->steps[moves->started[at].step]);
    }
    return 0;
}

static int move_all(struct rf_exec *exec)
{
    if (!exec->sched || exec->sched->move_count == 0)
        return 0;
    for (int store = 0; store < 2; store++) {
        RETURN_IF_ERROR(end_moves(exec, store));
        RETURN_IF_ERROR(start_moves(exec, store));
    }
    return 0;
}

static void forget_moves(struct rf_exec *exec)
{
    for (int store = 0; store < 2; store++) {
        exec->moves[store].count = 0;
        exec->moves[store].ready.head = exec->moves[store].ready.tail = 0;
    }
}

/* ---- completions ----------------------------------------------------------------------------- */

static int fail_mismatch(struct rf_exec *exec, const struct rf_step *step,
                         const struct rf_completion *completion)
{
    exec->mismatch_peer = step->peer;
    if (completion->status < 0)
        return completion->status;
    const char *op = rf_coll_op_name(exec->sched->op);
    if (!rf_contract_agrees(exec->args.contract, completion->contract))
        return rf_fail_rank(RF_EMISMATCH, step->peer,
                            "%s: rank %d is in a different call than this rank", op, step->peer);
    return rf_fail_rank(RF_EMISMATCH, step->peer,
                        "%s: rank %d sent %zu bytes where this rank expected %llu", op, step->peer,
                        completion->bytes, (unsigned long long)step->bytes);
}

static int check(struct rf_exec *exec, const struct rf_step *step,
                 const struct rf_completion *completion)
{
    if (completion->status < 0 && completion->status != RF_EMISMATCH)
        return completion->status;
    const bool is_recv = step->verb == RF_STEP_RECV;
    if (completion->status < 0 || (is_recv && completion->bytes != step->bytes))
        return fail_mismatch(exec, step, completion);
    if (!is_recv)
        return 0;
    const int here = exec->transport->rank;
    const void *data = completion->loan ? completion->data : address(exec, step->dst);
    uint32_t mine = seal(exec, step, step->peer, here, data);
    if (exec->args.checksum && ((mine ^ completion->contract) & 0xffffffu))
        return rf_fail_rank(RF_ECORRUPT, step->peer,
                            "a message from rank %d to rank %d was damaged on the way: its "
                            "checksum is wrong",
                            step->peer, here);
    return rf_contract_agrees(mine, completion->contract) ? 0
                                                          : fail_mismatch(exec, step, completion);
}

/* The completion may be of another executor on the same transport: its owner deals with it. */
static void take(const struct rf_completion *completion)
{
    struct message *message = completion->context;
    struct rf_exec *exec = message->exec;
    assert(message->step != RF_NO_STEP && exec->sched);
    const struct rf_step *step = &exec->sched->steps[message->step];
    message->step = RF_NO_STEP;
    exec->free_messages[exec->free_count++] = (uint32_t)(message - exec->messages);
    exec->activity++;
    if (completion->loan) {
        exec->loans[step->dst.offset / RF_TEMP_ALIGNMENT] =
            (struct loan){completion->data, completion->loan, step->peer};
        exec->borrowed++;
    }
    int status = check(exec, step, completion);
    if (status < 0 && exec->status == 0)
        exec->status = status;
    finish(exec, step);
}

static int poll_one(struct rf_exec *exec)
{
    struct rf_completion completion;
    int got = exec->transport->ops->poll(exec->transport, &completion, 1);
    if (got > 0)
        take(&completion);
    return got;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void begin(struct rf_exec *exec, const struct rf_sched *sched)
{
    exec->sched = sched;
    exec->recvs.head = exec->recvs.tail = exec->sends.head = exec->sends.tail = 0;
    exec->work_count = 0;
    forget_moves(exec);
    exec->left = sched->count;
    exec->sealed_step = RF_NO_STEP;
    for (uint32_t i = 0; i < sched->count; i++)
        exec->need[i] = sched->steps[i].need;
    for (uint32_t i = 0; i < sched->root_count; i++)
        make_ready(exec, sched->roots[i]);
}

int rf_exec_start(struct rf_exec *exec, const struct rf_sched *sched,
                  const struct rf_exec_args *args)
{
    assert(!exec->sched && exec->status == 0);
    exec->sched = sched;
    int status = make_room(exec, sched);
    if (status < 0) {
        exec->sched = NULL;
        return status;
    }
    exec->args = *args;
    exec->base[RF_SPACE_IN] = (unsigned char *)args->in; /* never written: no builder does */
    exec->base[RF_SPACE_OUT] = args->out;
    exec->base[RF_SPACE_TMP] = exec->temp;
    exec->mismatch_peer = -1;
    begin(exec, sched);
    assert(sched->move_count == 0 || args->mover);
    exec->status = move_all(exec);
    if (exec->status == 0)
        exec->status = post_ready(exec);
    return exec->status;
}

static bool is_waiting(const struct rf_exec *exec)
{
    return exec->free_count < exec->message_capacity || exec->recvs.head < exec->recvs.tail ||
           exec->sends.head < exec->sends.tail;
}

int rf_exec_progress(struct rf_exec *exec)
{
    if (exec->status < 0)
        return exec->status;
    if (is_waiting(exec)) {
        int status = poll_one(exec);
        if (exec->status == 0 && status < 0)
            exec->status = status;
        if (exec->status < 0)
            return exec->status;
    }
    run_one(exec);
    if (exec->status == 0)
        exec->status = move_all(exec);
    if (exec->status == 0)
        exec->status = post_ready(exec);
    if (exec->status < 0)
        return exec->status;
    if (exec->left > 0)
        return 0;
    exec->sched = NULL;
    return 1;
}

int64_t rf_exec_other_bytes(const struct rf_exec *exec)
{
    return exec->other_bytes;
}

uint64_t rf_exec_activity(const struct rf_exec *exec)
{
    return exec->activity;
}

int rf_exec_mismatch_peer(const struct rf_exec *exec)
{
    return exec->mismatch_peer;
}

/* The peer of the earliest receive that is posted, else of the earliest send. */
int rf_exec_waiting_for(const struct rf_exec *exec)
{
    uint32_t first[2] = {RF_NO_STEP, RF_NO_STEP}; /* receive, send */
    for (uint32_t i = 0; exec->sched && i < exec->message_capacity; i++) {
        uint32_t step = exec->messages[i].step;
        if (step == RF_NO_STEP)
            continue;
        bool is_send = exec->sched->steps[step].verb == RF_STEP_SEND;
        first[is_send] = step < first[is_send] ? step : first[is_send];
    }
    uint32_t step = first[0] != RF_NO_STEP ? first[0] : first[1];
    if (step == RF_NO_STEP && exec->sched && exec->sends.head < exec->sends.tail)
        step = exec->sends.steps[exec->sends.head]; /* the transport has had no room for it */
    return step != RF_NO_STEP ? exec->sched->steps[step].peer : -1;
}

void rf_exec_reset(struct rf_exec *exec)
{
    free_all_messages(exec);
    exec->sched = NULL;
    exec->status = 0;
    exec->work_count = 0;
    forget_moves(exec);
    exec->recvs.head = exec->recvs.tail = exec->sends.head = exec->sends.tail = 0;
    exec->left = 0;
    exec->borrowed = 0;
}
