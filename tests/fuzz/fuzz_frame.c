/* SPDX-License-Identifier: MIT
 *
 * Frames of the control link: the first byte chooses the limit, the rest are the received bytes.
 */
#include "fuzz.h"
#include "transport/bootstrap/handshake.h"
#include "transport/control/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const size_t limit = data[0] < 128 ? 64 : RF_FRAME_MAX_PAYLOAD;
    data++, size--;
    while (size > 0) {
        struct rf_frame frame;
        size_t need = 0;
        char text[32];
        /* A copy without slack after its end, so that overreads are found. */
        uint8_t *bytes = malloc(size);
        memcpy(bytes, data, size);
        int rc = rf_frame_parse(bytes, size, limit, &frame, &need);
        if (rc == 0)
            REQUIRE(need > size && need <= RF_FRAME_HEADER + limit);
        if (rc > 0) {
            REQUIRE(need <= size && frame.bytes == need - RF_FRAME_HEADER && frame.bytes <= limit);
            REQUIRE(frame.kind > 0 && frame.kind < RF_FRAME_KINDS && frame.rank >= 0);
            rf_frame_text(frame.payload, frame.bytes, text, sizeof(text));
            REQUIRE(strlen(text) < sizeof(text));
            struct rf_handshake hello = {0};
            if (frame.kind == RF_FRAME_HELLO)
                rf_handshake_read_hello(&hello, frame.payload);
        }
        free(bytes);
        if (rc <= 0)
            break;
        data += need, size -= need;
    }
    return 0;
}
