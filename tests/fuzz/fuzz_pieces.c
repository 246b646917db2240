/* SPDX-License-Identifier: MIT
 *
 * The file of hashes beside each file of a checkpoint, by one who has signed it: its SHA-256 is
 * right, whatever is in it. The first byte of an input is how many bytes the other file has; 255:
 * as many as the hashes' last row says.
 */
#include "fuzz.h"
#include "io/pieces.h"

static char path[] = "hashes-XXXXXX"; /* where the program is run */
enum { ROW = 8 + RF_PIECE_HASH_BYTES };

static void clean_up(void)
{
    unlink(path);
}

static uint64_t end_of(const uint8_t *row)
{
    uint64_t end = 0;
    for (int k = 0; k < 8; k++)
        end |= (uint64_t)row[k] << (8 * k);
    return end;
}

static void check(const struct rf_pieces *pieces, const uint8_t *data, uint64_t bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct rf_piece *piece = &pieces->list[i];
        REQUIRE(piece->begin == at && piece->end > at && piece->end == end_of(data + i * ROW));
        REQUIRE(memcmp(piece->hash, data + i * ROW + 8, RF_PIECE_HASH_BYTES) == 0);
        at = piece->end;
    }
    REQUIRE(at == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    struct rf_pieces pieces = {0};
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[65];
    if (!ready) {
        const int fd = mkstemp(path);
        REQUIRE(fd >= 0);
        close(fd);
        atexit(clean_up);
    }
    ready = true;
    if (size == 0)
        return 0;
    uint64_t bytes = data[0];
    data++, size--;
    if (bytes == 255 && size >= ROW)
        bytes = end_of(data + (size / ROW - 1) * ROW);
    write_whole(path, data, size);
    crypto_hash_sha256(digest, data, size);
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    if (rf_pieces_read(path, hex, bytes, &pieces) == 0) {
        REQUIRE(size == pieces.count * ROW);
        check(&pieces, data, bytes);
    }
    rf_pieces_free(&pieces);
    return 0;
}
