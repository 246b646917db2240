/* SPDX-License-Identifier: MIT
 *
 * Finds the parts of packed weights and checks them; see packed.h. Neither names nor headers nor
 * the JSON in a tensor are trusted.
 */
#include "packed.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <ringforge/fields.h>

#include "../base/base.h"

#define MAX_STATE 4096

#define FOUR_BITS(name)                                                                            \
    {                                                                                              \
        [RF_PACKED_CODES] = ".weight", [RF_PACKED_SCALES] = ".weight.absmax",                      \
        [RF_PACKED_LEVELS] = ".weight.quant_map",                                                  \
        [RF_PACKED_NESTED_SCALES] = ".weight.nested_absmax",                                       \
        [RF_PACKED_NESTED_LEVELS] = ".weight.nested_quant_map",                                    \
        [RF_PACKED_STATE] = ".weight.quant_state.bitsandbytes__" name                              \
    }
#define GROUPS                                                                                     \
    {                                                                                              \
        [RF_PACKED_CODES] = ".qweight", [RF_PACKED_SCALES] = ".scales",                            \
        [RF_PACKED_ZEROS] = ".qzeros", [RF_PACKED_ORDER] = ".g_idx"                                \
    }

static const struct rf_packed_layout layouts[] = {
    {RF_PACKING_BITSANDBYTES, RF_PACKED_NF4, ".weight.quant_state.bitsandbytes__nf4",
     FOUR_BITS("nf4"), false},
    {RF_PACKING_BITSANDBYTES, RF_PACKED_FP4, ".weight.quant_state.bitsandbytes__fp4",
     FOUR_BITS("fp4"), false},
    {RF_PACKING_BITSANDBYTES,
     RF_PACKED_INT8,
     ".SCB",
     {[RF_PACKED_CODES] = ".weight",
      [RF_PACKED_SCALES] = ".SCB",
      [RF_PACKED_STATE] = ".weight_format"},
     false},
    {RF_PACKING_GPTQ, RF_PACKED_GPTQ, ".qweight", GROUPS, true},
    {RF_PACKING_GPTQ_V2, RF_PACKED_GPTQ, ".qweight", GROUPS, false},
    {RF_PACKING_AWQ, RF_PACKED_AWQ, ".qweight", GROUPS, false},
    {RF_PACKING_FP8,
     RF_PACKED_FP8,
     ".weight_scale_inv",
     {[RF_PACKED_CODES] = ".weight", [RF_PACKED_SCALES] = ".weight_scale_inv"},
     false},
    {RF_PACKING_FP8,
     RF_PACKED_FP8,
     ".weight_scale",
     {[RF_PACKED_CODES] = ".weight", [RF_PACKED_SCALES] = ".weight_scale"},
     false},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

/* ---- parts ----------------------------------------------------------------------------------- */

static int refuse(const struct rf_packed *p, int part, const char *what)
{
    const char *end = p->layout->parts[part];
    return rf_fail(RF_ECORRUPT, "%.*s%s: %s", (int)(strlen(p->name) - strlen(".weight")), p->name,
                   end ? end : p->layout->mark, what);
}

static const struct rf_file_tensor *tensor_of(const struct rf_packed *p, int part)
{
    const struct rf_packed_tensor *t = &p->parts[part];
    return t->file ? rf_safetensors_tensor(t->file, t->index) : NULL;
}

/* The part is there, and has this type and as many elements. */
static int expect(const struct rf_packed *p, int part, enum rf_dtype dtype, int64_t count)
{
    char text[160];
    const struct rf_file_tensor *t = tensor_of(p, part);
    if (!t)
        return refuse(p, part, "the tensor is missing");
    if (t->dtype == dtype && rf_shape_count(t->shape) == count)
        return 0;
    snprintf(text, sizeof(text), "it has %lld elements of type %s; %lld of type %s are needed",
             (long long)rf_shape_count(t->shape),
             rf_safetensors_type(p->parts[part].file, p->parts[part].index), (long long)count,
             rf_dtype_name(dtype));
    return refuse(p, part, text);
}

static int expect_none(const struct rf_packed *p, int part)
{
    return p->parts[part].file ? refuse(p, part, "no such tensor belongs to a weight of this kind")
                               : 0;
}

static int64_t groups_of(int64_t count, int64_t size)
{
    return count / size + (count % size != 0);
}

/* ---- bitsandbytes, 4 bits -------------------------------------------------------------------- */

struct state {
    int block, nested_block;
};

static const struct rf_field state_fields[] = {
    {"quant_type", RF_FIELD_READ},
    {"blocksize", RF_FIELD_SIZE, NULL, offsetof(struct state, block), RF_FIELD_NEEDED,
     RF_FIELD_NEEDED},
    {"dtype", RF_FIELD_READ},
    {"shape", RF_FIELD_READ},
    {"nested_blocksize", RF_FIELD_SIZE, NULL, offsetof(struct state, nested_block), 0,
     RF_FIELD_NEEDED},
    {"nested_dtype", RF_FIELD_ONLY, "\"float32\""},
    {"nested_offset", RF_FIELD_READ},
    {NULL}};

static int read_shape(struct rf_packed *p, const struct rf_fields *fields, const cJSON *object)
{
    static const char needed[] = "a weight has two sizes from 1 to 2^28";
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(object, "shape");
    int64_t *const sizes[] = {&p->rows, &p->columns};
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != 2)
        return rf_fields_refuse(fields, "shape", shape, needed);
    for (int i = 0; i < 2; i++) {
        const cJSON *item = cJSON_GetArrayItem(shape, i);
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= 1 << 28) ||
            item->valuedouble != floor(item->valuedouble))
            return rf_fields_refuse(fields, "shape", shape, needed);
        *sizes[i] = (int64_t)item->valuedouble;
    }
    return 0;
}

