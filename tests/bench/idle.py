#!/usr/bin/env python3
"""What an idle server costs: resident memory beyond the devices' memory, and wake-ups a second.

usage: idle.py --build DIR [--seconds N] [--settle N]
A server on four software devices makes a group and a tensor, is left alone for --settle seconds, and is
then watched. The deadlines of the requests before still wake it for some seconds.
"""
import argparse
import glob
import json
import os
import signal
import socket
import subprocess
import tempfile
import time


def request(path, method, target, body=None):
    text = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(head.encode() + b"\r\n" + text)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    return int(reply.split()[1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def switches(pid):
    """Voluntary context switches of all threads: each is a thread that slept and was woken."""
    total = 0
    for status in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(status, encoding="utf-8") as file:
            for line in file:
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
    return total


def resident(pid):
    """Resident anonymous and file memory in KiB; shared memory (the devices') is counted apart."""
    values = {}
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            key, _, rest = line.partition(":")
            if key in ("VmRSS", "RssShmem"):
                values[key] = int(rest.split()[0])
    return values["VmRSS"], values["RssShmem"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--settle", type=float, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "run", "s.sock")
        os.mkdir(os.path.dirname(path), 0o700)
        server = subprocess.Popen([os.path.join(options.build, "bin", "symtensord"), "--driver", "software",
                                   "--unix-socket", path, "--health-listen", f"127.0.0.1:{free_port()}"],
                                  stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                if os.path.exists(path):
                    break
                time.sleep(0.05)
            assert request(path, "POST", "/v1/groups", {"id": "g", "devices": "all"}) == 201
            assert request(path, "POST", "/v1/tensors",
                           {"id": "t", "group": "g", "dtype": "float32", "shape": [1 << 20]}) == 201
            assert request(path, "POST", "/v1/tensors/t:all_reduce", {}) == 200
            time.sleep(options.settle)
            before = switches(server.pid)
            time.sleep(options.seconds)
            woken = switches(server.pid) - before
            total, shared = resident(server.pid)
            print(f"resident: {total / 1024:.1f} MiB, of it device memory {shared / 1024:.1f} MiB, "
                  f"the rest {(total - shared) / 1024:.1f} MiB (bar: 40)")
            print(f"wake-ups: {woken} in {options.seconds:.0f} s (bar: 0 a second)")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)


if __name__ == "__main__":
    main()
