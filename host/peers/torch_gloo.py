"""In-place float32 torch.distributed.all_reduce on CPU tensors, Gloo backend.

The same measuring loop as bench.h. Usage, once for every rank:
    RANK=r SIZE=n STORE=<empty shared folder> torch_gloo.py NAME
Set GLOO_SOCKET_IFNAME=lo to keep Gloo on the loopback interface.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

SIZES = [8, 1 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20]
LARGEST = int(os.environ.get("BENCH_MAX_BYTES", "0")) or SIZES[-1]


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "torch-gloo"
    rank, ranks = int(os.environ["RANK"]), int(os.environ["SIZE"])
    budget = float(os.environ.get("BENCH_BUDGET_S", "1.5"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}/torch",
                            rank=rank, world_size=ranks)
    failed = 0
    for size in (s for s in SIZES if s <= LARGEST):
        count = size // 4
        batch = 50 if size <= 1 << 10 else 20 if size <= 256 << 10 else 5 if size <= 1 << 20 else 1
        place = torch.arange(count, dtype=torch.int64)
        start = ((place + 3 * rank) % 7 + 1).float()
        want = sum((place + 3 * r) % 7 + 1 for r in range(ranks)).float() * float(ranks) ** (batch - 1)
        buf = torch.empty(count)
        bad = 0

        def sample():
            nonlocal bad
            buf.copy_(start)
            dist.barrier()
            t0 = time.perf_counter()
            for _ in range(batch):
                dist.all_reduce(buf)
            t = (time.perf_counter() - t0) / batch
            bad += int(((buf - want).abs() > 1e-5 * want).sum())
            return t

        def slowest(times):
            t = torch.tensor(times, dtype=torch.float64)
            dist.all_reduce(t, op=dist.ReduceOp.MAX)
            return t.tolist()

        for _ in range(3):
            pilot = sample()
        n = int(min(200, max(7, budget / (slowest([pilot])[0] * batch))))
        t = slowest([sample() for _ in range(n)])
        wrong = int(slowest([float(bad)])[0])
        failed |= wrong
        if rank == 0:
            if wrong:
                print(f"{name}: {size} bytes: {wrong} wrong elements", file=sys.stderr)
            med = statistics.median(t)
            alg = size / med / 1e9
            print(f"{name},{ranks},{size},{med * 1e6:.2f},{min(t) * 1e6:.2f},{alg:.3f},"
                  f"{alg * 2 * (ranks - 1) / ranks:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
