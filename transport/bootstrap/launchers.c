/* SPDX-License-Identifier: MIT
 *
 * The table of launchers: the variables that mark a process as one rank of several. bootstrap.c
 * takes rank and size from it; programs ask it whether they must join a job.
 */
#include "launchers.h"

#include "base/base.h"

/* In order of priority: under mpirun within a Slurm job, Slurm's own variables may say rank 0 to
 * everybody. A batch script, which is not a rank, also has Slurm's variables: a step is required
 * there. */
static const struct rf_launcher rows[] = {
    {"RANK", "WORLD_SIZE", NULL, "torchrun or ringforge run"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "Open MPI"},
    {"PMI_RANK", "PMI_SIZE", NULL, "MPICH"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST", "srun"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Launchers whose variables are not used: they do not give the address of rank 0, or the number of
 * ranks. size: NULL if they do not give that. */
static const struct {
    const char *rank, *size;
} others[] = {
    {"JOB_COMPLETION_INDEX", NULL}, /* Kubernetes: indexed Jobs, JobSet */
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"PALS_RANKID", NULL},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, /* LSF's jsrun */
    {"LSF_PM_TASKID", NULL},                      /* LSF's blaunch */
    {"PBS_TASKNUM", NULL},
};
/* Default options for a torchrun that is not yet running. */
static const char torchrun_default[] = "PET_";

const struct rf_launcher *rf_launcher_rows(int *count)
{
    *count = ROWS;
    return rows;
}

/* RANK and WORLD_SIZE are set together or not at all. */
static int check_pair(const struct rf_launcher *row)
{
    const char *set = rf_env(row->rank) ? row->rank : row->size;
    const char *missing = set == row->rank ? row->size : row->rank;
    if ((rf_env(row->rank) != NULL) == (rf_env(row->size) != NULL))
        return 0;
    return rf_fail(RF_EINVAL,
                   "%s is %.40s, and %s is not set: a launcher sets both; set both, or unset %s to "
                   "run alone",
                   set, rf_env(set), missing, set);
}

static void add_text(char *text, size_t bytes, const char *variable)
{
    const size_t used = strlen(text);
    if (used + 8 < bytes)
        snprintf(text + used, bytes - used, "%s%.60s", used ? ", " : "", variable);
}

/* Adds "NAME=value" if the variable is set. */
static void add(char *text, size_t bytes, const char *name)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "%s=%.24s", name, rf_env(name));
    add_text(text, bytes, variable);
}

/* Whether a size means a single process. */
static bool is_one(const char *size)
{
    return size && strcmp(size, "1") == 0;
}

/* Finds other variables that indicate several ranks. */
static void find_others(const struct rf_launcher *taken, struct rf_launcher_info *out)
{
    for (int i = 0; i < ROWS; i++) {
        const struct rf_launcher *row = &rows[i];
        if (row == taken || !rf_env(row->rank) || !rf_env(row->size) || is_one(rf_env(row->size)) ||
            (row->also && !rf_env(row->also)))
            continue;
        add(out->others, sizeof(out->others), row->rank);
        add(out->others, sizeof(out->others), row->size);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const char *size = others[i].size ? rf_env(others[i].size) : NULL;
        if (!rf_env(others[i].rank) || is_one(size) || (taken && !size))
            continue;
        add(out->others, sizeof(out->others), others[i].rank);
        if (size)
            add(out->others, sizeof(out->others), others[i].size);
    }
    char variable[64];
    for (int at = 0; !taken && rf_env_next(torchrun_default, &at, variable, sizeof(variable));)
        add_text(out->others, sizeof(out->others), variable);
}

int rf_launcher_find(struct rf_launcher_info *out)
{
    struct rf_launcher_info info = {.size = 1};
    const struct rf_launcher *taken = NULL;
    if (!out)
        return rf_fail(RF_EINVAL, "rf_launcher_find needs a pointer for its result");
    RETURN_IF_ERROR(check_pair(&rows[0]));
    for (int i = 0; i < ROWS && !taken; i++)
        if (rf_env(rows[i].rank) && rf_env(rows[i].size) && (!rows[i].also || rf_env(rows[i].also)))
            taken = &rows[i];
    if (taken) {
        long rank, size;
        RETURN_IF_ERROR(rf_env_int(taken->rank, 0, &rank));
        RETURN_IF_ERROR(rf_env_int(taken->size, 1, &size));
        if (rank >= size)
            return rf_fail_rank(RF_EINVAL, (int)rank, "rank %ld is outside a world of %ld ranks",
                                rank, size);
        info.name = taken->name;
        info.rank = (int)rank;
        info.size = (int)size;
    }
    if (info.size == 1)
        find_others(taken, &info);
    *out = info;
    return 0;
}
