/* SPDX-License-Identifier: MIT
 *
 * The hash file beside each file of a checkpoint, from an attacker who can sign it: its SHA-256 is
 * always right. The first byte of an input is the length of the other file (255: the end in the
 * last row), and the lowest bit of the second one chooses the format.
 */
#include "fuzz.h"
#include "io/pieces.h"

static char path[] = "hashes-XXXXXX"; /* in the working directory */
enum { NUMBERS = 32, HASH = RF_PIECE_HASH_BYTES };

static void clean_up(void)
{
    unlink(path);
}

static uint64_t number_at(const uint8_t *from)
{
    uint64_t number = 0;
    for (int k = 0; k < 8; k++)
        number |= (uint64_t)from[k] << (8 * k);
    return number;
}

/* The end of the last row's piece. */
static uint64_t end_of(const uint8_t *row, bool ends)
{
    return ends ? number_at(row) : number_at(row) + number_at(row + 8);
}

static void check_row(const struct rf_piece *piece, const uint8_t *row, bool ends)
{
    REQUIRE(memcmp(piece->hash, row + (ends ? 8 : NUMBERS), HASH) == 0);
    if (ends)
        REQUIRE(piece->runs == 1 && rf_piece_end(piece) == number_at(row));
    else
        REQUIRE(piece->begin == number_at(row) && piece->run == number_at(row + 8) &&
                piece->runs == number_at(row + 16) && piece->step == number_at(row + 24));
}

/* Checks the contract byte by byte, for small files. */
static void check_cover(const struct rf_pieces *pieces, uint64_t bytes)
{
    enum { SMALL = 4096 };
    uint8_t covered[SMALL] = {0};
    if (bytes > SMALL)
        return;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct rf_piece *p = &pieces->list[i];
        REQUIRE(rf_piece_fits(p, bytes));
        for (uint64_t run = 0; run < p->runs; run++)
            for (uint64_t k = 0; k < p->run; k++)
                REQUIRE(covered[p->begin + run * p->step + k]++ == 0);
    }
    for (uint64_t k = 0; k < bytes; k++)
        REQUIRE(covered[k] == 1);
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
    if (size < 2)
        return 0;
    uint64_t bytes = data[0];
    const bool ends = data[1] & 1;
    const size_t row = (ends ? 8 : NUMBERS) + HASH;
    data += 2, size -= 2;
    if (bytes == 255 && size >= row)
        bytes = end_of(data + (size / row - 1) * row, ends);
    write_whole(path, data, size);
    crypto_hash_sha256(digest, data, size);
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    if (rf_pieces_read(path, hex, bytes, ends, &pieces) == 0) {
        REQUIRE(size == pieces.count * row);
        for (size_t i = 0; i < pieces.count; i++)
            check_row(&pieces.list[i], data + i * row, ends);
        check_cover(&pieces, bytes);
    }
    rf_pieces_free(&pieces);
    return 0;
}
