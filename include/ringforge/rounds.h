/* SPDX-License-Identifier: MIT
 *
 * Training without a synchronous step: each worker makes local steps, and now and then exchanges
 * its parameters with others. A round is a number of local steps and one exchange. Who exchanges
 * with whom, what, in which form, and what becomes of it is a rule: local SGD (Stich 2019), DiLoCo
 * (Douillard et al. 2023), gossip averaging (D-PSGD, Lian et al. 2017), federated averaging
 * (McMahan et al. 2017) and its server optimizers (Reddi et al. 2021) differ in the rule only.
 *
 * An exchange is a list, as a collective and a training step are: its messages and memory are known
 * before it runs.
 */
#ifndef RINGFORGE_ROUNDS_H
#define RINGFORGE_ROUNDS_H

#include "comm.h"
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- who exchanges with whom ----------------------------------------------------------------- */

/* A graph gives each rank i the weights W(i, j) of a round: x(i) = sum over j of W(i, j) x(j). All
 * of them are doubly stochastic, so the mean over the ranks is kept. In undirected graphs W(i, j) =
 * 1 / (1 + the larger degree of i and j) (Metropolis), and a rank keeps the rest for itself. */
enum rf_graph {
    RF_GRAPH_ALL = 0,     /* the mean of all ranks */
    RF_GRAPH_RING,        /* two neighbours */
    RF_GRAPH_TORUS,       /* four neighbours of a grid that is as square as the ranks allow */
    RF_GRAPH_EXPONENTIAL, /* directed: the ranks at distances 1, 2, 4, ... (Ying et al. 2021) */
    RF_GRAPH_ONE_PEER,    /* one of these distances, the next in each round */
    RF_GRAPH_MATCHING,    /* random pairs, new ones in each round (as Wang et al. 2019) */
    RF_GRAPH_WEIGHTS,     /* a matrix of the caller */
    RF_GRAPH_COUNT
};

struct rf_mixing {
    enum rf_graph graph;
    int ranks;
    uint64_t seed;         /* RF_GRAPH_MATCHING */
    const double *weights; /* RF_GRAPH_WEIGHTS: W (ranks, ranks), row-major; else NULL */
};

/* "all", "ring", ...; NULL: there is no such graph. */
RF_EXPORT const char *rf_graph_name(enum rf_graph graph);

/* The graph of this name; -1: there is none. */
RF_EXPORT int rf_graph_find(const char *name);

/* RF_EINVAL: the weights have a negative or no finite entry, a row or a column whose sum is not 1
 * (to 1e-6), or the graph falls apart into groups that never exchange: the message names row or
 * column and its sum, or a rank of each group. */
RF_API int rf_mixing_check(const struct rf_mixing *mixing);

/* The weights W(rank, 0 ... ranks - 1) of a round, from 0. row: room for `ranks` numbers. Errors:
 * RF_EINVAL, RF_ENOMEM. */
RF_API int rf_mixing_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row);

/* The factor by which a round shrinks the distance of the ranks from their mean, at least: the
 * largest singular value of W - 1/ranks, which is the second largest absolute eigenvalue of a
 * symmetric W. 1: the round alone does not bring all ranks together. Takes time and memory in
 * ranks^2. Errors: RF_EINVAL, RF_ENOMEM. */
RF_API int rf_mixing_contraction(const struct rf_mixing *mixing, int64_t round, double *out);

/* ---- in which form --------------------------------------------------------------------------- */

/* How f32 values travel. What a form loses is kept by the sender and added to what it sends next
 * (error feedback, Seide et al. 2014). */
enum rf_form {
    RF_FORM_F32 = 0,
    RF_FORM_BF16,
    RF_FORM_INT8, /* 8.5 bits a value: RF_INT8 of quantize.h */
    RF_FORM_NF4,  /* 4.13 bits a value: RF_NF4 of quantize.h */
    RF_FORM_TOP,  /* the largest values, 8 bytes each (Aji, Heafield 2017) */
    RF_FORM_SIGN, /* 1.03 bits a value: signs, and a mean magnitude of each 1,024 (Karimireddy et
                   * al. 2019) */
    RF_FORM_POWERSGD, /* two factors of few columns for each matrix (Vogels et al. 2019) */
    RF_FORM_COUNT
};

/* "f32", ...; NULL: there is no such form. */
RF_EXPORT const char *rf_form_name(enum rf_form form);

/* The form of this name; -1: there is none. */
RF_EXPORT int rf_form_find(const char *name);

#define RF_FORM_MOST_RANK 64

