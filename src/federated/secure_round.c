/* SPDX-License-Identifier: MIT
 *
 * The phases of a secure aggregation. Each waits for all members that are left, or until the
 * deadline, after which those that have not answered are dropped. Only the last one ends as soon as
 * there are shares of `threshold` members.
 */
#include "secure_round.h"

#include <inttypes.h>
#include <ringforge/ringforge.h>

#include "base/base.h"

/* ---- opening --------------------------------------------------------------------------------- */

int federated_secure_open(struct rf_coordinator *c)
{
    const int clients = c->opts.client_count, threshold = c->opts.secure;
    RETURN_IF_ERROR(federated_check_threshold(threshold, clients));
    if (threshold == 0)
        return RF_OK;
    struct secure_round *s = c->secure = rf_alloc(sizeof *s);
    if (s) {
        s->boxes = rf_alloc((size_t)clients * (size_t)clients * sizeof *s->boxes);
        s->reveals = rf_alloc((size_t)clients * (size_t)clients * sizeof *s->reveals);
    }
    if (!s || !s->boxes || !s->reveals)
        return rf_fail(RF_ENOMEM, "out of memory for the secure aggregation of %d clients",
                       clients);
    s->threshold = threshold;
    if (c->opts.min_clients < threshold)
        c->opts.min_clients = threshold;
    for (int k = 0; k < clients; k++) {
        int at = k;
        for (; at > 0 && strcmp(c->clients[s->order[at - 1]].name, c->clients[k].name) > 0; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = k;
    }
    return RF_OK;
}

void federated_secure_close(struct rf_coordinator *c)
{
    if (!c->secure)
        return;
    rf_free(c->secure->boxes);
    rf_free(c->secure->reveals);
    rf_free(c->secure);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static struct client *member(struct rf_coordinator *c, int m)
{
    return c->clients + c->secure->clients[m];
}

static void send_body(struct rf_coordinator *c, int m, enum rf_federated_message kind,
                      const uint8_t *body, size_t bytes)
{
    const struct federated_message message = {
        .kind = kind, .run = c->run, .round = c->round, .body = body, .body_bytes = bytes};
    if (federated_send(member(c, m), &message) < 0)
        federated_drop(c, member(c, m), rf_last_error()->message);
}

static void send_shares(struct rf_coordinator *c, int to)
{
    const struct secure_round *s = c->secure;
    uint8_t body[FEDERATED_MESSAGE_BYTES] = {0}, *box = body + FEDERATED_SET_BYTES;
    for (int from = 0; from < s->count; from++)
        if (from != to && federated_has(s->shared, from)) {
            federated_add(body, from);
            memcpy(box, s->boxes[from * c->opts.client_count + to], FEDERATED_BOX_BYTES);
            box += FEDERATED_BOX_BYTES;
        }
    send_body(c, to, RF_FEDERATED_SHARES, body, (size_t)(box - body));
}

static void send_signatures(struct rf_coordinator *c, int to)
{
    const struct secure_round *s = c->secure;
    uint8_t body[FEDERATED_MESSAGE_BYTES], *signature = body + FEDERATED_SET_BYTES;
    memcpy(body, s->confirmed, FEDERATED_SET_BYTES);
    for (int m = 0; m < s->count; m++)
        if (federated_has(s->confirmed, m)) {
            memcpy(signature, s->signatures[m], FEDERATED_SIGNATURE_BYTES);
            signature += FEDERATED_SIGNATURE_BYTES;
        }
    send_body(c, to, RF_FEDERATED_AGREED, body, (size_t)(signature - body));
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* What a phase makes of its members, and whom it waits for. */
struct phase {
    const uint8_t *from; /* of whom an answer is due; NULL: of all members */
    uint8_t *done;       /* who have answered */
    const char *what;
    bool enough; /* answers of `threshold` members */
};

static struct phase phase_of(struct secure_round *s)
{
    const struct phase phases[] = {
        [SECURE_SHARES] = {NULL, s->shared, "shares of keys", false},
        [SECURE_UPLOADS] = {s->shared, s->uploaded, "masked updates", false},
        [SECURE_CONFIRMS] = {s->uploaded, s->confirmed, "answers that they agree on the sum",
                             false},
        [SECURE_REVEALS] = {s->confirmed, s->revealed, "shares to remove masks", true}};
    return phases[s->phase];
}

static bool owes(struct rf_coordinator *c, const struct phase *phase, int m)
{
    return member(c, m)->member == m && (!phase->from || federated_has(phase->from, m)) &&
           !federated_has(phase->done, m);
}

static void enter(struct rf_coordinator *c, enum secure_phase phase)
{
    c->secure->phase = phase;
    c->secure->since_ns = c->progress_ns = rf_now_ns();
}

void federated_secure_start(struct rf_coordinator *c)
{
    struct secure_round *s = c->secure;
    s->count = 0;
    s->failed = false;
    memset(s->shared, 0, sizeof s->shared);
    memset(s->uploaded, 0, sizeof s->uploaded);
    memset(s->confirmed, 0, sizeof s->confirmed);
    memset(s->revealed, 0, sizeof s->revealed);
    for (int k = 0; k < c->opts.client_count; k++) {
        struct client *client = c->clients + s->order[k];
        if (!client->answered)
            continue;
        uint8_t *peer = s->peers[s->count];
        memset(peer, 0, FEDERATED_NAME_BYTES);
        memcpy(peer, client->name, strlen(client->name));
        memcpy(peer + FEDERATED_NAME_BYTES, client->ready, FEDERATED_KEYS_BYTES);
        memcpy(s->hashes[s->count], client->ready + FEDERATED_KEYS_BYTES, 32);
        s->clients[s->count] = s->order[k];
        client->member = s->count++;
    }
    enter(c, SECURE_SHARES);
    for (int m = 0; m < s->count; m++)
        send_body(c, m, RF_FEDERATED_PEERS, s->peers[0], (size_t)s->count * FEDERATED_PEER_BYTES);
}

static bool end(struct rf_coordinator *c)
{
    struct secure_round *s = c->secure;
    for (int m = 0; m < s->count; m++) {
        struct client *client = member(c, m);
        client->answered = !s->failed && federated_has(s->uploaded, m);
        client->failed = s->failed && client->member == m;
        client->member = -1;
    }
    s->phase = SECURE_COLLECTS;
    return true;
}

static bool fail(struct rf_coordinator *c, int have, int least, const char *what)
{
    federated_note(c,
                   "round %" PRId64 " has failed: secure aggregation has %s of %d clients, and "
                   "needs those of %d; the parameters stay, and the next round begins with the "
                   "clients that are left",
                   c->round, what, have, least);
    c->secure->failed = true;
    return end(c);
}

/* To those who have answered, what the next phase begins with. */
static void tell(struct rf_coordinator *c, int m)
{
    struct secure_round *s = c->secure;
    if (s->phase == SECURE_UPLOADS) {
        send_shares(c, m);
    } else if (s->phase == SECURE_CONFIRMS) {
        send_body(c, m, RF_FEDERATED_UNMASK, s->uploaded, sizeof s->uploaded);
    } else {
        member(c, m)->reveals = true;
        send_signatures(c, m);
    }
}

static bool next_phase(struct rf_coordinator *c)
{
    struct secure_round *s = c->secure;
    const struct phase phase = phase_of(s);
    const int least = s->phase < SECURE_CONFIRMS ? c->opts.min_clients : s->threshold;
    if (federated_members(phase.done) < least)
        return fail(c, federated_members(phase.done), least, phase.what);
    if (s->phase == SECURE_REVEALS) {
        s->failed = federated_unmask(c) < 0;
        if (s->failed)
            federated_note(c, "round %" PRId64 " has failed: %s", c->round,
                           rf_last_error()->message);
        return end(c);
    }
    enter(c, s->phase + 1);
    for (int m = 0; m < s->count; m++)
        if (member(c, m)->member == m && federated_has(phase.done, m))
            tell(c, m);
    return false;
}

bool federated_secure_advance(struct rf_coordinator *c, uint64_t *next_ns)
{
    struct secure_round *s = c->secure;
    const struct phase phase = phase_of(s);
    const uint64_t deadline = rf_add_ns(s->since_ns, rf_seconds_to_ns(c->opts.round_s));
    const bool enough = phase.enough && federated_members(phase.done) >= s->threshold;
    const bool over = rf_now_ns() >= deadline;
    int owing = 0;
    *next_ns = deadline;
    for (int m = 0; m < s->count && !enough; m++) {
        if (owes(c, &phase, m) && over)
            federated_drop(c, member(c, m), "it did not answer in the secure aggregation in time");
        owing += owes(c, &phase, m);
    }
    if (owing > 0)
        return false;
    const bool ended = next_phase(c);
    if (!ended) /* whoever could not be told has been dropped */
        *next_ns = rf_now_ns();
    return ended;
}
