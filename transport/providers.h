/* SPDX-License-Identifier: MIT
 *
 * The table of providers: what there is to carry messages, how it is opened, and what is true of
 * it. Everything that opens, lists or joins transports uses it, and asks for the
 * properties in a row, never for its name. A new transport is a file and a row (docs/adding.md).
 */
#ifndef RF_TRANSPORT_PROVIDERS_H
#define RF_TRANSPORT_PROVIDERS_H

#include "transport.h"

/* Which ranks a provider is for. */
enum rf_reach {
    RF_REACH_ANY = 0, /* nobody has named one: what suits the job */
    RF_REACH_HOST,    /* those of one host, which share memory */
    RF_REACH_HYBRID,  /* memory within each host, a network between them */
    RF_REACH_NETWORK, /* all, by messages */
    RF_REACH_THREADS  /* threads of one process: opened by rf_comm_open_loopback only */
};

/* What is true of a provider. */
enum {
    RF_PROVIDER_ONE_HOST = 1,     /* though it sends messages, it does not leave the host */
    RF_PROVIDER_NATIVE_TCP = 2,   /* libfabric's, under the name that its version has for it */
    RF_PROVIDER_STALLS = 4,       /* rf_transport.stalls */
    RF_PROVIDER_LOCKS_PEERS = 8,  /* who dies may leave the memory of others locked */
    RF_PROVIDER_LEAVES_FILES = 16 /* who is killed leaves files behind: ofi/leftovers.c */
};

/* All that there is; the last row stands for what has none. */
struct rf_provider_table {
    const struct rf_provider *rows;
    int count;
};

/* One transport to be opened. */
struct rf_opening {
    const struct rf_provider *provider;
    const struct rf_provider_table *table; /* which it is a row of */
    const char *name;      /* ours: the row's, or libfabric's of a provider that has no row */
    const char *fabric;    /* libfabric's */
    bool named;            /* somebody asked for it by name */
    const uint64_t *hosts; /* [size], as control->host of each rank; NULL: all are on one */
    char *why;             /* receives one sentence */
    size_t why_bytes;
};

/* Lines of rf_provider_list, as probes add them. */
struct rf_provider_lines {
    const struct rf_provider_table *table;
    struct rf_provider_info *infos;
    uint32_t capacity, count;
    const char *chosen; /* a name */
    bool found;         /* it is among them */
};

struct rf_provider {
    const char *name;       /* as rf_comm_opts.provider takes it; NULL: the row of all others */
    const char *other_name; /* that is taken, too; NULL: there is none */
    const char *fabric; /* libfabric's name of it; NULL: it is none of libfabric's, or native TCP */
    enum rf_reach reach;
    unsigned traits; /* RF_PROVIDER_* */
    const char *note;
    /* Adds what this machine has of it. NULL: found by no probe. */
    int (*probe)(const struct rf_provider *self, struct rf_provider_lines *lines);
    /* Collective over `control`. NULL: opened by other calls, or made of two (hybrid.c). */
    int (*open)(struct rf_control *control, const struct rf_opening *opening,
                struct rf_transport **out);
};

/* What a name stands for. */
struct rf_choice {
    enum rf_reach reach;
    const struct rf_provider *memory;  /* within hosts */
    const struct rf_provider *network; /* between them; NULL: rf_provider_need_network */
    char asked[64];                    /* the name itself, or "auto" */
    char name[64];                     /* of the whole, as rf_transport.name will be */
    char fabric[44]; /* libfabric's name of the network; "": it is none of libfabric's */
};

/* The row of a name; that of all others where it has none. */
const struct rf_provider *rf_provider_row(const char *name);
/* Takes any name, also one that no provider has: then the network is that of the last row, and
 * opening it will fail. wanted: NULL or "" is RF_PROVIDER, or else auto. */
void rf_provider_resolve(const char *wanted, struct rf_choice *out);
/* Fills in the default network where none was named. */
void rf_provider_need_network(struct rf_choice *choice);
extern const struct rf_provider_table rf_provider_table;

/* ---- provider_lines.c: what this machine has of a table ----------------------------------------
 */

/* A row by libfabric's name; NULL where it has none. */
const struct rf_provider *rf_provider_of_fabric(const struct rf_provider_table *table,
                                                const char *fabric);
void rf_provider_describe(const struct rf_provider *row, const char *name, const char *address,
                          struct rf_provider_info *out);
void rf_provider_add(struct rf_provider_lines *lines, const struct rf_provider *row,
                     const char *name, const char *address);
RF_MUST_CHECK int rf_provider_probe_all(struct rf_provider_lines *lines);
/* RF_EINVAL: the machine has no such provider; the sentence lists those that it has. */
int rf_provider_fail_unknown(const struct rf_provider_table *table, const char *name);

/* ---- what the folders offer to the table --------------------------------------------------------
 */

/* ofi/: the name of libfabric's native TCP, which is net before 1.18, and tcp from then on. Where
 * libfabric cannot be loaded, opening will say so. */
const char *rf_fabric_native_name(void);
bool rf_fabric_is_offered(const char *fabric);
int rf_fabric_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_fabric_create(struct rf_control *control, const struct rf_opening *opening,
                     struct rf_transport **out);
/* tcp/ */
int rf_tcp_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_tcp_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out);
/* shm/: RF_ENOTSUP, on all ranks, where ranks of a host cannot hand each other memory. */
int rf_shm_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_shm_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out);
/* hybrid.c: one transport of two, which it takes, also when it fails: one to the ranks of this
 * host, and one to all others. hosts: as in rf_opening, copied. */
int rf_hybrid_create(struct rf_transport *intra_host, struct rf_transport *inter_host,
                     const uint64_t *hosts, struct rf_transport **out);

#endif
