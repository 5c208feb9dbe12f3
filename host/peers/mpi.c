/* In-place float32 MPI_Allreduce. Usage (under mpirun): mpi NAME */
#include <mpi.h>

#include "bench.h"

static void allreduce(float *buf, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void max_doubles(double *buf, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}
static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    bench_peer p = {argc > 1 ? argv[1] : "mpi", 0, 0, allreduce, max_doubles, barrier, NULL};
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    size_t bad = bench_run(&p);
    MPI_Finalize();
    return bad != 0;
}
