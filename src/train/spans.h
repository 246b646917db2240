/* SPDX-License-Identifier: MIT
 *
 * The content of checkpoints: the logical tensors of each part, which are the same on all ranks,
 * and the pieces of them (spans) that this rank has in its memory. Only these functions know how a
 * run is distributed over ranks; another distribution needs only another rf_spans_to_save and
 * rf_spans_to_load. Used by save*.c and load*.c.
 */
#ifndef RF_TRAIN_SPANS_H
#define RF_TRAIN_SPANS_H

#include "run.h"

/* The logical tensors of a part, in the order of its file. All are f32, except for bytes, which are
 * read and written as 32-bit words: raw parameters, and states in 8 bits. */
struct rf_listing { /* zero: empty */
    struct rf_file_tensor *tensors;
    struct rf_listed {
        char name[192];
        int param;  /* index in the plan; -1: an array of one rank */
        int region; /* the region with the tensor, on a rank that has it */
        int parts;  /* states in 8 bits: of rf_states_parts; 0: f32 */
    } * listed;
    int count;
};
RF_MUST_CHECK int rf_listing_open(const struct rf_run *run, enum rf_checkpoint_part part,
                                  struct rf_listing *out);
void rf_listing_close(struct rf_listing *listing);
/* Makes room for more tensors. */
RF_MUST_CHECK int rf_listing_grow(struct rf_listing *listing, int count);

/* Elements [first, first + count) of one part (cut) of a tensor of a listing, and their place in
 * this rank's memory. */
struct rf_span {
    int tensor;
    uint64_t first, count;
    struct rf_param_cut cut;
    struct rf_tensor stored;
    float *host;          /* if not NULL, its values are here, and not at `stored` (kept.c) */
    struct rf_disk *disk; /* if not NULL, they are in this file, at the offset of `stored` */
};
struct rf_spans { /* zero: empty */
    struct rf_span *list;
    size_t count, capacity;
};
/* The spans that this rank writes. Over all ranks every element occurs once. Elements that several
 * tensor ranks have are written by these ranks in turns: the turns have equal numbers of elements,
 * counted over all such tensors. Each rank has at least eight turns, unless these would be shorter
 * than RF_SPAN_GRAIN. If several data-parallel ranks have the same elements, each writes a share.
 * Borders are at multiples of RF_SPAN_GRAIN elements. */
#define RF_SPAN_GRAIN 1024u
RF_MUST_CHECK int rf_spans_to_save(const struct rf_run *run, enum rf_checkpoint_part part,
                                   const struct rf_listing *listing, struct rf_spans *out);
/* The spans that this rank needs: everything that it stores. */
RF_MUST_CHECK int rf_spans_to_load(const struct rf_run *run, enum rf_checkpoint_part part,
                                   const struct rf_listing *listing, struct rf_spans *out);
RF_MUST_CHECK int rf_spans_append(struct rf_spans *spans, const struct rf_span *span);
/* Of a tensor of which one rank has all. */
struct rf_param_cut rf_span_whole(const struct rf_file_tensor *tensor);
/* The bytes of all spans as f32. */
uint64_t rf_spans_bytes(const struct rf_spans *spans);
void rf_spans_free(struct rf_spans *spans);

/* Bytes of a span, as f32, that are contiguous in the whole tensor, from its byte `at` on. */
struct rf_span_run {
    uint64_t at, bytes;
};
/* The contiguous bytes from byte `from` of the span on, at most `most`. */
struct rf_span_run rf_span_run_at(const struct rf_span *span, uint64_t from, uint64_t most);

/* The number of bytes of a span, from byte `from` on, that are written and hashed at once: at most
 * `most`. If columns are split, pieces end at the same rows on all tensor ranks. */
uint64_t rf_span_piece(const struct rf_span *span, uint64_t from, uint64_t most);

/* Identifies a span to another rank. */
struct rf_span_name {
    int32_t part, tensor, tensor_rank, unused;
    uint64_t first, count;
};
struct rf_span_name rf_span_to_name(const struct rf_span *span, int part);
/* The span of this listing (NULL: none) that rank `peer` refers to. Its `stored` is not set.
 * RF_EINVAL if there is no such span; *out has its count of elements even then. */
RF_MUST_CHECK int rf_span_of_name(const struct rf_run *run, const struct rf_span_name *name,
                                  const struct rf_listing *listing, int peer, struct rf_span *out);

/* Reads or writes `bytes` of a span as f32, from byte `from` on. Both are multiples of an element.
 * Writing overwrites `values`. */
RF_MUST_CHECK int rf_span_read(const struct rf_span *span, uint64_t from, uint64_t bytes,
                               void *values);
RF_MUST_CHECK int rf_span_write(const struct rf_span *span, uint64_t from, uint64_t bytes,
                                void *values);

/* kept.c: arrays of rf_run_keep. Adds their tensors at the end of a listing of the optimizer's
 * part, and this rank's spans of them: those that it saves, or all that it has. */
RF_MUST_CHECK int rf_kept_list(const struct rf_run *run, struct rf_listing *list);
RF_MUST_CHECK int rf_kept_spans(const struct rf_run *run, const struct rf_listing *list, bool saves,
                                struct rf_spans *out);
/* How many tensors of such arrays of this model's parameters a file has. */
int rf_kept_count(const struct rf_listing *model, struct rf_safetensors *file);

/* span_read.c. Reads whole tensors of a listing, as f32, for the spans of them that a rank has. */
struct rf_span_reader {
    void *self;
    int (*read)(void *self, int part, int tensor, uint64_t at, uint64_t bytes, void *out);
    const struct rf_listing *listings; /* by part */
    struct rf_span_window {
        uint8_t *bytes; /* one piece; NULL until first use */
        int part, tensor;
        uint64_t at, count; /* bytes [at, at + count) of the tensor; count 0: empty */
    } window;               /* for elements that are not contiguous in the whole tensor */
};
/* Bytes [from, from + bytes) of a span, at most one piece. */
RF_MUST_CHECK int rf_span_reader_read(const struct rf_run *run, struct rf_span_reader *reader,
                                      int part, const struct rf_span *span, uint64_t from,
                                      uint64_t bytes, uint8_t *out);
void rf_span_reader_free(struct rf_span_reader *reader); /* its memory; zero is allowed */

#endif
