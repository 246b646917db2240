/* SPDX-License-Identifier: MIT
 *
 * The rendezvous record that rank 0 publishes in a launcher's key-value store: address, port, name
 * of the run, key. Used by gather.c and join.c.
 */
#include "kvs.h"

#include <sodium.h>

#include "base/base.h"

static const char FORMAT[] = "ringforge,1,%63[^,],%d,%32[0-9a-f],%64[0-9a-f-]";

void rf_rendezvous_record_make_key(struct rf_rendezvous_record *record)
{
    uint8_t random[32];
    rf_random(random, sizeof(random));
    sodium_bin2hex(record->key, sizeof(record->key), random, sizeof(random));
}

int rf_rendezvous_record_exchange(const struct rf_kvs *kvs, bool writes,
                                  struct rf_rendezvous_record *record, uint64_t deadline_ns)
{
    char text[RF_KVS_TEXT] = "", job[2 * RF_JOB_BYTES + 1];
    sodium_bin2hex(job, sizeof(job), record->job, RF_JOB_BYTES);
    if (writes)
        snprintf(text, sizeof(text), "ringforge,1,%s,%d,%s,%s",
                 record->host[0] ? record->host : "-", record->port, job,
                 record->key[0] ? record->key : "-");
    RETURN_IF_ERROR(kvs->exchange(writes, text, deadline_ns));
    struct rf_rendezvous_record read = {{0}};
    if (sscanf(text, FORMAT, read.host, &read.port, job, read.key) != 4 || read.port < 0 ||
        read.port > 65535 ||
        sodium_hex2bin(read.job, RF_JOB_BYTES, job, strlen(job), NULL, NULL, NULL))
        return rf_fail(RF_ECORRUPT, "the launcher's %s has no valid record of rank 0", kvs->name);
    if (strcmp(read.key, "-") == 0)
        read.key[0] = 0;
    *record = read;
    return 0;
}