static int read_type(struct rf_packed *p, const struct rf_fields *fields, const cJSON *object)
{
    static const char *const names[] = {"\"float32\"", "\"float16\"", "\"bfloat16\""};
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(object, "dtype");
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(object, "quant_type");
    if (!rf_field_is(kind, p->layout->kind == RF_PACKED_NF4 ? "\"nf4\"" : "\"fp4\""))
        return rf_fields_refuse(fields, "quant_type", kind, "the name of the tensor says another");
    for (int i = 0; i < 3; i++)
        if (rf_field_is(dtype, names[i])) {
            p->dtype = types[i];
            return 0;
        }
    return rf_fields_refuse(fields, "dtype", dtype, "weights are float32, float16 or bfloat16");
}

static int read_offset(struct rf_packed *p, const struct rf_fields *fields, const cJSON *object)
{
    const cJSON *offset = cJSON_GetObjectItemCaseSensitive(object, "nested_offset");
    p->offset = cJSON_IsNumber(offset) ? (float)offset->valuedouble : NAN;
    return isfinite(p->offset)
               ? 0
               : rf_fields_refuse(fields, "nested_offset", offset, "it has to be a number");
}

static int read_state(struct rf_packed *p, const cJSON *object)
{
    const struct rf_field *const tables[] = {state_fields, NULL};
    const struct rf_fields fields = {p->name, "quant_state.", tables, "null",
                                     "this library does not know it"};
    struct state s = {0};
    RETURN_IF_ERROR(rf_fields_read(&fields, object, &s));
    p->block = s.block;
    p->nested_block = s.nested_block;
    RETURN_IF_ERROR(read_type(p, &fields, object));
    RETURN_IF_ERROR(read_shape(p, &fields, object));
    if (s.nested_block)
        return read_offset(p, &fields, object);
    return cJSON_GetObjectItemCaseSensitive(object, "nested_offset")
               ? rf_fields_refuse(&fields, "nested_blocksize", NULL, "nested_offset needs it")
               : 0;
}

static int read_json(struct rf_packed *p)
{
    char text[MAX_STATE + 1] = {0};
    const struct rf_file_tensor *t = tensor_of(p, RF_PACKED_STATE);
    const int64_t bytes = rf_shape_count(t->shape);
    const char *end = text;
    if (t->dtype != RF_U8 || bytes > MAX_STATE)
        return refuse(p, RF_PACKED_STATE, "it is not a short text in bytes");
    RETURN_IF_ERROR(rf_safetensors_read(p->parts[RF_PACKED_STATE].file,
                                        p->parts[RF_PACKED_STATE].index, 0, text, (uint64_t)bytes));
    cJSON *object = cJSON_ParseWithOpts(text, &end, 1);
    const int rc = cJSON_IsObject(object) && (size_t)bytes == strlen(text)
                       ? read_state(p, object)
                       : refuse(p, RF_PACKED_STATE, "its text is not a JSON object");
    cJSON_Delete(object);
    return rc;
}

/* bitsandbytes computes with levels of its own, whatever the file says. */
static int check_levels(const struct rf_packed *p)
{
    float levels[16];
    RETURN_IF_ERROR(expect(p, RF_PACKED_LEVELS, RF_F32, 16));
    RETURN_IF_ERROR(rf_safetensors_read(p->parts[RF_PACKED_LEVELS].file,
                                        p->parts[RF_PACKED_LEVELS].index, 0, levels,
                                        sizeof(levels)));
    for (int i = 0; i < 16; i++)
        if (!(levels[i] == rf_packed_levels(p->layout->kind)[i]))
            return refuse(p, RF_PACKED_LEVELS, "its levels are not those of the weight's kind");
    return 0;
}

