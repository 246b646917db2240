// SPDX-License-Identifier: MIT
//
// Ranks that load different versions of libfabric.
#include "job_helpers.h"

extern "C" {
#include "transport/ofi/fabric.h"
}

using namespace job;

// Their providers use different formats under equal protocol names.
TEST(FabricChoice, RanksWithDifferentMajorVersionsOfLibfabricAreRefusedAtOnce)
{
    for (const char *provider : {"ofi-shm", "tcp;ofi_rxm"}) {
        const std::string url = tcp_url(free_port());
        const int ranks = 3;
        Processes processes;
        processes.start(ranks, [&](int rank) {
            Member m = join(url, rank, ranks);
            if (m.status < 0 || rf_ofi_load() < 0)
                return 1;
            auto *library = const_cast<struct rf_ofi *>(rf_ofi());
            if (rank == 1)
                library->version = [] { return (uint32_t)FI_VERSION(9, 3); };
            rf_transport *t;
            char why[256];
            const int rc = rf_transport_create(m.c, provider, &t, why, sizeof why);
            const std::string said = rf_last_error()->message;
            m.c->ops->leave(m.c, 5);
            const bool named = contains(said, "libfabric 9.3") &&
                               said.find("rank " + std::to_string(rank) + " has libfabric") == 0;
            if (rc != RF_EINVAL || !named)
                fprintf(stderr, "rank %d: %d %s\n", rank, rc, said.c_str());
            return rc == RF_EINVAL && named ? 0 : 1;
        });
        for (int rank = 0; rank < ranks; rank++)
            EXPECT_EQ(processes.wait(rank), 0) << provider << ", rank " << rank;
    }
}
