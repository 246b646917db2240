/* SPDX-License-Identifier: MIT
 *
 * The closed list of messages, their parser and their writer; the text of a rule.
 */
#include "message.h"

#include <math.h>
#include <sodium.h>

#include "base/base.h"

enum {
    PIECE = RF_CHANNEL_BYTES,
    JOIN_LEAST = 12 + 2,
    ROUND = 16, /* run and number of a round */
    SET = FEDERATED_SET_BYTES,
    MOST = FEDERATED_MEMBERS
};
_Static_assert((int)FEDERATED_JOIN_BYTES <= (int)FEDERATED_MESSAGE_BYTES, "room for every message");

static const struct rf_federated_message_info infos[RF_FEDERATED_MESSAGES] = {
    [RF_FEDERATED_JOIN] = {"join", true, false, JOIN_LEAST, FEDERATED_JOIN_BYTES, false},
    [RF_FEDERATED_ASK] = {"ask", false, true, 0, 0, false},
    [RF_FEDERATED_STATE] = {"state", true, false, 0, 0, true},
    [RF_FEDERATED_ROUND] = {"round", false, true, ROUND, ROUND, true},
    [RF_FEDERATED_UPDATE] = {"update", true, false, ROUND + 8, ROUND + 8, true},
    [RF_FEDERATED_VALUES] = {"values", true, true, 4, PIECE, false},
    [RF_FEDERATED_END] = {"end", false, true, ROUND, ROUND, true},
    [RF_FEDERATED_HEARTBEAT] = {"heartbeat", false, true, 0, 0, false},
    [RF_FEDERATED_REFUSE] = {"refuse", false, true, 4, 404, false},
    [RF_FEDERATED_LEAVE] = {"leave", true, false, 0, 0, false},
    [RF_FEDERATED_SECURE] = {"secure", false, true, 4, 4, false},
    [RF_FEDERATED_READY] = {"ready", true, false, ROUND + FEDERATED_READY_BYTES,
                            ROUND + FEDERATED_READY_BYTES, false},
    [RF_FEDERATED_PEERS] = {"peers", false, true, ROUND + 2 * FEDERATED_PEER_BYTES,
                            ROUND + MOST *FEDERATED_PEER_BYTES, false},
    [RF_FEDERATED_SHARES] = {"shares", true, true, ROUND + SET + FEDERATED_BOX_BYTES,
                             ROUND + SET + (MOST - 1) * FEDERATED_BOX_BYTES, false},
    [RF_FEDERATED_MASKED] = {"masked", true, false, ROUND, ROUND, true},
    [RF_FEDERATED_UNMASK] = {"unmask", false, true, ROUND + SET, ROUND + SET, false},
    [RF_FEDERATED_CONFIRM] = {"confirm", true, false, ROUND + FEDERATED_SIGNATURE_BYTES,
                              ROUND + FEDERATED_SIGNATURE_BYTES, false},
    [RF_FEDERATED_AGREED] = {"agreed", false, true, ROUND + SET + 2 * FEDERATED_SIGNATURE_BYTES,
                             ROUND + SET + MOST *FEDERATED_SIGNATURE_BYTES, false},
    [RF_FEDERATED_REVEAL] = {"reveal", true, false, ROUND + 2 * FEDERATED_KEY_BYTES,
                             ROUND + MOST *FEDERATED_KEY_BYTES, false},
};

