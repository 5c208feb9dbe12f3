// In-place float32 ccl::allreduce on host memory.
// Usage (under oneCCL's own mpirun, which sets PMI_RANK and PMI_SIZE):
//   STORE=<empty shared folder> oneccl NAME
// The key-value store's address goes from rank 0 to the others in a file.
#include <oneapi/ccl.hpp>

#include <fstream>
#include <memory>
#include <string>

#include "bench.h"

static std::unique_ptr<ccl::communicator> comm;

static void allreduce(float *buf, size_t count) {
    ccl::allreduce(buf, buf, count, ccl::reduction::sum, *comm).wait();
}
static void max_doubles(double *buf, size_t count) {
    ccl::allreduce(buf, buf, count, ccl::reduction::max, *comm).wait();
}
static void barrier() { ccl::barrier(*comm).wait(); }

static ccl::shared_ptr_class<ccl::kvs> rendezvous(int rank, const std::string &dir) {
    std::string path = dir + "/kvs", tmp = path + ".tmp";
    if (rank == 0) {
        auto kvs = ccl::create_main_kvs();
        auto a = kvs->get_address();
        std::ofstream(tmp, std::ios::binary).write(a.data(), (std::streamsize)a.size());
        if (rename(tmp.c_str(), path.c_str())) abort();
        return kvs;
    }
    ccl::kvs::address_type a;
    for (;;) {
        std::ifstream f(path, std::ios::binary);
        if (f && f.read(a.data(), (std::streamsize)a.size())) break;
        usleep(1000);
    }
    return ccl::create_kvs(a);
}

int main(int argc, char **argv) {
    const char *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE"), *dir = getenv("STORE");
    if (!rank || !size || !dir) {
        fprintf(stderr, "run under mpirun with STORE set\n");
        return 2;
    }
    ccl::init();
    bench_peer p = {argc > 1 ? argv[1] : "oneccl", atoi(rank), atoi(size), allreduce, max_doubles,
                    barrier, nullptr};
    comm = std::make_unique<ccl::communicator>(
        ccl::create_communicator(p.ranks, p.rank, rendezvous(p.rank, dir)));
    size_t bad = bench_run(&p);
    barrier();
    comm.reset();
    return bad != 0;
}
