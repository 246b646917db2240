/* SPDX-License-Identifier: MIT
 *
 * The only place that reads environment variables. A new one is justified only if a field of an
 * options struct cannot serve.
 */
#include <errno.h>
#include <limits.h>
#include <ringforge/ringforge.h>

#include "base.h"

extern char **environ;

/* Reasons why ranks may differ. */
#define DEVICE "each rank computes on a device of its own, and they may differ"
#define DIAGNOSTIC "it changes no result"
#define FOLDER "each host has its own folders"
#define LAUNCHER "a launcher sets it"

static const struct rf_env_row rows[] = {
    {"RF_LOG", NULL,
     "log levels: N, or component:N,...; 1 per process, 2 per object, 3 per step, 4 per message",
     .own = DIAGNOSTIC},
    {"RF_DEVICE", NULL, "device to open when none is named: best, an index, or a part of a name",
     .own = DEVICE},
    {"RF_CHECK_BARRIERS", "0",
     "1: check every submission for conflicting launches without a barrier", .values = "0|1",
     .own = DIAGNOSTIC},
    {"RF_CHECK_RANGES", "0",
     "1: run every launch alone, three times, and fail if it reads or writes memory that it does "
     "not declare; CPU devices",
     .values = "0|1", .own = DIAGNOSTIC},
    {"RF_CHECK_REPLAY", "0",
     "1: record every training step again, and fail if it differs from the replayed one; gradients "
     "that blocks overwrite hold NaN before, and without a loss scale a norm that is not finite "
     "is an error",
     .values = "0|1", .own = DIAGNOSTIC},
    {"RF_VALIDATION", "0", "1: load the Khronos validation layer and count its messages",
     .values = "0|1", .own = DIAGNOSTIC},
    {"RF_HOST_VISIBLE", "1",
     "0: treat device memory as if the host could not map it, so that tensors are staged",
     .values = "0|1", .own = DEVICE},
    {"RF_MATRIX_UNITS", "1", "0: do not use the matrix units of devices", .values = "0|1",
     .own = DEVICE},
    {"RF_KERNEL_FORMS", NULL,
     "fresh: ask the driver's compiler again which forms of kernels spill; budget: never ask, "
     "estimate registers",
     .values = "fresh|budget", .own = DEVICE},
    {"RF_FLUSH_SUBNORMALS", "auto",
     "whether kernels flush subnormal numbers to zero, and with them the sums of several ranks on "
     "the host - auto: as each device reports; 0, 1: as if every device reported no or yes",
     .values = "auto|0|1", .own = "if one rank's device does, the sums of all ranks do"},
    {"RF_CACHE_DIR", NULL, "folder of the pipeline cache; default ~/.cache/ringforge",
     .own = FOLDER},
    {"RF_FLIGHT", NULL,
     "folder in which every rank records its last collectives; see ringforge flight",
     .own = FOLDER},
    {"RF_JOB_KEY", NULL, "secret that all ranks of a job share; required across hosts"},
    {"RF_CLIENT_KEY", NULL, "secret of this client of a coordinator (train --coordinator)",
     .own = "each client has its own"},
    {"RF_IDENTITY_KEY", NULL,
     "secret of this client's identity, which no coordinator has (train --peers)",
     .own = "each client has its own"},
    {"RF_PORT", NULL, "bootstrap port, if MASTER_PORT is in use by another program", .least = 1,
     .most = 65535},
    {"RF_CHECKSUM", "0", "1: every message carries a checksum of its data; the same on every rank",
     .values = "0|1"},
    {"RF_PROVIDER", NULL, "transport: auto, shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, ofi-shm, ..."},
    {"RF_MEASURE", NULL,
     "1: measure links when ranks join, and choose algorithms by that; 0: never; default: only "
     "across hosts",
     .values = "0|1", .own = "one rank decides for all: 0 wins over 1"},
    {"RF_PEER_READS", "auto",
     "ranks of a host read each other's memory (process_vm_readv) - auto: if permitted and "
     "measured to be 1.6 times as fast, or as fast if two ranks send to each other; exchanges: "
     "only these, if permitted; 1: always if permitted; 0: never; any: like auto, and this process "
     "permits it to any process of its user (PR_SET_PTRACER_ANY)",
     .values = "auto|exchanges|0|1|any", .own = "a rank permits others to read its memory, or not"},
    {"RF_SLOT_WRITES", "auto",
     "how this rank writes data for others of its host - cached; streamed: past the caches, which "
     "is faster to distant cores; auto: as measured",
     .values = "auto|cached|streamed", .own = DEVICE},
    {"RF_HOSTS", NULL,
     "host of each rank, such as a,a,b,b, if it cannot be detected; ranks on different hosts "
     "share no memory",
     .own = "each rank names its own host"},
    {"RF_INTERFACE", NULL, "address of the network interface to use",
     .own = "each host has its own interfaces"},
    {"RANK", NULL, "this process's rank (torchrun, ringforge run)", .least = 0, .most = 65535,
     .own = LAUNCHER},
    {"WORLD_SIZE", NULL, "number of ranks", .least = 1, .most = 65536},
    {"LOCAL_RANK", NULL, "rank among the processes of this host", .least = 0, .most = 65535,
     .own = LAUNCHER},
    {"LOCAL_WORLD_SIZE", NULL, "number of ranks on this host", .least = 1, .most = 65536,
     .own = LAUNCHER},
    {"MASTER_ADDR", NULL, "host of rank 0"},
    {"MASTER_PORT", NULL, "port on which rank 0 gathers the job", .least = 1, .most = 65535},
    {"TORCHELASTIC_USE_AGENT_STORE", NULL, "True: torchrun itself listens on MASTER_PORT",
     .own = LAUNCHER},
    {"TORCHELASTIC_RUN_ID", NULL, "name of the job under torchrun", .own = LAUNCHER},
    {"TORCHELASTIC_RESTART_COUNT", NULL, "how often torchrun has restarted the job",
     .own = LAUNCHER},
    {"SLURM_PROCID", NULL, "rank under srun", .least = 0, .most = 65535, .own = LAUNCHER},
    {"SLURM_NTASKS", NULL, "number of ranks under srun", .least = 1, .most = 65536,
     .own = LAUNCHER},
    {"OMPI_COMM_WORLD_RANK", NULL, "rank under Open MPI", .least = 0, .most = 65535,
     .own = LAUNCHER},
    {"OMPI_COMM_WORLD_SIZE", NULL, "number of ranks under Open MPI", .least = 1, .most = 65536,
     .own = LAUNCHER},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "number of ranks on this host under Open MPI", .least = 1,
     .most = 65536, .own = LAUNCHER},
    {"PMIX_NAMESPACE", NULL, "name of the job under Open MPI and srun --mpi=pmix", .own = LAUNCHER},
    {"PMI_RANK", NULL, "rank under MPICH", .least = 0, .most = 65535, .own = LAUNCHER},
    {"PMI_SIZE", NULL, "number of ranks under MPICH", .least = 1, .most = 65536, .own = LAUNCHER},
    {"PMI_FD", NULL, "socket of the MPICH launcher", .least = 1, .most = INT_MAX, .own = LAUNCHER},
    {"MPI_LOCALNRANKS", NULL, "number of ranks on this host under MPICH", .least = 1, .most = 65536,
     .own = LAUNCHER},
    {"JOB_COMPLETION_INDEX", NULL,
     "rank in an indexed Job of Kubernetes, as JobSet's; not followed", .own = LAUNCHER},
    {"FLUX_TASK_RANK", NULL, "rank under Flux; not followed", .own = LAUNCHER},
    {"FLUX_JOB_SIZE", NULL, "number of ranks under Flux; not followed", .own = LAUNCHER},
    {"PALS_RANKID", NULL, "rank under PALS; not followed", .own = LAUNCHER},
    {"JSM_NAMESPACE_RANK", NULL, "rank under LSF's jsrun; not followed", .own = LAUNCHER},
    {"JSM_NAMESPACE_SIZE", NULL, "number of ranks under LSF's jsrun; not followed",
     .own = LAUNCHER},
    {"LSF_PM_TASKID", NULL, "task under LSF's blaunch; not followed", .own = LAUNCHER},
    {"PBS_TASKNUM", NULL, "task under PBS; not followed", .own = LAUNCHER},
    {"PET_*", NULL, "defaults of a torchrun, which then sets RANK and others; not followed",
     .own = LAUNCHER},
    {"SLURM_STEP_NUM_NODES", NULL, "number of hosts under srun", .least = 1, .most = 65536,
     .own = LAUNCHER},
    {"SLURM_STEP_NODELIST", NULL, "list of hosts under srun; rank 0 is on the first one",
     .own = LAUNCHER},
    {"SLURM_JOB_ID", NULL, "name of the job under srun", .own = LAUNCHER},
    {"SLURM_STEP_ID", NULL, "number of the job step under srun", .own = LAUNCHER},
    {"XDG_RUNTIME_DIR", NULL,
     "folder for the rendezvous of the ranks of one host, without MASTER_ADDR", .own = FOLDER},
    {"XDG_CACHE_HOME", NULL, "base folder of caches", .own = FOLDER},
    {"HOME", NULL, "home folder, for the cache", .own = FOLDER},
    {"TMPDIR", "/tmp", "folder for temporary files of a GLSL compiler", .own = FOLDER},
};

