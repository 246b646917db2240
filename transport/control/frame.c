/* SPDX-License-Identifier: MIT
 *
 * Frames of the control link: header, limits, parsing. Reads no socket.
 */
#include "frame.h"

#include "base/base.h"

#define MAGIC 0x31434652u /* "RFC1" */

enum { LEAST_MEMBERS = 16 + 4 }; /* a job and one rank */

/* The minimum and maximum payload of each kind. */
static const struct {
    uint32_t least, most;
} limits[RF_FRAME_KINDS] = {
    [RF_FRAME_HELLO] = {44, 44 + 63},
    [RF_FRAME_CHALLENGE] = {32, 32},
    [RF_FRAME_PROOF] = {32, 32},
    [RF_FRAME_WELCOME] = {32, 32},
    [RF_FRAME_REFUSE] = {4, 4 + RF_FRAME_MAX_TEXT},
    [RF_FRAME_START] = {0, 0},
    [RF_FRAME_HEARTBEAT] = {0, 0},
    [RF_FRAME_GATHER] = {0, RF_FRAME_MAX_PAYLOAD},
    [RF_FRAME_GATHERED] = {0, RF_FRAME_MAX_PAYLOAD},
    [RF_FRAME_GATHER_FAILED] = {0, 255},
    [RF_FRAME_MESSAGE] = {0, 512},
    [RF_FRAME_ABORT] = {0, 255},
    [RF_FRAME_DEAD] = {0, 255},
    [RF_FRAME_LEFT] = {0, 4 << 16},
    [RF_FRAME_MEMBERS] = {LEAST_MEMBERS, RF_FRAME_MAX_PAYLOAD},
    [RF_FRAME_TERMS] = {0, 16 << 10},
    [RF_FRAME_NOTE] = {0, 400},
    [RF_FRAME_INVITE] = {28, 28},
    [RF_FRAME_STREAM] = {24, 24},
    [RF_FRAME_SEALED] = {18, RF_FRAME_MAX_SEALED},
};

void rf_put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

uint32_t rf_get32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void rf_frame_header(uint8_t out[RF_FRAME_HEADER], int kind, int rank, uint32_t number,
                     uint32_t bytes)
{
    rf_put32(out, MAGIC);
    rf_put32(out + 4, (uint32_t)kind << 24 | ((uint32_t)rank & 0xffffffu));
    rf_put32(out + 8, number);
    rf_put32(out + 12, bytes);
}

int rf_frame_parse(const uint8_t *bytes, size_t count, size_t max_payload, struct rf_frame *out,
                   size_t *need)
{
    *need = RF_FRAME_HEADER;
    /* Bytes that cannot begin a header are refused at the first wrong byte, not after sixteen. */
    for (size_t i = 0; i < count && i < 4; i++)
        if (bytes[i] != (uint8_t)(MAGIC >> (8 * i)))
            return rf_fail(RF_ECORRUPT,
                           "control: the received bytes are not a ringforge control frame");
    if (count < RF_FRAME_HEADER)
        return 0;
    uint32_t kind = rf_get32(bytes + 4) >> 24, length = rf_get32(bytes + 12);
    if (kind == 0 || kind >= RF_FRAME_KINDS)
        return rf_fail(RF_ECORRUPT, "control: a frame of unknown kind %u arrived", kind);
    if (length < limits[kind].least || length > limits[kind].most || length > max_payload)
        return rf_fail(RF_ECORRUPT, "control: a frame of kind %u claims %u bytes", kind, length);
    *need = RF_FRAME_HEADER + (size_t)length;
    if (count < *need)
        return 0;
    *out = (struct rf_frame){.kind = (int)kind,
                             .rank = (int)(rf_get32(bytes + 4) & 0xffffffu),
                             .number = rf_get32(bytes + 8),
                             .bytes = length,
                             .payload = bytes + RF_FRAME_HEADER};
    return 1;
}

void rf_frame_text(const uint8_t *payload, size_t bytes, char *out, size_t capacity)
{
    size_t length = bytes < capacity - 1 ? bytes : capacity - 1;
    for (size_t i = 0; i < length; i++)
        out[i] = payload[i] >= 0x20 && payload[i] < 0x7f ? (char)payload[i] : '?';
    out[length] = 0;
}
