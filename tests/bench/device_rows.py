"""Rows of the benchmark on one real device: four ranks on it, times by events, PyTorch as the peer.

Our process and PyTorch's live as long as a row or all of them, and take turns by lines on their standard
input and output: a round is a block of calls of ours (with the copies that are the limit, call by call) and a
block of each peer's. On the software driver the same runs with PyTorch on the CPU, to try it out.
"""
import datetime
import json
import os
import select
import statistics
import subprocess
import sys

MIB = 1 << 20
GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 4
ANSWER_SECONDS = 400
NVLS_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

# Least limit / ours, and least peer / ours, of the large rows.
BARS = {
    "all_reduce": {"limit": 0.93, "torch_eager": 1.8, "torch_compile_graph": 1.0},
    "reduce_scatter": {"limit": 0.93, "torch_eager": 1.5},
    "broadcast": {"limit": 0.90, "torch_eager": 1.4},
    "all_gather": {"limit": 0.90, "torch_eager": 1.5},
    "all_to_all": {"limit": 0.90, "torch_eager": 1.0},
}
SMALL_BAR_US = 5.0
CREATE_BAR_US = 5000.0


def quantile(values, fraction):
    ordered = sorted(values)
    return ordered[round(fraction * (len(ordered) - 1))]


def spread(values):
    """Median, p10 and p90 as fields of a row."""
    return {
        "median_us": round(statistics.median(values), 2),
        "p10_us": round(quantile(values, 0.1), 2),
        "p90_us": round(quantile(values, 0.9), 2),
    }


class Talker:
    """A process that answers each line with one line of JSON."""

    def __init__(self, command):
        self.name = os.path.basename(command[0])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **NVLS_OFF}
        )

    def answer(self):
        if not select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            self.process.kill()
            raise RuntimeError(f"{self.name}: no answer in {ANSWER_SECONDS} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return -1


def machine(driver):
    """What nvidia-smi says, or the processor's name."""
    if driver == "cuda":
        out = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False,
        ).stdout.strip()
        if out:
            return ", driver ".join(part.strip() for part in out.splitlines()[0].split(","))
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0] if models else 'unknown'}, {os.cpu_count()} cores"


