/* SPDX-License-Identifier: MIT
 *
 * The one interpreter of schedules. Called by comm, one run at a time per rf_exec; several rf_exec
 * may share a transport. It knows verbs and operands, but no algorithms, and allocates nothing once
 * it has seen its largest schedule (exec_capacity.c). exec_work.c has the memory operations of a
 * step.
 *
 * Order: one completion at a time, depth first, so that received data is reduced and passed on
 * while it is still in the cache. Sends that need no posting come first; then receives are posted,
 * then the other sends.
 */
#include <assert.h>

#include "exec_state.h"

enum { COPY_PART = 128 << 10 };

/* ---- steps ----------------------------------------------------------------------------------- */

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
    else if (verb == RF_STEP_COPY && !exec->sched->steps[step].published)
        push(&exec->copies, step);
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

/* The value sent with a message besides its data. With checksums, the part of the contract that
 * must be equal is a checksum over contract, link and data; the tag also shows that the calls are
 * equal. */
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

static const void *to_send(const struct rf_exec *exec, const struct rf_step *step)
{
    return step->published ? rf_exec_published(exec, step->a, step->b, step->bytes)
                           : rf_exec_address(exec, step->a);
}

/* Computed once per step, although posting may be retried often. */
static uint32_t seal_to_send(struct rf_exec *exec, uint32_t number)
{
    const struct rf_step *step = &exec->sched->steps[number];
    if (exec->sealed_step != number) {
        exec->sealed = seal(exec, step, exec->transport->rank, step->peer, to_send(exec, step));
        exec->sealed_step = number;
    }
    return exec->sealed;
}

/* The buffer of a zero-copy receive whose data cannot stay in place: the destination of the only
 * copy that waits for it, if nothing else does. */
static void *landing_of_copy(const struct rf_exec *exec, const struct rf_step *step)
{
    void *own = rf_exec_address(exec, step->dst);
    if (step->next_count != 1)
        return own;
    const uint32_t next = exec->sched->successors[step->next];
    const struct rf_step *copy = &exec->sched->steps[next];
    const bool is_its = copy->verb == RF_STEP_COPY && !copy->published &&
                        copy->a.space == step->dst.space && copy->a.offset == step->dst.offset &&
                        copy->bytes == step->bytes;
    return is_its && exec->need[next] == 1 ? rf_exec_address(exec, copy->dst) : own;
}

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

static int check(struct rf_exec *exec, const struct rf_step *step, const void *landing,
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
    const void *data = completion->token ? completion->data : landing;
    uint32_t mine = seal(exec, step, step->peer, here, data);
    if (exec->args.checksum && ((mine ^ completion->contract) & 0xffffffu))
        return rf_fail_rank(RF_ECORRUPT, step->peer,
                            "a message from rank %d to rank %d was damaged on the way: its "
                            "checksum is wrong",
                            step->peer, here);
    return rf_contract_agrees(mine, completion->contract) ? 0
                                                          : fail_mismatch(exec, step, completion);
}

/* Notes the place of a receive's data if it is not temporary memory. */
static void note_place(struct rf_exec *exec, const struct rf_step *step, const void *landing,
                       const struct rf_completion *completion)
{
    struct zero_copy at = {completion->data, completion->token, step->peer};
    if (!completion->token && step->zero_copy && landing != rf_exec_address(exec, step->dst))
        at = (struct zero_copy){landing, RF_LANDED, step->peer};
    if (!completion->is_recv || !at.token)
        return;
    exec->zero_copies[step->dst.offset / RF_TEMP_ALIGNMENT] = at;
    exec->zero_copy_count++;
}

/* Ends the message of a step, received or sent. */
static int end_message(struct rf_exec *exec, const struct rf_step *step, const void *landing,
                       const struct rf_completion *completion)
{
    exec->activity++;
    note_place(exec, step, landing, completion);
    return check(exec, step, landing, completion);
}

static void *landing_of(const struct rf_exec *exec, const struct rf_step *step)
{
    return step->zero_copy && exec->shares ? landing_of_copy(exec, step)
                                           : rf_exec_address(exec, step->dst);
}

static bool is_blocked(const struct rf_exec *exec, const struct rf_step *step)
{
    return exec->args.blocked && exec->args.blocked[step->peer];
}

