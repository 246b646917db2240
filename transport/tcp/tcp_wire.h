/* SPDX-License-Identifier: MIT
 *
 * The header of a frame as it is sent: tag, bytes, contract, kind and three bytes of zero, in
 * little-endian order.
 */
#ifndef RF_TRANSPORT_TCP_WIRE_H
#define RF_TRANSPORT_TCP_WIRE_H

#include <endian.h>
#include <string.h>

#include "tcp.h"

static inline void rf_tcp_write_header(unsigned char out[RF_TCP_HEADER],
                                       const struct rf_tcp_frame *frame)
{
    const uint64_t tag = htole64(frame->tag), bytes = htole64(frame->bytes);
    const uint32_t contract = htole32(frame->contract), kind = htole32(frame->kind);
    memcpy(out, &tag, 8);
    memcpy(out + 8, &bytes, 8);
    memcpy(out + 16, &contract, 4);
    memcpy(out + 20, &kind, 4);
}

/* False: not a valid header. */
static inline bool rf_tcp_read_header(const unsigned char in[RF_TCP_HEADER],
                                      struct rf_tcp_frame *out)
{
    uint64_t tag, bytes;
    uint32_t contract, kind;
    memcpy(&tag, in, 8);
    memcpy(&bytes, in + 8, 8);
    memcpy(&contract, in + 16, 4);
    memcpy(&kind, in + 20, 4);
    kind = le32toh(kind);
    *out = (struct rf_tcp_frame){.tag = le64toh(tag),
                                 .bytes = le64toh(bytes),
                                 .contract = le32toh(contract),
                                 .kind = (uint8_t)kind};
    return kind >= RF_TCP_DATA && kind < RF_TCP_KINDS && out->bytes >> 48 == 0;
}

#endif
