#!/usr/bin/env python3
"""A client that is slow on purpose.

usage: slow.py SOCKET put PATH TOTAL SENT HOLD   announce TOTAL bytes, send SENT, hold for HOLD seconds, then
                                                 send the rest
       slow.py SOCKET get PATH TAKEN HOLD        read the head and TAKEN bytes, hold for HOLD seconds
       slow.py SOCKET raw FILE HOLD              send the file as it is, print what comes within HOLD seconds

put and get print a line once they stand still; at the end "closed" when the server ended the connection, with
what it sent, else "open". Bytes that are sent are zeros.
"""
import select
import socket
import sys
import time


def drain(client, seconds):
    """What comes until the other side closes or the time is over."""
    got, end = b"", time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([client], [], [], left)[0]:
            return got, "open"
        try:
            part = client.recv(65536)
        except OSError:
            return got, "closed"
        if not part:
            return got, "closed"
        got += part


def put(client, path, total, sent, hold):
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {total}\r\n\r\n"
    client.sendall(head.encode() + bytes(int(sent)))
    print("standing", flush=True)
    got, state = drain(client, float(hold))
    if state == "open" and not got:
        try:
            client.sendall(bytes(int(total) - int(sent)))
        except OSError:
            pass
        got, state = drain(client, 2)
    print(state, got.decode(errors="replace"), flush=True)


def get(client, path, taken, hold):
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    got = b""
    while b"\r\n\r\n" not in got or len(got) < int(taken):
        part = client.recv(4096)
        if not part:
            break
        got += part
    print("standing", got.split(b"\r\n")[0].decode(), flush=True)
    time.sleep(float(hold))
    rest, state = drain(client, 1)
    print("open" if state == "open" else "closed", len(got) + len(rest), flush=True)


def raw(client, name, hold):
    with open(name, "rb") as file:
        data = file.read()
    try:
        client.sendall(data)
    except OSError:
        pass
    got, state = drain(client, float(hold))
    print(state, got.decode(errors="replace"), flush=True)


def main():
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    {"put": put, "get": get, "raw": raw}[sys.argv[2]](client, *sys.argv[3:])


main()
