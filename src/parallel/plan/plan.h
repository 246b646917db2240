/* SPDX-License-Identifier: MIT
 *
 * A plan: the place of every parameter and gradient in memory, the pieces that are reduced
 * together, the memory needed, and the lists of instructions of a step and of evaluation on one
 * rank. parallel/ builds it with pure functions. train/execute.c runs it and decides nothing.
 */
#ifndef RF_PARALLEL_PLAN_H
#define RF_PARALLEL_PLAN_H

#include "plan_data.h"

/* The number of ranks that share every micro-batch, on the tensor lane: tensor ranks or context
 * ranks. policy.c refuses both at once. */
static inline int rf_plan_tensor_ranks(const struct rf_plan *plan)
{
    return plan->mesh.cp > 1 ? plan->mesh.cp : plan->mesh.tp;
}

/* Whether these ranks have parts of sequences. */
static inline bool rf_plan_shares_sequences(const struct rf_plan *plan)
{
    return plan->mesh.cp > 1;
}

/* Tokens of a whole micro-batch and of a whole sequence. This rank has plan->rows and rf_plan_seq
 * of them. */
static inline int64_t rf_plan_whole_rows(const struct rf_plan *plan)
{
    return rf_plan_shares_sequences(plan) ? plan->rows * plan->mesh.cp : plan->rows;
}

static inline int64_t rf_plan_seq(const struct rf_plan *plan)
{
    return rf_plan_shares_sequences(plan) ? plan->policy.seq / plan->mesh.cp : plan->policy.seq;
}

/* The number of parts of blocks or sequences: tensor or context ranks, or policy.tensor_parts. And
 * the number of these that this rank computes, one after the other. */
static inline int rf_plan_all_parts(const struct rf_plan *plan)
{
    if (rf_plan_shares_sequences(plan))
        return plan->mesh.cp;
    return plan->policy.tensor_parts ? plan->policy.tensor_parts : plan->mesh.tp;
}

static inline int rf_plan_parts(const struct rf_plan *plan)
{
    return rf_plan_all_parts(plan) / rf_plan_tensor_ranks(plan);
}

static inline uint64_t rf_plan_aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The sizes of part `part` (from 0) of a block on this rank. */
static inline const struct rf_block_sizes *rf_plan_part_sizes(const struct rf_plan *plan, int block,
                                                              int part)
{
    return &plan->part_sizes[block * rf_plan_parts(plan) + part];
}

/* Whether the gradients of a parameter are added over the tensor lane, because each of its ranks
 * has those of its own rows. */
static inline bool rf_plan_sums_tensor(const struct rf_plan *plan, int param)
{
    if (rf_plan_shares_sequences(plan))
        return true;
    return plan->mesh.tp > 1 && plan->policy.sequence_parallel &&
           plan->params[param].cut.split.kind == RF_SPLIT_NONE;
}

/* Whether states are in 8 bits: those of parameters with enough elements. */
static inline bool rf_plan_codes(const struct rf_plan *plan)
{
    return plan->policy.state_dtype == RF_U8 && !plan->policy.forward_only;
}

/* With states in 8 bits, parameters start at whole blocks of them. */
static inline uint64_t rf_plan_grain(const struct rf_plan *plan)
{
    return rf_plan_codes(plan) ? RF_STATE_BLOCK : RF_FLAT_GRAIN;
}

/* The number of elements including padding. */
static inline uint64_t rf_plan_padded(const struct rf_plan *plan, uint64_t count)
{
    const uint64_t grain = rf_plan_grain(plan);
    return (count + grain - 1) / grain * grain;
}

static inline bool rf_plan_coded(const struct rf_plan *plan, int param)
{
    const struct rf_plan_param *p = &plan->params[param];
    return rf_plan_codes(plan) && !(plan->params[p->logical].desc->flags & RF_PARAM_FROZEN) &&
           rf_shape_count(p->cut.shape) >= RF_STATE_LEAST;
}

/* In the flat buffer 16-bit parameters precede f32 ones, of which there are few, so that few pieces
 * are needed for pieces of a single type. Parameters whose gradients are added over the tensor lane
 * are grouped in the same way. A model that is all f32, and not shared by tensor ranks, has one
 * zone. With states in 8 bits, parameters that keep f32 states follow in zones of their own. Frozen
 * parameters without a master are in the last zone but one, single ones in the last.
 */
