/* SPDX-License-Identifier: MIT
 *
 * Quantised weights of linear maps, and what a tensor rank has of them; see linear.h. Every rank
 * has the numbers of all blocks of a module if its kind has several levels of them, which blocks of
 * several ranks share. So the values are those of one rank, to the bit.
 */
#include "linear.h"

static struct rf_quantized_sizes sizes_of(const struct model_linear *linear, int64_t count,
                                          int64_t whole)
{
    return rf_quantized_sizes(linear->quantized, count, whole);
}

/* As rf_quantized_sizes says. */
static bool numbers_are_whole(const struct model_linear *linear)
{
    const int64_t block = RF_QUANTIZE_BLOCK, many = 1024 * block;
    return sizes_of(linear, block, many).numbers > sizes_of(linear, block, block).numbers;
}

/* The parts [first, end) that module k consists of. */
struct range {
    int first, end;
};
static struct range parts_of(const struct model_linear *linear, int module)
{
    if (linear->modules == linear->parts)
        return (struct range){module, module + 1};
    return (struct range){0, linear->parts};
}

/* ---- declaration ----------------------------------------------------------------------------- */

static void add_segment(struct rf_split *split, uint64_t bytes, bool whole)
{
    split->whole |= (uint32_t)whole << split->segments;
    split->sizes[split->segments++] = (int64_t)(bytes / 4);
}

/* Elements, then numbers, of each module. Kind NONE if a part is not whole blocks. */
static struct rf_split split_of(const struct model_linear *linear, int64_t channels)
{
    struct rf_split split = {.kind = RF_SPLIT_ROWS};
    split.lines = linear->summed ? linear->module_rows[0] : 0;
    for (int j = 0; j < linear->modules; j++) {
        const struct range parts = parts_of(linear, j);
        const int64_t whole = linear->module_rows[j] * channels;
        for (int k = parts.first; k < parts.end; k++) {
            const int64_t count = linear->part_rows[k] * channels;
            if ((linear->summed ? channels : count) % RF_QUANTIZE_BLOCK)
                return (struct rf_split){RF_SPLIT_NONE};
            add_segment(&split, sizes_of(linear, count, whole).elements, false);
        }
        if (numbers_are_whole(linear))
            add_segment(&split, sizes_of(linear, whole, whole).numbers, true);
        for (int k = parts.first; !numbers_are_whole(linear) && k < parts.end; k++)
            add_segment(&split, sizes_of(linear, linear->part_rows[k] * channels, whole).numbers,
                        false);
    }
    return split;
}

void model_linear_quantize(struct model_linear *linear, struct model_part *part,
                           const struct lora_weight *weight, const struct lora_modules *modules,
                           enum rf_quantization kind)
{
    struct rf_param_desc *param = &part->params[linear->weight];
    uint64_t bytes = 0;
    linear->quantized = kind;
    if (!kind)
        return;
    linear->modules = modules->count;
    linear->parts = weight->parts;
    for (int k = 0; k < weight->parts; k++)
        linear->part_rows[k] = weight->rows[k];
    for (int k = 0; k < modules->count; k++) {
        linear->module_rows[k] = modules->module[k].rows;
        bytes += rf_quantized_bytes(kind, modules->module[k].rows * modules->in);
    }
    *param = (struct rf_param_desc){.name = param->name,
                                    .shape = rf_shape1((int64_t)bytes),
                                    .dtype = RF_U8,
                                    .flags = RF_PARAM_FROZEN,
                                    .split = split_of(linear, modules->in)};
}

int model_quantize_check(enum rf_quantization kind, int64_t elements)
{
    if (!kind)
        return 0;
    if ((int)kind < 0 || kind >= RF_QUANTIZATION_COUNT)
        return rf_fail(RF_EINVAL, "weights are quantised to nf4, int8, fp8, mxfp4 or nvfp4");
    /* A limit of rf_matmul. */
    return elements > INT32_MAX
               ? rf_fail(RF_EINVAL, "quantised weights must have fewer than 2^31 elements each")
               : 0;
}

