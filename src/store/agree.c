/* SPDX-License-Identifier: MIT
 *
 * What fails on one rank while a store is opened fails on all.
 */
#include "store.h"

int rf_store_agree(struct rf_comm *comm, int status, const char *what)
{
    const struct rf_error error = *rf_last_error();
    int32_t worst = status;
    RETURN_IF_ERROR(rf_all_reduce(comm, &worst, &worst, 1, RF_I32, RF_MIN, NULL));
    if (status < 0)
        return rf_fail_error(&error);
    return worst < 0 ? rf_fail(worst, "a store: another rank %s (%s); its message says why", what,
                               rf_status_text(worst))
                     : RF_OK;
}