enum { RF_CODED_ZONES = 4, RF_ZONES = 10 };

static inline int rf_plan_zone(const struct rf_plan *plan, int param)
{
    const struct rf_plan_param *p = &plan->params[param];
    const bool wide = plan->copy_type != RF_F32 && !rf_plan_narrow(p);
    if (p->bare || p->single)
        return RF_ZONES - 1 - p->bare;
    const bool small = rf_plan_codes(plan) && !rf_plan_coded(plan, param);
    return RF_CODED_ZONES * small + 2 * rf_plan_sums_tensor(plan, param) + wide;
}

/* Whether steps overlap and weights are one update behind (2bw). */
static inline bool rf_plan_lags(const struct rf_plan *plan)
{
    return plan->mesh.pp > 1 && plan->policy.pipeline == RF_PIPELINE_2BW &&
           !plan->policy.forward_only;
}

/* The number of a step's last micro-batches whose backward passes are left to the next list. */
static inline int rf_plan_leftovers(const struct rf_plan *plan)
{
    return rf_plan_lags(plan) ? plan->mesh.pp - 1 - plan->pp_rank : 0;
}

/* Whether it is a training list. */
static inline bool rf_list_trains(int id)
{
    return id <= RF_LIST_DRAIN;
}

/* Whether a parameter has this state; k: enum rf_optimizer_state, or RF_STATE_BEFORE. */
static inline bool rf_plan_has_state(const struct rf_plan *plan, int k)
{
    return k == RF_STATE_BEFORE
               ? rf_plan_lags(plan)
               : rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)k);
}

/* The role of this state in an update. */
static inline enum rf_role rf_state_role(int k)
{
    return k == RF_STATE_BEFORE ? RF_ROLE_PARAM_BEFORE : (enum rf_role)((int)RF_ROLE_STATE + k);
}

/* Whether this rank has the optimizer and its states. */
static inline bool rf_plan_updates(const struct rf_plan *plan)
{
    return !plan->policy.update_on_rank_0 || plan->dp_rank == 0;
}

/* Whether an update writes 16-bit copies in addition to the parameters. */
static inline bool rf_plan_step_copies(const struct rf_plan *plan)
{
    return plan->copy_type != RF_F32 && !plan->policy.no_masters;
}

/* The kind of values that an update writes, and their type. */
static inline enum rf_value_kind rf_plan_stored(const struct rf_plan *plan)
{
    return plan->policy.no_masters ? RF_VALUE_COPY_SHARD : RF_VALUE_PARAM_SHARD;
}

static inline enum rf_dtype rf_plan_stored_type(const struct rf_plan *plan)
{
    return plan->policy.no_masters ? plan->copy_type : RF_F32;
}

/* The type of the states of a piece. */
static inline enum rf_dtype rf_plan_state_type(const struct rf_plan *plan, int piece)
{
    return rf_plan_codes(plan) && !plan->pieces[piece].coded ? RF_F32 : plan->policy.state_dtype;
}

/* The types of an update, with this type of states. */
static inline struct rf_optimizer_types rf_plan_update_types(const struct rf_plan *plan,
                                                             enum rf_dtype state)
{
    return (struct rf_optimizer_types){.param = rf_plan_stored_type(plan),
                                       .copy = rf_plan_step_copies(plan) ? plan->copy_type : RF_F32,
                                       .state = state};
}

/* The region in which a parameter is stored, trained or not. */
static inline enum rf_region_id rf_plan_param_region(const struct rf_plan *plan, int param)
{
    return plan->policy.no_masters || plan->params[param].bare ? RF_REGION_COPY : RF_REGION_PARAMS;
}

/* Whether the gradients of each use of a tied parameter are for the caller. */
static inline bool rf_plan_leaves_apart(const struct rf_plan *plan)
{
    return plan->policy.uses_apart && plan->policy.order == RF_ORDER_TREE;
}

/* Whether the optimizer updates pieces during the backward pass. Gradients are then temporary
 * values. Without shards RF_VALUE_GRAD_SHARD is the memory of RF_VALUE_GRAD. */
static inline bool rf_plan_in_backward(const struct rf_plan *plan)
{
    return plan->policy.update_in_backward && !plan->policy.forward_only;
}

