/* SPDX-License-Identifier: MIT
 *
 * See spirv_markers.h. The module is cut into instructions once; every change is made on that list.
 * Instructions that move up (number types and specialization constants) do not depend on any that
 * they pass.
 */
#include "spirv_markers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC = 0x07230203,
    HEADER = 5,
    BOUND = 3, /* of the header: one more than the largest id */
    MOST_WORDS = 1 << 22,
    OP_EXTENSION = 10,
    OP_CAPABILITY = 17,
    OP_TYPE_FIRST = 19, /* OpTypeVoid; types and constants begin with one of these */
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_LAST = 39, /* OpTypeForwardPointer */
    OP_CONSTANT = 43,
    OP_SPEC_CONSTANT = 50,
    OP_TYPE_POINTER = 32, /* result, storage class, type */
    OP_VARIABLE = 59,
    OP_LOAD = 61,
    OP_STORE = 62,
    OP_ACCESS_CHAIN = 65,
    OP_DECORATE = 71,
    DECORATION_SPEC_ID = 1,
    OP_TYPE_MATRIX = 4456, /* OpTypeCooperativeMatrixKHR: result, element, scope, m, n, use */
    CAPABILITY_FLOAT16 = 9,
    CAPABILITY_BFLOAT16 = 5116,
    CAPABILITY_BFLOAT16_MATRIX = 5118,
    ENCODING_BFLOAT16 = 0,
    STORAGE_WORKGROUP = 4,
    MAKE_AVAILABLE = 8, /* of a store; followed by a scope */
    MAKE_VISIBLE = 16,  /* of a load, likewise */
    NON_PRIVATE = 32,
};

struct instruction {
    const uint32_t *words;
    uint32_t length, op;
    bool hoisted; /* written at the start of the types, not at its place */
};

struct module {
    const uint32_t *header;
    struct instruction *list;
    size_t count, types; /* types: index of the first instruction of that section */
    uint32_t bound;
    uint32_t *copies; /* changed instructions: together never longer than all of them */
    uint32_t operand_type[4], sum_type[4]; /* new declarations; first word 0: none */
};

struct output {
    uint32_t *words;
    size_t count;
};

static bool is(const struct instruction *i, uint32_t op, uint32_t length)
{
    return i->op == op && i->length == length;
}

static const char *cut(const uint32_t *words, size_t count, struct module *m)
{
    if (count < HEADER || words[0] != MAGIC)
        return "this is not a SPIR-V module of this machine's byte order";
    if (count > MOST_WORDS)
        return "the module is larger than any shader: more than 16 MiB";
    m->header = words;
    m->bound = words[BOUND];
    if (m->bound == 0 || m->bound > MOST_WORDS)
        return "the header's bound of ids is not plausible";
    m->list = calloc(count, sizeof(*m->list));
    if (!m->list)
        return "out of memory";
    m->types = SIZE_MAX;
    for (size_t at = HEADER; at < count; m->count++) {
        uint32_t length = words[at] >> 16, op = words[at] & 0xffff;
        if (length == 0 || length > count - at)
            return "an instruction reaches past the end of the module, or has no length";
        m->list[m->count] = (struct instruction){&words[at], length, op, false};
        if (m->types == SIZE_MAX && op >= OP_TYPE_FIRST && op <= OP_TYPE_LAST)
            m->types = m->count;
        at += length;
    }
    return m->types == SIZE_MAX ? "the module declares no types" : NULL;
}

/* The value of the 32-bit constant `id`. */
static bool constant(const struct module *m, uint32_t id, uint32_t *value)
{
    for (size_t i = m->types; i < m->count; i++) {
        if (is(&m->list[i], OP_CONSTANT, 4) && m->list[i].words[2] == id) {
            *value = m->list[i].words[3];
            return true;
        }
    }
    return false;
}

/* The declared float type of this width (bfloat: in that encoding), moved up; otherwise a new one.
 * A module needs two at most: `new_type` is the place for the words of this one. */
