/* SPDX-License-Identifier: MIT
 *
 * The table of providers: everything that can carry messages, how it is opened, and its properties.
 * Code that opens, lists or joins transports uses the table, and tests the properties in a row,
 * never its name. A new transport is a file and a row (docs/adding.md).
 */
#ifndef RF_TRANSPORT_PROVIDERS_H
#define RF_TRANSPORT_PROVIDERS_H

#include "transport.h"

/* The ranks that a provider connects. */
enum rf_reach {
    RF_REACH_ANY = 0, /* not named: whatever suits the job */
    RF_REACH_HOST,    /* those of one host, by shared memory */
    RF_REACH_HYBRID,  /* memory within each host, a network between them */
    RF_REACH_NETWORK, /* all, by messages */
    RF_REACH_THREADS  /* threads of one process: opened by rf_comm_open_loopback only */
};

/* Properties of a provider. */
enum {
    RF_PROVIDER_ONE_HOST = 1,      /* it sends messages, but only within the host */
    RF_PROVIDER_NATIVE_TCP = 2,    /* libfabric's, under the name that its version uses */
    RF_PROVIDER_STALLS = 4,        /* rf_transport.stalls */
    RF_PROVIDER_LOCKS_PEERS = 8,   /* a rank that dies may leave the memory of others locked */
    RF_PROVIDER_LEAVES_FILES = 16, /* a killed process leaves files behind: ofi/leftovers.c */
    RF_PROVIDER_ONE_SIDED = 32,    /* may have windows: window.h */
    RF_PROVIDER_OWNER_WORKS = 64   /* atomic operations are done when their target polls */
};

/* All providers; the last row is for those without a row. */
struct rf_provider_table {
    const struct rf_provider *rows;
    int count;
};

/* One transport to be opened. */
struct rf_opening {
    const struct rf_provider *provider;
    const struct rf_provider_table *table; /* the table of the row */
    const char *name;      /* our name: the row's, or libfabric's for a provider without a row */
    const char *fabric;    /* libfabric's */
    bool named;            /* a user has named it */
    bool one_sided;        /* for a window instead of messages */
    const uint64_t *hosts; /* [size], as control->host of each rank; NULL: all are on one */
    char *why;             /* receives one sentence */
    size_t why_bytes;
};

/* Lines of rf_provider_list, filled by probes. */
struct rf_provider_lines {
    const struct rf_provider_table *table;
    struct rf_provider_info *infos;
    uint32_t capacity, count;
    const char *chosen; /* a name */
    bool found;         /* it is among them */
};

struct rf_provider {
    const char *name;       /* the name in rf_comm_opts.provider; NULL: the row of all others */
    const char *other_name; /* an accepted alternative; NULL: none */
    const char *fabric;     /* its name in libfabric; NULL: not libfabric's, or native TCP */
    enum rf_reach reach;
    unsigned traits; /* RF_PROVIDER_* */
    const char *note;
    /* Adds what this machine offers. NULL: no probe finds it. */
    int (*probe)(const struct rf_provider *self, struct rf_provider_lines *lines);
    /* Collective over `control`. NULL: opened by other calls, or a hybrid (hybrid.c). */
    int (*open)(struct rf_control *control, const struct rf_opening *opening,
                struct rf_transport **out);
};

/* The meaning of a name. */
struct rf_choice {
    enum rf_reach reach;
    const struct rf_provider *memory;  /* within hosts */
    const struct rf_provider *network; /* between hosts; NULL: see rf_provider_need_network */
    char asked[64];                    /* the name itself, or "auto" */
    char name[64];                     /* of the whole, as rf_transport.name */
    char fabric[44];                   /* its name in libfabric; "": not libfabric's */
};

/* The row of a name; the row of all others if it has none. */
const struct rf_provider *rf_provider_row(const char *name);
/* Accepts any name, even an unknown one: then the network is that of the last row, and opening it
 * will fail. wanted: NULL or "" means RF_PROVIDER, or else auto. */
void rf_provider_resolve(const char *wanted, struct rf_choice *out);
/* Sets the default network if none was named. */
void rf_provider_need_network(struct rf_choice *choice);
extern const struct rf_provider_table rf_provider_table;

/* ---- provider_lines.c: providers of this machine --------------------------------------------- */

/* The row with libfabric's name; NULL: none. */
const struct rf_provider *rf_provider_of_fabric(const struct rf_provider_table *table,
                                                const char *fabric);
void rf_provider_describe(const struct rf_provider *row, const char *name, const char *address,
                          struct rf_provider_info *out);
void rf_provider_add(struct rf_provider_lines *lines, const struct rf_provider *row,
                     const char *name, const char *address);
RF_MUST_CHECK int rf_provider_probe_all(struct rf_provider_lines *lines);
/* RF_EINVAL: the machine lacks this provider; the message lists the available ones. */
int rf_provider_fail_unknown(const struct rf_provider_table *table, const char *name);

/* ---- functions of the folders for the table
 * --------------------------------------------------------
 */

/* ofi/: the name of libfabric's native TCP: "net" before 1.18, and "tcp" from then on. If libfabric
 * cannot be loaded, opening reports it. */
const char *rf_fabric_native_name(void);
bool rf_fabric_is_offered(const char *fabric);
int rf_fabric_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_fabric_create(struct rf_control *control, const struct rf_opening *opening,
                     struct rf_transport **out);
/* tcp/ */
int rf_tcp_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_tcp_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out);
/* shm/: RF_ENOTSUP, on all ranks, if ranks of a host cannot share memory with each other. */
int rf_shm_probe(const struct rf_provider *self, struct rf_provider_lines *lines);
int rf_shm_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out);
/* hybrid.c: one transport made of two, which it takes ownership of, even if it fails: one for the
 * ranks of this host, and one for all others. hosts: as in rf_opening, copied. */
int rf_hybrid_create(struct rf_transport *intra_host, struct rf_transport *inter_host,
                     const uint64_t *hosts, struct rf_transport **out);

#endif
