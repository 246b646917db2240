/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule: the steps with which the ranks perform a collective, as a list for each rank,
 * a summary, and a picture. Nothing is sent. This file has the options.
 */
#include "schedule.h"

#include <limits.h>
#include <string.h>

#include "svg.h"

struct options {
    struct schedule_call call;
    int64_t ranks, count, root, rank, segment;
    const char *dtype, *redop, *order, *hosts, *counts;
    const char *json_path, *plot_path;
    bool count_given, root_given, redop_given, order_given, rank_given, segment_given;
    bool shared, list;
};

static const enum rf_coll_op operations[] = {
    RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_BROADCAST,
    RF_COLL_REDUCE,     RF_COLL_GATHER,         RF_COLL_SCATTER,    RF_COLL_ALL_TO_ALL,
    RF_COLL_BARRIER,    RF_COLL_SEND,           RF_COLL_RECV};
enum { OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

/* ---- lists in options ------------------------------------------------------------------------ */

/* The number of words in a list; checks that each is a whole number in range. */
static int64_t length_of(const char *text)
{
    int64_t length = 1;
    for (; *text; text++)
        length += *text == ',';
    return length;
}

/* The next of "1,2,3". */
static bool read_number(const char **at, int64_t *out)
{
    const size_t bytes = strcspn(*at, ",");
    if (tool_read_int(*at, bytes, 0, 1ll << 50, out) != TOOL_NUMBER_OK)
        return false;
    *at += bytes + ((*at)[bytes] == ',');
    return true;
}

static int read_counts(const struct tool_command *command, struct options *o)
{
    struct schedule_call *call = &o->call;
    const char *at = o->counts;
    if (o->count_given)
        return tool_usage_error(command, "--counts has a count for each rank; leave --count away");
    o->ranks = o->ranks ? o->ranks : length_of(at);
    if (o->ranks != length_of(at))
        return tool_usage_error(command, "--counts has %lld numbers for %lld ranks",
                                (long long)length_of(at), (long long)o->ranks);
    call->counts = calloc((size_t)o->ranks, sizeof(size_t));
    call->same =
        call->desc.op == RF_COLL_ALL_TO_ALL ? calloc((size_t)o->ranks, sizeof(size_t)) : NULL;
    if (!call->counts || (call->desc.op == RF_COLL_ALL_TO_ALL && !call->same))
        return tool_error(command, "out of memory");
    for (int64_t r = 0, value; r < o->ranks; r++) {
        if (!read_number(&at, &value))
            return tool_usage_error(command,
                                    "--counts wants elements of each rank, as in 100,0,250, not "
                                    "\"%s\"",
                                    o->counts);
        call->counts[r] = (size_t)value;
    }
    return TOOL_OK;
}

/* 2x4, or a host for each rank. */
static int read_hosts(const struct tool_command *command, struct options *o)
{
    struct schedule_call *call = &o->call;
    int64_t hosts = 0, each = 0;
    int64_t names[SCHEDULE_MOST_RANKS], count = 0;
    const enum tool_number fault = tool_read_pair(o->hosts, SCHEDULE_MOST_RANKS, &hosts, &each);
    const bool grid = fault != TOOL_NUMBER_JUNK;
    if (fault == TOOL_NUMBER_RANGE)
        return tool_number_error(command, "each number of --hosts", o->hosts, strlen(o->hosts),
                                 fault, 1, SCHEDULE_MOST_RANKS);
    const int64_t ranks = grid ? hosts * each : length_of(o->hosts);
    if (ranks < 1 || ranks > SCHEDULE_MOST_RANKS || (o->ranks && ranks != o->ranks))
        return tool_usage_error(command, "--hosts has %lld ranks; --ranks has %lld",
                                (long long)ranks, (long long)o->ranks);
    o->ranks = ranks;
    call->hosts = calloc((size_t)ranks, sizeof(int));
    if (!call->hosts)
        return tool_error(command, "out of memory");
    const char *at = o->hosts;
    for (int r = 0; r < ranks; r++) {
        int64_t name = grid ? r / each : 0;
        int host = 0;
        if (!grid && !read_number(&at, &name))
            return tool_usage_error(command,
                                    "--hosts wants HOSTSxRANKS, as in 2x4, or the host of each "
                                    "rank, as in 0,0,1,1, not \"%s\"",
                                    o->hosts);
        while (host < count && names[host] != name)
            host++;
        names[host] = name;
        count += host == count;
        call->hosts[r] = host;
    }
    call->host_count = (int)count;
    return TOOL_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int read_operation(const struct tool_command *command, const char *name,
                          enum rf_coll_op *out)
{
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        const char *own = rf_coll_op_name(operations[i]);
        if (name && strcmp(name, own) == 0) {
            *out = operations[i];
            return TOOL_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                 i == 0                ? ""
                                 : i + 1 == OPERATIONS ? " and "
                                                       : ", ",
                                 own);
    }
    if (!name)
        return tool_usage_error(command, "say which operation; there are %s", names);
    return tool_usage_error(command, "there is no operation \"%s\"; there are %s", name, names);
}

/* Refuses options that the operation does not use. */
static int check_use(const struct tool_command *command, const struct options *o)
{
    const enum rf_coll_op op = o->call.desc.op;
    const bool reduces = rf_coll_reduces(op);
    const char *unused = o->root_given && !rf_coll_has_root(op)    ? "root"
                         : o->redop_given && !reduces              ? "op"
                         : o->order_given && !reduces              ? "order"
                         : o->count_given && op == RF_COLL_BARRIER ? "count"
                                                                   : NULL;
    return unused ? tool_usage_error(command, "--%s is not used by %s", unused, rf_coll_op_name(op))
                  : TOOL_OK;
}

static int check_numbers(const struct tool_command *command, struct options *o)
{
    struct rf_schedule_desc *desc = &o->call.desc;
    const char *op = rf_coll_op_name(desc->op);
    if (o->ranks < 1)
        return tool_usage_error(command, "say with --ranks how many ranks there are");
    if (!o->count_given && !o->counts && desc->op != RF_COLL_BARRIER && !o->list)
        return tool_usage_error(command, "say with --count how many elements %s has", op);
    if (!o->root_given && rf_coll_is_point(desc->op))
        o->root = o->ranks > 1;
    if (o->root >= o->ranks)
        return tool_usage_error(command, "--root %lld is not one of %lld ranks", (long long)o->root,
                                (long long)o->ranks);
    if (o->rank_given && o->rank >= o->ranks)
        return tool_usage_error(command, "--rank %lld is not one of %lld ranks", (long long)o->rank,
                                (long long)o->ranks);
    desc->ranks = (int)o->ranks;
    desc->root = (int)o->root;
    desc->count = o->count_given ? (size_t)o->count : 1;
    desc->shared = o->shared;
    desc->segment_bytes = (size_t)o->segment;
    return TOOL_OK;
}

/* Unknown, or why it does not support the call; the library reports both for a requested algorithm,
 * but not the alternatives. */
static int check_algorithm(const struct tool_command *command, const struct schedule_call *call)
{
    struct rf_schedule_algorithm_info infos[32];
    uint32_t count, used = 0;
    char names[512] = "";
    if (rf_schedule_algorithms(&call->desc, infos, 32, &count) < 0)
        return tool_usage_error(command, "%s", rf_last_error()->message);
    for (uint32_t i = 0; i < count && call->algorithm; i++) {
        if (strcmp(infos[i].name, call->algorithm) == 0)
            return TOOL_OK;
        used += (uint32_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                   infos[i].name);
    }
    if (!call->algorithm)
        return TOOL_OK;
    return tool_usage_error(command, "%s has no algorithm \"%s\"; there %s %s",
                            rf_coll_op_name(call->desc.op), call->algorithm,
                            count == 1 ? "is" : "are", names);
}

static int check(const struct tool_command *command, struct options *o)
{
    struct schedule_call *call = &o->call;
    int status = check_use(command, o);
    if (status == TOOL_OK)
        status = tool_read_dtype(command, o->dtype, &call->desc.dtype);
    if (status == TOOL_OK)
        status = tool_read_redop(command, o->redop, &call->desc.redop);
    if (status == TOOL_OK)
        status = tool_read_order(command, o->order, &call->desc.order);
    if (status == TOOL_OK && o->counts)
        status = read_counts(command, o);
    if (status == TOOL_OK && o->hosts)
        status = read_hosts(command, o);
    if (status == TOOL_OK && o->list && o->ranks == 0)
        o->ranks = 8;
    if (status == TOOL_OK)
        status = check_numbers(command, o);
    if (status == TOOL_OK && o->plot_path)
        status = svg_check(command, o->plot_path);
    if (status != TOOL_OK)
        return status;
    call->desc.counts = call->counts;
    call->desc.recv_counts = call->same;
    call->desc.hosts = call->hosts;
    return check_algorithm(command, call);
}

/* --list prints no schedule, and without an operation no call. */
static int check_list(const struct tool_command *command, const struct tool_option *table,
                      bool list, bool named)
{
    static const char *const shown[] = {"rank", "plot", "json", "segment", "algorithm", NULL};
    for (const struct tool_option *o = table; list && o->name; o++)
        if (o->said && strcmp(o->name, "list") != 0 && (!named || tool_choice(o->name, shown) >= 0))
            return tool_usage_error(command, "--%s has no effect with --list%s; leave it out",
                                    o->name, named ? "" : " without an operation");
    return TOOL_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool is_stdout(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int show(const struct tool_command *command, const struct options *o)
{
    struct schedule_job job;
    const int rank = o->rank_given ? (int)o->rank : -1;
    int status = schedule_job_make(command, &o->call, &job);
    if (status == TOOL_OK && o->plot_path)
        status = schedule_plot(command, &job, o->plot_path);
    if (status == TOOL_OK && o->json_path)
        status = schedule_write_json(command, &job, rank, o->json_path);
    if (status == TOOL_OK && !is_stdout(o->plot_path) && !is_stdout(o->json_path))
        schedule_print(&job, rank);
    schedule_job_free(&job);
    return status;
}

static int schedule_main(const struct tool_command *command, int argc, char **argv)
{
    struct options o = {.call = {.host_count = 1}, .dtype = "f32", .redop = "sum", .order = "any"};
    struct tool_option table[] = {
        {"ranks", TOOL_INT, &o.ranks, "N", "number of ranks", .least = 1,
         .most = SCHEDULE_MOST_RANKS},
        {"count", TOOL_INT, &o.count, "C",
         "number of elements, as in the call (all_gather: of a rank)", 0, &o.count_given},
        {"counts", TOOL_TEXT, &o.counts, "A,B,...",
         "number of elements of each rank (all_gather_v and so on), in place of --count"},
        {"dtype", TOOL_TEXT, &o.dtype, "TYPE",
         "type of elements: f32 (default), f16, bf16, i32, ..."},
        {"op", TOOL_TEXT, &o.redop, "OP", "reduction: sum (default), avg, min, max or prod", 0,
         &o.redop_given},
        {"order", TOOL_TEXT, &o.order, "ORDER", "order of sums: any (default), ring or tree", 0,
         &o.order_given},
        {"root", TOOL_INT, &o.root, "RANK", "root (0); of send and recv rank 0's peer (1)", 0,
         &o.root_given},
        {"algorithm", TOOL_TEXT, &o.call.algorithm, "NAME", "algorithm (the library's choice)"},
        {"hosts", TOOL_TEXT, &o.hosts, "HOSTS",
         "ranks that share a host: 2x4, or the host of each rank: 0,0,1,1"},
        {"shared", TOOL_FLAG, &o.shared, NULL,
         "access to each other's memory (one host, buffers of rf_comm_alloc)"},
        {"segment", TOOL_INT, &o.segment, "BYTES", "largest part of a long message (256K)", 0,
         &o.segment_given, .least = 1},
        {"rank", TOOL_INT, &o.rank, "R", "rank of which all steps are printed, and of no other", 0,
         &o.rank_given},
        {"plot", TOOL_TEXT, &o.plot_path, "FILE.svg",
         "picture of who sends what to whom in which round (.svg)", .path = TOOL_WRITES},
        {"json", TOOL_FILE, &o.json_path, "FILE",
         "the schedule as JSON (docs/json.md; no FILE: printed)", .path = TOOL_WRITES},
        {"list", TOOL_FLAG, &o.list, NULL,
         "list of the algorithms, and for what each is; nothing else"},
        {NULL},
    };
    /* The operation may come first. */
    const char *name = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    int status = tool_options(command, table, name ? argc - 1 : argc, name ? argv + 1 : argv, NULL);
    if (status != TOOL_OK)
        return status;
    status = check_list(command, table, o.list, name != NULL);
    if (status != TOOL_OK)
        return status;
    if (!name && o.list)
        return schedule_list(command, NULL);
    status = read_operation(command, name, &o.call.desc.op);
    if (status == TOOL_OK)
        status = check(command, &o);
    if (status == TOOL_OK)
        status = tool_outputs_check(command, table);
    if (status == TOOL_OK)
        status = o.list ? schedule_list(command, &o.call) : show(command, &o);
    free(o.call.hosts);
    free(o.call.counts);
    free(o.call.same);
    return status;
}

const struct tool_command tool_schedule = {
    "schedule", "print or draw the steps by which a collective is carried out",
    "OPERATION --ranks N --count C [OPTIONS]", schedule_main,
    "Operations: all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter,\n"
    "all_to_all, barrier, send and recv (between rank 0 and --root).\n\n"
    "A round is the time of one message. Without --rank the steps of all ranks are printed, or of\n"
    "rank 0 where there would be too many. Nothing is sent, and no network is needed.\n"};