static uint32_t float_type(struct module *m, uint32_t bits, bool bfloat, uint32_t new_type[4])
{
    uint32_t length = bfloat ? 4 : 3;
    for (size_t i = m->types; i < m->count; i++) {
        const uint32_t *w = m->list[i].words;
        if (is(&m->list[i], OP_TYPE_FLOAT, length) && w[2] == bits &&
            (!bfloat || w[3] == ENCODING_BFLOAT16)) {
            m->list[i].hoisted = true;
            return w[1];
        }
    }
    if (!new_type[0]) {
        new_type[0] = length << 16 | OP_TYPE_FLOAT;
        new_type[1] = m->bound++;
        new_type[2] = bits;
        new_type[3] = ENCODING_BFLOAT16;
    }
    return new_type[1];
}

/* The module's specialization constant n, moved up together with its type. */
static const char *spec_constant(struct module *m, uint32_t n, uint32_t *id)
{
    const struct instruction *found = NULL;
    for (size_t i = 0; i < m->types && !found; i++) {
        const uint32_t *w = m->list[i].words;
        if (is(&m->list[i], OP_DECORATE, 4) && w[2] == DECORATION_SPEC_ID && w[3] == n)
            found = &m->list[i];
    }
    if (!found)
        return "a marker names a specialization constant that the module does not have";
    *id = found->words[1];
    for (size_t i = m->types; i < m->count; i++) {
        struct instruction *c = &m->list[i];
        if (!is(c, OP_SPEC_CONSTANT, 4) || c->words[2] != *id)
            continue;
        for (size_t t = m->types; t < i; t++) {
            if (is(&m->list[t], OP_TYPE_INT, 4) && m->list[t].words[1] == c->words[1]) {
                m->list[t].hoisted = c->hoisted = true;
                return NULL;
            }
        }
    }
    return "a marker names a specialization constant that is no 32-bit integer";
}

/* The replacement of the operand `id` of a matrix type. */
static const char *replacement(struct module *m, uint32_t id, enum marker_operand operand,
                               uint32_t *out, size_t *replaced)
{
    uint32_t value;
    *out = id;
    if (!constant(m, id, &value))
        return NULL;
    if (value == MARKER_OPERAND)
        *out = float_type(m, 16, operand == MARKER_BF16, m->operand_type);
    else if (value == MARKER_SUM)
        *out = float_type(m, 32, false, m->sum_type);
    else if ((value & ~0xffu) == MARKER_SPEC) {
        ++*replaced;
        return spec_constant(m, value & 0xff, out);
    } else
        return NULL;
    ++*replaced;
    return NULL;
}

static uint32_t *copy_of(struct module *m, struct instruction *i)
{
    uint32_t *copy = m->copies;
    memcpy(copy, i->words, i->length * sizeof(*copy));
    m->copies += i->length;
    i->words = copy;
    return copy;
}

/* Removes the scope `flag` from an access whose memory operands are the last `operands` words. */
static void make_plain(struct module *m, struct instruction *i, uint32_t operands, uint32_t flag)
{
    if (i->length != operands + 2 || i->words[operands] != (flag | NON_PRIVATE))
        return;
    uint32_t *copy = copy_of(m, i);
    copy[operands] = NON_PRIVATE;
    copy[0] = --i->length << 16 | i->op;
}

/* glslang makes every single access of shared memory available or visible to the workgroup, and
 * some drivers then wait for each. The barriers of cooperative.glsl do so for all accesses at once.
 */
static const char *make_shared_plain(struct module *m)
{
    bool *shared = calloc(2 * (size_t)m->bound, sizeof(*shared)); /* types, then values */
    if (!shared)
        return "out of memory";
    for (size_t n = m->types; n < m->count; n++) {
        struct instruction *i = &m->list[n];
        const uint32_t *w = i->words;
        if (is(i, OP_TYPE_POINTER, 4) && w[1] < m->bound)
            shared[w[1]] = w[2] == STORAGE_WORKGROUP;
        else if ((i->op == OP_VARIABLE || i->op == OP_ACCESS_CHAIN) && i->length >= 4 &&
                 w[1] < m->bound && w[2] < m->bound)
            shared[m->bound + w[2]] = shared[w[1]];
        else if (i->op == OP_STORE && i->length >= 4 && w[1] < m->bound && shared[m->bound + w[1]])
            make_plain(m, i, 3, MAKE_AVAILABLE);
        else if (i->op == OP_LOAD && i->length >= 5 && w[3] < m->bound && shared[m->bound + w[3]])
            make_plain(m, i, 4, MAKE_VISIBLE);
    }
    free(shared);
    return NULL;
}

