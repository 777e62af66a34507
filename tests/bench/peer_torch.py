#!/usr/bin/env python3
"""PyTorch as a peer of the benchmark: the same collectives over ranks that share one device.

usage: peer_torch.py [--device cuda|cpu]

Reads commands from standard input and answers each with one line of JSON:
    row COLLECTIVE BYTES RANKS REPEATS   make the buffers and the peers, check every result
    run                                  time every peer, call by call in turn, REPEATS times
    check                                check every result again
BYTES are those of the larger side on one rank, float32, sum. Peers:
    torch_eager          what one would write by hand: add into an output, copy_ and cat
    torch_eager_stacked  sum over the first dimension of one tensor that holds all ranks (reductions)
    torch_compile_graph  torch.compile of the straightforward function, replayed as a CUDA graph
"device_us" is between events behind work that keeps the device busy until all is queued; "done_us" is from
the call to the end as the host sees it. With --device cpu both are the host's clock and nothing is compiled:
that only tries the program out.
"""
import argparse
import json
import os
import sys
import time

# Others share the multicast of a real machine: nothing here may use it.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")

import torch  # noqa: E402

SMALL_BYTES = 1 << 20
SMALL_REPEAT = 20
STALL_CYCLES = {False: 400_000, True: 4_000_000}


# ---------------------------------------------------------------- by hand


def eager_all_reduce(ins, outs):
    torch.add(ins[0], ins[1], out=outs[0])
    for tensor in ins[2:]:
        outs[0].add_(tensor)
    for out in outs[1:]:
        out.copy_(outs[0])


def eager_reduce_scatter(ins, outs):
    for rank, out in enumerate(outs):
        part = slice(rank * out.numel(), (rank + 1) * out.numel())
        torch.add(ins[0][part], ins[1][part], out=out)
        for tensor in ins[2:]:
            out.add_(tensor[part])


def eager_broadcast(ins, outs):
    for out in outs:
        out.copy_(ins[0])


def eager_all_gather(ins, outs):
    for out in outs:
        torch.cat(ins, out=out)


def eager_all_to_all(ins, outs):
    for rank, out in enumerate(outs):
        size = out.numel() // len(outs)
        torch.cat([tensor[rank * size : (rank + 1) * size] for tensor in ins], out=out)


# ---------------------------------------------------------------- one tensor with all ranks


def stacked_all_reduce(stack, outs):
    torch.sum(stack, 0, out=outs[0])
    for out in outs[1:]:
        out.copy_(outs[0])


def stacked_reduce_scatter(stack, outs):
    for rank, out in enumerate(outs):
        torch.sum(stack[:, rank * out.numel() : (rank + 1) * out.numel()], 0, out=out)


# ---------------------------------------------------------------- for the compiler


def plain_sum(tensors):
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def plain_all_reduce(ins, outs):
    total = plain_sum(ins)
    for out in outs:
        out.copy_(total)


def plain_reduce_scatter(ins, outs):
    for rank, out in enumerate(outs):
        size = out.numel()
        out.copy_(plain_sum([tensor[rank * size : (rank + 1) * size] for tensor in ins]))


def plain_broadcast(ins, outs):
    for out in outs:
        out.copy_(ins[0])


def plain_all_gather(ins, outs):
    whole = torch.cat(ins)
    for out in outs:
        out.copy_(whole)


def plain_all_to_all(ins, outs):
    for rank, out in enumerate(outs):
        size = out.numel() // len(outs)
        out.copy_(torch.cat([tensor[rank * size : (rank + 1) * size] for tensor in ins]))


# Name: by hand, stacked or None, for the compiler, arrays read and written at least with n ranks.
COLLECTIVES = {
    "all_reduce": (eager_all_reduce, stacked_all_reduce, plain_all_reduce, lambda n: 2 * n),
    "reduce_scatter": (eager_reduce_scatter, stacked_reduce_scatter, plain_reduce_scatter, lambda n: n + 1),
    "broadcast": (eager_broadcast, None, plain_broadcast, lambda n: n),
    "all_gather": (eager_all_gather, None, plain_all_gather, lambda n: n + 1),
    "all_to_all": (eager_all_to_all, None, plain_all_to_all, lambda n: 2 * n),
}


