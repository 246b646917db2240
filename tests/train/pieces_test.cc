// SPDX-License-Identifier: MIT
//
// Pieces of a file, of one range or of many at equal distances: whether they cover the file is
// compared with a count of every byte; written pieces are verified, and damage is found.
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "folder.h"

extern "C" {
#include "io/pieces.h"
}

namespace
{

using Pieces = std::vector<rf_piece>;

int check(const Pieces &list, uint64_t bytes)
{
    rf_pieces pieces = {};
    EXPECT_EQ(rf_pieces_add(&pieces, list.data(), list.size()), 0);
    const int rc = rf_pieces_check(&pieces, "FILE", bytes);
    rf_pieces_free(&pieces);
    return rc;
}

rf_piece range(uint64_t begin, uint64_t end)
{
    return {begin, end - begin, 1, 0, {}};
}

// Whether every byte is covered once.
bool covers(const Pieces &list, uint64_t bytes)
{
    std::vector<int> count(bytes);
    for (const rf_piece &p : list)
        for (uint64_t i = 0; i < p.runs; i++)
            for (uint64_t k = 0; k < p.run; k++) {
                const uint64_t at = p.begin + i * p.step + k;
                if (at >= bytes)
                    return false;
                count[at]++;
            }
    return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

// A matrix behind a header: columns of tensor ranks of any widths, each cut at rows of its own, and
// rows cut within; then the rest of the file.
Pieces matrix(std::mt19937 &random, uint64_t *bytes)
{
    const auto number = [&](uint64_t least, uint64_t most) {
        return std::uniform_int_distribution<uint64_t>(least, most)(random);
    };
    const uint64_t header = number(1, 5), rows = number(1, 6);
    std::vector<uint64_t> widths(number(1, 4));
    uint64_t step = 0, column = header;
    for (uint64_t &width : widths)
        step += width = number(1, 4);
    Pieces list = {range(0, header)};
    for (uint64_t width : widths) {
        for (uint64_t row = 0, n; row < rows; row += n) {
            n = number(1, rows - row);
            const uint64_t at = column + row * step;
            if (n == 1 && width > 1 && number(0, 1)) {
                list.push_back(range(at, at + 1));
                list.push_back(range(at + 1, at + width));
            } else {
                list.push_back({at, width, n, n > 1 ? step : 0, {}});
            }
        }
        column += width;
    }
    *bytes = header + rows * step + 3;
    list.push_back(range(*bytes - 3, *bytes));
    std::shuffle(list.begin(), list.end(), random);
    return list;
}

} // namespace

TEST(Pieces, ThatDoNotCoverAFileOnceAreRefused)
{
    const auto ranges = [](const std::vector<std::pair<uint64_t, uint64_t>> &list) {
        Pieces pieces;
        for (const auto &[begin, end] : list)
            pieces.push_back(range(begin, end));
        return check(pieces, 10);
    };
    EXPECT_EQ(ranges({{4, 10}, {0, 4}}), 0);
    EXPECT_EQ(ranges({}), RF_EINVAL);
    EXPECT_EQ(ranges({{0, 4}}), RF_EINVAL);
    EXPECT_EQ(ranges({{0, 4}, {5, 10}}), RF_EINVAL);
    EXPECT_EQ(ranges({{0, 4}, {3, 10}}), RF_EINVAL);
    EXPECT_EQ(ranges({{0, 10}, {10, 12}}), RF_EINVAL);
    const uint64_t most = UINT64_MAX;
    EXPECT_EQ(check({{0, 2, 5, 2, {}}}, 10), 0);
    EXPECT_EQ(check({{0, 3, 2, 5, {}}, {3, 2, 2, 5, {}}}, 10), 0);
    EXPECT_EQ(check({{0, 3, 2, 5, {}}, {3, 2, 2, 4, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 2, 5, 2, {}}, {0, 2, 5, 2, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 2, 6, 2, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 0, 1, 0, {}}, range(0, 10)}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 10, 2, 0, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 10, 1, most, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 5, most, 5, {}}}, 10), RF_EINVAL);
    EXPECT_EQ(check({{0, 2, most / 2, 2, {}}}, most), RF_EINVAL);
    EXPECT_EQ(check({{most, 2, 1, 0, {}}, range(0, 10)}, 10), RF_EINVAL);
}

