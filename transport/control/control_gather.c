/* SPDX-License-Identifier: MIT
 *
 * all_gather over the star: parts go to rank 0, which sends back the whole. Long parts travel in
 * pieces, so that no frame is longer than the parser allows.
 */
#include <errno.h>

#include "base/base.h"
#include "control.h"

enum { MOST_PIECE = 64 << 10 };

/* Rank 0, with the lock held: sends the result once the last part has arrived. */
static void finish_gather(struct rf_socket_control *c, uint32_t number)
{
    int size = c->control.size;
    if (++c->parts < size)
        return;
    c->parts = 0;
    char text[200];
    size_t bytes = c->peers[0].part_bytes;
    uint8_t *all = rf_alloc(bytes * (size_t)size + 1);
    int status = all ? 0 : RF_ENOMEM;
    for (int rank = 0; rank < size && status == 0; rank++) {
        if (c->peers[rank].part_bytes != bytes) {
            snprintf(text, sizeof(text), "rank 0 gathers %zu bytes, rank %d %zu", bytes, rank,
                     c->peers[rank].part_bytes);
            status = RF_EMISMATCH;
        } else if (bytes > 0) {
            memcpy(all + (size_t)rank * bytes, c->peers[rank].part, bytes);
        }
    }
    if (status == RF_ENOMEM)
        snprintf(text, sizeof(text), "rank 0 has no memory to gather %zu bytes from each rank",
                 bytes);
    const void *payload = status < 0 ? (const void *)text : all;
    size_t payload_bytes = status < 0 ? strlen(text) : bytes * (size_t)size;
    for (int rank = 1; rank < size; rank++)
        if (rf_link_queue(&c->peers[rank].link,
                          status < 0 ? RF_FRAME_GATHER_FAILED : RF_FRAME_GATHERED, 0, number,
                          payload, payload_bytes) < 0)
            rf_log("transport", 0, "rank %d cannot be answered: %s", rank,
                   rf_last_error()->message);
    rf_gather_result(c, number, status, payload, payload_bytes);
    rf_free(all);
}

int rf_gather_part(struct rf_socket_control *c, int rank, uint32_t number, const void *data,
                   size_t bytes)
{
    struct rf_control_peer *peer = &c->peers[rank];
    /* A rank begins a gather only after it has the result of the previous one. */
    if (number != peer->part_number + 1)
        return rf_fail(RF_ECORRUPT, "control: rank %d gathers out of order", rank);
    if (bytes > RF_FRAME_MAX_PAYLOAD / (size_t)c->control.size)
        return rf_fail(RF_ECORRUPT, "control: rank %d gathers too much at once", rank);
    uint8_t *part = rf_realloc(peer->part, bytes + 1);
    if (!part)
        return rf_fail(RF_ENOMEM, "control: no memory to gather %zu bytes", bytes);
    if (bytes > 0)
        memcpy(part, data, bytes);
    peer->part = part;
    peer->part_bytes = bytes;
    peer->part_number = number;
    finish_gather(c, number);
    return 0;
}

void rf_gather_result(struct rf_socket_control *c, uint32_t number, int status, const void *data,
                      size_t bytes)
{
    if (!c->waiting || number != c->gathers)
        return; /* the caller has given up */
    if (status == 0 && bytes != c->gather_bytes * (size_t)c->control.size) {
        status = RF_EMISMATCH;
        data = "the sizes differ between ranks";
        bytes = strlen(data);
    }
    if (status == 0 && bytes > 0)
        memcpy(c->gather_all, data, bytes);
    if (status < 0)
        rf_frame_text(data, bytes, c->gather_text, sizeof(c->gather_text));
    c->gather_status = status;
    c->waiting = false;
    pthread_cond_broadcast(&c->changed);
}

static bool wanted(const struct rf_socket_control *c, int rank)
{
    return c->control.rank != 0 || c->peers[rank].part_number != c->gathers;
}

/* The reason why there will be no result; 0: one may still come. A death is reported first, because
 * a rank that learns of it earlier aborts and leaves. */
static int broken(struct rf_socket_control *c)
{
    for (int rank = 0; rank < c->control.size; rank++)
        if (c->peers[rank].dead && (c->aborted || wanted(c, rank)))
            return rf_fail_rank(RF_EPEER, rank, "rank %d died while the others wait for it", rank);
    if (c->aborted)
        return rf_fail(RF_EABORT, "the job was aborted while gathering from all ranks");
    for (int rank = 0; rank < c->control.size; rank++)
        if (c->peers[rank].left && wanted(c, rank))
            return rf_fail_rank(RF_EPEER, rank, "rank %d left while the others wait for it", rank);
    return 0;
}

static int late(struct rf_socket_control *c, double timeout_s)
{
    for (int rank = 0; c->control.rank == 0 && rank < c->control.size; rank++)
        if (c->peers[rank].part_number != c->gathers)
            return rf_fail_rank(RF_ETIMEOUT, rank, "rank %d did not come within %.3g s", rank,
                                timeout_s);
    return rf_fail(RF_ETIMEOUT, "not all ranks came within %.3g s", timeout_s);
}

static int gather_piece(struct rf_socket_control *c, const void *mine, size_t bytes, void *all,
                        double timeout_s, uint64_t until_ns)
{
    uint32_t number = ++c->gathers;
    c->waiting = true;
    c->gather_status = RF_EAGAIN;
    c->gather_all = all;
    c->gather_bytes = bytes;
    int rc = c->control.rank == 0 ? rf_gather_part(c, 0, number, mine, bytes)
                                  : rf_link_queue(&c->peers[0].link, RF_FRAME_GATHER,
                                                  c->control.rank, number, mine, bytes);
    rf_control_wake(c);
    while (rc == 0 && c->waiting) {
        rc = broken(c);
        if (rc == 0 && !rf_cond_wait(&c->changed, &c->lock, until_ns) && c->waiting)
            rc = late(c, timeout_s);
    }
    c->waiting = false;
    if (rc == 0 && c->gather_status < 0)
        rc = rf_fail(c->gather_status, "gathering from all ranks failed: %s", c->gather_text);
    return rc;
}

int rf_control_all_gather(struct rf_control *control, const void *mine, size_t bytes, void *all,
                          double timeout_s)
{
    struct rf_socket_control *c = (struct rf_socket_control *)control;
    size_t size = (size_t)control->size, most = RF_FRAME_MAX_PAYLOAD / size;
    const uint64_t until_ns = rf_after_s(timeout_s);
    size_t piece = bytes < most ? bytes : most;
    if (piece > MOST_PIECE)
        piece = MOST_PIECE;
    uint8_t *gathered = rf_alloc(piece * size + 1);
    if (!gathered)
        return rf_fail(RF_ENOMEM, "control: no memory to gather %zu bytes", bytes);
    int rc = 0;
    size_t done = 0;
    pthread_mutex_lock(&c->lock);
    do {
        size_t now = bytes - done < piece ? bytes - done : piece;
        rc = gather_piece(c, (const char *)mine + done, now, gathered, timeout_s, until_ns);
        for (size_t rank = 0; rank < size && rc == 0 && now > 0; rank++)
            memcpy((char *)all + rank * bytes + done, gathered + rank * now, now);
        done += now;
    } while (rc == 0 && done < bytes);
    pthread_mutex_unlock(&c->lock);
    rf_free(gathered);
    return rc;
}
