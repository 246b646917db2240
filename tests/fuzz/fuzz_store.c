/* SPDX-License-Identifier: MIT
 *
 * A request to a server of a store: its head, then its pieces. What is accepted lies in the shard.
 */
#include "fuzz.h"
#include "store/message.h"

enum { COUNT = 1000 };

static void check_pieces(const struct rf_store_head *head, const uint64_t *pieces)
{
    static unsigned char used[COUNT];
    uint64_t sum = 0;
    memset(used, 0, sizeof used);
    for (uint64_t k = 0; k < head->pieces; k++)
        for (int64_t i = 0; i < rf_store_length(pieces[k]); i++, sum++) {
            const int64_t at = rf_store_first(pieces[k]) + i;
            REQUIRE(at >= 0 && at < COUNT && !used[at]);
            used[at] = 1;
        }
    REQUIRE(sum == head->values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rf_store_head head;
    uint64_t pieces[COUNT];
    if (size < sizeof head)
        return 0;
    memcpy(&head, data, sizeof head);
    if (rf_store_head_check(&head, RF_STORE_PUSH, RF_STORE_REFUSED, head.number, COUNT) < 0)
        return 0;
    REQUIRE(head.pieces <= head.values && head.values <= COUNT && head.version >= 0);
    REQUIRE(rf_store_head_check(&head, RF_STORE_PUSH, RF_STORE_REFUSED, head.number + 1, COUNT) ==
            RF_ECORRUPT);
    if (size - sizeof head < 8 * head.pieces)
        return 0;
    memcpy(pieces, data + sizeof head, 8 * head.pieces);
    if (rf_store_pieces_check(pieces, head.pieces, head.values, COUNT) == RF_OK)
        check_pieces(&head, pieces);
    return 0;
}
