/* SPDX-License-Identifier: MIT
 *
 * The options --hosts and --links of `ringforge plan`: the number of ranks per host, and the speed
 * of links within hosts and between them.
 */
#include <math.h>
#include <string.h>

#include "plan.h"

/* One side of --links: "G" or "G:US". Returns its end; NULL: invalid. */
static const char *read_link(const char *text, double *gbps, double *us)
{
    const size_t bytes = strcspn(text, ",:");
    *us = 0;
    if (tool_read_real(text, bytes, 0, INFINITY, gbps) != TOOL_NUMBER_OK || *gbps == 0)
        return NULL;
    text += bytes;
    if (*text != ':')
        return text;
    const size_t more = strcspn(++text, ",");
    return tool_read_real(text, more, 0, INFINITY, us) == TOOL_NUMBER_OK ? text + more : NULL;
}

static int read_hosts(const struct tool_command *command, struct plan_rates *r)
{
    int64_t hosts, each;
    if (!r->hosts_text)
        return TOOL_OK;
    const enum tool_number fault = tool_read_pair(r->hosts_text, PLAN_MAX_RANKS, &hosts, &each);
    if (fault == TOOL_NUMBER_JUNK)
        return tool_usage_error(command,
                                "--hosts wants HOSTSxRANKS, as in 8x4: 8 hosts of 4 ranks each, "
                                "not \"%s\"",
                                r->hosts_text);
    if (fault == TOOL_NUMBER_RANGE)
        return tool_number_error(command, "each number of --hosts", r->hosts_text,
                                 strlen(r->hosts_text), fault, 1, PLAN_MAX_RANKS);
    if (hosts * each > PLAN_MAX_RANKS)
        return tool_usage_error(command, "plans are made for up to %d ranks", PLAN_MAX_RANKS);
    r->hosts = (int)hosts;
    r->host_ranks = (int)each;
    return TOOL_OK;
}

int plan_hosts_check(const struct tool_command *command, struct plan_rates *r)
{
    int status = read_hosts(command, r);
    if (status != TOOL_OK || !r->links_text)
        return status;
    if (!r->hosts_text)
        return tool_usage_error(command, "--links are of hosts; say with --hosts which ranks "
                                         "share one, or use --link-gbps");
    if (r->link > 0 || r->latency_given)
        return tool_usage_error(command, "--links has what --link-gbps and --latency say; use "
                                         "either");
    const char *end = read_link(r->links_text, &r->intra_host, &r->intra_host_latency);
    if (end && *end == ',')
        end = read_link(end + 1, &r->link, &r->latency);
    else
        end = NULL;
    if (!end || *end)
        return tool_usage_error(command,
                                "--links wants WITHIN,BETWEEN, each Gbit/s of a rank and maybe "
                                ":microseconds, as in 2400:3,200:10, not \"%s\"",
                                r->links_text);
    r->links_text = NULL; /* has been read */
    return TOOL_OK;
}
