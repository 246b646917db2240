/* SPDX-License-Identifier: MIT
 *
 * The only place that reads environment variables. A new one needs a reason that a field of an
 * options struct cannot serve.
 */
#include <errno.h>
#include <limits.h>
#include <ringforge/ringforge.h>

#include "base.h"

static const struct rf_env_row rows[] = {
    {"RF_LOG", NULL, "log levels: N, or component:N,...; 1 process, 2 object, 3 step, 4 message"},
    {"RF_DEVICE", NULL, "device to open when none is named: best, an index, or a part of a name"},
    {"RF_CHECK_BARRIERS", "0",
     "1: check every submission for conflicting launches without a barrier"},
    {"RF_CHECK_RANGES", "0",
     "1: run every launch alone, three times, and fail if it reads or writes memory that it does "
     "not declare; CPU devices"},
    {"RF_CHECK_REPLAY", "0",
     "1: record every training step all the same, and fail if it is not what would be replayed; "
     "gradients that blocks are to write hold NaN before"},
    {"RF_VALIDATION", "0", "1: load the Khronos validation layer and count its messages"},
    {"RF_HOST_VISIBLE", "1",
     "0: treat device memory as if the host could not map it, so that tensors are staged"},
    {"RF_MATRIX_UNITS", "1", "0: leave the matrix units of devices alone"},
    {"RF_KERNEL_FORMS", NULL,
     "fresh: ask the driver's compiler again which forms of kernels spill; budget: never ask, "
     "estimate registers"},
    {"RF_CACHE_DIR", NULL, "folder of the pipeline cache; default ~/.cache/ringforge"},
    {"RF_FLIGHT", NULL,
     "folder in which every rank keeps its last collectives; see ringforge flight"},
    {"RF_JOB_KEY", NULL, "secret that all ranks of a job share; demanded across hosts"},
    {"RF_PORT", NULL, "bootstrap port, when MASTER_PORT is taken by somebody else"},
    {"RF_CHECKSUM", "0", "1: every message carries a checksum of its data; the same on every rank"},
    {"RF_PROVIDER", NULL,
     "what carries messages: auto, shm, shm+net, tcp, net, tcp;ofi_rxm, ofi-shm, ..."},
    {"RF_MEASURE", NULL,
     "1: measure links when ranks join, and choose algorithms by that; 0: never; else across "
     "hosts"},
    {"RF_HOSTS", NULL,
     "which host each rank is on, such as a,a,b,b, where that is not to be found out; ranks said "
     "to "
     "be on different ones share no memory"},
    {"RF_INTERFACE", NULL, "address of the network interface to use"},
    {"RANK", NULL, "this process's rank (torchrun, ringforge run)"},
    {"WORLD_SIZE", NULL, "number of ranks"},
    {"LOCAL_RANK", NULL, "rank among the processes of this host"},
    {"LOCAL_WORLD_SIZE", NULL, "number of ranks on this host"},
    {"MASTER_ADDR", NULL, "host of rank 0"},
    {"MASTER_PORT", NULL, "port on which rank 0 gathers the job"},
    {"TORCHELASTIC_USE_AGENT_STORE", NULL, "True: torchrun itself listens on MASTER_PORT"},
    {"TORCHELASTIC_RUN_ID", NULL, "name of the job under torchrun"},
    {"TORCHELASTIC_RESTART_COUNT", NULL, "how often torchrun has started it again"},
    {"SLURM_PROCID", NULL, "rank under srun"},
    {"SLURM_NTASKS", NULL, "number of ranks under srun"},
    {"OMPI_COMM_WORLD_RANK", NULL, "rank under Open MPI"},
    {"OMPI_COMM_WORLD_SIZE", NULL, "number of ranks under Open MPI"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "number of ranks on this host under Open MPI"},
    {"PMIX_NAMESPACE", NULL, "name of the job under Open MPI and srun --mpi=pmix"},
    {"PMI_RANK", NULL, "rank under MPICH"},
    {"PMI_SIZE", NULL, "number of ranks under MPICH"},
    {"PMI_FD", NULL, "the launcher's connection under MPICH"},
    {"MPI_LOCALNRANKS", NULL, "number of ranks on this host under MPICH"},
    {"SLURM_STEP_NUM_NODES", NULL, "number of hosts under srun"},
    {"SLURM_STEP_NODELIST", NULL, "the hosts under srun; rank 0 is on the first"},
    {"SLURM_JOB_ID", NULL, "name of the job under srun"},
    {"SLURM_STEP_ID", NULL, "which of the job's steps, under srun"},
    {"XDG_RUNTIME_DIR", NULL, "where ranks of one host find each other without MASTER_ADDR"},
    {"XDG_CACHE_HOME", NULL, "base folder of caches"},
    {"HOME", NULL, "home folder, for the cache"},
    {"TMPDIR", "/tmp", "where a compiler of GLSL text leaves its files for a moment"},
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
