/* SPDX-License-Identifier: MIT
 *
 * Adapters in the files of PEFT: adapter_config.json and adapter_model.safetensors, in and out, and
 * merged into the weights of a hub's folder. Used by the tools.
 *
 * Functions that can fail return 0 or a negative status; rf_last_error() has the sentence. They
 * block, and do not communicate.
 */
#ifndef RF_MODELS_ADAPTER_FILE_H
#define RF_MODELS_ADAPTER_FILE_H

#include <ringforge/fields.h>
#include <ringforge/weights.h>

#include "adapter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The content of adapter_config.json. */
struct adapter_config {
    struct model_adapter adapter; /* targets points into this struct */
    char targets[MODEL_MOST_TARGETS + 1];
    bool fan_in_fan_out; /* weights of the base are (in,out): depends only on the base */
};
/* The table of the file's fields. */
extern const struct rf_fields adapter_fields;
/* The text is not trusted. RF_EINVAL: an unsupported field has a value that changes the result.
 * RF_ECORRUPT: not such a file. */
RF_MUST_CHECK int adapter_config_parse(const char *text, struct adapter_config *out);
/* adapter_config.json for these modules; freed with free(). base: name of the base model, or NULL.
 * NULL: out of memory. */
char *adapter_config_text(const struct model_adapter *adapter, bool fan_in_fan_out,
                          const char *base, const struct model_adapter_module *modules, int count);

struct adapter_file;
/* Opens dir; reads no numbers. The caller closes *out. */
RF_MUST_CHECK int adapter_file_open(const char *dir, struct adapter_file **out);
void adapter_file_close(struct adapter_file *file); /* NULL is allowed */
const struct adapter_config *adapter_file_config(const struct adapter_file *file);
/* Whether the file has the tensors of these modules, with these shapes, and no others. */
RF_MUST_CHECK int adapter_file_check(const struct adapter_file *file,
                                     const struct model_adapter_module *modules, int count);
/* A (rank,in) or B (rows,rank) of a module. */
RF_MUST_CHECK int adapter_file_read(struct adapter_file *file,
                                    const struct model_adapter_module *module, bool is_b,
                                    float *values);

/* Writes dir as PEFT does. read: copies A or B of a module. */
struct adapter_source {
    void *self;
    int (*read)(void *self, const struct model_adapter_module *module, bool is_b, float *values);
};
RF_MUST_CHECK int adapter_file_write(const char *dir, const char *config,
                                     const struct model_adapter_module *modules, int count,
                                     const struct adapter_source *source);

/* Adds the adapters to a tensor of a hub's folder if it is the weight of a module with one. values:
 * all elements of base. transposed: base is (in,out). *merged is set if the values were changed. */
RF_MUST_CHECK int adapter_file_merge(struct adapter_file *file, const struct rf_weight *base,
                                     bool transposed, float *values, bool *merged);
/* The name of a tensor of the file that no call has used since the last adapter_file_check; NULL:
 * none. */
const char *adapter_file_unused(const struct adapter_file *file);
/* Adapters that are in no file. */
struct adapter_set {
    const struct model_adapter *adapter;
    const struct model_adapter_module *modules;
    int count;
    struct adapter_source source;
};
/* The same for these. */
RF_MUST_CHECK int adapter_merge(const struct adapter_set *set, const struct rf_weight *base,
                                bool transposed, float *values, bool *merged);

#ifdef __cplusplus
}
#endif
#endif
