/* SPDX-License-Identifier: MIT
 *
 * Your own kernel as GLSL text: y = 2 x + 1 on any GPU. The text is compiled when the kernel is
 * created. custom_kernel/ has a kernel that is compiled when the program is built, in a block that
 * is trained.
 */
#include <ringforge/ringforge.h>
#include <stdio.h>

static const char text[] = "layout(push_constant) uniform Push { Floats y, x; uint n; };\n"
                           "void main()\n"
                           "{\n"
                           "    uint i = gl_GlobalInvocationID.x;\n"
                           "    if (i < n)\n"
                           "        y.at[i] = 2.0 * x.at[i] + 1.0;\n"
                           "}\n";

enum { N = 1000 };
struct push {
    uint64_t y, x;
    uint32_t n, unused;
};

/* If the tensors exist, these lines create and launch the kernel. */
static int twice_and_one(struct rf_device *device, struct rf_stream *stream, struct rf_tensor y,
                         struct rf_tensor x)
{
    const struct rf_kernel_desc desc = {
        .name = "twice_and_one", .glsl = text, .push_bytes = sizeof(struct push)};
    const struct push push = {rf_tensor_address(y), rf_tensor_address(x), N, 0};
    struct rf_kernel *kernel = NULL;
    int rc = rf_kernel_create(device, &desc, &kernel);
    if (rc == 0)
        rc = rf_launch(
            stream, kernel,
            (struct rf_dispatch){&push, sizeof(push), (uint32_t[]){(N + 63) / 64, 1, 1}, NULL, 0});
    if (rc == 0)
        rc = rf_stream_wait(stream);
    rf_kernel_destroy(kernel);
    return rc;
}

int main(void)
{
    struct rf_device *device = NULL;
    struct rf_stream *stream = NULL;
    struct rf_tensor x = {0}, y = {0};
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    int rc = rf_device_open(NULL, NULL, &device);
    if (rc == 0)
        rc = rf_stream_create(device, "example", &stream);
    if (rc == 0)
        rc = rf_tensor_create(device, rf_shape1(N), RF_F32, &x);
    if (rc == 0)
        rc = rf_tensor_create(device, rf_shape1(N), RF_F32, &y);
    if (rc == 0)
        rc = rf_tensor_write(x, values, sizeof(values));
    if (rc == 0)
        rc = twice_and_one(device, stream, y, x);
    if (rc == 0)
        rc = rf_tensor_read(y, values, sizeof(values));
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    else
        printf("2 * %d + 1 = %g\n", N - 1, values[N - 1]);
    rf_buffer_destroy(x.buffer);
    rf_buffer_destroy(y.buffer);
    rf_stream_destroy(stream);
    rf_device_close(device);
    return rc < 0 || values[N - 1] != 2 * (N - 1) + 1;
}
