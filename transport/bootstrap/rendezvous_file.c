/* SPDX-License-Identifier: MIT
 *
 * The file in which rank 0 publishes its address, for ranks that share a file system. It contains a
 * random name of the run, so that a file left by an earlier run is recognised: nobody at that
 * address can answer for that name.
 */
#include <errno.h>
#include <sodium.h>
#include <unistd.h>

#include "base/base.h"
#include "join.h"

static const char FORMAT[] = "ringforge-rendezvous 1 %255s %d %64s";

int rf_rendezvous_file_write(const char *path, const char *host, int port, const uint8_t *job)
{
    char name[4096], job_text[2 * RF_JOB_BYTES + 1];
    if (snprintf(name, sizeof(name), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(name))
        return rf_fail(RF_EINVAL, "the path of the rendezvous file is too long");
    FILE *file = fopen(name, "w");
    if (!file)
        return rf_fail(RF_EIO, "the rendezvous file %s cannot be written: %s", name,
                       strerror(errno));
    sodium_bin2hex(job_text, sizeof(job_text), job, RF_JOB_BYTES);
    bool ok = fprintf(file, "ringforge-rendezvous 1 %s %d %s\n", host, port, job_text) > 0;
    ok = fflush(file) == 0 && ok;
    ok = fsync(fileno(file)) == 0 && ok;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(name, path)) {
        int error = errno;
        unlink(name);
        return rf_fail(RF_EIO, "the rendezvous file %s cannot be written: %s", path,
                       strerror(error));
    }
    return 0;
}

int rf_rendezvous_file_read(const char *path, char *host, size_t host_bytes, int *port,
                            uint8_t *job)
{
    char text[512] = "", name[256], job_text[65];
    const char *why;
    FILE *file = rf_open_input(path, &why);
    if (!file && (errno == ENOENT || errno == ESTALE))
        return rf_fail(RF_EAGAIN, "rank 0 has not written the rendezvous file %s yet", path);
    if (!file)
        return rf_fail(RF_EIO, "the rendezvous file %s cannot be read: %s", path, why);
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = 0;
    size_t job_bytes = 0;
    if (sscanf(text, FORMAT, name, port, job_text) != 3 || *port < 1 || *port > 65535 ||
        sodium_hex2bin(job, RF_JOB_BYTES, job_text, strlen(job_text), NULL, &job_bytes, NULL) ||
        job_bytes != RF_JOB_BYTES)
        return rf_fail(RF_EAGAIN, "%s is not a rendezvous file of ringforge", path);
    snprintf(host, host_bytes, "%s", name);
    return 0;
}