static int open_four_bits(struct rf_packed *p)
{
    RETURN_IF_ERROR(read_json(p));
    const int64_t count = p->rows * p->columns, blocks = groups_of(count, p->block);
    const struct rf_file_tensor *codes = tensor_of(p, RF_PACKED_CODES);
    if (!codes)
        return refuse(p, RF_PACKED_CODES, "the tensor is missing");
    /* The codes may be stored as elements of any type. */
    if (codes->dtype == RF_DTYPE_COUNT ||
        rf_shape_count(codes->shape) * (int64_t)rf_dtype_bytes(codes->dtype) != (count + 1) / 2)
        return refuse(p, RF_PACKED_CODES,
                      "its bytes are not half the elements of the shape in its quant_state");
    RETURN_IF_ERROR(check_levels(p));
    if (!p->nested_block) {
        RETURN_IF_ERROR(expect_none(p, RF_PACKED_NESTED_SCALES));
        RETURN_IF_ERROR(expect_none(p, RF_PACKED_NESTED_LEVELS));
        return expect(p, RF_PACKED_SCALES, RF_F32, blocks);
    }
    RETURN_IF_ERROR(expect(p, RF_PACKED_NESTED_SCALES, RF_F32, groups_of(blocks, p->nested_block)));
    RETURN_IF_ERROR(expect(p, RF_PACKED_NESTED_LEVELS, RF_F32, 256));
    return expect(p, RF_PACKED_SCALES, RF_U8, blocks);
}

/* ---- bitsandbytes, 8 bits -------------------------------------------------------------------- */

/* A format other than 0 is an order of a GPU's matrix units. */
static int open_int8(struct rf_packed *p)
{
    uint8_t format = 0;
    const struct rf_file_tensor *codes = tensor_of(p, RF_PACKED_CODES);
    if (!codes || codes->dtype != RF_I8 || codes->shape.ndim != 2)
        return refuse(p, RF_PACKED_CODES, "a matrix of type I8 is needed");
    p->rows = codes->shape.dim[0];
    p->columns = codes->shape.dim[1];
    p->dtype = RF_F32;
    if (p->rows < 1 || p->columns < 1)
        return refuse(p, RF_PACKED_CODES, "it has no elements");
    if (p->parts[RF_PACKED_STATE].file) {
        RETURN_IF_ERROR(expect(p, RF_PACKED_STATE, RF_U8, 1));
        RETURN_IF_ERROR(rf_safetensors_read(p->parts[RF_PACKED_STATE].file,
                                            p->parts[RF_PACKED_STATE].index, 0, &format, 1));
    }
    if (format != 0)
        return refuse(p, RF_PACKED_STATE, "only the format 0, row after row, is supported");
    return expect(p, RF_PACKED_SCALES, RF_F32, p->rows);
}

/* ---- GPTQ and AWQ ---------------------------------------------------------------------------- */

static int open_groups(struct rf_packed *p, const struct rf_weights_opts *opts)
{
    const struct rf_file_tensor *codes = tensor_of(p, RF_PACKED_CODES);
    const struct rf_file_tensor *scales = tensor_of(p, RF_PACKED_SCALES);
    const bool gptq = p->layout->kind == RF_PACKED_GPTQ;
    if (!codes || codes->dtype != RF_I32 || codes->shape.ndim != 2)
        return refuse(p, RF_PACKED_CODES, "a matrix of type I32 is needed");
    p->rows = codes->shape.dim[1] * (gptq ? 1 : 8);
    p->columns = codes->shape.dim[0] * (gptq ? 8 : 1);
    if (p->rows < 8 || p->rows % 8 || p->columns < 1)
        return refuse(p, RF_PACKED_CODES, "its outputs have to be a positive multiple of 8");
    p->block = opts->group > 0 ? opts->group : p->columns;
    if (!scales || (scales->dtype != RF_F16 && scales->dtype != RF_BF16 && scales->dtype != RF_F32))
        return refuse(p, RF_PACKED_SCALES, "scales of type F16, BF16 or F32 are needed");
    const int64_t groups = groups_of(p->columns, p->block);
    p->dtype = scales->dtype;
    RETURN_IF_ERROR(expect(p, RF_PACKED_SCALES, p->dtype, groups * p->rows));
    RETURN_IF_ERROR(expect(p, RF_PACKED_ZEROS, RF_I32, groups * (p->rows / 8)));
    if (!gptq)
        return expect_none(p, RF_PACKED_ORDER);
    return p->parts[RF_PACKED_ORDER].file || opts->reordered
               ? expect(p, RF_PACKED_ORDER, RF_I32, p->columns)
               : 0;
}

