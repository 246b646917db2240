/* SPDX-License-Identifier: MIT
 *
 * What checkpoints are made of: the logical tensors of a part, the same on all ranks, and which
 * pieces of them (spans) this rank has in its memory. How a run is laid out over ranks is known
 * here only: another layout is another answer to rf_spans_to_save and rf_spans_to_load. Used by
 * save*.c and load*.c.
 */
#ifndef RF_TRAIN_SPANS_H
#define RF_TRAIN_SPANS_H

#include "run.h"

/* The logical tensors of a part, in the order of its file; all are f32. */
struct rf_listing { /* zero: empty */
    struct rf_file_tensor *tensors;
    struct rf_listed {
        char name[192];
        int param;  /* of the plan */
        int region; /* in which it lies, on a rank that has it */
    } * listed;
    int count;
};
RF_MUST_CHECK int rf_listing_open(const struct rf_run *run, enum rf_checkpoint_part part,
                                  struct rf_listing *out);
void rf_listing_close(struct rf_listing *listing);

/* Elements [first, first + count) of one part of a tensor of a listing (cut), and where this rank
 * has them. */
struct rf_span {
    int tensor;
    uint64_t first, count;
    struct rf_param_cut cut;
    struct rf_tensor stored;
};
struct rf_spans { /* zero: none */
    struct rf_span *list;
    size_t count, capacity;
};
/* What this rank writes. Over all ranks every element occurs once. What several tensor ranks have
 * is written by them in turns, of equal numbers of elements of all such tensors, one after the
 * other; each has eight turns or more, unless these would be shorter than RF_SPAN_GRAIN. Of what
 * all data-parallel ranks have, or several of them, with copies of shards, each writes a share;
 * borders are at multiples of RF_SPAN_GRAIN elements. */
#define RF_SPAN_GRAIN 1024u
RF_MUST_CHECK int rf_spans_to_save(const struct rf_run *run, enum rf_checkpoint_part part,
                                   const struct rf_listing *listing, struct rf_spans *out);
/* What this rank needs: all that it has. */
RF_MUST_CHECK int rf_spans_to_load(const struct rf_run *run, enum rf_checkpoint_part part,
                                   const struct rf_listing *listing, struct rf_spans *out);
/* As f32. */
uint64_t rf_spans_bytes(const struct rf_spans *spans);
void rf_spans_free(struct rf_spans *spans);

/* Bytes of a span, as f32, that lie behind each other in the whole tensor, from its byte `at`. */
struct rf_span_run {
    uint64_t at, bytes;
};
/* Those from byte `from` of the span on, at most `most`. */
struct rf_span_run rf_span_run_at(const struct rf_span *span, uint64_t from, uint64_t most);

/* How many bytes of a span are written and hashed at once, from its byte `from` on: at most `most`.
 * Where columns are cut they end at the same rows on all tensor ranks. */
uint64_t rf_span_piece(const struct rf_span *span, uint64_t from, uint64_t most);

/* How a span is named to another rank. */
struct rf_span_name {
    int32_t part, tensor, tensor_rank, unused;
    uint64_t first, count;
};
struct rf_span_name rf_span_to_name(const struct rf_span *span, int part);
/* The span of this listing (NULL: there is none) that rank `peer` means; it has no `stored` here.
 * RF_EINVAL: there is none; *out has its count of elements all the same. */
RF_MUST_CHECK int rf_span_of_name(const struct rf_run *run, const struct rf_span_name *name,
                                  const struct rf_listing *listing, int peer, struct rf_span *out);

/* `bytes` of a span as f32, the first of which is `from`; both are whole elements. Writing loses
 * what is in `values`. */
RF_MUST_CHECK int rf_span_read(const struct rf_span *span, uint64_t from, uint64_t bytes,
                               void *values);
RF_MUST_CHECK int rf_span_write(const struct rf_span *span, uint64_t from, uint64_t bytes,
                                void *values);

/* Bytes that are read, hashed, written and sent at once. */
size_t rf_run_piece_bytes(const struct rf_run *run);

#endif
