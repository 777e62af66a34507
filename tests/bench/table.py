#!/usr/bin/env python3
"""Print the rows of result files as Markdown tables.

usage: table.py FILE.json...
"""
import json
import sys


def cell(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def table(head, lines):
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def spread(values):
    return f"{values['median_us']:.1f} ({values['p10_us']:.1f} to {values['p90_us']:.1f})"


def host_line(row):
    peers = row["peers"]
    fastest = min(peers, key=peers.get) if peers else None
    return [row["collective"], f"{row['ranks']}, {row['devices']}", str(row["bytes_per_rank"]), spread(row),
            cell(row["limit_us"]), cell(row["ratio_to_limit"], 3),
            f"{peers[fastest]:.1f} ({fastest})" if fastest else "-", cell(row["ratio_to_fastest_peer"], 2)]


def device_line(row):
    peers, bars = row["peers"], row["bars"]
    verdicts = [f"{name} {bar['got']:.2f} (bar {bar['bar']:g}{'' if bar['met'] else ', missed'})"
                for name, bar in bars.items()]
    return [row["collective"], str(row["bytes_per_rank"]), spread(row), spread(row["submit_to_done_us"]),
            f"{row['limit_us']:.1f} ({row['limit']})", cell(row["ratio_to_limit"], 3),
            ", ".join(f"{name} {value:.1f}" for name, value in peers.items()) or "-", "; ".join(verdicts)]


def other_line(row):
    return [row["what"], str(row["ranks"]), str(row["bytes_per_rank"]), spread(row), spread(row["delete_us"]),
            f"{row['bar_us']:g}{'' if row['met'] else ', missed'}"]


def print_file(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    rows = result["rows"]
    for first in (result.get("others") or rows)[:1]:
        print(f"{first['machine']}, {first['driver']} driver, {first['date']}; times in microseconds, "
              f"median (p10 to p90).\n")
    host = [row for row in rows if "bars" not in row]
    device = [row for row in rows if "bars" in row]
    if host:
        table(["collective", "ranks, devices", "bytes", "time", "limit", "limit / ours", "fastest peer", "peer / ours"],
              [host_line(row) for row in host])
    if device:
        table(["collective", "bytes a rank", "device time", "submit to done", "limit", "limit / ours",
               "peers, device time", "bars"], [device_line(row) for row in device])
    if result.get("others"):
        table(["what", "ranks", "bytes a rank", "time", "delete", "bar"], [other_line(row) for row in result["others"]])
    for failure in result.get("failures", []):
        print(f"Failed: {failure}\n")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        print_file(path)


if __name__ == "__main__":
    main()
