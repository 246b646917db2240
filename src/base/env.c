/* SPDX-License-Identifier: MIT
 *
 * The only place that reads environment variables. A new one is justified only if a field of an
 * options struct cannot serve.
 */
#include <errno.h>
#include <limits.h>
#include <ringforge/ringforge.h>

#include "base.h"

static const struct rf_env_row rows[] = {
    {"RF_LOG", NULL,
     "log levels: N, or component:N,...; 1 per process, 2 per object, 3 per step, 4 per message"},
    {"RF_DEVICE", NULL, "device to open when none is named: best, an index, or a part of a name"},
    {"RF_CHECK_BARRIERS", "0",
     "1: check every submission for conflicting launches without a barrier"},
    {"RF_CHECK_RANGES", "0",
     "1: run every launch alone, three times, and fail if it reads or writes memory that it does "
     "not declare; CPU devices"},
    {"RF_CHECK_REPLAY", "0",
     "1: record every training step again, and fail if it differs from the replayed one; gradients "
     "that blocks overwrite hold NaN before, and without a loss scale a norm that is not finite "
     "is an error"},
    {"RF_VALIDATION", "0", "1: load the Khronos validation layer and count its messages"},
    {"RF_HOST_VISIBLE", "1",
     "0: treat device memory as if the host could not map it, so that tensors are staged"},
    {"RF_MATRIX_UNITS", "1", "0: do not use the matrix units of devices"},
    {"RF_KERNEL_FORMS", NULL,
     "fresh: ask the driver's compiler again which forms of kernels spill; budget: never ask, "
     "estimate registers"},
    {"RF_CACHE_DIR", NULL, "folder of the pipeline cache; default ~/.cache/ringforge"},
    {"RF_FLIGHT", NULL,
     "folder in which every rank records its last collectives; see ringforge flight"},
    {"RF_JOB_KEY", NULL, "secret that all ranks of a job share; required across hosts"},
    {"RF_PORT", NULL, "bootstrap port, if MASTER_PORT is in use by another program"},
    {"RF_CHECKSUM", "0", "1: every message carries a checksum of its data; the same on every rank"},
    {"RF_PROVIDER", NULL, "transport: auto, shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, ofi-shm, ..."},
    {"RF_MEASURE", NULL,
     "1: measure links when ranks join, and choose algorithms by that; 0: never; default: only "
     "across hosts"},
    {"RF_PEER_READS", "auto",
     "ranks of a host read each other's memory (process_vm_readv) - auto: where permitted and "
     "measured to be 1.6 times as fast, or as fast where two ranks send to each other; exchanges: "
     "these where permitted; 1: all where permitted; 0: never; any: as auto, and this process "
     "permits it to any process of its user (PR_SET_PTRACER_ANY)"},
    {"RF_SLOT_WRITES", "auto",
     "this rank writes what others of its host read - cached; streamed: past the caches, which is "
     "quicker to distant cores; auto: as measured"},
    {"RF_HOSTS", NULL,
     "host of each rank, such as a,a,b,b, where it cannot be detected; ranks on different hosts "
     "share no memory"},
    {"RF_INTERFACE", NULL, "address of the network interface to use"},
    {"RANK", NULL, "this process's rank (torchrun, ringforge run)"},
    {"WORLD_SIZE", NULL, "number of ranks"},
    {"LOCAL_RANK", NULL, "rank among the processes of this host"},
    {"LOCAL_WORLD_SIZE", NULL, "number of ranks on this host"},
    {"MASTER_ADDR", NULL, "host of rank 0"},
    {"MASTER_PORT", NULL, "port on which rank 0 gathers the job"},
    {"TORCHELASTIC_USE_AGENT_STORE", NULL, "True: torchrun itself listens on MASTER_PORT"},
    {"TORCHELASTIC_RUN_ID", NULL, "name of the job under torchrun"},
    {"TORCHELASTIC_RESTART_COUNT", NULL, "how often torchrun has restarted the job"},
    {"SLURM_PROCID", NULL, "rank under srun"},
    {"SLURM_NTASKS", NULL, "number of ranks under srun"},
    {"OMPI_COMM_WORLD_RANK", NULL, "rank under Open MPI"},
    {"OMPI_COMM_WORLD_SIZE", NULL, "number of ranks under Open MPI"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "number of ranks on this host under Open MPI"},
    {"PMIX_NAMESPACE", NULL, "name of the job under Open MPI and srun --mpi=pmix"},
    {"PMI_RANK", NULL, "rank under MPICH"},
    {"PMI_SIZE", NULL, "number of ranks under MPICH"},
    {"PMI_FD", NULL, "socket of the MPICH launcher"},
    {"MPI_LOCALNRANKS", NULL, "number of ranks on this host under MPICH"},
    {"SLURM_STEP_NUM_NODES", NULL, "number of hosts under srun"},
    {"SLURM_STEP_NODELIST", NULL, "list of hosts under srun; rank 0 is on the first one"},
    {"SLURM_JOB_ID", NULL, "name of the job under srun"},
    {"SLURM_STEP_ID", NULL, "number of the job step under srun"},
    {"XDG_RUNTIME_DIR", NULL,
     "folder for the rendezvous of the ranks of one host, without MASTER_ADDR"},
    {"XDG_CACHE_HOME", NULL, "base folder of caches"},
    {"HOME", NULL, "home folder, for the cache"},
    {"TMPDIR", "/tmp", "folder for temporary files of a GLSL compiler"},
};

const struct rf_env_row *rf_env_table(size_t *count)
{
    *count = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

const char *rf_env(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0) {
            const char *value = getenv(name);
            return value && *value ? value : rows[i].fallback;
        }
    return NULL;
}

int rf_env_int(const char *name, long absent, long *out)
{
    const char *text = rf_env(name);
    if (!text) {
        *out = absent;
        return 0;
    }
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < INT_MIN || value > INT_MAX)
        return rf_fail(RF_EINVAL, "the environment variable %s is \"%.40s\"; it must be a number",
                       name, text);
    *out = value;
    return 0;
}