const struct rf_federated_message_info *rf_federated_message_get_info(int message)
{
    return message > 0 && message < RF_FEDERATED_MESSAGES ? infos + message : NULL;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void put64(uint8_t *out, uint64_t value)
{
    rf_put32(out, (uint32_t)value);
    rf_put32(out + 4, (uint32_t)(value >> 32));
}

static uint64_t get64(const uint8_t *in)
{
    return rf_get32(in) | (uint64_t)rf_get32(in + 4) << 32;
}

static double get_real(const uint8_t *in)
{
    const uint64_t bits = get64(in);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Rule and terms are two texts, each with its end, and nothing is behind them. */
static bool parse_join(const uint8_t *in, uint32_t bytes, struct federated_message *out)
{
    const uint8_t *rule = in + 12, *end = in + bytes;
    const uint8_t *rule_end = memchr(rule, 0, (size_t)(end - rule));
    const uint8_t *terms = rule_end ? rule_end + 1 : end;
    out->version = rf_get32(in);
    out->count = (int64_t)get64(in + 4);
    if (terms - rule > FEDERATED_RULE_BYTES || terms >= end || end[-1] != 0 ||
        memchr(terms, 0, (size_t)(end - terms)) != end - 1)
        return false;
    out->rule = (const char *)rule;
    out->terms = (const char *)terms;
    return out->count > 0 && out->count <= INT64_MAX / 8;
}

static bool parse_refusal(const uint8_t *in, uint32_t bytes, struct federated_message *out)
{
    const uint32_t status = rf_get32(in);
    if (status < 1 || status > (uint32_t)-RF_EAGAIN)
        return false;
    out->status = -(int)status;
    rf_frame_text(in + 4, bytes - 4, out->text, sizeof out->text);
    return true;
}

/* Whole peers, by name: their order is the same for all, and none is twice. */
static bool are_peers(const uint8_t *body, size_t bytes)
{
    const char *last = "";
    for (size_t at = 0; at < bytes; at += FEDERATED_PEER_BYTES) {
        if (bytes - at < FEDERATED_PEER_BYTES)
            return false;
        const char *name = (const char *)body + at;
        const size_t length = strnlen(name, RF_NAME_BYTES + 1);
        if (!rf_handshake_is_name(name, length) ||
            !sodium_is_zero(body + at + length, FEDERATED_NAME_BYTES - length) ||
            strcmp(last, name) >= 0)
            return false;
        last = name;
    }
    return true;
}

static bool parse_secure(const uint8_t *in, uint32_t bytes, struct federated_message *out)
{
    out->run = get64(in);
    out->round = (int64_t)get64(in + 8);
    out->body = in + ROUND;
    out->body_bytes = bytes - ROUND;
    if (out->kind == RF_FEDERATED_PEERS && !are_peers(out->body, out->body_bytes))
        return false;
    const size_t each = out->kind == RF_FEDERATED_SHARES   ? FEDERATED_BOX_BYTES
                        : out->kind == RF_FEDERATED_AGREED ? FEDERATED_SIGNATURE_BYTES
                                                           : 0;
    if (each && out->body_bytes != SET + (size_t)federated_members(out->body) * each)
        return false;
    if (out->kind == RF_FEDERATED_REVEAL && out->body_bytes % FEDERATED_KEY_BYTES != 0)
        return false;
    return out->round >= 0;
}

static bool parse_body(const uint8_t *in, uint32_t bytes, struct federated_message *out)
{
    switch (out->kind) {
    case RF_FEDERATED_JOIN:
        return parse_join(in, bytes, out);
    case RF_FEDERATED_REFUSE:
        return parse_refusal(in, bytes, out);
    case RF_FEDERATED_UPDATE:
        out->weight = get_real(in + 16);
        if (!isfinite(out->weight) || out->weight < 0)
            return false;
        /* fall through */
    case RF_FEDERATED_ROUND:
    case RF_FEDERATED_END:
        out->run = get64(in);
        out->round = (int64_t)get64(in + 8);
        return out->round >= 0;
    case RF_FEDERATED_VALUES:
        out->values = in;
        out->value_count = bytes / 4;
        return bytes % 4 == 0;
    case RF_FEDERATED_SECURE:
        out->threshold = (int)rf_get32(in);
        return out->threshold >= 2 && out->threshold <= MOST;
    case RF_FEDERATED_READY:
    case RF_FEDERATED_PEERS:
    case RF_FEDERATED_SHARES:
    case RF_FEDERATED_MASKED:
    case RF_FEDERATED_UNMASK:
    case RF_FEDERATED_CONFIRM:
    case RF_FEDERATED_AGREED:
    case RF_FEDERATED_REVEAL:
        return parse_secure(in, bytes, out);
    default:
        return true;
    }
}

int federated_parse(const struct rf_channel_message *bytes, bool from_client,
                    struct federated_message *out)
{
    const struct rf_federated_message_info *info = rf_federated_message_get_info(bytes->kind);
    *out = (struct federated_message){.kind = (enum rf_federated_message)bytes->kind};
    if (!info || !(from_client ? info->from_client : info->from_coordinator))
        return rf_fail(RF_ECORRUPT, "a message of kind %d arrived, which %s does not send",
                       bytes->kind, from_client ? "a client" : "the coordinator");
    if (bytes->bytes < info->least || bytes->bytes > info->most ||
        !parse_body(bytes->payload, bytes->bytes, out))
        return rf_fail(RF_ECORRUPT, "a message \"%s\" of %u bytes arrived that is malformed",
                       info->name, bytes->bytes);
    return RF_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static size_t write_join(const struct federated_message *m, uint8_t *out)
{
    const size_t rule = strlen(m->rule) + 1, terms = strlen(m->terms) + 1;
    rf_put32(out, m->version);
    put64(out + 4, (uint64_t)m->count);
    memcpy(out + 12, m->rule, rule);
    memcpy(out + 12 + rule, m->terms, terms);
    return 12 + rule + terms;
}

size_t federated_write(const struct federated_message *m, uint8_t *out)
{
    uint64_t bits;
    switch (m->kind) {
    case RF_FEDERATED_JOIN:
        return write_join(m, out);
    case RF_FEDERATED_REFUSE: {
        const size_t bytes = strnlen(m->text, sizeof m->text - 1);
        rf_put32(out, (uint32_t)-m->status);
        memcpy(out + 4, m->text, bytes);
        return 4 + bytes;
    }
    case RF_FEDERATED_UPDATE:
    case RF_FEDERATED_ROUND:
    case RF_FEDERATED_END:
        memcpy(&bits, &m->weight, sizeof bits);
        put64(out, m->run);
        put64(out + 8, (uint64_t)m->round);
        put64(out + 16, bits);
        return infos[m->kind].most;
    case RF_FEDERATED_SECURE:
        rf_put32(out, (uint32_t)m->threshold);
        return 4;
    case RF_FEDERATED_READY:
    case RF_FEDERATED_PEERS:
    case RF_FEDERATED_SHARES:
    case RF_FEDERATED_MASKED:
    case RF_FEDERATED_UNMASK:
    case RF_FEDERATED_CONFIRM:
    case RF_FEDERATED_AGREED:
    case RF_FEDERATED_REVEAL:
        put64(out, m->run);
        put64(out + 8, (uint64_t)m->round);
        if (m->body_bytes)
            memcpy(out + ROUND, m->body, m->body_bytes);
        return ROUND + m->body_bytes;
    default:
        return 0;
    }
}

/* ---- sets ------------------------------------------------------------------------------------ */

bool federated_has(const uint8_t set[FEDERATED_SET_BYTES], int member)
{
    return set[member / 8] >> (member % 8) & 1;
}

void federated_add(uint8_t set[FEDERATED_SET_BYTES], int member)
{
    set[member / 8] |= (uint8_t)(1u << (member % 8));
}

int federated_members(const uint8_t set[FEDERATED_SET_BYTES])
{
    int found = 0;
    for (int member = 0; member < 8 * FEDERATED_SET_BYTES; member++)
        found += federated_has(set, member);
    return found;
}

int64_t federated_piece(int64_t count, int64_t done)
{
    return count - done < FEDERATED_PIECE ? count - done : FEDERATED_PIECE;
}

/* ---- rules ----------------------------------------------------------------------------------- */

void federated_rule_text(const struct rf_rounds_rule *rule, char out[FEDERATED_RULE_BYTES])
{
    static const struct rf_optimizer_opts sgd = {.kind = RF_SGD};
    const struct rf_optimizer_opts *o = rule->outer ? rule->outer : &sgd;
    snprintf(out, FEDERATED_RULE_BYTES,
             "local steps=%lld\nupdate=%s\nweights of clients=%s\nproximal term=%g\nouter "
             "optimizer=%s, rate %g, betas "
             "%g and %g, eps %g, momentum %g\t%a %a %a %a %a %a %a %a %a %d%d%d\n",
             (long long)(rule->every ? rule->every : 1),
             rule->difference ? "difference" : "parameters", rule->weighted ? "given" : "equal",
             (double)rf_option(rule->proximal, 0), rf_optimizer_get_info(o->kind)->name,
             (double)rf_option(rule->outer_lr, 1), (double)o->beta1, (double)o->beta2,
             (double)o->eps, (double)o->momentum, (double)rule->outer_lr, (double)o->beta1,
             (double)o->beta2, (double)o->eps, (double)o->momentum, (double)o->weight_decay,
             (double)o->dampening, (double)o->extra[0], (double)o->extra[1], o->eps_inside,
             o->no_bias_correction, o->centered);
}

int federated_check_rule(const struct rf_rounds_rule *rule)
{
    RETURN_IF_ERROR(rf_rounds_check(rule, 1));
    if (rule->mixing.graph != RF_GRAPH_ALL)
        return rf_fail(RF_EINVAL,
                       "the graph \"%s\" has neighbours, and clients have a coordinator: use "
                       "\"all\"",
                       rf_graph_name(rule->mixing.graph));
    if (rule->form != RF_FORM_F32)
        return rf_fail(RF_EINVAL, "clients and their coordinator send f32, not \"%s\"",
                       rf_form_name(rule->form));
    if (rule->gradients)
        return rf_fail(RF_EINVAL, "clients send parameters or differences, not gradients");
    if (rule->parts > 1 || rule->delay > 0)
        return rf_fail(RF_EINVAL, "a client waits for the next round: parts and delay belong to "
                                  "workers without a coordinator");
    return RF_OK;
}

bool federated_finite(const float *values, int64_t count)
{
    /* Integers: the compiler may use vectors. */
    uint32_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        found |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return found == 0;
}