/* A form as text: its name, and behind a colon the share of the values that top sends ("top:0.01"),
 * or the rank of powersgd ("powersgd:2"). What is not said is 0. RF_EINVAL: it is none. */
RF_API int rf_form_read(const char *text, enum rf_form *form, float *fraction, int *rank);

/* ---- rules ----------------------------------------------------------------------------------- */

/* Zero is the default of every field. */
struct rf_rounds_rule {
    int64_t every;           /* local steps of a round; 0 = 1 */
    struct rf_mixing mixing; /* `ranks` is not read: it is that of the communicator */
    /* Sent is the difference that the round made, parameters at its start less those at its end,
     * and not the parameters. Needs RF_GRAPH_ALL. */
    bool difference;
    /* What is exchanged are not parameters but gradients, new ones in every step, and what comes is
     * their sum over the ranks. What a form loses is added to those of the next step. Needs
     * RF_GRAPH_ALL; not with `difference` and what needs it, shares, a delay or parts. Rounds of
     * gradients do not move to other ranks. */
    bool gradients;
    /* With `difference`: the mean difference is the gradient of this optimizer, which updates the
     * parameters of the start of the round at the rate outer_lr (0 = 1). NULL: SGD. */
    const struct rf_optimizer_opts *outer;
    float outer_lr;
    enum rf_form form; /* other than f32: needs `difference` or `gradients`; bf16 also goes among
                          neighbours */
    float fraction;    /* RF_FORM_TOP: the share of the values that is sent; 0 = 1/64 */
    int form_rank;     /* RF_FORM_POWERSGD: the columns of a factor, to RF_FORM_MOST_RANK; 0 = 1 */
    bool no_feedback;  /* what the form loses is lost */
    /* Neighbours mix the parameters of the start of the round, and the difference of the round is
     * added to the mean (the order of the paper on D-PSGD). Otherwise they mix those of its end. */
    bool mix_first;
    /* The workers' shares of the mean are the shares that they give in each round (samples, for
     * example) over their sum; otherwise they are equal. Needs RF_GRAPH_ALL. */
    bool weighted;
    /* The number of parts in which the parameters are exchanged, one after the other, evenly over
     * the round (Douillard et al. 2025); 0 = 1, at most `every`. */
    int parts;
    /* mu of FedProx (Li et al. 2020): clients of a coordinator (federated.h) are pulled to the
     * parameters of the start of the round by rf_client_pull. Others refuse it. */
    float proximal;
    /* What an exchange brings takes effect this number of local steps after it began, and these
     * steps are kept: the exchange runs beside them. Below `every`. */
    int64_t delay;
};

/* RF_EINVAL: fields contradict each other, or are out of range; the message says which. */
RF_API int rf_rounds_check(const struct rf_rounds_rule *rule, int ranks);

/* A rule that was read from a text. The rule points into it: do not copy it. */
struct rf_rounds_text {
    struct rf_rounds_rule rule;
    struct rf_optimizer_opts outer;
    double *weights;
    int workers;
};

/* Reads "PRESET:H" and keys that change it, "diloco:50,form=nf4,lr=0.7". Presets:
 *   local:H   the mean of the parameters after H steps
 *   diloco:H  Nesterov (momentum 0.9, rate 0.7) on the mean difference
 *   gossip:H  a ring mixes parameters
 *   fedavg:H  the mean of differences, weighted by the workers' shares
 *   fedopt:H  the same, and Adam (rate 0.1, betas 0.9 and 0.99, eps 1e-3, without bias correction:
 *             Reddi et al. 2021) on it
 *   fedprox:H as fedavg, with the proximal term mu = 0.01 (Li et al. 2020)
 * Keys: graph, weights=FILE, seed, form (rf_form_read), fraction, feedback=on|off,
 * order=mix-first|step-first, parts, delay, outer, lr, momentum, beta1, beta2, eps. outer=NAME
 * comes before those of its numbers. FILE has the rows of W, `workers` numbers each. Free it by
 * rf_rounds_text_free. Errors: RF_EINVAL (what is not understood is named), RF_ENOMEM. */
RF_API int rf_rounds_text_read(const char *text, int workers, struct rf_rounds_text *out);
RF_EXPORT void rf_rounds_text_free(struct rf_rounds_text *text);

/* ---- the list of an exchange ----------------------------------------------------------------- */

