// In-place float32 gloo::allreduce over TCP, by default on the loopback interface
// (Gloo has no shared-memory transport between processes).
// Usage: RANK=r SIZE=n STORE=<empty shared folder> [IFACE=interface] gloo NAME [ring|bcube]
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench.h"

static std::shared_ptr<gloo::rendezvous::Context> ctx;
using Options = gloo::AllreduceOptions;
using Algorithm = gloo::detail::AllreduceOptionsImpl::Algorithm;
static Algorithm algorithm = Algorithm::RING;

static void allreduce(float *buf, size_t count) {
    Options o(ctx);
    o.setAlgorithm(algorithm);
    o.setOutput(buf, count);
    o.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(o);
}
static void max_doubles(double *buf, size_t count) {
    Options o(ctx);
    o.setOutput(buf, count);
    o.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::max<double>));
    gloo::allreduce(o);
}
static void barrier() {
    gloo::BarrierOptions o(ctx);
    gloo::barrier(o);
}

int main(int argc, char **argv) {
    if (!getenv("RANK") || !getenv("SIZE") || !getenv("STORE")) {
        fprintf(stderr, "set RANK, SIZE and STORE\n");
        return 2;
    }
    if (argc > 2 && !strcmp(argv[2], "bcube")) algorithm = Algorithm::BCUBE;
    gloo::transport::tcp::attr attr;
    const char *iface = getenv("IFACE");
    attr.iface = iface ? iface : "lo";
    gloo::rendezvous::FileStore store(getenv("STORE"));
    bench_peer p = {argc > 1 ? argv[1] : "gloo", atoi(getenv("RANK")), atoi(getenv("SIZE")),
                    allreduce, max_doubles, barrier, nullptr};
    ctx = std::make_shared<gloo::rendezvous::Context>(p.rank, p.ranks);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    ctx->connectFullMesh(store, device);
    size_t bad = bench_run(&p);
    barrier();
    return bad != 0;
}
