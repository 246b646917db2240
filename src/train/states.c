/* SPDX-License-Identifier: MIT
 *
 * States of a checkpoint in another form than the run's; see states.h. States in 8 bits become f32
 * by their levels, and f32 ones become 8 bits as after an update.
 */
#include "states.h"

#include "../base/base.h"
#include "../optim/codes.h"

enum { BLOCK = RF_STATE_BLOCK, BLOCK_BYTES = RF_STATE_BLOCK_BYTES, BLOCKS_AT_ONCE = 32 };

int rf_states_parts(const struct rf_param_cut *cut)
{
    return cut->split.kind == RF_SPLIT_NONE ? 1 : cut->ranks;
}

static struct rf_param_cut part_of(const struct rf_param_cut *cut, int part)
{
    struct rf_param_cut one = *cut;
    one.rank = part;
    one.count = 1;
    return one;
}

static uint64_t part_elements(const struct rf_param_cut *cut, int part)
{
    const struct rf_param_cut one = part_of(cut, part);
    return (uint64_t)rf_shape_count(rf_cut_shape(&one));
}

uint64_t rf_states_words(const struct rf_param_cut *cut, int part)
{
    uint64_t bytes = 0;
    for (int p = 0; p < part; p++)
        bytes += rf_code_bytes(part_elements(cut, p));
    return bytes / sizeof(uint32_t);
}

bool rf_states_are(const struct rf_listed *listed)
{
    return listed->param >= 0 && listed->region >= RF_REGION_STATE &&
           listed->region < RF_REGION_STATE + RF_STATE_COUNT;
}

/* ---- the form in the checkpoint ---------------------------------------------------------------
 */

/* How the checkpoint divides the parameter of a state. */
static struct rf_param_cut theirs(const struct rf_load *load, const struct rf_listed *listed)
{
    const struct rf_plan *plan = load->run->plan;
    const struct rf_plan_param *param = &plan->params[listed->param];
    struct rf_param_cut cut = param->cut;
    cut.split = (struct rf_split){0};
    if (load->state_parts > 1 && plan->blocks[param->block].ops->tensor_sizes)
        cut.split = param->desc->split;
    cut.ranks = load->state_parts;
    cut.rank = 0;
    cut.count = 1;
    return cut;
}

static int take_parts(struct rf_load *load, const char *path)
{
    struct rf_safetensors *file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors;
    const char *note = rf_safetensors_note(file, RF_STATES_NOTE);
    char *end = NULL;
    const long parts = note ? strtol(note, &end, 10) : 1;
    if (parts < 1 || parts > INT16_MAX || (note && (*end || end == note)))
        return rf_fail(RF_ECORRUPT, "the checkpoint %s has " RF_STATES_NOTE " \"%.20s\"", path,
                       note);
    load->state_parts = (int)parts;
    return 0;
}

int rf_states_open(const struct rf_run *run, struct rf_load *load)
{
    load->run = run;
    load->codes = rf_alloc(2 * sizeof(*load->codes));
    if (!load->codes)
        return rf_fail(RF_ENOMEM, "load: out of host memory");
    rf_codes_make(false, &load->codes[0]);
    rf_codes_make(true, &load->codes[1]);
    return load->sees ? take_parts(load, load->checkpoint.path) : 0;
}

/* Whether blocks are divided as in this run. */
static bool alike(const struct rf_load *load, const struct rf_listed *listed)
{
    const struct rf_param_cut cut = theirs(load, listed);
    return listed->parts == rf_states_parts(&cut);
}

int rf_states_check(const struct rf_run *run, const struct rf_load *load, int tensor,
                    bool *converts)
{
    const struct rf_listing *list = &load->listings[RF_PART_OPTIMIZER];
    const struct rf_listed *listed = &list->listed[tensor];
    struct rf_safetensors *file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors;
    const struct rf_file_tensor *found =
        rf_safetensors_tensor(file, rf_safetensors_find(file, listed->name));
    const struct rf_param_desc *desc = rf_plan_desc(run->plan, listed->param);
    const struct rf_param_cut cut = theirs(load, listed);
    char text[96];
    if (found->dtype == RF_F32 && rf_shape_equal(found->shape, desc->shape)) {
        *converts |= listed->parts > 0;
        return 0;
    }
    if (found->dtype == RF_U8) {
        RETURN_IF_ERROR(rf_cut_check(&cut, listed->name));
        const uint64_t words = rf_states_words(&cut, rf_states_parts(&cut));
        *converts |= !alike(load, listed);
        if (found->shape.ndim == 1 && (uint64_t)found->shape.dim[0] == words * sizeof(uint32_t))
            return 0;
    }
    return rf_fail(
        RF_EINVAL,
        "the checkpoint %s has %s as %s, which are not the states of that parameter: use "
        "the options it was trained with",
        load->checkpoint.path, listed->name,
        rf_tensor_text((struct rf_tensor){.shape = found->shape, .dtype = found->dtype}, text,
                       sizeof(text)));
}

/* ---- values -----------------------------------------------------------------------------------
 */

/* One state of the checkpoint. */
struct source {
    const struct rf_load *load;
    const struct rf_listed *listed;
    const struct rf_codes *codes;
    struct rf_safetensors *file;
    int index;
    bool coded;
    struct rf_param_cut cut; /* of the checkpoint */
};