static uint64_t tag_of(const struct rf_exec *exec, const struct rf_step *step)
{
    return RF_TAG(exec->args.comm_id, exec->args.sequence, step->tag);
}

/* 1: the step has ended without posting; 0: it has not. */
static int try_send(struct rf_exec *exec, uint32_t number)
{
    struct rf_transport *transport = exec->transport;
    const struct rf_step *step = &exec->sched->steps[number];
    if (!transport->ops->send_at_once)
        return 0;
    int done =
        transport->ops->send_at_once(transport, step->peer, tag_of(exec, step),
                                     seal_to_send(exec, number), to_send(exec, step), step->bytes);
    if (done > 0) {
        exec->activity++;
        finish(exec, step);
    }
    return done;
}

static int try_recv(struct rf_exec *exec, uint32_t number)
{
    struct rf_transport *transport = exec->transport;
    const struct rf_step *step = &exec->sched->steps[number];
    struct rf_completion completion;
    if (!transport->ops->recv_at_once)
        return 0;
    void *landing = landing_of(exec, step);
    int done = transport->ops->recv_at_once(transport, step->peer, tag_of(exec, step), landing,
                                            step->bytes, &completion);
    if (done > 0) {
        RETURN_IF_ERROR(end_message(exec, step, landing, &completion));
        finish(exec, step);
    }
    return done;
}

/* As a function of the transport: RF_EAGAIN if it has no capacity now. */
static int post(struct rf_exec *exec, uint32_t number)
{
    struct rf_transport *transport = exec->transport;
    const struct rf_step *step = &exec->sched->steps[number];
    const uint32_t index = exec->free_messages[exec->free_count - 1];
    struct message *message = &exec->messages[index];
    const bool zero_copy = step->zero_copy && exec->shares;
    const uint64_t tag = tag_of(exec, step);
    int status;
    if (step->verb == RF_STEP_SEND) {
        status = transport->ops->post_send(transport, step->peer, tag, seal_to_send(exec, number),
                                           to_send(exec, step), step->bytes, message);
    } else {
        message->landing = landing_of(exec, step);
        const bool exchange = step->exchange && transport->ops->post_recv_exchange;
        status = (zero_copy  ? transport->ops->post_recv_zero_copy
                  : exchange ? transport->ops->post_recv_exchange
                             : transport->ops->post_recv)(transport, step->peer, tag,
                                                          message->landing, step->bytes, message);
    }
    if (status < 0)
        return status;
    message->step = number;
    exec->free_count--;
    exec->activity++;
    return 0;
}

/* Returns 0 also if the transport has no capacity now: then the step stays at the head of its
 * queue. */
static int post_recvs(struct rf_exec *exec)
{
    struct queue *queue = &exec->recvs;
    for (; queue->head < queue->tail; queue->head++) {
        int status = try_recv(exec, queue->steps[queue->head]);
        if (status == 0)
            status = post(exec, queue->steps[queue->head]);
        if (status < 0)
            return status == RF_EAGAIN ? 0 : status;
    }
    return 0;
}

/* The same for sends. at_once: stops at the first one that would have to be posted. */
static int post_sends(struct rf_exec *exec, bool at_once)
{
    struct queue *queue = &exec->sends;
    for (; queue->head < queue->tail; queue->head++) {
        const uint32_t number = queue->steps[queue->head];
        if (is_blocked(exec, &exec->sched->steps[number]))
            return 0;
        int status = try_send(exec, number);
        if (status == 0 && at_once)
            return 0;
        if (status == 0)
            status = post(exec, number);
        if (status < 0)
            return status == RF_EAGAIN ? 0 : status;
    }
    return 0;
}

/* Short messages go first: polling may take as long as fetching data from another core, and other
 * ranks wait for these messages. */
static int post_ready(struct rf_exec *exec)
{
    if (exec->sends.head < exec->sends.tail)
        RETURN_IF_ERROR(post_sends(exec, true));
    if (exec->recvs.head < exec->recvs.tail)
        RETURN_IF_ERROR(post_recvs(exec));
    return exec->sends.head < exec->sends.tail ? post_sends(exec, false) : 0;
}

static void begin(struct rf_exec *exec, const struct rf_sched *sched);

