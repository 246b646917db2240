/* SPDX-License-Identifier: MIT
 *
 * The options --hosts and --links of `ringforge plan`: how many ranks share a host, and what the
 * links within hosts and between them reach.
 */
#include <math.h>
#include <string.h>

#include "plan.h"

/* One side of --links: "G" or "G:US". Where it ends; NULL: it is not like that. */
static const char *read_link(const char *text, double *gbps, double *us)
{
    int used = 0;
    *us = 0;
    if (sscanf(text, "%lf%n", gbps, &used) != 1 || !(*gbps > 0) || !isfinite(*gbps))
        return NULL;
    text += used;
    if (*text != ':')
        return text;
    if (sscanf(text + 1, "%lf%n", us, &used) != 1 || !(*us >= 0) || !isfinite(*us))
        return NULL;
    return text + 1 + used;
}

static int read_hosts(const struct tool_command *command, struct plan_rates *r)
{
    char more;
    if (!r->hosts_text)
        return TOOL_OK;
    if (sscanf(r->hosts_text, "%7dx%7d%c", &r->hosts, &r->host_ranks, &more) != 2 || r->hosts < 1 ||
        r->host_ranks < 1)
        return tool_usage_error(command,
                                "--hosts wants HOSTSxRANKS, as in 8x4: 8 hosts of 4 ranks each, "
                                "not \"%s\"",
                                r->hosts_text);
    if ((int64_t)r->hosts * r->host_ranks > PLAN_MAX_RANKS)
        return tool_usage_error(command, "plans are made for up to %d ranks", PLAN_MAX_RANKS);
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