/* Whether an update is of one piece, and not of all. */
static inline bool rf_plan_updates_pieces(const struct rf_plan *plan)
{
    return plan->shards > 1 || rf_plan_in_backward(plan);
}

/* Whether gradients are sent in 16 bits. */
static inline bool rf_plan_narrows(const struct rf_plan *plan)
{
    return plan->policy.reduce_dtype != RF_F32 && plan->mesh.dp > 1;
}

/* Whether gradients are sent in policy.compress. */
static inline bool rf_plan_compresses(const struct rf_plan *plan)
{
    return plan->policy.compress.form != RF_FORM_F32 && plan->mesh.dp > 1 &&
           !plan->policy.forward_only;
}

/* The type of a value's elements, if it has one. */
static inline enum rf_dtype rf_plan_type(const struct rf_plan *plan, enum rf_value_kind kind)
{
    if (kind == RF_VALUE_COPY || kind == RF_VALUE_COPY_SHARD)
        return plan->copy_type;
    if (kind == RF_VALUE_GRAD_NARROW || kind == RF_VALUE_GRAD_NARROW_SHARD)
        return plan->policy.reduce_dtype;
    return RF_F32;
}

/* Whether the f32 parameters are in host memory: with any offload except that of activations. */
static inline bool rf_plan_params_with_host(const struct rf_plan *plan)
{
    return (plan->policy.offload & ~RF_OFFLOAD_ACTIVATIONS) != 0;
}

/* Whether the optimizer reads gradients that were copied to the host. */
static inline bool rf_plan_evicts(const struct rf_plan *plan)
{
    return (plan->policy.offload & RF_OFFLOAD_OPTIMIZER) != 0 && !plan->policy.forward_only &&
           !(plan->stage >= 2 && plan->policy.offload & RF_OFFLOAD_GRADS);
}

/* The power of two by which gradients are multiplied before they are sent in 16 bits, and divided
 * after it. f16 ends at 65504, which sums over the tokens of a step would exceed. So it sends means
 * times 256, or sums of up to 256 tokens: means of gradients are far below 256, and far above
 * 2^-32, the smallest number that f16 then has. */
static inline float rf_plan_send_factor(const struct rf_plan *plan)
{
    const int64_t tokens = plan->policy.batch * plan->policy.seq;
    float factor = 1;
    for (int64_t most = 256; plan->policy.reduce_dtype == RF_F16 && most < tokens; most *= 2)
        factor /= 2;
    return factor;
}

/* Whether a lane's instructions are transfers between ranks. */
static inline bool rf_lane_transfers(int lane)
{
    return lane >= RF_LANE_DATA && lane <= RF_LANE_RECV_GRAD_BACK;
}

/* Whether these are collectives of a group, and not messages between two ranks. */
static inline bool rf_lane_collects(int lane)
{
    return lane >= RF_LANE_DATA && lane <= RF_LANE_JOB;
}

/* Whether messages are sent on a lane; the matching receives are on the next one. */
static inline bool rf_lane_sends(int lane)
{
    return lane >= RF_LANE_SEND_OUT && lane <= RF_LANE_RECV_GRAD_BACK &&
           (lane - RF_LANE_SEND_OUT) % 2 == 0;
}

static inline bool rf_lane_receives(int lane)
{
    return lane > RF_LANE_SEND_OUT && rf_lane_sends(lane - 1);
}

/* Messages of a lane match in its order, so a lane needs a single tag. */
static inline int rf_message_tag(int lane)
{
    return (lane - RF_LANE_SEND_OUT) / 2;
}

/* The lane on which the losses of all ranks are added. */
static inline enum rf_lane rf_plan_loss_lane(const struct rf_plan *plan)
{
    return plan->mesh.pp > 1 || rf_plan_tensor_ranks(plan) > 1 ? RF_LANE_JOB : RF_LANE_DATA;
}

/* Whether a block is on this rank. */
static inline bool rf_plan_holds(const struct rf_plan *plan, int block)
{
    return plan->home_of[block] == plan->pp_rank;
}

/* Whether ranks have several stages of a pipeline, so that messages travel in a cycle. */
static inline bool rf_plan_has_message_cycles(const struct rf_plan *plan)
{
    return plan->stage_count > plan->mesh.pp;
}

