// SPDX-License-Identifier: MIT
//
// Collectives of Gloo over TCP, measured as `ringforge bench` measures its own. RANK and WORLD_SIZE
// as torchrun sets them, PEER_STORE an empty folder that all ranks share.
//
//   PEER_STORE=$(mktemp -d) ringforge run -n 4 -- ./gloo all_reduce 4 67108864 4 11
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "peer.h"

namespace
{

std::shared_ptr<gloo::rendezvous::Context> context;

void call(peer *p, const float *in, float *out, size_t count)
{
    auto *from = const_cast<float *>(in);
    if (strcmp(p->op, "all_gather") == 0) {
        gloo::AllgatherOptions opts(context);
        opts.setInput(from, count / (size_t)p->ranks);
        opts.setOutput(out, count);
        gloo::allgather(opts);
    } else if (strcmp(p->op, "broadcast") == 0) {
        gloo::BroadcastOptions opts(context);
        opts.setOutput(out, count);
        opts.setRoot(0);
        gloo::broadcast(opts);
    } else {
        gloo::AllreduceOptions opts(context);
        opts.setInput(from, count);
        opts.setOutput(out, count);
        opts.setReduceFunction(
            [](void *c, const void *a, const void *b, size_t n) { gloo::sum<float>(c, a, b, n); });
        gloo::allreduce(opts);
    }
}

double slowest(peer *, double seconds)
{
    double most = 0;
    gloo::AllreduceOptions opts(context);
    opts.setInput(&seconds, 1);
    opts.setOutput(&most, 1);
    opts.setReduceFunction(
        [](void *c, const void *a, const void *b, size_t n) { gloo::max<double>(c, a, b, n); });
    gloo::allreduce(opts);
    return most;
}

} // namespace

int main(int argc, char **argv)
{
    peer p = {};
    const char *rank = getenv("RANK"), *ranks = getenv("WORLD_SIZE"), *store = getenv("PEER_STORE");
    if (!peer_arguments(&p, argc, argv) || strcmp(p.op, "reduce_scatter") == 0 || !rank || !ranks ||
        !store) {
        fprintf(stderr, "use: PEER_STORE=FOLDER ringforge run -n N -- gloo "
                        "all_reduce|all_gather|broadcast LEAST MOST FACTOR SAMPLES\n");
        return 2;
    }
    p.rank = atoi(rank);
    p.ranks = atoi(ranks);
    p.call = call;
    p.slowest = slowest;
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore files(store);
    context = std::make_shared<gloo::rendezvous::Context>(p.rank, p.ranks);
    context->connectFullMesh(files, device);
    peer_run(&p);
    return 0;
}
