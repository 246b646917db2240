/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the fuzz targets. Each defines LLVMFuzzerTestOneInput
 * (https://llvm.org/docs/LibFuzzer.html). Sanitizers find memory errors, REQUIRE finds violations
 * of the parser's contract.
 */
#ifndef RF_TESTS_FUZZ_H
#define RF_TESTS_FUZZ_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define REQUIRE(promise)                                                                           \
    do {                                                                                           \
        if (!(promise)) {                                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #promise);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void write_whole(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

#endif