/* ---- FP8 ------------------------------------------------------------------------------------- */

static int open_fp8(struct rf_packed *p, const struct rf_weights_opts *opts)
{
    const struct rf_file_tensor *codes = tensor_of(p, RF_PACKED_CODES);
    const struct rf_file_tensor *scales = tensor_of(p, RF_PACKED_SCALES);
    const struct rf_packed_tensor *part = &p->parts[RF_PACKED_CODES];
    if (!codes || codes->shape.ndim != 2 ||
        strcmp(rf_safetensors_type(part->file, part->index), "F8_E4M3") != 0)
        return refuse(p, RF_PACKED_CODES, "a matrix of type F8_E4M3 is needed");
    p->rows = codes->shape.dim[0];
    p->columns = codes->shape.dim[1];
    if (p->rows < 1 || p->columns < 1 || p->rows > 1 << 28 || p->columns > 1 << 28)
        return refuse(p, RF_PACKED_CODES, "its sizes have to be from 1 to 2^28");
    if (scales->dtype != RF_F16 && scales->dtype != RF_BF16 && scales->dtype != RF_F32)
        return refuse(p, RF_PACKED_SCALES, "scales of type F16, BF16 or F32 are needed");
    p->dtype = scales->dtype;
    p->scales = rf_shape_count(scales->shape);
    const bool blocks = opts->group > 0 && scales->shape.ndim == 2 &&
                        scales->shape.dim[0] == groups_of(p->rows, opts->group) &&
                        scales->shape.dim[1] == groups_of(p->columns, opts->group);
    p->block = blocks ? opts->group : 0;
    return blocks || p->scales == 1 || p->scales == p->rows
               ? 0
               : refuse(p, RF_PACKED_SCALES,
                        "one scale, one for each row, or one for each block of weight_block_size "
                        "is needed");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const struct rf_packed_layout *layout_of(enum rf_packing packing, const char *name,
                                                size_t *base)
{
    const size_t bytes = strlen(name);
    for (int i = 0; i < LAYOUTS; i++) {
        const size_t mark = strlen(layouts[i].mark);
        *base = bytes - mark;
        if (layouts[i].packing == packing && bytes > mark &&
            strcmp(name + *base, layouts[i].mark) == 0)
            return &layouts[i];
    }
    return NULL;
}

static int open_parts(struct rf_packed *p, const struct rf_weights_opts *opts, size_t base,
                      const struct rf_packed_finder *finder)
{
    char name[1024];
    for (int k = 0; k < RF_PACKED_PARTS; k++) {
        if (!p->layout->parts[k])
            continue;
        snprintf(name, sizeof(name), "%.*s%s", (int)base, p->name, p->layout->parts[k]);
        if (!finder->find(finder->self, name, &p->parts[k]))
            p->parts[k].file = NULL;
    }
    switch (p->layout->kind) {
    case RF_PACKED_NF4:
    case RF_PACKED_FP4:
        return open_four_bits(p);
    case RF_PACKED_INT8:
        return open_int8(p);
    case RF_PACKED_FP8:
        return open_fp8(p, opts);
    default:
        return open_groups(p, opts);
    }
}

int rf_packed_open(const struct rf_weights_opts *opts, const char *name,
                   const struct rf_packed_finder *finder, struct rf_packed **out)
{
    size_t base = 0;
    const struct rf_packed_layout *layout = layout_of(opts->packing, name, &base);
    *out = NULL;
    if (!layout)
        return 0;
    struct rf_packed *p = rf_alloc(sizeof(*p));
    char *weight = p ? rf_alloc(base + sizeof(".weight")) : NULL;
    if (!weight) {
        rf_free(p);
        return rf_fail(RF_ENOMEM, "out of memory for the parts of %s", name);
    }
    snprintf(weight, base + sizeof(".weight"), "%.*s.weight", (int)base, name);
    *p = (struct rf_packed){.name = weight, .layout = layout};
    const int rc = open_parts(p, opts, base, finder);
    if (rc < 0)
        rf_packed_close(p);
    else
        *out = p;
    return rc;
}

void rf_packed_close(struct rf_packed *p)
{
    if (!p)
        return;
    rf_packed_forget(p);
    rf_free(p->name);
    rf_free(p);
}
