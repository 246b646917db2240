/* SPDX-License-Identifier: MIT
 *
 * Opens the shared-memory transport: each rank makes a segment of shared memory and sends it to all
 * others as a file descriptor, over a UNIX socket. Ranks that can do this are on one host; no
 * privilege is needed. A failed rank still takes part to the end, so that all ranks return the same
 * error. Called by choose.c.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../bootstrap/handshake.h"
#include "../providers.h"
#include "base/base.h"
#include "shm.h"

static const double EXCHANGE_TIMEOUT_S = 60;
#define HANDOVER_NS 5000000000ull
enum { NAME_BYTES = 32, TOKEN_BYTES = 16 };

/* First round, over the control link: the address for the handover, and the token that authorises
 * it. */
struct offer {
    int32_t status;
    char host[64]; /* of one running kernel */
    uint8_t name[NAME_BYTES], token[TOKEN_BYTES];
    uint64_t job; /* rank 0's counts */
    struct rf_shm_self self;
    char text[200];
};

/* Last round: the result. */
struct result {
    int32_t status;
    char text[200];
};

/* The message that accompanies a descriptor. */
struct handover {
    uint8_t token[TOKEN_BYTES]; /* the receiver's */
    int32_t rank;
};

/* ---- handing over ---------------------------------------------------------------------------- */

/* An abstract address, which needs no file and disappears with its socket. */
static socklen_t address_of(const uint8_t name[NAME_BYTES], struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    char *text = address->sun_path + 1;
    snprintf(text, sizeof(address->sun_path) - 1, "ringforge-");
    for (size_t i = 0; i < NAME_BYTES; i++)
        snprintf(text + 10 + 2 * i, 3, "%02x", name[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + 10 + 2 * NAME_BYTES);
}

static int open_socket(const struct offer *mine, int *out)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(mine->name, &address);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) < 0) {
        int rc = rf_fail(RF_ENOTSUP, "shm: no UNIX socket can be opened: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

/* The ancillary data of one descriptor. */
union ancillary {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* 0, RF_EAGAIN: later, or the reason why it is impossible. */
static int hand_to(struct rf_shm *h, int socket_fd, const struct offer *offer, int rank)
{
    struct sockaddr_un address;
    struct handover handover = {.rank = h->transport.rank};
    memcpy(handover.token, offer->token, TOKEN_BYTES);
    struct iovec data = {&handover, sizeof(handover)};
    union ancillary ancillary = {.bytes = {0}};
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen = address_of(offer->name, &address),
                             .msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = sizeof(ancillary.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &h->fd, sizeof(int));
    if (sendmsg(socket_fd, &message, MSG_NOSIGNAL) >= 0)
        return 0;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS)
        return RF_EAGAIN;
    return rf_fail_rank(RF_ENOTSUP, rank,
                        "rank %d cannot hand memory to rank %d (%s), so they are not on one host",
                        h->transport.rank, rank, strerror(errno));
}

/* Takes one datagram: 1 = a segment has been attached, 0 = none is there, or another program's. */
static int take_over(struct rf_shm *h, int socket_fd, const struct offer *mine)
{
    struct handover handover;
    struct iovec data = {&handover, sizeof(handover)};
    union ancillary ancillary;
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = sizeof(ancillary.bytes)};
    ssize_t bytes = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (bytes < 0)
        return 0;
    int fd = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(header), sizeof(int));
    bool ours = bytes == sizeof(handover) && handover.rank >= 0 &&
                handover.rank < h->transport.size && handover.rank != h->transport.rank &&
                rf_shm_has(h, handover.rank) &&
                memcmp(handover.token, mine->token, TOKEN_BYTES) == 0;
    if (fd < 0)
        return 0;
    if (!ours) {
        close(fd);
        return 0;
    }
    RETURN_IF_ERROR(rf_shm_segment_attach(h, handover.rank, fd));
    return 1;
}