/* Whether weight halves run after the input halves of later micro-batches. */
static inline bool rf_plan_delays_weights(const struct rf_plan *plan)
{
    return plan->mesh.pp > 1 &&
           (plan->policy.pipeline == RF_PIPELINE_ZBH1 || plan->policy.pipeline == RF_PIPELINE_ZBV);
}

/* The number of rounds: in each one, every rank has a micro-batch; in the last one some ranks may
 * have none. */
static inline int rf_plan_rounds(const struct rf_plan *plan)
{
    return (int)((plan->policy.micro_batches - 1) / plan->mesh.dp) + 1;
}

/* The global index of one of this rank's micro-batches, and its inverse. */
static inline int rf_plan_micro_batch(const struct rf_plan *plan, int local)
{
    return plan->round_robin ? local * plan->mesh.dp + plan->dp_rank
                             : plan->first_micro_batch[plan->dp_rank] + local;
}

static inline int rf_plan_local(const struct rf_plan *plan, int micro_batch)
{
    return plan->round_robin ? (micro_batch - plan->dp_rank) / plan->mesh.dp
                             : micro_batch - plan->first_micro_batch[plan->dp_rank];
}

/* Whether a block on the ranks with this pp_rank uses the parameter, or one that is tied to it. */
static inline bool rf_plan_uses(const struct rf_plan *plan, int param, int home)
{
    for (int i = 0; i < plan->param_count; i++)
        if (plan->params[i].logical == plan->params[param].logical &&
            plan->home_of[plan->params[i].block] == home)
            return true;
    return false;
}

/* Whether a rank has only shards of a block's parameters, and gathers the rest. */
static inline bool rf_plan_shards_params(const struct rf_plan *plan)
{
    return plan->units && plan->shards > 1;
}

static inline int rf_plan_ranks(const struct rf_plan *plan)
{
    return plan->mesh.dp * plan->mesh.pp * rf_plan_tensor_ranks(plan);
}

/* The rank at this place of the mesh that has the same part of blocks. */
static inline int rf_plan_rank_at(const struct rf_plan *plan, int pp_rank, int dp_rank)
{
    return (pp_rank * plan->mesh.dp + dp_rank) * rf_plan_tensor_ranks(plan) + plan->tp_rank;
}

static inline int rf_plan_dp_rank_of(const struct rf_plan *plan, int rank)
{
    return rank / rf_plan_tensor_ranks(plan) % plan->mesh.dp;
}

static inline int rf_plan_pp_rank_of(const struct rf_plan *plan, int rank)
{
    return rank / rf_plan_tensor_ranks(plan) / plan->mesh.dp;
}

/* Whether this rank returns the losses of its micro-batches. */
static inline bool rf_plan_has_losses(const struct rf_plan *plan)
{
    return (plan->tp_rank == 0 || rf_plan_shares_sequences(plan)) &&
           rf_plan_holds(plan, plan->block_count - 1);
}

/* A part of this rank as one of all parts of a block; and this rank as one of those that share
 * sequences. */
static inline struct rf_tensor_part rf_plan_tensor_part(const struct rf_plan *plan, int part)
{
    if (rf_plan_shares_sequences(plan))
        return (struct rf_tensor_part){.ranks = 1};
    return (struct rf_tensor_part){rf_plan_all_parts(plan),
                                   plan->tp_rank * rf_plan_parts(plan) + part,
                                   plan->mesh.tp > 1 && plan->policy.sequence_parallel};
}

static inline struct rf_context_part rf_plan_context_part(const struct rf_plan *plan)
{
    const bool cuts = rf_plan_shares_sequences(plan);
    return (struct rf_context_part){cuts ? plan->mesh.cp : 1, cuts ? plan->tp_rank : 0};
}

/* The declaration that applies: that of the first of tied parameters. */
static inline const struct rf_param_desc *rf_plan_desc(const struct rf_plan *plan, int param)
{
    return plan->params[plan->params[param].logical].desc;
}

/* Whether a parameter is updated; the same on all ranks. */
static inline bool rf_plan_trains(const struct rf_plan *plan, int param)
{
    return !plan->policy.forward_only && (rf_plan_desc(plan, param)->flags & RF_PARAM_FROZEN) == 0;
}