TEST(Pieces, WithRunsCoverAFileJustWhereACountOfEveryByteSaysSo)
{
    std::mt19937 random(7);
    int good = 0, bad = 0;
    for (int k = 0; k < 3000; k++) {
        uint64_t bytes = 0;
        Pieces list = matrix(random, &bytes);
        ASSERT_EQ(check(list, bytes), 0) << k;
        for (int change = 0; change < 4; change++) {
            Pieces changed = list;
            rf_piece &p = changed[random() % changed.size()];
            uint64_t *const numbers[] = {&p.begin, &p.run, &p.runs, &p.step};
            *numbers[random() % 4] += random() % 2 ? 1 : -1;
            if (random() % 8 == 0)
                changed.push_back(changed[random() % changed.size()]);
            const bool fit = std::all_of(changed.begin(), changed.end(), [&](const rf_piece &one) {
                return rf_piece_fits(&one, bytes);
            });
            const bool is = fit && covers(changed, bytes);
            ASSERT_EQ(check(changed, bytes), is ? 0 : RF_EINVAL) << k;
            (is ? good : bad)++;
        }
    }
    EXPECT_GT(bad, 6000);
}

TEST(Pieces, AreReadAsTheyWereWrittenAndEveryDamagedByteIsFound)
{
    Folder folder;
    std::mt19937 random(7);
    for (int k = 0; k < 20; k++) {
        uint64_t bytes = 0;
        const Pieces list = matrix(random, &bytes);
        const std::string path = folder.path("f");
        rf_shared_file file = {};
        rf_pieces read = {};
        char hex[65];
        ASSERT_EQ(rf_shared_create(&file, path.c_str(), bytes), 0);
        for (const rf_piece &p : list) {
            std::string data(p.runs * (p.run + 1), 0); // distances of one byte more
            for (char &c : data)
                c = (char)random();
            ASSERT_EQ(rf_shared_put_runs(&file, &p, data.data(), p.run + 1), 0);
        }
        ASSERT_EQ(rf_shared_sync(&file), 0);
        ASSERT_EQ(rf_pieces_check(&file.pieces, path.c_str(), bytes), 0);
        ASSERT_EQ(rf_pieces_write(&file.pieces, folder.path("hashes").c_str(), hex), 0);
        ASSERT_EQ(rf_pieces_read(folder.path("hashes").c_str(), hex, bytes, false, &read), 0);
        ASSERT_EQ(read.count, list.size());
        EXPECT_EQ(memcmp(read.list, file.pieces.list, read.count * sizeof(*read.list)), 0);
        const int fd = open(path.c_str(), O_RDWR);
        const auto verify = [&] {
            uint8_t buffer[3];
            const rf_piece_reader reader = {fd, "f", buffer, sizeof(buffer)};
            int rc = 0;
            for (size_t i = 0, n; rc == 0 && i < read.count; i += n)
                rc = rf_pieces_verify(&read, i, n = rf_pieces_group(&read, i), &reader);
            return rc;
        };
        EXPECT_EQ(verify(), 0) << rf_last_error()->message;
        for (off_t at = 0; at < (off_t)bytes; at++) {
            char good = 0, damaged;
            ASSERT_EQ(pread(fd, &good, 1, at), 1);
            damaged = good ^ 8;
            ASSERT_EQ(pwrite(fd, &damaged, 1, at), 1);
            ASSERT_EQ(verify(), RF_ECORRUPT) << at;
            ASSERT_EQ(pwrite(fd, &good, 1, at), 1);
        }
        close(fd);
        rf_pieces_free(&read);
        rf_shared_close(&file);
    }
}