class Row:
    def __init__(self, device, name, size, ranks, repeats):
        self.device, self.name, self.ranks, self.repeats = device, name, ranks, repeats
        self.cuda = device == "cuda"
        self.count = size // 4
        self.slice = self.count // ranks
        self.small = size < SMALL_BYTES
        in_count = self.slice if name == "all_gather" else self.count
        out_count = self.slice if name == "reduce_scatter" else self.count
        self.index = torch.arange(self.count, dtype=torch.int64, device=device)
        self.ins = [torch.empty(in_count, device=device) for _ in range(ranks)]
        if name == "broadcast":
            self.outs, self.ins = self.ins[1:], self.ins[:1]
        else:
            self.outs = [torch.empty(out_count, device=device) for _ in range(ranks)]
        self.put()
        eager, stacked, plain, arrays = COLLECTIVES[name]
        ins, outs = self.ins, self.outs
        self.peers = {"torch_eager": lambda: eager(ins, outs)}
        if stacked:
            stack = torch.stack(ins)
            self.peers["torch_eager_stacked"] = lambda: stacked(stack, outs)
        self.failed = {}
        if self.cuda:
            try:
                self.peers["torch_compile_graph"] = self.capture(plain)
            except Exception as error:  # no compiler on the machine, say: the column stays empty
                self.failed["torch_compile_graph"] = f"{type(error).__name__}: {error}"[:500]
        half = arrays(ranks) * self.count // 2
        source, target = torch.ones(half, device=device), torch.empty(half, device=device)
        self.limits = {
            "torch copy_": lambda: target.copy_(source),
            "torch mul": lambda: torch.mul(source, 1.0, out=target),
        }

    def values(self, rank):
        return ((self.index * 7 + rank * 13) % 101).to(torch.float32)

    def put(self):
        for rank, tensor in enumerate(self.ins):
            tensor.copy_(self.values(rank)[: tensor.numel()])
        for out in self.outs:
            out.fill_(-1)

    def expected(self, rank):
        if self.name in ("all_reduce", "reduce_scatter"):
            total = sum(self.values(r) for r in range(self.ranks))
            if self.name == "all_reduce":
                return total
            return total[rank * self.slice : (rank + 1) * self.slice]
        if self.name == "broadcast":
            return self.values(0)
        if self.name == "all_gather":
            return torch.cat([self.values(r)[: self.slice] for r in range(self.ranks)])
        part = slice(rank * self.slice, (rank + 1) * self.slice)
        return torch.cat([self.values(r)[part] for r in range(self.ranks)])

    def capture(self, plain):
        """The compiled function as a graph on the row's own buffers."""
        torch._dynamo.reset()
        compiled = torch.compile(plain, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(self.ins, self.outs)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compiled(self.ins, self.outs)
        return graph.replay

    def check(self):
        right = {}
        for name, call in self.peers.items():
            self.put()
            call()
            right[name] = all(torch.equal(out, self.expected(rank)) for rank, out in enumerate(self.outs))
        return right

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def done_us(self, call):
        self.synchronize()
        start = time.perf_counter_ns()
        call()
        self.synchronize()
        return (time.perf_counter_ns() - start) / 1e3

    def device_us(self, call):
        if not self.cuda:
            return self.done_us(call)
        repeat = SMALL_REPEAT if self.small else 1
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(STALL_CYCLES[self.small])
        first.record()
        for _ in range(repeat):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / repeat

    def run(self):
        device = {name: [] for name in self.peers}
        done = {name: [] for name in self.peers}
        limits = {name: [] for name in self.limits}
        for _ in range(self.repeats):
            for name, call in self.peers.items():
                done[name].append(round(self.done_us(call), 2))
                device[name].append(round(self.device_us(call), 2))
            for name, call in self.limits.items():
                limits[name].append(round(self.device_us(call), 2))
        return {"device_us": device, "done_us": done, "limits_us": limits}


def answer(row):
    return {"collective": row.name, "right": row.check(), "failed": row.failed, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    # Others may print to standard output while they compile: the answers go to a copy of it.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    row = None
    with torch.no_grad():
        for line in sys.stdin:
            words = line.split()
            if words[0] == "row":
                row = None  # frees the buffers of the last one
                if options.device == "cuda":
                    torch.cuda.empty_cache()
                row = Row(options.device, words[1], int(words[2]), int(words[3]), int(words[4]))
                result = answer(row)
            else:
                result = row.run() if words[0] == "run" else answer(row)
            print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
