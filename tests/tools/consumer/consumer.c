/* SPDX-License-Identifier: MIT
 *
 * A user's program: an all-reduce of two ranks and a matrix product, with the public headers only.
 * Exit status 0: both results were right.
 */
#include <pthread.h>
#include <ringforge/ringforge.h>
#include <stdio.h>

struct member {
    struct rf_loopback *loopback;
    int rank;
    float value;
};

static void *sum(void *argument)
{
    struct member *m = argument;
    struct rf_comm *comm = NULL;
    struct rf_comm_opts opts = {.rank = m->rank, .size = 2};
    if (rf_comm_open_loopback(m->loopback, m->rank, &opts, &comm) < 0 ||
        rf_all_reduce(comm, &m->value, &m->value, 1, RF_F32, RF_SUM, NULL) < 0) {
        fprintf(stderr, "%s\n", rf_last_error()->message);
        m->value = -1;
    }
    rf_comm_close(comm);
    return NULL;
}

static int all_reduce(void)
{
    struct rf_loopback *loopback = NULL;
    if (rf_loopback_create(2, NULL, &loopback) < 0)
        return -1;
    struct member members[2] = {{loopback, 0, 1}, {loopback, 1, 2}};
    pthread_t other;
    if (pthread_create(&other, NULL, sum, &members[1]) != 0)
        return -1;
    sum(&members[0]);
    pthread_join(other, NULL);
    rf_loopback_destroy(loopback);
    return members[0].value == 3 && members[1].value == 3 ? 0 : -1;
}

static int product(void)
{
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4] = {0};
    struct rf_device *device = NULL;
    struct rf_stream *stream = NULL;
    struct rf_tensor t[3] = {{0}};
    int rc = rf_device_open(NULL, NULL, &device);
    if (rc == 0)
        rc = rf_stream_create(device, "consumer", &stream);
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = rf_tensor_create(device, rf_shape2(2, 2), RF_F32, &t[i]);
    if (rc == 0)
        rc = rf_tensor_write(t[0], a, sizeof(a));
    if (rc == 0)
        rc = rf_tensor_write(t[1], b, sizeof(b));
    if (rc == 0)
        rc = rf_matmul(stream, t[2], t[0], t[1], NULL);
    if (rc == 0)
        rc = rf_stream_wait(stream);
    if (rc == 0)
        rc = rf_tensor_read(t[2], c, sizeof(c));
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    for (int i = 0; i < 3; i++)
        rf_buffer_destroy(t[i].buffer);
    rf_stream_destroy(stream);
    rf_device_close(device);
    return rc == 0 && c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50 ? 0 : -1;
}

int main(void)
{
    if (all_reduce() < 0 || product() < 0)
        return 1;
    printf("ringforge %s: all-reduce and matmul are right\n", rf_version());
    return 0;
}