/* All posted operations have ended, so another schedule can take over. */
static int run_agree(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    int all_reachable = rf_exec_agree(exec, step);
    if (all_reachable < 0)
        return all_reachable;
    exec->other_bytes -= (int64_t)sched->address_bytes;
    if (all_reachable)
        exec->other_bytes += (int64_t)sched->fallback->counted_bytes;
    else
        begin(exec, sched->fallback);
    return all_reachable;
}

/* Copies a piece for the first step of the queue. Messages are received and sent between pieces. */
static void copy_some(struct rf_exec *exec)
{
    const struct rf_step *step = &exec->sched->steps[exec->copies.steps[exec->copies.head]];
    const uint64_t left = step->bytes - exec->copied;
    const uint64_t bytes = left < COPY_PART ? left : COPY_PART;
    rf_exec_copy(exec, step, exec->copied, bytes);
    exec->copied += bytes;
    exec->activity++; /* copying counts as activity */
    if (exec->copied < step->bytes)
        return;
    exec->copied = 0;
    exec->copies.head++;
    finish(exec, step);
}

/* Runs one step that takes time, and the joins before it. */
static void run_one(struct rf_exec *exec)
{
    if (exec->work_count == 0 && exec->copies.head < exec->copies.tail) {
        copy_some(exec);
        return;
    }
    while (exec->work_count > 0) {
        const struct rf_step *step = &exec->sched->steps[exec->work[--exec->work_count]];
        if (step->verb == RF_STEP_AGREE) {
            int all_reachable = run_agree(exec, step);
            if (all_reachable < 0)
                exec->status = all_reachable;
            if (all_reachable <= 0)
                return;
        }
        rf_exec_work(exec, step);
        finish(exec, step);
        exec->activity++;
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

/* The completion may belong to another executor of this transport; the context's owner handles it.
 */
static void take(const struct rf_completion *completion)
{
    struct message *message = completion->context;
    struct rf_exec *exec = message->context.owner;
    assert(message->step != RF_NO_STEP && exec->sched);
    const struct rf_step *step = &exec->sched->steps[message->step];
    message->step = RF_NO_STEP;
    exec->free_messages[exec->free_count++] = (uint32_t)(message - exec->messages);
    int status = end_message(exec, step, message->landing, completion);
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
    exec->copies.head = exec->copies.tail = 0;
    exec->copied = 0;
    if (sched->move_count > 0)
        forget_moves(exec);
    exec->left = sched->count;
    exec->sealed_step = RF_NO_STEP;
    if (!sched->fallback)
        exec->other_bytes += (int64_t)(sched->counted_bytes - sched->sent_bytes);
    rf_exec_find_reachable(exec);
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
    int status = rf_exec_reserve(exec, sched);
    if (status < 0) {
        exec->sched = NULL;
        return status;
    }
    exec->args = *args;
    exec->base[RF_SPACE_IN] = (unsigned char *)args->in; /* no builder writes to IN */
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

bool rf_exec_receives_posted(const struct rf_exec *exec)
{
    return exec->sched && !exec->sched->fallback && exec->recvs.head == exec->sched->recv_count;
}

void rf_exec_unblock(struct rf_exec *exec)
{
    exec->args.blocked = NULL;
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

/* The peer of the earliest posted receive, else of the earliest send. */
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
        step = exec->sends.steps[exec->sends.head]; /* the transport had no capacity for it */
    return step != RF_NO_STEP ? exec->sched->steps[step].peer : -1;
}

bool rf_exec_needs(const struct rf_exec *exec, int peer)
{
    for (uint32_t i = 0; exec->sched && i < exec->message_capacity; i++)
        if (exec->messages[i].step != RF_NO_STEP &&
            exec->sched->steps[exec->messages[i].step].peer == peer)
            return true;
    for (uint32_t i = exec->sends.head; exec->sched && i < exec->sends.tail; i++)
        if (exec->sched->steps[exec->sends.steps[i]].peer == peer)
            return true;
    return false;
}

void rf_exec_reset(struct rf_exec *exec)
{
    rf_exec_free_messages(exec);
    exec->sched = NULL;
    exec->status = 0;
    exec->work_count = 0;
    exec->copies.head = exec->copies.tail = 0;
    exec->copied = 0;
    forget_moves(exec);
    exec->recvs.head = exec->recvs.tail = exec->sends.head = exec->sends.tail = 0;
    exec->left = 0;
    exec->zero_copy_count = 0;
}