class DeviceBench:
    def __init__(self, options):
        self.options = options
        self.bin = os.path.join(options.build, "bin")
        self.rows, self.others, self.failures = [], [], []
        self.machine = machine(options.driver)
        self.torch = None
        if not options.no_peers:
            device = "cuda" if options.driver == "cuda" else "cpu"
            self.torch = Talker([options.python, os.path.join(HERE, "peer_torch.py"), "--device", device])

    def fail(self, text):
        print(f"FAIL: {text}", file=sys.stderr, flush=True)
        self.failures.append(text)

    def peer_row(self, collective, size, repeats):
        """Set the row up in PyTorch; without it the columns stay empty."""
        if not self.torch:
            return
        try:
            answer = self.torch.ask(f"row {collective} {size} {RANKS} {repeats}")
        except (RuntimeError, OSError) as error:
            print(f"# PyTorch is left out: {error}", file=sys.stderr)
            self.torch = None
            return
        self.judge_peers(collective, answer)
        for name, why in answer["failed"].items():
            print(f"# {name} is left out: {why}", file=sys.stderr)

    def judge_peers(self, collective, answer):
        for name, right in answer["right"].items():
            if not right:
                self.fail(f"{name} {collective}: wrong result")

    def sample(self, ours, collective, rounds):
        """Rounds of blocks in turn. @return samples of ours and of PyTorch, each {key: {name: [us]}}."""
        mine = {"device_us": [], "ours_us": [], "limit_us": []}
        theirs = {"device_us": {}, "done_us": {}, "limits_us": {}}
        answer = {}
        for _ in range(rounds):
            answer = ours.ask("run")
            mine["device_us"] += answer["device_us"]
            mine["ours_us"] += answer["ours_us"]
            mine["limit_us"].append(answer["limit_us"])
            if self.torch:
                block = self.torch.ask("run")
                for key, samples in theirs.items():
                    for name, values in block[key].items():
                        samples.setdefault(name, []).extend(values)
        if not ours.ask("check")["right"]:
            self.fail(f"{collective}: wrong result")
        if self.torch:
            self.judge_peers(collective, self.torch.ask("check"))
        return answer, mine, theirs

    def row(self, collective, size, repeats):
        command = [os.path.join(self.bin, "collectives_bench"), "--driver", self.options.driver, "--limit", "copy",
                   "--turns", collective, str(size), str(RANKS), "1", str(repeats)]
        ours = Talker(command)
        if not ours.answer()["right"]:
            self.fail(f"{collective}: wrong result")
        self.peer_row(collective, size, repeats)
        answer, mine, theirs = self.sample(ours, collective, self.options.rounds)
        code = ours.close()
        if code != 0:
            self.fail(f"collectives_bench {collective} ended with {code}")
        limits = {name: round(statistics.median(values), 2) for name, values in theirs["limits_us"].items()}
        limits[answer["limit"]] = round(statistics.median(mine["limit_us"]), 2)
        limit = min(limits, key=limits.get)
        row = {"collective": collective, "algorithm": answer["algorithm"], "dtype": "float32", "ranks": RANKS,
               "devices": 1, "nodes": 1, "bytes_per_rank": size, **spread(mine["device_us"])}
        peers = {name: round(statistics.median(values), 2) for name, values in theirs["device_us"].items()}
        median = max(row["median_us"], 0.01)
        row.update({
            "submit_to_done_us": spread(mine["ours_us"]),
            "limit_us": limits[limit], "ratio_to_limit": round(limits[limit] / median, 3), "limit": limit,
            "limits": limits, "peers": peers,
            "ratio_to_fastest_peer": round(min(peers.values()) / median, 2) if peers else None,
            "peers_call_to_done_us": {name: spread(values) for name, values in theirs["done_us"].items()},
        })
        self.add(row)

    def add(self, row):
        bars, median = {}, max(row["median_us"], 0.01)
        if row["bytes_per_rank"] >= MIB:
            for name, bar in BARS[row["collective"]].items():
                other = row["limit_us"] if name == "limit" else row["peers"].get(name)
                if other is not None:
                    bars[name] = {"bar": bar, "got": round(other / median, 3), "met": other / median >= bar}
        else:
            bars["device_us"] = {"bar": SMALL_BAR_US, "got": median, "met": median <= SMALL_BAR_US}
        row["bars"] = bars
        row.update({"driver": self.options.driver, "machine": self.machine,
                    "date": datetime.date.today().isoformat()})
        self.rows.append(row)
        verdict = ", ".join(f"{name} {bar['got']} ({'>=' if name != 'device_us' else '<='} {bar['bar']}: "
                            f"{'met' if bar['met'] else 'MISSED'})" for name, bar in bars.items())
        print(f"{row['collective']:<15}{row['bytes_per_rank']:>11} device {row['median_us']:>9.2f} us, submit to done "
              f"{row['submit_to_done_us']['median_us']:>9.2f} us, limit {row['limit_us']:>9.2f} us; {verdict}; "
              f"{row['peers']}", flush=True)

    def create(self, size, ranks, repeats):
        out = subprocess.run(
            [os.path.join(self.bin, "create_bench"), self.options.driver, str(size), str(ranks), str(repeats)],
            capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, env={**os.environ, **NVLS_OFF},
        )
        if out.returncode != 0:
            self.fail(f"create_bench: {out.stderr.strip()}")
            return
        result = json.loads(out.stdout)
        if not result["right"]:
            self.fail("create: new memory is not zero")
        created = spread(result["create_us"])
        self.others.append({
            "what": "create a symmetric tensor, zeroed", "bytes_per_rank": size, "ranks": ranks, **created,
            "delete_us": spread(result["delete_us"]), "bar_us": CREATE_BAR_US,
            "met": created["median_us"] <= CREATE_BAR_US, "driver": self.options.driver, "machine": self.machine,
            "date": datetime.date.today().isoformat(),
        })
        print(f"create {size} bytes on {ranks} rank(s): median {created['median_us']} us, p10 {created['p10_us']}, "
              f"p90 {created['p90_us']} (bar {CREATE_BAR_US:.0f}); delete {spread(result['delete_us'])['median_us']}",
              flush=True)

    def plan(self):
        large, create, repeats = (256 * MIB, GIB, 21) if self.options.driver == "cuda" else (4 * MIB, 32 * MIB, 5)
        if self.options.tiny:
            large, create, repeats = MIB, 4 * MIB, 2
        rows = [(self.row, (name, large, repeats)) for name in BARS]
        rows.append((self.row, ("all_reduce", 8192, 10 * repeats)))
        rows.append((self.create, (create, 1, repeats)))
        rows.append((self.create, (create // RANKS, RANKS, repeats)))
        return rows

    def run(self):
        """Every row, whatever becomes of the others. @return how many things failed."""
        only = set(filter(None, self.options.only.split(",")))
        print(f"{self.machine}, {datetime.date.today().isoformat()}, {self.options.driver} driver, {RANKS} ranks on "
              f"one device, float32 sum, device time")
        for work, arguments in self.plan():
            name = "create" if work == self.create else arguments[0]
            if only and name not in only:
                continue
            try:
                work(*arguments)
            except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                self.fail(f"{name}: {error}")
            self.write()
        if self.torch:
            self.torch.close()
        return len(self.failures)

    def write(self):
        """After each row, so that a run that is cut leaves what it had."""
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"rows": self.rows, "others": self.others, "failures": self.failures}, file, indent=1)
                file.write("\n")