int model_linear_check_part(const struct model_linear *linear, const struct rf_tensor_part *part,
                            const char *name, int64_t channels)
{
    if (!linear->quantized || part->ranks == 1)
        return 0;
    bool whole = channels % part->ranks == 0 && channels / part->ranks % RF_QUANTIZE_BLOCK == 0;
    for (int k = 0; !linear->summed && k < linear->parts; k++)
        whole = (k == 0 || whole) && linear->part_rows[k] % part->ranks == 0 &&
                linear->part_rows[k] / part->ranks * channels % RF_QUANTIZE_BLOCK == 0;
    return whole
               ? 0
               : rf_fail(RF_EINVAL,
                         "%d tensor ranks would cut blocks of %d elements of the quantised weight "
                         "%s, which has %lld columns; use a tp that does not",
                         part->ranks, RF_QUANTIZE_BLOCK, name, (long long)channels);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct rf_tensor model_elements(struct rf_tensor t, int64_t first, int64_t count)
{
    t.offset += (uint64_t)first * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1(count);
    return t;
}

int model_linear_pieces(const struct model_linear *linear, const struct rf_tensor_part *part)
{
    if (!linear->quantized || linear->summed)
        return 1;
    return part->ranks == 1 ? linear->modules : linear->parts;
}

/* A whole module. */
static struct model_piece module_of(const struct model_linear *linear, int index,
                                    struct rf_tensor weight, int64_t channels)
{
    struct model_piece out = {.rows = linear->module_rows[index]};
    int64_t at = 0;
    for (int k = 0; k < linear->modules; k++) {
        const int64_t rows = linear->module_rows[k];
        out.first += k < index ? rows : 0;
        at += k < index ? (int64_t)rf_quantized_bytes(linear->quantized, rows * channels) : 0;
        out.all += rows;
    }
    out.weight = model_elements(
        weight, at, (int64_t)rf_quantized_bytes(linear->quantized, out.rows * channels));
    return out;
}

/* Columns of the one module of a summed map. */
static struct model_piece columns_of(const struct model_linear *linear, struct rf_tensor weight,
                                     int64_t channels, const struct rf_tensor_part *part)
{
    const int64_t rows = linear->module_rows[0];
    return (struct model_piece){
        .weight = weight,
        .part = {.rows = rows,
                 .columns = channels * part->ranks,
                 .first_column = channels * part->rank,
                 .numbers =
                     sizes_of(linear, rows * channels, rows * channels * part->ranks).elements},
        .rows = rows,
        .all = rows};
}

/* Rows of part `index` of module `j`, which begins at byte `at` of the weight. */
static struct model_piece rows_of(const struct model_linear *linear, int j, int index,
                                  struct rf_tensor weight, int64_t at, int64_t channels,
                                  const struct rf_tensor_part *part)
{
    const struct range parts = parts_of(linear, j);
    const int64_t whole = linear->module_rows[j] * channels;
    const int64_t own = linear->part_rows[index] / part->ranks;
    int64_t before = 0; /* rows of the module's parts before this one */
    for (int k = parts.first; k < index; k++)
        before += linear->part_rows[k];
    const struct rf_quantized_sizes all = sizes_of(linear, whole / part->ranks, whole),
                                    mine = sizes_of(linear, own * channels, whole),
                                    prior =
                                        sizes_of(linear, before / part->ranks * channels, whole);
    const uint64_t numbers =
        all.elements + (numbers_are_whole(linear) ? 0 : prior.numbers) - prior.elements;
    return (struct model_piece){.weight = model_elements(weight, at + (int64_t)prior.elements,
                                                         (int64_t)(numbers + mine.numbers)),
                                .part = {.rows = linear->module_rows[j],
                                         .columns = channels,
                                         .first_row = before + own * part->rank,
                                         .numbers = numbers},
                                .rows = own};
}

struct model_piece model_linear_piece(const struct model_linear *linear, int index,
                                      struct rf_tensor weight, int64_t channels,
                                      const struct rf_tensor_part *part)
{
    if (part->ranks == 1)
        return module_of(linear, index, weight, channels);
    if (linear->summed)
        return columns_of(linear, weight, channels, part);
    struct model_piece out = {.rows = 0};
    int64_t at = 0, first = 0;
    for (int j = 0; j < linear->modules; j++) {
        const struct range parts = parts_of(linear, j);
        const int64_t whole = linear->module_rows[j] * channels;
        const struct rf_quantized_sizes all = sizes_of(linear, whole / part->ranks, whole);
        for (int k = parts.first; k < parts.end; k++) {
            if (k == index) {
                out = rows_of(linear, j, k, weight, at, channels, part);
                out.first = first;
            }
            first += linear->part_rows[k] / part->ranks;
        }
        at += (int64_t)(all.elements + all.numbers);
    }
    out.all = first;
    return out;
}
