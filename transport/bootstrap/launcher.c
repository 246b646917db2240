/* SPDX-License-Identifier: MIT
 *
 * The rendezvous of ranks whose launcher does not set MASTER_ADDR. MPI launchers and srun give each
 * process its rank and the name of the job, from which all ranks derive the same file or port; or
 * they have a key-value store. Called by bootstrap.c.
 */
#include <ctype.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "join.h"
#include "kvs.h"

enum { FIRST_PORT = 20000, PORTS = 12000 }; /* below the ports that systems assign themselves */

/* ---- one host: a file in a folder of the user's own ------------------------------------------ */

static int own_folder(char *path, size_t bytes)
{
    const char *base = rf_env("XDG_RUNTIME_DIR");
    struct stat info;
    snprintf(path, bytes, "%s/ringforge-%ld", base ? base : "/tmp", (long)getuid());
    if (mkdir(path, 0700) && errno != EEXIST)
        return rf_fail(RF_EIO, "the folder %s cannot be made: %s", path, strerror(errno));
    if (lstat(path, &info) || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
        (info.st_mode & 077))
        return rf_fail(
            RF_EIO, "%s is not a folder that only this user can write to; set MASTER_ADDR", path);
    return 0;
}

static int use_file(struct rf_rendezvous *rendezvous, const char *launcher, const char *job)
{
    char folder[256];
    RETURN_IF_ERROR(own_folder(folder, sizeof(folder)));
    int length = snprintf(rendezvous->file_name, sizeof(rendezvous->file_name), "%s/%s-%s", folder,
                          launcher, job);
    if (length >= (int)sizeof(rendezvous->file_name) || strchr(job, '/'))
        return rf_fail(RF_EINVAL, "the launcher's name of the job cannot be a file's: %.80s", job);
    rendezvous->file = rendezvous->file_name;
    return 0;
}

static bool on_one_host(const struct rf_rendezvous *rendezvous, const char *local_size)
{
    long here = 0;
    return rf_env_int(local_size, 0, &here) == 0 && here == rendezvous->size;
}

/* ---- srun across hosts, without a key-value store
 * -------------------------------------------------------
 */

/* The first of "a[03-07,9],b2": "a03". */
static int first_node(const char *list, char *out, size_t bytes)
{
    size_t length = strcspn(list, "[,");
    const char *range = list[length] == '[' ? list + length + 1 : "";
    int digits = 0;
    while (isdigit((unsigned char)range[digits]))
        digits++;
    if (length + (size_t)digits == 0 || length + (size_t)digits >= bytes ||
        (list[length] == '[' && digits == 0))
        return rf_fail(RF_EINVAL, "SLURM_STEP_NODELIST is %.80s, which names no first host", list);
    snprintf(out, bytes, "%.*s%.*s", (int)length, list, digits, range);
    return 0;
}

static int port_of(const char *job)
{
    return FIRST_PORT + (int)(rf_hash32(job, strlen(job), 0) % PORTS);
}

static int use_first_node(struct rf_rendezvous *rendezvous, const char *nodes, const char *job)
{
    RETURN_IF_ERROR(first_node(nodes, rendezvous->host, sizeof(rendezvous->host)));
    rendezvous->port = port_of(job);
    return 0;
}

/* ---- torchrun -------------------------------------------------------------------------------- */

void rf_launcher_port(struct rf_rendezvous *rendezvous)
{
    const char *taken = rf_env("TORCHELASTIC_USE_AGENT_STORE");
    const char *run = rf_env("TORCHELASTIC_RUN_ID"), *again = rf_env("TORCHELASTIC_RESTART_COUNT");
    char name[128];
    if (!taken || strcmp(taken, "True") != 0)
        return;
    int theirs = rendezvous->port;
    snprintf(name, sizeof(name), "%d.%.80s.%.16s", theirs, run ? run : "", again ? again : "");
    rendezvous->port = port_of(name);
    if (rendezvous->port == theirs)
        rendezvous->port++;
}

/* ---- selection ------------------------------------------------------------------------------- */

/* False: the launcher lacks this key-value store. */
static bool use_kvs(struct rf_rendezvous *rendezvous, const struct rf_kvs *kvs)
{
    rendezvous->kvs = kvs;
    return kvs != NULL;
}

static int find_under_slurm(struct rf_rendezvous *rendezvous)
{
    const char *nodes = rf_env("SLURM_STEP_NODELIST"), *job = rf_env("SLURM_JOB_ID");
    const char *step = rf_env("SLURM_STEP_ID");
    long hosts = 0;
    char name[64];
    RETURN_IF_ERROR(rf_env_int("SLURM_STEP_NUM_NODES", 0, &hosts));
    if (!job || !step || !nodes || hosts < 1)
        return rf_fail(RF_EINVAL, "srun has not said which hosts the job has");
    snprintf(name, sizeof(name), "%.24s.%.24s", job, step);
    if (hosts == 1)
        return use_file(rendezvous, "slurm", name);
    if (use_kvs(rendezvous, rf_kvs_pmi()) || use_kvs(rendezvous, rf_kvs_pmix()))
        return 0;
    return use_first_node(rendezvous, nodes, name);
}

/* Tries the launchers in the order of bootstrap.c. On one host a file is used, which leaves the
 * launcher's connection to a program that also uses MPI. */
int rf_launcher_rendezvous(struct rf_rendezvous *rendezvous)
{
    const char *name = rf_env("PMIX_NAMESPACE");
    if (rf_env("OMPI_COMM_WORLD_RANK") && name) {
        if (on_one_host(rendezvous, "OMPI_COMM_WORLD_LOCAL_SIZE"))
            return use_file(rendezvous, "openmpi", name);
        if (use_kvs(rendezvous, rf_kvs_pmix()))
            return 0;
    }
    if (rf_env("PMI_RANK") && on_one_host(rendezvous, "MPI_LOCALNRANKS")) {
        char job[32]; /* MPICH does not name jobs; its ranks on one host have one parent */
        snprintf(job, sizeof(job), "%ld", (long)getppid());
        return use_file(rendezvous, "mpich", job);
    }
    /* An mpiexec within a Slurm job also sees Slurm's variables. */
    if (rf_env("PMI_RANK") && (rf_env("MPI_LOCALNRANKS") || !rf_env("SLURM_PROCID")) &&
        use_kvs(rendezvous, rf_kvs_pmi()))
        return 0;
    if (rf_env("SLURM_PROCID"))
        return find_under_slurm(rendezvous);
    return rf_fail(RF_EINVAL, "no launcher names a rendezvous");
}
