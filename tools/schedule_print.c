/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule as text: the call, its costs, and steps in rounds.
 */
#include <stdarg.h>
#include <string.h>

#include "schedule.h"

enum { MOST_RANKS = 16, MOST_LINES = 2000, MOST_OF_RANK = 200, MOST_OPERANDS = 4, MOST_AFTER = 6 };

/* A text that is written piece by piece; the excess is cut off. */
struct words {
    char text[512];
    size_t used;
};

static void add(struct words *words, const char *format, ...) RF_PRINTF(2, 3);
static void add(struct words *words, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int more =
        vsnprintf(words->text + words->used, sizeof(words->text) - words->used, format, args);
    va_end(args);
    words->used += (size_t)more;
    if (words->used >= sizeof(words->text))
        words->used = sizeof(words->text) - 1;
}

/* "1234 B", followed by the approximate size. */
static const char *bytes_text(uint64_t bytes, char text[48])
{
    char about[24];
    if (bytes < 10240)
        snprintf(text, 48, "%llu B", (unsigned long long)bytes);
    else
        snprintf(text, 48, "%llu B (%s)", (unsigned long long)bytes,
                 tool_bytes_text(bytes, about, sizeof(about)));
    return text;
}

/* ---- summary --------------------------------------------------------------------------------- */

static void print_call(const struct schedule_job *job)
{
    const struct rf_schedule_desc *desc = &job->call->desc;
    const char *s = desc->ranks == 1 ? "" : "s";
    char text[48];
    printf("%s", rf_coll_op_name(desc->op));
    if (desc->op != RF_COLL_BARRIER) {
        const uint64_t elements = schedule_elements(job->call);
        printf(" of %llu %s, %s,", (unsigned long long)elements, rf_dtype_name(desc->dtype),
               bytes_text(elements * rf_dtype_bytes(desc->dtype), text));
        if (schedule_is_of_each(job->call))
            printf(" for each rank,");
        else if (desc->counts)
            printf(" in uneven pieces,");
    }
    printf(" on %d rank%s", desc->ranks, s);
    if (job->call->hosts)
        printf(" of %d host%s", job->call->host_count, job->call->host_count == 1 ? "" : "s");
    if (rf_coll_reduces(desc->op))
        printf(", %s, %s order", rf_redop_name(desc->redop), rf_order_name(desc->order));
    if (desc->op == RF_COLL_SEND)
        printf(", from rank 0 to rank %d", desc->root);
    else if (desc->op == RF_COLL_RECV)
        printf(", from rank %d to rank 0", desc->root);
    else if (desc->op == RF_COLL_BROADCAST || desc->op == RF_COLL_SCATTER)
        printf(", from rank %d", desc->root);
    else if (desc->op == RF_COLL_REDUCE || desc->op == RF_COLL_GATHER)
        printf(", to rank %d", desc->root);
    printf("\n");
}

/* The one that is shown, and the alternatives. */
static void print_algorithms(const struct schedule_job *job)
{
    struct rf_schedule_algorithm_info infos[32];
    uint32_t count = 0;
    if (rf_schedule_algorithms(&job->call->desc, infos, 32, &count) < 0)
        return;
    printf("  %-16s", "algorithm");
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(infos[i].name, job->algorithm) != 0)
            continue;
        printf(" %s (%s)", infos[i].name, infos[i].note);
        for (uint32_t k = 0; k < count && !infos[i].chosen; k++)
            if (infos[k].chosen)
                printf("; the library takes %s (%s)", infos[k].name, infos[k].note);
        if (infos[i].chosen)
            printf("; it is what the library takes");
    }
    for (int can = 1; can >= 0; can--) {
        bool any = false;
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(infos[i].name, job->algorithm) == 0 || (infos[i].why_not == NULL) != can)
                continue;
            if (can)
                printf("%s%s", any ? ", " : "\n  also supported   ", infos[i].name);
            else
                printf("%s%s: %s", any ? "\n                   " : "\n  not supported    ",
                       infos[i].name, infos[i].why_not);
            any = true;
        }
    }
    printf("\n");
}

