#!/usr/bin/env python3
"""Run the benchmark rows beside their limits and peers, interleaved, and print tables.

usage: run.py --build DIR [--quick | --tiny] [--no-peers] [--json FILE] [--only NAME,...] [--rounds N]
              [--driver software|cuda] [--one-device] [--python PYTHON]

With --driver cuda the rows are those of one real device (device_rows.py); --one-device runs these rows on
the software driver too. PYTHON is the one that has PyTorch.

Every row is run in rounds; a round runs ours (with the bare loops in the same process, call by call) and
then each peer once, so that a machine that changes its speed changes it for all. Medians are over all
calls of all rounds.
"""
import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import device_rows

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
COLLECTIVES = ["all_reduce", "reduce_scatter", "broadcast", "all_gather", "all_to_all"]

OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
            "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
PEERS = {
    "openmpi_tuned": ("openmpi", OPEN_MPI),
    "openmpi_han": ("openmpi", OPEN_MPI + ["--mca", "coll_han_priority", "100"]),
    "mpich": ("mpich", ["mpirun.mpich"]),
}


class Bench:
    def __init__(self, options):
        self.options = options
        self.bin = os.path.join(options.build, "bin")
        self.work = tempfile.mkdtemp(prefix="symtensor-bench.")
        self.peers = {}
        self.rows = []
        if not options.no_peers:
            self.build_peers()

    def build_peers(self):
        for library in ("openmpi", "mpich"):
            compiler = shutil.which(f"mpicc.{library}")
            if not compiler or not shutil.which(f"mpirun.{library}"):
                print(f"# {library} is not installed: its column stays empty", file=sys.stderr)
                continue
            program = os.path.join(self.work, f"mpi_peer_{library}")
            subprocess.run([compiler, "-O2", "-o", program, os.path.join(HERE, "mpi_peer.c")], check=True)
            for name, (kind, command) in PEERS.items():
                if kind == library:
                    self.peers[name] = (command, program)

    def run_peer(self, name, collective, size, ranks, repeats):
        command, program = self.peers[name]
        out = subprocess.run(command + ["-np", str(ranks), program, collective, str(size), str(repeats)],
                             check=True, capture_output=True, text=True, timeout=300).stdout.split()
        if out[-1] != "ok":
            raise SystemExit(f"{name} {collective}: wrong result")
        return [float(value) for value in out[:-1]]

    def run_ours(self, collective, size, ranks, devices, repeats):
        out = subprocess.run([os.path.join(self.bin, "collectives_bench"), collective, str(size), str(ranks),
                              str(devices), str(repeats)], check=True, capture_output=True, text=True,
                             timeout=300).stdout
        result = json.loads(out)
        if not result["right"]:
            raise SystemExit(f"{collective}: wrong result")
        return result

    def row(self, collective, size, ranks, devices, repeats, peer_repeats):
        ours, limits, samples = [], [], {name: [] for name in self.peers}
        result = {}
        for _ in range(self.options.rounds):
            result = self.run_ours(collective, size, ranks, devices, repeats)
            ours += result["ours_us"]
            limits.append((result["limit_us"], result["limit"]))
            for name in self.peers:
                samples[name] += self.run_peer(name, collective, size, ranks, peer_repeats)
        median = statistics.median(ours)
        limit = statistics.median(value for value, _ in limits)
        peers = {name: round(statistics.median(values), 2) for name, values in samples.items() if values}
        fastest = min(peers.values()) if peers else None
        row = {
            "collective": collective, "algorithm": result["algorithm"], "dtype": "float32", "ranks": ranks,
            "devices": devices, "nodes": 1, "bytes_per_rank": size, "median_us": round(median, 2),
            "p10_us": round(device_rows.quantile(ours, 0.1), 2), "p90_us": round(device_rows.quantile(ours, 0.9), 2),
            "limit_us": round(limit, 2), "ratio_to_limit": round(limit / median, 3), "limit": limits[-1][1],
            "peers": peers, "ratio_to_fastest_peer": round(fastest / median, 2) if fastest else None,
            "driver": "software", "machine": device_rows.machine("software"), "date": datetime.date.today().isoformat(),
        }
        self.rows.append(row)
        print_row(row)

    def finish(self):
        shutil.rmtree(self.work)
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"rows": self.rows}, file, indent=1)
                file.write("\n")


HEADER = (f"{'collective':<15}{'ranks':>6}{'devices':>8}{'bytes':>11}{'median us':>11}{'p10':>10}{'p90':>10}"
          f"{'limit us':>10}{'of limit':>9}{'fastest peer us':>17}{'x peer':>8}")


def print_row(row):
    fastest = min(row["peers"].values()) if row["peers"] else None
    print(f"{row['collective']:<15}{row['ranks']:>6}{row['devices']:>8}{row['bytes_per_rank']:>11}"
          f"{row['median_us']:>11.1f}{row['p10_us']:>10.1f}{row['p90_us']:>10.1f}{row['limit_us']:>10.1f}"
          f"{row['ratio_to_limit']:>9.2f}{fastest or float('nan'):>17.1f}"
          f"{row['ratio_to_fastest_peer'] or float('nan'):>8.2f}", flush=True)


def plan(options):
    """Rows: collective, bytes, ranks, devices, repeats, repeats of a peer."""
    if options.tiny:
        return [(name, 65536, 4, 4, 3, 2) for name in COLLECTIVES]
    rows = [(name, 64 * MIB, 4, 4, 11, 5) for name in COLLECTIVES]
    rows += [("all_reduce", 64 * MIB, 2, 2, 11, 5)]
    rows += [("all_reduce", 4096, 4, 4, 500, 100)]
    if not options.quick:
        rows += [(name, MIB, 4, 4, 101, 21) for name in COLLECTIVES]
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--driver", choices=["software", "cuda"], default="software")
    parser.add_argument("--one-device", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 1 if options.tiny else 3 if options.quick else 5
    if options.one_device or options.driver == "cuda":
        sys.exit(1 if device_rows.DeviceBench(options).run() else 0)
    bench = Bench(options)
    machine = device_rows.machine("software")
    print(f"{machine}, {datetime.date.today().isoformat()}, software driver, float32 sum, in process")
    print(HEADER)
    only = set(filter(None, options.only.split(",")))
    for row in plan(options):
        if not only or row[0] in only:
            bench.row(*row)
    bench.finish()


if __name__ == "__main__":
    main()