/* The parameter with the storage of this one on this rank; -1: it is on other ranks. */
static inline int rf_plan_holder(const struct rf_plan *plan, int param)
{
    for (int i = 0; i < plan->param_count; i++)
        if (plan->params[i].owner == i && plan->params[i].logical == plan->params[param].logical)
            return i;
    return -1;
}

/* Whether states are in a file, of which blocks are copied to the host for an update. */
static inline bool rf_plan_states_on_disk(const struct rf_plan *plan)
{
    return (plan->policy.disk & RF_OFFLOAD_OPTIMIZER) != 0 && !plan->policy.forward_only;
}

/* Of the slot of a value of states. */
static inline int rf_state_of_slot(int slot)
{
    return slot % RF_STATE_STRIDE;
}

static inline int rf_block_of_slot(int slot)
{
    return slot / RF_STATE_STRIDE;
}

/* The element at which a piece's shard begins in memory with all states. */
static inline uint64_t rf_plan_state_first(const struct rf_plan *plan, int piece)
{
    return plan->pieces[piece].shard_first;
}

/* The algorithm that carries gradients to rank 0, and weights from there, if only rank 0 updates.
 */
#define RF_TO_RANK_0 "flat"

/* Whether the verb calls a block. */
static inline bool rf_verb_calls_block(enum rf_verb verb)
{
    return verb == RF_VERB_FORWARD || verb == RF_VERB_RECOMPUTE || verb == RF_VERB_INVERT ||
           verb == RF_VERB_BACKWARD_INPUT || verb == RF_VERB_BACKWARD_WEIGHT;
}

/* Whether the host executes the verb, and blocks until it is done. */
static inline bool rf_verb_blocks(enum rf_verb verb)
{
    return verb == RF_VERB_LOAD || verb == RF_VERB_LOSS || verb == RF_VERB_BROADCAST ||
           verb == RF_VERB_HOST_STEP;
}

/* The number of elements (f64) that are summed to share `micro_batches` losses and token counts. */
static inline size_t rf_plan_loss_elements(int64_t micro_batches)
{
    return 2 * (size_t)micro_batches + 1; /* and one for requests to stop */
}

/* The sizes of a part of a block; `part` counts the parts of all ranks. */
RF_MUST_CHECK int rf_plan_sizes_of(const struct rf_plan *plan, const struct rf_block *block,
                                   int part, struct rf_block_sizes *out);

/* bytes.c. If a rank computes several parts of a block, they have the same gradients of parameters
 * that are not split, and all except the first write them to scratch. Returns the bytes of these
 * for the block that has most; 0 with one part. */
uint64_t rf_plan_spare_bytes(const struct rf_plan *plan);

/* bytes.c. Words of the table of places of the rank with this shard; 0: no table. */
uint64_t rf_plan_place_words(const struct rf_plan *plan, int shard);
/* places.c. The table of this rank: struct rf_optimizer_part.places. */
RF_MUST_CHECK int rf_plan_fill_places(const struct rf_plan *plan, uint32_t *words);

/* chunks.c. The number of norm chunks, each at most RF_NORM_CHUNK elements of one parameter, for
 * the rank with this shard. The same for tensor ranks whose parts have equal shapes. */
uint64_t rf_plan_chunks(const struct rf_plan *plan, int shard);
/* Sets those of each piece in this rank's shard, and their number. */
void rf_plan_number_chunks(struct rf_plan *plan);
/* Fills their table (plan->chunk_count), piece by piece, with elements of this rank's memory of
 * gradients or, if pieces are updated in the backward pass, of the shard's. Every trained element
 * is in one chunk of one rank, except that copies of shards have equal tables. The rest of a
 * piece's part is empty. The borders of chunks depend only on the parameter and its tensor parts.
 */
void rf_plan_fill_chunks(const struct rf_plan *plan, struct rf_norm_chunk *chunks);
/* Bytes of RF_REGION_SQUARES. */
uint64_t rf_plan_squares_bytes(uint64_t chunks);

/* Elements of a state on the rank with this shard, its bytes (k: enum rf_optimizer_state, or
 * RF_STATE_BEFORE), and the bytes before element `element`. Those in 8 bits precede others. */