const struct rf_env_row *rf_env_table(size_t *count)
{
    *count = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

bool rf_env_next(const char *prefix, int *index, char *text, size_t bytes)
{
    for (; environ[*index]; ++*index)
        if (strncmp(environ[*index], prefix, strlen(prefix)) == 0) {
            snprintf(text, bytes, "%s", environ[(*index)++]);
            return true;
        }
    return false;
}

static const struct rf_env_row *row_of(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const char *rf_env(const char *name)
{
    const struct rf_env_row *row = row_of(name);
    const char *value = row ? getenv(name) : NULL;
    return value && *value ? value : row ? row->fallback : NULL;
}

/* Whether a value is one of "a|b". */
static bool is_one_of(const char *value, const char *values)
{
    const size_t bytes = strlen(value);
    for (const char *at = values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == bytes && memcmp(at, value, bytes) == 0)
            return true;
    return false;
}

/* "0, 1 or any" */
static const char *list_values(const char *values, char text[64])
{
    size_t used = 0;
    for (const char *at = values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const char *next = strchr(at, '|');
        used += (size_t)snprintf(text + used, 64 - used, "%s%.*s",
                                 at == values ? ""
                                 : next       ? ", "
                                              : " or ",
                                 (int)strcspn(at, "|"), at);
    }
    return text;
}

static int check_number(const struct rf_env_row *row, const char *text, long *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtol(text, &end, 10);
    if (end == text || *end)
        return rf_fail(RF_EINVAL,
                       "the environment variable %s is \"%.40s\"; it has to be a whole number from "
                       "%ld to %ld",
                       row->name, text, row->least, row->most);
    if (errno || *out < row->least || *out > row->most)
        return rf_fail(RF_EINVAL, "the environment variable %s has to be %ld to %ld, not %.40s",
                       row->name, row->least, row->most, text);
    return 0;
}

/* "2", or "comm:3,device:1". */
static int check_levels(const struct rf_env_row *row, const char *text)
{
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t bytes = strcspn(at, ","), name = strcspn(at, ":");
        const char *level = name < bytes ? at + name + 1 : at;
        if (level < at + bytes && level + strspn(level, "0123456789") == at + bytes)
            continue;
        return rf_fail(RF_EINVAL,
                       "the environment variable %s is \"%.40s\"; it has to be a level, such as 2, "
                       "or levels of components, such as comm:3,device:1",
                       row->name, text);
    }
    return 0;
}

static int check_row(const struct rf_env_row *row)
{
    const char *value = getenv(row->name);
    char text[64];
    long number;
    if (!value || !*value)
        return 0;
    if (row->values && !is_one_of(value, row->values))
        return rf_fail(RF_EINVAL, "the environment variable %s is \"%.40s\"; it has to be %s",
                       row->name, value, list_values(row->values, text));
    if (strcmp(row->name, "RF_LOG") == 0)
        return check_levels(row, value);
    return row->most > 0 ? check_number(row, value, &number) : 0;
}

int rf_env_check(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strncmp(rows[i].name, "RF_", 3) == 0)
            RETURN_IF_ERROR(check_row(&rows[i]));
    return 0;
}

int rf_env_int(const char *name, long absent, long *out)
{
    const char *text = rf_env(name);
    const struct rf_env_row *row = row_of(name);
    long value = absent;
    if (text && row) {
        RETURN_IF_ERROR(check_row(row));
        if (row->most > 0)
            RETURN_IF_ERROR(check_number(row, text, &value));
        else
            value = strtol(text, NULL, 10); /* a choice such as 0|1 */
    }
    *out = value;
    return 0;
}
