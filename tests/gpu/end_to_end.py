#!/usr/bin/env python3
"""Collectives of a running server against numpy: data in and out as .npy, everything through curl.

usage: end_to_end.py SOCKET FOLDER     (the group "demo" has four ranks; run.sh starts the server)
"""
import json
import subprocess
import sys

import numpy as np

RANKS = 4
SOCKET, WORK = sys.argv[1:3]


def curl(path, *arguments):
    command = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "60", "--unix-socket", SOCKET]
    done = subprocess.run([*command, *arguments, f"http://localhost/v1{path}"], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stdout.decode(errors='replace')} {done.stderr.decode(errors='replace')}")
    return done.stdout


def post(path, body):
    return json.loads(curl(f"{path}?wait=60", "--json", json.dumps(body)))


def make(name, values):
    """A tensor of the shape and dtype of one rank's values; new memory reads as zeros."""
    post("/tensors", {"id": name, "group": "demo", "dtype": str(values.dtype), "shape": list(values.shape)})
    for rank in range(RANKS):
        if get(name, rank).any():
            sys.exit(f"{name} rank {rank}: new memory is not zero")


def put(name, rank, values):
    np.save(f"{WORK}/in.npy", values)
    curl(f"/tensors/{name}/shards/{rank}/data", "-H", "Content-Type: application/x-npy", "-T", f"{WORK}/in.npy")


def get(name, rank):
    curl(f"/tensors/{name}/shards/{rank}/data", "-H", "Accept: application/x-npy", "-o", f"{WORK}/out.npy")
    return np.load(f"{WORK}/out.npy")


def fold(inputs):
    """In rank order; 16-bit floats in float32, rounded once."""
    accumulator = np.float32 if inputs[0].dtype == np.float16 else inputs[0].dtype
    total = inputs[0].astype(accumulator)
    for values in inputs[1:]:
        total = total + values.astype(accumulator)
    return total.astype(inputs[0].dtype)


def inputs_of(dtype, shape):
    result = []
    for rank in range(RANKS):
        generator = np.random.default_rng(rank)
        if np.issubdtype(dtype, np.integer):
            result.append(generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype))
        else:
            result.append(generator.standard_normal(shape).astype(dtype))
    return result


def expected(verb, inputs):
    """What each rank holds afterwards."""
    parts = [values.reshape(RANKS, -1) for values in inputs] if verb in ("reduce_scatter", "all_to_all") else None
    return {
        "all_reduce": lambda: [fold(inputs)] * RANKS,
        "broadcast": lambda: [inputs[2]] * RANKS,
        "all_gather": lambda: [np.concatenate(inputs)] * RANKS,
        "reduce_scatter": lambda: [fold([values[rank] for values in parts]) for rank in range(RANKS)],
        "all_to_all": lambda: [np.concatenate([values[rank] for values in parts]) for rank in range(RANKS)],
    }[verb]()


def case(verb, dtype, shape, in_place):
    name = f"{verb}.{np.dtype(dtype)}.{'x'.join(map(str, shape))}.{'same' if in_place else 'other'}"
    inputs = inputs_of(dtype, shape)
    want = expected(verb, inputs)
    make(name, inputs[0])
    for rank in range(RANKS):
        put(name, rank, inputs[rank])
    body = {"op": "sum"} if "reduce" in verb else {"root": 2} if verb == "broadcast" else {}
    if not in_place:
        make(f"{name}.out", want[0])
        body["output"] = f"{name}.out"
    operation = post(f"/tensors/{name}:{verb}", body)
    if operation["state"] != "succeeded":
        sys.exit(f"{name}: {operation}")
    for rank in range(RANKS):
        got = get(name if in_place else f"{name}.out", rank)
        if got.dtype != want[rank].dtype or got.tobytes() != want[rank].tobytes():
            sys.exit(f"{name} rank {rank}: wrong result ({operation['algorithm']})")
    print(f"{name}: right ({operation['algorithm']})")


def main():
    for dtype in (np.float32, np.float16, np.float64, np.int32):
        case("all_reduce", dtype, (1024, 1024), True)
        case("all_reduce", dtype, (1021,), False)
    for verb in ("reduce_scatter", "all_to_all", "all_gather"):
        case(verb, np.float32, (1 << 18,), False)
    case("all_to_all", np.float32, (1 << 18,), True)
    case("broadcast", np.float32, (1021, 3), True)
    post("/tensors", {"id": "large", "group": "demo", "dtype": "float32", "shape": [1 << 24]})
    post("/tensors/large:fill", {"pattern": "rank"})


if __name__ == "__main__":
    main()
