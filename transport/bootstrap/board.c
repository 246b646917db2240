/* SPDX-License-Identifier: MIT
 *
 * The notice that rank 0 puts up on a launcher's board: address, port, name of the run, key. Used
 * by join.c.
 */
#include "board.h"

#include <sodium.h>

#include "base/base.h"

static const char FORMAT[] = "ringforge,1,%63[^,],%d,%32[0-9a-f],%64[0-9a-f-]";

void rf_notice_key(struct rf_notice *notice)
{
    uint8_t random[32];
    rf_random(random, sizeof(random));
    sodium_bin2hex(notice->key, sizeof(notice->key), random, sizeof(random));
}

int rf_notice_share(const struct rf_board *board, bool writes, struct rf_notice *notice,
                    uint64_t deadline_ns)
{
    char text[RF_BOARD_TEXT] = "", job[2 * RF_JOB_BYTES + 1];
    sodium_bin2hex(job, sizeof(job), notice->job, RF_JOB_BYTES);
    if (writes)
        snprintf(text, sizeof(text), "ringforge,1,%s,%d,%s,%s",
                 notice->host[0] ? notice->host : "-", notice->port, job,
                 notice->key[0] ? notice->key : "-");
    RETURN_IF_ERROR(board->share(writes, text, deadline_ns));
    struct rf_notice read = {{0}};
    if (sscanf(text, FORMAT, read.host, &read.port, job, read.key) != 4 || read.port < 0 ||
        read.port > 65535 ||
        sodium_hex2bin(read.job, RF_JOB_BYTES, job, strlen(job), NULL, NULL, NULL))
        return rf_fail(RF_ECORRUPT, "what the launcher's %s has is no notice of rank 0",
                       board->name);
    if (strcmp(read.key, "-") == 0)
        read.key[0] = 0;
    *notice = read;
    return 0;
}