/* Elements [first, first + count) of a part that is in 8 bits. */
static int decode(const struct source *s, int part, uint64_t first, uint64_t count, float *out)
{
    uint8_t blocks[BLOCKS_AT_ONCE * BLOCK_BYTES];
    float values[BLOCK];
    const uint64_t begin = rf_states_words(&s->cut, part) * sizeof(uint32_t);
    const uint64_t all = (part_elements(&s->cut, part) + BLOCK - 1) / BLOCK;
    for (uint64_t done = 0; done < count;) {
        const uint64_t block = (first + done) / BLOCK, last = (first + count - 1) / BLOCK;
        uint64_t n = last + 1 - block;
        n = n < BLOCKS_AT_ONCE ? n : BLOCKS_AT_ONCE;
        n = n < all - block ? n : all - block;
        RETURN_IF_ERROR(rf_safetensors_read(s->file, s->index, begin + block * BLOCK_BYTES, blocks,
                                            n * BLOCK_BYTES));
        for (uint64_t b = 0; b < n; b++) {
            const uint64_t within = (first + done) % BLOCK, left = count - done;
            const uint64_t some = left < BLOCK - within ? left : BLOCK - within;
            rf_codes_read(s->codes, blocks + b * BLOCK_BYTES, BLOCK, values);
            memcpy(out + done, values + within, some * sizeof(*out));
            done += some;
        }
    }
    return 0;
}

/* Elements [first, first + count) of the whole state. */
static int values_of(const struct source *s, uint64_t first, uint64_t count, float *out)
{
    struct rf_cut_run run;
    if (!s->coded)
        return rf_safetensors_read(s->file, s->index, first * sizeof(float), out,
                                   count * sizeof(float));
    for (int part = 0; part < rf_states_parts(&s->cut); part++) {
        const struct rf_param_cut one = part_of(&s->cut, part);
        const uint64_t all = part_elements(&s->cut, part);
        for (uint64_t at = 0; at < all; at += run.count) {
            run = rf_cut_run_at(&one, at);
            struct rf_plan_span some = {run.first, run.count};
            if (rf_plan_clip(&some, first, count))
                RETURN_IF_ERROR(decode(s, part, at + some.first - run.first, some.count,
                                       out + (some.first - first)));
        }
    }
    return 0;
}

/* Encodes a block of a part of this run. */
static int encode(const struct source *s, const struct rf_param_cut *part, uint64_t block,
                  uint8_t *out)
{
    const uint64_t all = (uint64_t)rf_shape_count(rf_cut_shape(part)), first = block * BLOCK;
    const uint64_t count = all - first < BLOCK ? all - first : BLOCK;
    float values[BLOCK];
    for (uint64_t done = 0; done < count;) {
        const struct rf_cut_run run = rf_cut_run_at(part, first + done);
        const uint64_t n = run.count < count - done ? run.count : count - done;
        RETURN_IF_ERROR(values_of(s, run.first, n, values + done));
        done += n;
    }
    rf_codes_write(s->codes, values, (int)count, out);
    return 0;
}

/* Bytes [at, at + bytes) of the blocks of all parts of this run. */
static int encoded(const struct source *s, uint64_t at, uint64_t bytes, uint8_t *out)
{
    const struct rf_param_cut *ours = &s->load->run->plan->params[s->listed->param].cut;
    uint64_t begin = 0;
    for (int p = 0; p < s->listed->parts; p++) {
        const struct rf_param_cut part = part_of(ours, p);
        const uint64_t all = rf_code_bytes(part_elements(ours, p));
        struct rf_plan_span some = {begin, all};
        if (rf_plan_clip(&some, at, bytes))
            for (uint64_t b = (some.first - begin) / BLOCK_BYTES;
                 begin + b * BLOCK_BYTES < some.first + some.count; b++) {
                uint8_t block[BLOCK_BYTES];
                struct rf_plan_span piece = {begin + b * BLOCK_BYTES, BLOCK_BYTES};
                RETURN_IF_ERROR(encode(s, &part, b, block));
                rf_plan_clip(&piece, some.first, some.count);
                memcpy(out + (piece.first - at), block + (piece.first - begin - b * BLOCK_BYTES),
                       piece.count);
            }
        begin += all;
    }
    return 0;
}

int rf_states_read(struct rf_load *load, int tensor, uint64_t at, uint64_t bytes, uint8_t *out)
{
    const struct rf_listed *listed = &load->listings[RF_PART_OPTIMIZER].listed[tensor];
    const struct rf_optimizer_opts *opts = &load->run->plan->policy.optimizer;
    const int k = listed->region - RF_REGION_STATE;
    struct source s = {.load = load,
                       .listed = listed,
                       .codes = &load->codes[rf_optimizer_signed(opts, (enum rf_optimizer_state)k)],
                       .file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors,
                       .cut = theirs(load, listed)};
    s.index = rf_safetensors_find(s.file, listed->name);
    if (s.index < 0)
        return rf_fail(RF_EINVAL, "the checkpoint %s has no %s", load->checkpoint.path,
                       listed->name);
    s.coded = rf_safetensors_tensor(s.file, s.index)->dtype == RF_U8;
    if (s.coded ? alike(load, listed) : !listed->parts)
        return rf_safetensors_read(s.file, s.index, at, out, bytes);
    if (listed->parts)
        return encoded(&s, at, bytes, out);
    return values_of(&s, at / sizeof(float), bytes / sizeof(float), (float *)(void *)out);
}