enum rf_round_verb {
    RF_ROUND_SHARE = 0, /* all-gather of the shares of all ranks, f64 */
    RF_ROUND_SUM,       /* out = the weighted mean of all ranks' values, by an all-reduce */
    RF_ROUND_ENCODE,    /* values, or with `of_out` out, to a message */
    RF_ROUND_SEND, /* a message to a peer; sends and receives next to each other are one group */
    RF_ROUND_RECV,
    RF_ROUND_CLEAR,   /* out = 0 */
    RF_ROUND_ADD,     /* out += weight * what a message says */
    RF_ROUND_TAKE,    /* out = what a message says */
    RF_ROUND_FACTOR,  /* a phase of RF_FORM_POWERSGD: P = M Q; Q = M^T P; out = P Q^T */
    RF_ROUND_AVERAGE, /* a message = the weighted mean of all ranks' factors, by an all-reduce */
    RF_ROUND_COMMIT,  /* all ranks have what they need, and hear what each says: an all-reduce */
    RF_ROUND_VERB_COUNT
};

/* One instruction, on `count` values from `first` on. Fields that do not apply are 0. */
struct rf_round_op {
    enum rf_round_verb verb;
    int peer;
    int64_t first, count;
    uint64_t at, bytes; /* the message: where it lies in the memory for messages */
    double weight;      /* negative: the share of `peer` */
    bool of_out;
    int phase; /* RF_ROUND_FACTOR */
};

/* Values that are a matrix, row by row; with 1 column or row, a vector. */
struct rf_round_shape {
    int64_t rows, columns;
};

/* Which exchange: the number `round`, from 0, of `count` values, on this rank. */
struct rf_round_place {
    int rank, ranks;
    int64_t round, count;
    /* RF_FORM_POWERSGD: the shapes of all values, one after the other. */
    const struct rf_round_shape *shapes;
    int shape_count;
};

struct rf_round_list {
    struct rf_round_op *ops;
    int64_t count;
    uint64_t message_bytes; /* of the memory for messages */
    uint64_t sent_bytes;    /* by this rank to its peers, without sums (predict.h) */
};

/* Pure and thread-safe. Free the list by rf_round_list_free. Errors: RF_EINVAL, RF_ENOMEM. */
RF_API int rf_round_list_make(const struct rf_rounds_rule *rule, const struct rf_round_place *place,
                              struct rf_round_list *out);
RF_EXPORT void rf_round_list_free(struct rf_round_list *list);

/* ---- rounds ---------------------------------------------------------------------------------- */

/* The f32 parameters of a worker, of which it has `count`. read and write copy `count` of them from
 * `first` on; they return a status, and are called on the thread of rf_rounds_step only. With
 * several ranks in a worker, each has the parameters that it updates, and a communicator with the
 * ranks in the same place of other workers. */
struct rf_rounds_params {
    int64_t count;
    int (*read)(void *user, int64_t first, int64_t count, float *to);
    int (*write)(void *user, int64_t first, int64_t count, const float *from);
    void *user;
    /* RF_FORM_POWERSGD: the next matrix or vector of the values. index: from 0; RF_EINVAL behind
     * the last. NULL: there are no matrices. */
    int (*shape)(void *user, int index, struct rf_round_shape *out);
};

/* Parameters in host memory, and in tensors: f32, `tensors` of them, one after the other. The
 * second keeps `tensors`, which must stay. */
struct rf_rounds_tensors {
    const struct rf_tensor *tensors;
    int count;
};
RF_EXPORT struct rf_rounds_params rf_rounds_in_host(float *values, int64_t count);
RF_EXPORT struct rf_rounds_params rf_rounds_in_tensors(struct rf_rounds_tensors *tensors);

struct rf_rounds;

/* Begins rounds: all ranks pass equal parameters, or, without `difference`, any. comm may be one
 * rank. Keeps comm, and has it for itself: it is used by a thread of the rounds if the rule has a
 * delay. The rule is copied (weights and outer too). Collective; blocking. Errors: RF_EINVAL (rules
 * that differ are named), RF_ENOMEM, those of a communicator, of params->read. */
RF_API int rf_rounds_open(struct rf_comm *comm, const struct rf_rounds_params *params,
                          const struct rf_rounds_rule *rule, struct rf_rounds **out);

/* NULL is allowed. Waits for exchanges in progress. */
RF_EXPORT void rf_rounds_close(struct rf_rounds *rounds);

struct rf_rounds_stats {
    int64_t step;        /* local steps so far */
    int64_t exchanges;   /* that have taken effect so far */
    bool begun, applied; /* in this step */
    uint64_t sent_bytes; /* by this rank since the rounds were opened */
    uint64_t wait_ns;    /* in this step, for the network */
};

