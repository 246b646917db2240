// SPDX-License-Identifier: MIT
//
// Collectives of Gloo over TCP, measured as `ringforge bench --one-clock` measures its own. RANK
// and WORLD_SIZE as torchrun sets them, PEER_STORE an empty folder that all ranks share.
//
//   PEER_STORE=$(mktemp -d) ringforge run --ranks 4 -- ./gloo all_reduce 4 67108864 4 11
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <vector>

#include "peer.h"

namespace
{

std::shared_ptr<gloo::rendezvous::Context> context;

void sum(void *c, const void *a, const void *b, size_t n)
{
    gloo::sum<float>(c, a, b, n);
}

// Rooted collectives and all_to_all.
void call_other(peer *p, float *from, float *out, size_t count)
{
    const size_t share = count / (size_t)p->ranks;
    if (strcmp(p->op, "reduce") == 0) {
        gloo::ReduceOptions opts(context);
        opts.setInput(from, count);
        opts.setOutput(out, count);
        opts.setRoot(0);
        opts.setReduceFunction(sum);
        gloo::reduce(opts);
    } else if (strcmp(p->op, "gather") == 0) {
        gloo::GatherOptions opts(context);
        opts.setInput(from, share);
        opts.setOutput(out, p->rank == 0 ? count : 0);
        opts.setRoot(0);
        gloo::gather(opts);
    } else if (strcmp(p->op, "scatter") == 0) {
        gloo::ScatterOptions opts(context);
        std::vector<float *> inputs;
        for (int r = 0; p->rank == 0 && r < p->ranks; r++)
            inputs.push_back(from + (size_t)r * share);
        opts.setInputs(inputs, share);
        opts.setOutput(out, share);
        opts.setRoot(0);
        gloo::scatter(opts);
    } else {
        gloo::AlltoallOptions opts(context);
        opts.setInput(from, count);
        opts.setOutput(out, count);
        gloo::alltoall(opts);
    }
}

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
    } else if (strcmp(p->op, "all_reduce") == 0) {
        gloo::AllreduceOptions opts(context);
        opts.setInput(from, count);
        opts.setOutput(out, count);
        opts.setReduceFunction(sum);
        gloo::allreduce(opts);
    } else {
        call_other(p, from, out, count);
    }
}

double largest(peer *, double seconds)
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
        fprintf(stderr, "use: PEER_STORE=FOLDER ringforge run --ranks N -- gloo "
                        "OP LEAST MOST FACTOR SAMPLES [rewrite] (no reduce_scatter)\n");
        return 2;
    }
    p.rank = atoi(rank);
    p.ranks = atoi(ranks);
    p.call = call;
    p.largest = largest;
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore files(store);
    context = std::make_shared<gloo::rendezvous::Context>(p.rank, p.ranks);
    context->connectFullMesh(files, device);
    peer_run(&p);
    return 0;
}