/* Replaces the markers of all matrix types, in copies of them. */
static const char *replace_all(struct module *m, enum marker_operand operand)
{
    size_t replaced = 0;
    for (size_t i = m->types; i < m->count; i++) {
        struct instruction *type = &m->list[i];
        if (type->op != OP_TYPE_MATRIX)
            continue;
        if (type->length != 7)
            return "a matrix type does not have seven words";
        uint32_t *copy = copy_of(m, type);
        for (int w = 2; w < 7; w++) {
            const char *wrong = replacement(m, copy[w], operand, &copy[w], &replaced);
            if (wrong)
                return wrong;
        }
    }
    return replaced ? NULL : "the module has no markers: it was not made from cooperative.glsl";
}

static void put(struct output *out, const uint32_t *words, size_t count)
{
    memcpy(out->words + out->count, words, count * sizeof(*words));
    out->count += count;
}

static bool declares(const struct module *m, uint32_t capability)
{
    for (size_t i = 0; i < m->types; i++)
        if (is(&m->list[i], OP_CAPABILITY, 2) && m->list[i].words[1] == capability)
            return true;
    return false;
}

static void put_capability(struct output *out, const struct module *m, uint32_t capability)
{
    if (!declares(m, capability))
        put(out, (uint32_t[]){2 << 16 | OP_CAPABILITY, capability}, 2);
}

static void put_requirements(struct output *out, const struct module *m,
                             enum marker_operand operand)
{
    if (operand == MARKER_F16) {
        put_capability(out, m, CAPABILITY_FLOAT16);
        return;
    }
    put_capability(out, m, CAPABILITY_BFLOAT16);
    put_capability(out, m, CAPABILITY_BFLOAT16_MATRIX);
    uint32_t extension[6] = {6 << 16 | OP_EXTENSION};
    memcpy(&extension[1], "SPV_KHR_bfloat16", 17);
    put(out, extension, 6);
}

/* A module's order: capabilities, extensions, ..., types. */
static void write_all(const struct module *m, enum marker_operand operand, struct output *out)
{
    put(out, m->header, HEADER);
    out->words[BOUND] = m->bound;
    bool required = false;
    for (size_t i = 0; i < m->count; i++) {
        if (!required && m->list[i].op != OP_CAPABILITY) {
            put_requirements(out, m, operand);
            required = true;
        }
        if (i == m->types) {
            put(out, m->operand_type, m->operand_type[0] >> 16);
            put(out, m->sum_type, m->sum_type[0] >> 16);
            for (size_t h = m->types; h < m->count; h++)
                if (m->list[h].hoisted)
                    put(out, m->list[h].words, m->list[h].length);
        }
        if (!m->list[i].hoisted)
            put(out, m->list[i].words, m->list[i].length);
    }
}

const char *markers_replace(const uint32_t *words, size_t count, enum marker_operand operand,
                            uint32_t **out, size_t *out_count)
{
    struct module m = {0};
    uint32_t *copies = NULL;
    struct output made = {0};
    const char *wrong = cut(words, count, &m);
    if (!wrong) {
        m.copies = copies = calloc(count, sizeof(*copies));
        made.words = calloc(count + 32, sizeof(*made.words));
        wrong = copies && made.words ? make_shared_plain(&m) : "out of memory";
    }
    if (!wrong)
        wrong = replace_all(&m, operand);
    if (!wrong) {
        write_all(&m, operand, &made);
        *out = made.words;
        *out_count = made.count;
        made.words = NULL;
    }
    free(made.words);
    free(copies);
    free(m.list);
    return wrong;
}
