/* SPDX-License-Identifier: MIT
 *
 * The key-value store of PMIx launchers, by libpmix, which is loaded on demand: rank 0 puts a text,
 * all wait in a fence, all get it. Built with RF_HAVE_PMIX if its headers are there.
 */
#include "kvs.h"

#include "base/base.h"

#ifdef RF_HAVE_PMIX

#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *library;
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Fence_nb) *fence;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Error_string) *text;
    pmix_proc_t self;
    unsigned exchanged; /* texts so far */
    bool broken;        /* a fence may still be in progress */
} pmix;

/* State of one fence. It is static, because a callback may come after the caller has given up. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned finished;
    pmix_status_t status;
} fence = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int pmix_error(const char *what, pmix_status_t status)
{
    return rf_fail(RF_ENET, "the launcher's PMIx refuses to %s: %s", what, pmix.text(status));
}

static bool find(void *address, const char *name)
{
    void *symbol = dlsym(pmix.library, name);
    memcpy(address, &symbol, sizeof(symbol));
    return symbol != NULL;
}

/* A launcher treats a process that ends without this as crashed. */
static void finalize(void)
{
    pmix.finalize(NULL, 0);
}

static int load(void)
{
    pmix.library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!pmix.library)
        return rf_fail(RF_ENOTSUP,
                       "the launcher speaks PMIx, and libpmix cannot be loaded (%s); set "
                       "MASTER_ADDR, MASTER_PORT and RF_JOB_KEY instead",
                       dlerror());
    if (!find(&pmix.init, "PMIx_Init") || !find(&pmix.finalize, "PMIx_Finalize") ||
        !find(&pmix.put, "PMIx_Put") || !find(&pmix.commit, "PMIx_Commit") ||
        !find(&pmix.fence, "PMIx_Fence_nb") || !find(&pmix.get, "PMIx_Get") ||
        !find(&pmix.text, "PMIx_Error_string"))
        return rf_fail(RF_ENOTSUP, "libpmix.so.2 is not the PMIx that is known here: %s",
                       dlerror());
    rf_cond_init(&fence.changed);
    pmix_status_t status = pmix.init(&pmix.self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return rf_fail(RF_ENET,
                       "the launcher's PMIx does not answer: %s; set MASTER_ADDR, MASTER_PORT and "
                       "RF_JOB_KEY to do without it",
                       pmix.text(status));
    atexit(finalize);
    return 0;
}

static void fence_ended(pmix_status_t status, void *unused)
{
    pthread_mutex_lock(&fence.lock);
    fence.status = status;
    fence.finished++;
    pthread_cond_broadcast(&fence.changed);
    pthread_mutex_unlock(&fence.lock);
}

static int wait_in_fence(uint64_t deadline_ns)
{
    pmix_info_t collect = {.value = {.type = PMIX_BOOL, .data.flag = true}};
    snprintf(collect.key, sizeof(collect.key), "%s", PMIX_COLLECT_DATA);
    pthread_mutex_lock(&fence.lock);
    unsigned before = fence.finished;
    pthread_mutex_unlock(&fence.lock);
    pmix_status_t status = pmix.fence(NULL, 0, &collect, 1, fence_ended, NULL);
    if (status == PMIX_OPERATION_SUCCEEDED)
        return 0;
    if (status != PMIX_SUCCESS)
        return pmix_error("begin a fence", status);
    pthread_mutex_lock(&fence.lock);
    while (fence.finished == before && rf_cond_wait(&fence.changed, &fence.lock, deadline_ns))
        ;
    bool ended = fence.finished != before;
    status = fence.status;
    pthread_mutex_unlock(&fence.lock);
    if (!ended)
        return rf_fail(RF_ETIMEOUT, "not all ranks of the job came to the launcher in time");
    return status == PMIX_SUCCESS ? 0 : pmix_error("end a fence", status);
}

static int put(const char *key, char *text)
{
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
    pmix_status_t status = pmix.put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS)
        status = pmix.commit();
    return status == PMIX_SUCCESS ? 0 : pmix_error("take a text", status);
}

static int get(const char *key, char text[RF_KVS_TEXT])
{
    pmix_proc_t first = pmix.self;
    pmix_value_t *value = NULL;
    first.rank = 0;
    pmix_status_t status = pmix.get(&first, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return pmix_error("give rank 0's text", status);
    int rc = 0;
    if (value->type == PMIX_STRING && strlen(value->data.string) < RF_KVS_TEXT)
        strcpy(text, value->data.string);
    else
        rc = rf_fail(RF_ENET, "what the launcher's PMIx gives is not rank 0's text");
    if (value->type == PMIX_STRING)
        free(value->data.string); /* libpmix's, by malloc */
    free(value);
    return rc;
}

static int exchange_locked(bool writes, char text[RF_KVS_TEXT], uint64_t deadline)
{
    char key[32];
    if (!pmix.library)
        RETURN_IF_ERROR(load());
    snprintf(key, sizeof(key), "ringforge-%u", pmix.exchanged++);
    if (writes)
        RETURN_IF_ERROR(put(key, text));
    RETURN_IF_ERROR(wait_in_fence(deadline));
    return get(key, text);
}

static int exchange(bool writes, char text[RF_KVS_TEXT], uint64_t deadline)
{
    pthread_mutex_lock(&lock);
    int rc = pmix.broken
                 ? rf_fail(RF_ENET, "the launcher did not answer before; nothing more is asked")
                 : exchange_locked(writes, text, deadline);
    pmix.broken = rc < 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

#else

static int exchange(bool writes, char text[RF_KVS_TEXT], uint64_t deadline)
{
    return rf_fail(RF_ENOTSUP, "the launcher speaks PMIx, which this build does not support; "
                               "set MASTER_ADDR, MASTER_PORT and RF_JOB_KEY, or build with "
                               "libpmix-dev installed");
}

#endif

const struct rf_kvs *rf_kvs_pmix(void)
{
    static const struct rf_kvs kvs = {"PMIx", exchange};
    return rf_env("PMIX_NAMESPACE") ? &kvs : NULL;
}
