/* SPDX-License-Identifier: MIT
 *
 * The messages between clients and a coordinator: the first byte is the kind, the second the side.
 * What is parsed and can be written again has the same meaning.
 */
#include "federated/message.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t again[FEDERATED_MESSAGE_BYTES];
    struct federated_message m, second;
    if (size < 2)
        return 0;
    const bool from_client = data[1] & 1;
    uint8_t *bytes = malloc(size - 1); /* ends where the message ends */
    memcpy(bytes, data + 2, size - 2);
    struct rf_channel_message message = {
        .kind = data[0], .bytes = (uint32_t)size - 2, .payload = bytes};
    if (federated_parse(&message, from_client, &m) == 0 && m.kind != RF_FEDERATED_VALUES &&
        m.kind != RF_FEDERATED_REFUSE) {
        const size_t written = federated_write(&m, again);
        REQUIRE(written == size - 2 && memcmp(again, bytes, written) == 0);
        message.payload = again;
        REQUIRE(federated_parse(&message, from_client, &second) == 0);
    }
    free(bytes);
    return 0;
}
