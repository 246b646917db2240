/* SPDX-License-Identifier: MIT
 *
 * The table of algorithms, for those who choose one, build its list, or count what it sends.
 */
#ifndef RF_COLL_TABLE_H
#define RF_COLL_TABLE_H

#include "algorithm.h"

/* The algorithm of this name; without one, what suits the call. */
RF_MUST_CHECK int rf_coll_find(const struct rf_coll_desc *desc, const char *name,
                               const struct rf_algorithm **out);

/* The algorithms by rf_coll_number, from 1 on; NULL behind the last. */
const struct rf_algorithm *rf_coll_at(int number);

/* The length of segments that the algorithm's list has. */
size_t rf_coll_segment(const struct rf_coll_desc *desc, const struct rf_algorithm *algorithm);

/* Predicted seconds for the description, which has a model; negative: there is no prediction. */
double rf_coll_predict(const struct rf_coll_desc *desc, const char *name);

/* Bytes that the list of rf_sched_build (or, with a name, rf_sched_build_as) would send: by the
 * algorithm's formula if it has one, else from the list. */
RF_MUST_CHECK int rf_coll_count_sent(const struct rf_coll_desc *desc, const char *name,
                                     uint64_t *out);

/* ---- rounds.c ---------------------------------------------------------------------------------
 */

/* Messages one after the other in such a call, by the algorithm's figures if it has any; and by the
 * lists of all ranks, without windows and segments. */
RF_MUST_CHECK int rf_coll_count_rounds(const struct rf_coll_desc *desc, const char *name,
                                       uint64_t *out);
RF_MUST_CHECK int rf_coll_count_listed_rounds(const struct rf_coll_desc *desc, const char *name,
                                              uint64_t *out);

/* "2 (N-1)"; "" if the lists are counted. */
void rf_rounds_text(const struct rf_rounds *rounds, char *text, size_t bytes);

#endif
