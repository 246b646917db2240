/* SPDX-License-Identifier: MIT
 *
 * Ranks with a device each, for the tests of collectives on tensors.
 */
#ifndef RF_TESTS_COMM_TENSOR_DEVICE_H
#define RF_TESTS_COMM_TENSOR_DEVICE_H

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <memory>

#include "support/ranks.h"

namespace tensors
{

/* Keeps the CPU driver loaded, so that the leak checker can tell its leaks from ours by name. */
inline const void *const driver = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_NODELETE);

/* A rank's device and its buffers. */
class Device
{
  public:
    explicit Device(bool hide_host_memory = false)
    {
        rf_device_opts opts = {};
        opts.hide_host_memory = hide_host_memory;
        EXPECT_EQ(rf_device_open(nullptr, &opts, &device_), RF_OK) << rf_last_error()->message;
    }
    ~Device()
    {
        for (rf_buffer *buffer : buffers_)
            rf_buffer_destroy(buffer);
        rf_device_close(device_);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    rf_device *get() const
    {
        return device_;
    }
    /* 64 bytes into a buffer of its own. */
    rf_tensor tensor(const std::vector<float> &data)
    {
        rf_buffer *buffer = nullptr;
        rf_tensor out = {};
        int64_t count = static_cast<int64_t>(data.size());
        EXPECT_EQ(rf_buffer_create(device_, 64 + data.size() * sizeof(float), RF_MEMORY_DEVICE,
                                   RF_CATEGORY_OTHER, &buffer),
                  RF_OK)
            << rf_last_error()->message;
        buffers_.push_back(buffer);
        EXPECT_EQ(rf_tensor_view(buffer, 64, rf_shape1(count), RF_F32, &out), RF_OK);
        EXPECT_EQ(rf_tensor_write(out, data.data(), data.size() * sizeof(float)), RF_OK);
        return out;
    }

  private:
    rf_device *device_ = nullptr;
    std::vector<rf_buffer *> buffers_;
};

/* A communicator keeps staging and timelines on its devices: they outlive it. hidden: a bit for
 * each rank whose device memory cannot be mapped. */
inline void run(ranks::World world, unsigned hidden,
                const std::function<void(rf_comm *comm, int rank, Device &device)> &body)
{
    std::vector<std::unique_ptr<Device>> devices;
    for (int rank = 0; rank < world.size; rank++)
        devices.push_back(std::make_unique<Device>((hidden >> rank & 1) != 0));
    ranks::run(world, [&](rf_comm *comm, int rank) {
        body(comm, rank, *devices[static_cast<size_t>(rank)]);
    });
}

inline void run(int size, bool hide_host_memory,
                const std::function<void(rf_comm *comm, int rank, Device &device)> &body)
{
    ranks::World world;
    world.size = size;
    run(world, hide_host_memory ? ~0u : 0, body);
}

inline std::vector<float> read(rf_tensor tensor)
{
    std::vector<float> out(static_cast<size_t>(rf_tensor_count(tensor)));
    EXPECT_EQ(rf_tensor_read(tensor, out.data(), out.size() * sizeof(float)), RF_OK);
    return out;
}

/* Sums are not exact: the bits show the order of the fold. */
inline std::vector<float> thirds(int salt, size_t count)
{
    std::vector<float> out(count);
    for (size_t i = 0; i < count; i++)
        out[i] =
            static_cast<float>((i * 2654435761u + static_cast<size_t>(salt) * 40503u) % 10007) / 3;
    return out;
}

} // namespace tensors

#endif