uint64_t rf_plan_state_elements(const struct rf_plan *plan, int shard);
/* Elements with padding of the largest shard of a piece: the same on all ranks. */
uint64_t rf_plan_largest_shard(const struct rf_plan *plan, const struct rf_plan_piece *piece);
/* Elements of a block of a piece's states on a disk, the last one excepted, and the number of
 * blocks: that of the largest shard on all ranks, so that all have the same lists. */
uint64_t rf_plan_disk_block(const struct rf_plan *plan, int piece);
int rf_plan_disk_blocks(const struct rf_plan *plan, int piece);
/* The elements of that block of this rank's shard with padding, counted from the shard's first. */
struct rf_plan_span rf_plan_disk_span(const struct rf_plan *plan, int piece, int block);
uint64_t rf_plan_state_bytes(const struct rf_plan *plan, int k, int shard);
uint64_t rf_plan_state_offset(const struct rf_plan *plan, int k, int shard, uint64_t element);
/* The same elements including frozen pieces, which have no states. */
uint64_t rf_plan_shard_elements(const struct rf_plan *plan, int shard, bool frozen);
/* Elements of the regions of parameters and of gradients on that rank. */
uint64_t rf_plan_param_elements(const struct rf_plan *plan, int shard);
/* The front part of these that is stored in f32. */
uint64_t rf_plan_master_elements(const struct rf_plan *plan, int shard);
uint64_t rf_plan_copy_elements(const struct rf_plan *plan, int shard);
/* Elements before single parameters in the flat buffer that the region of f32 values lacks. */
uint64_t rf_plan_bare_elements(const struct rf_plan *plan, int shard);
uint64_t rf_plan_grad_elements(const struct rf_plan *plan, int shard);
/* The elements of a trained parameter that this rank stores, counted from the parameter's first;
 * none: its count is 0. */
struct rf_plan_span rf_plan_trained_span(const struct rf_plan *plan, int param);
/* As rf_plan_trained_use: the use, a number of plan->params; -1: there are no more. */
int rf_plan_use_apart(const struct rf_plan *plan, int index, int64_t *first, int64_t *count);
/* The elements [first, first + count) of a tensor as part of a row, whole rows and part of a row,
 * as far as there are some; returns their number. */
int rf_plan_rows_of(int64_t first, int64_t count, const struct rf_shape *shape,
                    struct rf_round_shape out[3]);

/* query.c. The operands of an instruction with this role, in their order: those that it reads, or
 * those that it writes. */
struct rf_operands {
    const int *values;
    int count;
};
struct rf_operands rf_plan_ins(const struct rf_plan *plan, const struct rf_instruction *i,
                               enum rf_role role);
struct rf_operands rf_plan_outs(const struct rf_plan *plan, const struct rf_instruction *i,
                                enum rf_role role);

/* bytes.c. Bytes that an instruction, or a list, reads from the disk and writes to it. */
uint64_t rf_plan_disk_bytes(const struct rf_plan *plan, const struct rf_instruction *i);
uint64_t rf_plan_list_disk(const struct rf_plan *plan, enum rf_list_id id);

/* place.c. The size of a value, and its region and offset if it lives as long as the run. */
void rf_place_value(const struct rf_plan *plan, struct rf_value *value);
/* Whether values of a kind have shorter lives, so that lifetimes.c places them. */
bool rf_value_is_temporary(const struct rf_plan *plan, enum rf_value_kind kind);
/* The temporary value whose memory this one is: itself, or for RF_VALUE_GRAD_SHARD its piece's
 * RF_VALUE_GRAD, which was created before. */
int rf_value_storage(const struct rf_plan *plan, int value);

/* The work of an instruction; that of blocks is taken from `costs` (NULL: not known). False if it
 * has none: transfers, host instructions, and scalars. *out is then unchanged. */
bool rf_instruction_work(const struct rf_plan *plan, const struct rf_block_cost *costs,
                         const struct rf_instruction *instruction, struct rf_work *out);

/* policy.c. Whether a pipeline without a flush is possible if a data-parallel rank has this many
 * micro-batches. */
RF_MUST_CHECK int rf_plan_check_lag(const struct rf_plan *plan, int64_t least);
/* policy.c. The groups of ranks of this rank's transfers. */
void rf_plan_form_groups(struct rf_plan *plan);
/* layout.c. Sets units and keep_units, by policy, stage and copy_type. */
void rf_plan_decide_units(struct rf_plan *plan);

#endif
