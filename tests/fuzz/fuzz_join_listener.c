/* SPDX-License-Identifier: MIT
 *
 * The messages between a newcomer and the join listener of a running job: the bytes are the
 * newcomer's terms and, if there are enough, rank 0's invitation.
 */
#include "fuzz.h"
#include "transport/bootstrap/join_listener.h"
#include "transport/transport.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char job[] = "ringforge=0.1.0\na=1\nempty=\n--prompt=\\x0a\n";
    char why[64] = "", *theirs = malloc(size + 1);
    memcpy(theirs, data, size);
    theirs[size] = 0;
    if (!rf_terms_agree(job, theirs, why, sizeof(why)))
        REQUIRE(why[0] && strlen(why) < sizeof(why));
    free(theirs);
    if (size >= RF_INVITATION_BYTES) {
        struct rf_invitation in;
        uint8_t out[RF_INVITATION_BYTES];
        if (rf_invitation_read(data, &in) == 0) {
            REQUIRE(in.port > 0 && in.rank > 0 && in.rank < in.size &&
                    in.size < RF_JOIN_WORLD_SIZE);
            rf_invitation_write(&in, out);
            REQUIRE(memcmp(out, data, sizeof(out)) == 0);
        }
    }
    return 0;
}
