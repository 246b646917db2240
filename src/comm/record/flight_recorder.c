/* SPDX-License-Identifier: MIT
 *
 * The flight recorder's file: a head and a ring of calls. It is a shared mapping, so its contents
 * survive SIGKILL. comm writes it, and rf_flight_read reads it without trusting any of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <ringforge/flight.h>
#include <ringforge/ringforge.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../communicator.h"

enum { CALLS = 1024, VERSION = 2 };
#define MAGIC "RFFLIGHT"

/* In the writer's byte order; a file in another one is not recognised. */
struct head {
    char magic[8];
    uint32_t version, order, calls, call_bytes;
    int32_t rank, size;
    int64_t pid;
    uint8_t job[16];
    char host[64], provider[32];
};

struct entry {
    uint64_t number; /* 1 + sequence; 0 while the entry is being written */
    int64_t started_ns, ended_ns;
    struct rf_contract contract;
    uint32_t hash;
    int32_t status;
};

struct rf_recorder {
    struct head head;
    struct entry entries[CALLS];
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void hex(const uint8_t *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static int map(const char *path, struct rf_recorder **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return rf_fail(RF_EIO, "flight recorder: %s cannot be made: %s", path, strerror(errno));
    /* Reserved, because a full disk behind a mapping raises a signal. */
    int error = posix_fallocate(fd, 0, sizeof(**out));
    void *memory = MAP_FAILED;
    if (!error) {
        memory = mmap(NULL, sizeof(**out), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = memory == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (error) {
        unlink(path);
        return rf_fail(RF_EIO, "flight recorder: %s cannot be made: %s", path, strerror(error));
    }
    *out = memory;
    return 0;
}

int rf_recorder_open(const struct rf_comm *comm, const uint8_t job[16], struct rf_recorder **out)
{
    const char *folder = rf_env("RF_FLIGHT");
    char path[4096], name[33];
    *out = NULL;
    if (!folder || !*folder || comm->size == 1)
        return 0;
    if (mkdir(folder, 0700) && errno != EEXIST)
        return rf_fail(RF_EIO, "flight recorder: the folder %s cannot be made: %s", folder,
                       strerror(errno));
    hex(job, 16, name);
    if (snprintf(path, sizeof(path), "%s/%s-%d.flight", folder, name, comm->rank) >=
        (int)sizeof(path))
        return rf_fail(RF_EINVAL, "flight recorder: the path of RF_FLIGHT is too long");
    struct rf_recorder *recorder = NULL;
    RETURN_IF_ERROR(map(path, &recorder));
    struct head *head = &recorder->head;
    head->version = VERSION;
    head->order = 0x01020304;
    head->calls = CALLS;
    head->call_bytes = sizeof(struct entry);
    head->rank = comm->rank;
    head->size = comm->size;
    head->pid = getpid();
    memcpy(head->job, job, sizeof(head->job));
    gethostname(head->host, sizeof(head->host) - 1);
    snprintf(head->provider, sizeof(head->provider), "%.31s", comm->links.transport->name);
    memcpy(head->magic, MAGIC, sizeof(head->magic)); /* last */
    *out = recorder;
    return 0;
}

void rf_recorder_close(struct rf_recorder *recorder)
{
    if (recorder)
        munmap(recorder, sizeof(*recorder));
}

void rf_recorder_begin(struct rf_recorder *recorder, const struct rf_call_record *record)
{
    struct entry *entry = &recorder->entries[record->contract.sequence % CALLS];
    __atomic_store_n(&entry->number, 0, __ATOMIC_RELEASE);
    entry->contract = record->contract;
    entry->hash = record->hash;
    entry->status = 0;
    entry->ended_ns = 0;
    entry->started_ns = clock_ns();
    __atomic_store_n(&entry->number, record->contract.sequence + 1, __ATOMIC_RELEASE);
}

void rf_recorder_end(struct rf_recorder *recorder, uint64_t sequence, int status)
{
    struct entry *entry = &recorder->entries[sequence % CALLS];
    entry->status = status;
    entry->ended_ns = clock_ns();
}

/* ---- reading --------------------------------------------------------------------------------- */

static int check_head(const char *path, const struct rf_recorder *file, size_t bytes)
{
    const struct head *head = &file->head;
    if (bytes != sizeof(*file) || memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0)
        return rf_fail(RF_ECORRUPT, "%s is not a file of the flight recorder", path);
    if (head->version != VERSION || head->order != 0x01020304 || head->calls != CALLS ||
        head->call_bytes != sizeof(struct entry))
        return rf_fail(RF_ECORRUPT, "%s was written by another version or kind of machine", path);
    if (head->size < 1 || head->size > 1 << 20 || head->rank < 0 || head->rank >= head->size)
        return rf_fail(RF_ECORRUPT, "%s names rank %d of %d", path, head->rank, head->size);
    return 0;
}

static bool is_sound(const struct entry *entry, size_t index)
{
    const struct rf_contract *c = &entry->contract;
    return entry->number > 0 && (entry->number - 1) % CALLS == index &&
           c->sequence == entry->number - 1 && c->op > RF_COLL_NONE && c->op < RF_COLL_OP_COUNT &&
           c->dtype < RF_DTYPE_COUNT && c->redop <= RF_CUSTOM && c->order <= RF_ORDER_TREE;
}

static int by_sequence(const void *a, const void *b)
{
    const struct rf_flight_call *x = a, *y = b;
    return (x->contract.sequence > y->contract.sequence) -
           (x->contract.sequence < y->contract.sequence);
}

static void convert(struct rf_flight *flight, const struct rf_recorder *file)
{
    const struct head *head = &file->head;
    hex(head->job, sizeof(head->job), flight->job);
    snprintf(flight->host, sizeof(flight->host), "%.63s", head->host);
    snprintf(flight->provider, sizeof(flight->provider), "%.31s", head->provider);
    flight->rank = head->rank;
    flight->size = head->size;
    flight->pid = head->pid;
    for (size_t i = 0; i < CALLS; i++) {
        const struct entry *entry = &file->entries[i];
        if (!is_sound(entry, i))
            continue;
        struct rf_flight_call *call = &flight->calls[flight->count++];
        call->contract = entry->contract;
        call->contract.label[sizeof(call->contract.label) - 1] = 0;
        call->hash = entry->hash;
        call->status = entry->status;
        call->started_ns = entry->started_ns;
        call->ended_ns = entry->ended_ns;
    }
    qsort(flight->calls, flight->count, sizeof(*flight->calls), by_sequence);
}

int rf_flight_read(const char *path, struct rf_flight **out)
{
    if (!path || !out)
        return rf_fail(RF_EINVAL, "rf_flight_read: path or out is NULL");
    const char *why;
    FILE *stream = rf_open_input(path, &why);
    if (!stream)
        return rf_fail(RF_EIO, "%s cannot be read: %s", path, why);
    struct rf_recorder *file = rf_alloc(sizeof(*file) + 1);
    struct rf_flight *flight = rf_alloc(sizeof(*flight));
    struct rf_flight_call *calls = rf_alloc(CALLS * sizeof(*calls));
    size_t bytes = file ? fread(file, 1, sizeof(*file) + 1, stream) : 0;
    fclose(stream);
    int rc = file && flight && calls ? check_head(path, file, bytes)
                                     : rf_fail(RF_ENOMEM, "no memory to read %s", path);
    if (rc == 0) {
        flight->calls = calls;
        convert(flight, file);
        *out = flight;
    } else {
        rf_free(calls);
        rf_free(flight);
    }
    rf_free(file);
    return rc;
}

void rf_flight_free(struct rf_flight *flight)
{
    if (!flight)
        return;
    rf_free(flight->calls);
    rf_free(flight);
}
