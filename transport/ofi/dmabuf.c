/* SPDX-License-Identifier: MIT
 *
 * Whether the network could access device memory directly, and the obstacles.
 */
#include "fabric.h"

const char *rf_provider_dmabuf_reason(void)
{
#ifdef FI_MR_DMABUF
    if (rf_ofi_load() < 0)
        return "libfabric cannot be loaded";
    if (FI_VERSION_LT(rf_ofi()->version(), FI_VERSION(1, 20)))
        return "the libfabric that is loaded is older than 1.20, and has no FI_MR_DMABUF";
    /* ofi_rxm copies short tagged messages with the CPU, which cannot read all device memory. */
    return "collectives send tagged messages, which libfabric may copy with the processor; that "
           "needs "
           "mapped memory";
#else
    return "it was built with a libfabric older than 1.20, which has no FI_MR_DMABUF";
#endif
}
