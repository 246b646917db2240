/* SPDX-License-Identifier: MIT
 *
 * Loads libfabric on demand. It is not linked, because its libraries install signal handlers before
 * main runs, when the previous ones cannot be saved; and programs whose ranks share memory do not
 * need it.
 */
#include <dlfcn.h>

#include "base/base.h"
#include "fabric.h"
#include "signals.h"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct rf_ofi library;
static bool loaded;

static int find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    if (!symbol)
        return rf_fail(RF_ENET, "the libfabric that was found has no %s: %s", name, dlerror());
    memcpy(function, &symbol, sizeof(symbol)); /* C cannot convert between the two */
    return 0;
}

static int find_all(void *handle)
{
    RETURN_IF_ERROR(find(handle, "fi_getinfo", &library.getinfo));
    RETURN_IF_ERROR(find(handle, "fi_freeinfo", &library.freeinfo));
    RETURN_IF_ERROR(find(handle, "fi_dupinfo", &library.dupinfo));
    RETURN_IF_ERROR(find(handle, "fi_fabric", &library.fabric));
    RETURN_IF_ERROR(find(handle, "fi_strerror", &library.strerror));
    return find(handle, "fi_version", &library.version);
}

static int load(void)
{
    struct rf_signals kept;
    RETURN_IF_ERROR(rf_signals_keep(&kept));
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        handle = dlopen(RF_FABRIC_PATH, RTLD_NOW | RTLD_LOCAL);
    int rc = handle ? find_all(handle)
                    : rf_fail(RF_ENET,
                              "cannot load libfabric, which carries messages between hosts: %s; "
                              "install it, or name its folder in LD_LIBRARY_PATH",
                              dlerror());
    rf_signals_put_back(&kept, rc == 0 ? rf_ofi_address() : NULL);
    return rc;
}

int rf_ofi_load(void)
{
    pthread_mutex_lock(&loading);
    int rc = loaded ? 0 : load();
    loaded = rc == 0;
    pthread_mutex_unlock(&loading);
    return rc;
}

const struct rf_ofi *rf_ofi(void)
{
    return &library;
}

const void *rf_ofi_address(void)
{
    const void *address = NULL;
    memcpy(&address, &library.version, sizeof(address));
    return address;
}