static void print_costs(const struct schedule_job *job)
{
    char text[48], all[48], least[48];
    const char *formula;
    const uint64_t bytes = schedule_least_bytes(job->call, &formula);
    if (job->simulated)
        printf("  %-16s %u\n", "rounds", job->rounds);
    else
        printf("  %-16s not simulated: there are %llu steps\n", "rounds",
               (unsigned long long)job->steps);
    printf("  %-16s %u of a rank at most, %llu in all\n", "steps", job->most_steps,
           (unsigned long long)job->steps);
    printf("  %-16s %u from a rank at most, %llu in all\n", "messages", job->most_messages,
           (unsigned long long)job->messages);
    printf("  %-16s %s by a rank at most, %s in all", "sent",
           bytes_text(job->most_sent_bytes, text), bytes_text(job->sent_bytes, all));
    if (formula && bytes > job->most_sent_bytes)
        printf("; the rest is read and written in the other ranks' memory");
    else if (formula)
        printf("; the least for any algorithm is %s = %s", formula, bytes_text(bytes, least));
    printf("\n");
    if (job->call->host_count > 1)
        printf("  %-16s %s by a host at most, %s in all\n", "between hosts",
               bytes_text(job->most_between_bytes, text), bytes_text(job->between_bytes, all));
    printf("  %-16s %s of a rank at most\n", "temporary memory",
           bytes_text(job->most_temp_bytes, text));
    if (job->whole)
        printf("  These are of the call in one piece; in windows and segments it has too many "
               "steps.\n");
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void add_place(struct words *words, struct rf_schedule_place place)
{
    static const char *const names[] = {"in", "out", "temp"};
    add(words, "%s[%llu]", names[place.space], (unsigned long long)place.offset);
}

static void add_operands(struct words *words, const struct rf_schedule *schedule, uint32_t number,
                         uint32_t count)
{
    struct rf_schedule_place place;
    for (uint32_t i = 0; i < count; i++) {
        if (i == MOST_OPERANDS && count > MOST_OPERANDS + 1) {
            add(words, ", ... %u more", count - i);
            return;
        }
        add(words, "%s", i ? ", " : "");
        if (rf_schedule_get_operand(schedule, number, i, &place) == 0)
            add_place(words, place);
    }
}

/* Source and destination, in bytes. */
static void say_where(struct words *words, const struct schedule_job *job,
                      const struct rf_schedule *schedule, uint32_t number,
                      const struct rf_schedule_step *step)
{
    const char *redop = rf_redop_name(job->call->desc.redop);
    switch (step->verb) {
    case RF_SCHEDULE_SEND:
        add_operands(words, schedule, number, 1);
        break;
    case RF_SCHEDULE_COPY:
        add_place(words, step->to);
        add(words, " = ");
        add_operands(words, schedule, number, 1);
        break;
    case RF_SCHEDULE_REDUCE:
        add_place(words, step->to);
        add(words, " = %s%s(", step->pairwise ? "pairwise " : "", redop);
        add_operands(words, schedule, number, step->operands);
        add(words, ")");
        break;
    case RF_SCHEDULE_REDUCE_ALL:
        add_place(words, step->to);
        add(words, " of every rank = %s(the same of every rank's input)", redop);
        break;
    case RF_SCHEDULE_JOIN:
    case RF_SCHEDULE_AGREE:
        add(words, "-");
        break;
    default:
        add_place(words, step->to);
        break;
    }
}

static void print_step(const struct schedule_job *job, int rank, const struct rf_schedule *schedule,
                       uint32_t number)
{
    const struct schedule_step *own = job->simulated ? &job->of[rank].list[number] : NULL;
    struct rf_schedule_step step;
    struct words where = {.used = 0}, after = {.used = 0};
    char round[16] = "-", peer[16] = "-", elements[64] = "-";
    if (rf_schedule_get_step(schedule, number, &step) < 0)
        return;
    if (own)
        snprintf(round, sizeof(round), "%u", own->round);
    if (step.peer >= 0)
        snprintf(peer, sizeof(peer), "%d", step.peer);
    if (own && own->range_count)
        schedule_ranges_text(job->ranges + own->range, own->range_count, 3, elements,
                             sizeof(elements));
    say_where(&where, job, schedule, number, &step);
    for (uint32_t i = 0; i < step.after_count && i < MOST_AFTER; i++)
        add(&after, "%s%u", i ? "," : " after ", step.after[i]);
    if (step.after_count > MOST_AFTER)
        add(&after, ",... (%u)", step.after_count);
    printf("  %5s %5u %-10s %5s %10llu  %-11s %s%s\n", round, number,
           rf_schedule_verb_name(step.verb), peer, (unsigned long long)step.bytes, elements,
           where.text, after.text);
}

/* By round, and by number within one. */
static uint32_t *order_of(const struct schedule_job *job, int rank, uint32_t count)
{
    uint32_t *order = malloc(((size_t)count + 1) * sizeof(uint32_t));
    uint32_t *begin = calloc((size_t)job->rounds + 3, sizeof(uint32_t));
    const struct schedule_step *list = job->of[rank].list;
    if (order && begin && job->simulated) {
        for (uint32_t k = 0; k < count; k++)
            begin[list[k].round + 1]++;
        for (uint32_t r = 0; r <= job->rounds; r++)
            begin[r + 1] += begin[r];
        for (uint32_t k = 0; k < count; k++)
            order[begin[list[k].round]++] = k;
    } else if (order) {
        for (uint32_t k = 0; k < count; k++)
            order[k] = k;
    }
    free(begin);
    return order;
}

/* most: steps; 0: all. */
static void print_rank(const struct schedule_job *job, int rank, uint32_t most)
{
    const struct schedule_rank *own = &job->of[rank];
    struct rf_schedule *made;
    char text[48];
    printf("\nRank %d", rank);
    if (job->call->hosts)
        printf(" on host %d", job->call->hosts[rank]);
    printf(": %u step%s, sends %s in %u message%s\n", own->steps, own->steps == 1 ? "" : "s",
           bytes_text(own->sent_bytes, text), own->messages, own->messages == 1 ? "" : "s");
    if (own->steps == 0)
        return;
    const struct rf_schedule *schedule = schedule_of(job, rank, &made);
    uint32_t *order = order_of(job, rank, own->steps);
    printf("  %5s %5s %-10s %5s %10s  %-11s %s\n", "round", "step", "what", "peer", "bytes",
           "elements", "where (bytes)");
    for (uint32_t k = 0; schedule && order && k < own->steps; k++) {
        if (most && k == most) {
            printf("  ... and %u more; --rank %d prints them all\n", own->steps - k, rank);
            break;
        }
        print_step(job, rank, schedule, order[k]);
    }
    free(order);
    rf_schedule_destroy(made);
}

void schedule_print(const struct schedule_job *job, int rank)
{
    print_call(job);
    print_algorithms(job);
    print_costs(job);
    if (rank >= 0) {
        print_rank(job, rank, 0);
        return;
    }
    const bool all = job->ranks <= MOST_RANKS && job->steps <= MOST_LINES;
    for (int r = 0; r < (all ? job->ranks : 1); r++)
        print_rank(job, r, all ? 0 : MOST_OF_RANK);
    if (!all)
        printf("\nOther ranks have lists of their own: --rank R prints one.\n");
}