static int hand_over(struct rf_shm *h, int socket_fd, const struct offer *offers)
{
    int rank = h->transport.rank, given = 0, taken = 0;
    uint64_t deadline = rf_now_ns() + HANDOVER_NS;
    while (given < h->count || taken < h->count - 1) {
        int rc = RF_EAGAIN;
        if (given < h->count) {
            int to = h->ranks[given];
            rc = to == rank ? 0 : hand_to(h, socket_fd, &offers[to], to);
        }
        if (rc == 0)
            given++;
        else if (rc != RF_EAGAIN)
            return rc;
        int got = take_over(h, socket_fd, &offers[rank]);
        if (got < 0)
            return got;
        taken += got;
        if (rc == 0 || got > 0)
            continue;
        struct pollfd wait = {.fd = socket_fd, .events = POLLIN};
        poll(&wait, 1, given < h->count ? 1 : 100);
        if (rf_now_ns() > deadline)
            return rf_fail(RF_ENOTSUP,
                           "rank %d has been handed the memory of %d of %d ranks in 5 s", rank,
                           taken, h->count - 1);
    }
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Makes the first failure of any rank the error of all. */
static int check_all(const struct offer *offers, const uint64_t *hosts, int size)
{
    for (int r = 0; r < size; r++)
        if (offers[r].status < 0)
            return rf_fail_rank(RF_ENOTSUP, r, "rank %d: %.199s", r, offers[r].text);
    for (int r = 1; r < size; r++) {
        int first = 0; /* of the ranks assumed to be on its host */
        while (hosts && hosts[first] != hosts[r])
            first++;
        if (strncmp(offers[r].host, offers[first].host, sizeof(offers[r].host)) != 0)
            return rf_fail_rank(RF_ENOTSUP, r, "rank %d and rank %d are not on one host", r, first);
    }
    return 0;
}

static int agree(struct rf_control *control, int rc, struct result *results)
{
    struct result mine = {.status = rc};
    if (rc < 0)
        snprintf(mine.text, sizeof(mine.text), "%.199s", rf_last_error()->message);
    RETURN_IF_ERROR(
        control->ops->all_gather(control, &mine, sizeof(mine), results, EXCHANGE_TIMEOUT_S));
    for (int r = 0; r < control->size; r++)
        if (results[r].status < 0)
            return rf_fail_rank(RF_ENOTSUP, r, "%.199s", results[r].text);
    return 0;
}

static void make_offer(int rc, struct offer *mine)
{
    rf_host_name(mine->host, sizeof(mine->host));
    mine->status = rc;
    if (rc < 0)
        snprintf(mine->text, sizeof(mine->text), "%.199s", rf_last_error()->message);
}

static int exchange_trials(struct rf_control *control, const struct rf_shm_trial *mine,
                           struct rf_shm_trial *all)
{
    return control->ops->all_gather(control, mine, sizeof(*mine), all, EXCHANGE_TIMEOUT_S);
}

static int check_trials(const struct rf_control *control, const struct rf_shm_trial *all)
{
    for (int r = 0; r < control->size; r++)
        if (all[r].status == RF_ENOMEM)
            return rf_fail_rank(RF_ENOMEM, r, "rank %d has no %d bytes of memory to send from", r,
                                RF_SHM_TRIAL_BYTES);
        else if (all[r].status < 0)
            return rf_fail_rank(all[r].status < RF_EAGAIN ? RF_ENET : all[r].status, r,
                                "rank %d could not exchange messages with its neighbours in shared "
                                "memory",
                                r);
    return 0;
}

/* All ranks decide how data from private memory is sent. */
static int decide(struct rf_control *control, struct rf_shm *h, const struct offer *offers,
                  struct rf_shm_trial *all, void *memory)
{
    struct rf_shm_trial mine = {0};
    rf_shm_try_reads(h, &offers[0].self, sizeof(*offers), &mine);
    mine.status = memory ? 0 : RF_ENOMEM;
    RETURN_IF_ERROR(exchange_trials(control, &mine, all));
    RETURN_IF_ERROR(check_trials(control, all));
    if (h->count > 1)
        rf_shm_measure(h, control, rf_shm_reads_are_permitted(h, all), memory, &mine);
    RETURN_IF_ERROR(exchange_trials(control, &mine, all));
    RETURN_IF_ERROR(check_trials(control, all));
    rf_shm_choose(h, all);
    return 0;
}

static int try_ways(struct rf_control *control, struct rf_shm *h, const struct offer *offers)
{
    struct rf_shm_trial *all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "shm: no memory for %d ranks", control->size);
    void *memory = rf_alloc(RF_SHM_TRIAL_BYTES);
    const int rc = decide(control, h, offers, all, memory);
    rf_free(memory);
    rf_free(all);
    return rc;
}

static int connect_all(struct rf_control *control, const uint64_t *hosts, struct rf_shm *h,
                       struct offer *offers, struct result *results)
{
    int socket_fd = -1;
    struct offer mine = {0};
    rf_random(mine.name, sizeof(mine.name));
    rf_random(mine.token, sizeof(mine.token));
    rf_random(&mine.job, sizeof(mine.job));
    int rc = h->count <= RF_SHM_MAX_RANKS
                 ? open_socket(&mine, &socket_fd)
                 : rf_fail(RF_ENOTSUP, "shm: at most %d ranks share memory, not %d",
                           RF_SHM_MAX_RANKS, h->count);
    if (rc == 0)
        rc = rf_shm_segment_create(h);
    make_offer(rc, &mine);
    rf_shm_describe_self(h, &mine.self);
    rc = control->ops->all_gather(control, &mine, sizeof(mine), offers, EXCHANGE_TIMEOUT_S);
    if (rc == 0)
        rc = check_all(offers, hosts, control->size);
    if (rc == 0) { /* on every rank, or on none */
        rf_shm_segment_name(h, offers[0].job);
        rc = agree(control, hand_over(h, socket_fd, offers), results);
    }
    if (socket_fd >= 0)
        close(socket_fd);
    return rc == 0 ? try_ways(control, h, offers) : rc;
}

int rf_shm_probe(const struct rf_provider *self, struct rf_provider_lines *lines)
{
    rf_provider_add(lines, self, self->name, "this host");
    return 0;
}

int rf_shm_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out)
{
    const uint64_t *hosts = opening->hosts;
    size_t size = (size_t)control->size;
    struct offer *offers = rf_alloc(size * sizeof(*offers));
    struct result *results = rf_alloc(size * sizeof(*results));
    struct rf_shm *h = NULL;
    int rc = offers && results ? rf_shm_open(control->rank, control->size, hosts, &h)
                               : rf_fail(RF_ENOMEM, "shm: no memory for %zu ranks", size);
    if (rc == 0) {
        h->transport.yield = h->count > rf_host_cores();
        rc = connect_all(control, hosts, h, offers, results);
    }
    rf_free(offers);
    rf_free(results);
    if (rc < 0) {
        rf_shm_close(h);
        return rc;
    }
    *out = &h->transport;
    return 0;
}