/* After each local step of the worker: begins what is due, and lets take effect what is due.
 * Between the two nothing of the library waits for other workers. share: with `weighted`, of this
 * round since its start, 0 or more; the sum over the ranks must not be 0. Blocking; the network is
 * used in steps only in which an exchange begins or takes effect. stats may be NULL. If it fails,
 * no parameter of the exchange in question has changed. After the death of a worker (RF_EPEER) call
 * rf_rounds_move. Values that are not finite are RF_EINVAL on this rank, and RF_EABORT on the
 * others, if the form has none; RF_ECORRUPT: a message is not of the form. */
RF_API int rf_rounds_step(struct rf_rounds *rounds, double share, struct rf_rounds_stats *stats);

/* Those of the last step, with what rf_rounds_move has made of it since. */
RF_EXPORT void rf_rounds_get_stats(const struct rf_rounds *rounds, struct rf_rounds_stats *out);

/* Numbers of the caller, 0 at first: every exchange that begins from now on carries them, and
 * brings all ranks the largest of each. An exchange costs nothing more for it. */
enum { RF_ROUNDS_WORDS = 3 };
RF_EXPORT void rf_rounds_say(struct rf_rounds *rounds, const int32_t said[RF_ROUNDS_WORDS]);
/* Those of the last exchange that has taken effect. */
RF_EXPORT void rf_rounds_heard(const struct rf_rounds *rounds, int32_t heard[RF_ROUNDS_WORDS]);

/* Ends all exchanges in progress, and then a round of f32 means over all ranks, whatever the rule:
 * at the end of training, or for one model of workers that only meet neighbours. Collective;
 * blocking. */
RF_API int rf_rounds_mean(struct rf_rounds *rounds);

/* Continues with the ranks of another communicator, as rf_comm_shrink makes it: a failed exchange
 * is done again with them, unless a rank has all of it already; the shares and weights of those
 * that are gone are divided among the others. old_ranks: as from rf_comm_shrink. With a graph that
 * any number of ranks has, comm may have more ranks: newcomers, whose rounds have the counters and
 * arrays of the others (rf_rounds_get_array). All ranks of comm call it. The communicator before
 * stays open until the return. After an error of `comm`, because another worker was lost, the
 * rounds belong to comm: shrink that, and move again. Collective; blocking. Errors as those of
 * rf_rounds_open. */
RF_API int rf_rounds_move(struct rf_rounds *rounds, struct rf_comm *comm, const int *old_ranks);

/* Waits for the exchanges in progress, which take effect when they would have. Blocking; errors as
 * those of rf_rounds_step. */
RF_API int rf_rounds_settle(struct rf_rounds *rounds);

/* What a checkpoint keeps of one rank between two steps: f32 arrays by name, and two counters.
 * index: from 0; RF_EINVAL behind the last. The arrays are the rounds' own:
 * they may be read after rf_rounds_settle, or filled before the first step. Then
 * rf_rounds_set_counters continues behind that step, with the same bits, also within a round, and
 * with exchanges that have not yet taken effect. Errors: RF_EINVAL. */
struct rf_rounds_array {
    const char *name; /* "anchor", "feedback", "m", ... */
    float *values;
    int64_t count;
    /* Another number of ranks continues with the sum of this array over the ranks, on each of them:
     * rf_rounds_set_counters divides it among them. Of other arrays it is their mean. */
    bool is_sum;
};
RF_API int rf_rounds_get_array(struct rf_rounds *rounds, int index, struct rf_rounds_array *out);
RF_EXPORT void rf_rounds_get_counters(const struct rf_rounds *rounds, int64_t *step,
                                      int64_t *exchanges);
RF_API int rf_rounds_set_counters(struct rf_rounds *rounds, int64_t step, int64_t exchanges);

/* What the exchanges of a round, all parts together, cost one rank. */
struct rf_rounds_usage {
    uint64_t sent_bytes;   /* payload to other ranks, with that of sums and of shares */
    uint64_t memory_bytes; /* of host memory, without what collectives need */
    uint64_t messages;     /* one after the other, each of which waits for a link */
};

/* place->round: the number of the round's first exchange. Pure and thread-safe. Errors: RF_EINVAL
 * (also if the rule is in error), RF_ENOMEM. */
RF_API int rf_rounds_usage(const struct rf_rounds_rule *rule, const struct rf_round_place *place,
                           struct rf_rounds_usage *out);

#ifdef __cplusplus
}
#endif
#endif
