#!/usr/bin/env python3
"""Clients that are slow on purpose, or many: they are cut, and others are served meanwhile."""

import resource
import socket
import time

import harness
from harness import Reply, Server, closes

HEADER_SECONDS = 10  # ST_HTTP_HEADER_SECONDS
WAITERS = 100
CONNECTIONS_MAX = 1024  # ST_HTTP_CONNECTIONS_MAX
HEALTH_CONNECTIONS_MAX = 64  # ST_HTTP_HEALTH_CONNECTIONS_MAX


def drip(connection, pieces, seconds):
    """Send a piece each half second until the peer cuts the connection; after how long it did."""
    started = time.monotonic()
    for piece in pieces:
        try:
            connection.sendall(piece)
        except OSError:
            break
        connection.settimeout(0.5)
        try:
            if connection.recv(1000) == b"":
                break
        except TimeoutError:
            pass
        except OSError:
            break
        if time.monotonic() - started > seconds:
            return None
    return time.monotonic() - started


def test_a_head_that_never_ends_is_cut():
    with Server() as server:
        first = server.connect()
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        named = server.connect()
        named.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        silent = server.connect()
        used = server.connect()  # one that was served before has the same budget for its next head
        used.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert Reply.read(used).code == 200
        used.sendall(b"GET /livez HTTP/1.1\r\n")
        seconds = drip(first, (b"X-%d: a\r\n" % i for i in range(1000)), 30)
        told = Reply.read(named)  # what has a first line is told why
        assert told.code == 408 and told.reason == "TRANSFER_STALLED", told.body
        assert told.headers["connection"] == "close" and closes(named)
        assert seconds is not None and HEADER_SECONDS - 1 < seconds < HEADER_SECONDS + 5, seconds
        silent.settimeout(5 * harness.SLOWER)
        assert closes(silent)
        used.settimeout(5 * harness.SLOWER)
        assert Reply.read(used).code == 408 and closes(used)
        metrics = server.request("GET", "/metrics").body.decode()
        assert 'symtensor_http_cut_connections_total{phase="head"} 4' in metrics


def test_the_time_for_a_first_head_runs_from_the_connection():
    with Server() as server:
        connection = server.connect()
        started = time.monotonic()
        connection.sendall(b"GET /livez HT")
        time.sleep(6)
        connection.sendall(b"TP/1.1\r\nHost: localhost\r\n")
        reply = Reply.read(connection)
        seconds = time.monotonic() - started
        assert reply.code == 408, reply.body
        assert HEADER_SECONDS - 1 < seconds < HEADER_SECONDS + 2 * harness.SLOWER, seconds
        unnamed = server.connect()  # without a request line there is no request to be told of
        started = time.monotonic()
        unnamed.sendall(b"GET /livez HT")
        assert closes(unnamed)
        seconds = time.monotonic() - started
        assert HEADER_SECONDS - 1 < seconds < HEADER_SECONDS + 2 * harness.SLOWER, seconds


def test_a_body_that_stalls_is_answered_in_time():
    rows = [  # request line, headers, body that is sent, code, reason, seconds
        ("POST /v1/groups", "grpc-timeout: 1S\r\nContent-Length: 20", b"{", 504,
         "OPERATION_DEADLINE", 1),
        ("POST /v1/groups", "grpc-timeout: 1S\r\nTransfer-Encoding: chunked", b"1\r\n{\r\n", 504,
         "OPERATION_DEADLINE", 1),
        ("POST /v1/groups", "grpc-timeout: 200m\r\nContent-Length: 20", b"", 504,
         "OPERATION_DEADLINE", 0.2),
        # What is refused already is not kept back for long.
        ("PUT /v1/tensors/t/shards/0/data", "Content-Length: 8", b"", 404, "TENSOR_NOT_FOUND", 10),
        ("PUT /v1/tensors/t/shards/0/data", "Content-Length: 8", b"abc", 404, "TENSOR_NOT_FOUND",
         10),
        ("POST /v1/nope", "grpc-timeout: 1S\r\nContent-Length: 8", b"abc", 404,
         "ROUTE_NOT_FOUND", 10),
    ]
    with Server() as server:
        connections, started = [], time.monotonic()
        for line, headers, body, *_ in rows:
            kind = "" if line.startswith("PUT") else "Content-Type: application/json\r\n"
            connections.append(server.connect())
            connections[-1].sendall(f"{line} HTTP/1.1\r\nHost: localhost\r\n{kind}{headers}\r\n\r\n"
                                    .encode() + body)
        for connection, row in sorted(zip(connections, rows), key=lambda pair: pair[1][5]):
            reply = Reply.read(connection)
            seconds = time.monotonic() - started
            assert reply is not None, f"no reply to {row}"
            assert (reply.code, reply.reason) == row[3:5], (row, reply.body)
            assert row[5] <= seconds < row[5] + 0.8 * harness.SLOWER, (row, seconds)
            assert reply.headers["connection"] == "close" and closes(connection)


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def test_a_flood_of_tiny_chunks_is_cut():
    with Server() as server:
        before = rss_kib(server.process.pid)
        connection = server.connect()
        connection.sendall(b"POST /v1/groups HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        flood = b"1\r\n \r\n" * 1000
        sent = 0
        try:
            while sent < 1000:
                connection.sendall(flood)
                sent += 1
        except OSError:
            pass
        assert sent < 200, f"{sent} thousand chunks were read"
        assert rss_kib(server.process.pid) - before < 32 << 10
        assert server.request("GET", "/livez").code == 200
        assert 'phase="body"} 1' in server.request("GET", "/metrics").body.decode()


def test_the_health_listener_answers_when_the_other_is_full():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with socket.socket() as probe, socket.socket() as other_probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        other_probe.bind(("127.0.0.1", 0))
        full_port = other_probe.getsockname()[1]
    with Server("--health-listen", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{full_port}",
                "--insecure") as server:
        # Over TCP: of the Unix socket one user cannot have all.
        idle = []
        for _ in range(CONNECTIONS_MAX + 16):
            idle.append(socket.create_connection(("127.0.0.1", full_port), 30 * harness.SLOWER))
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", full_port), 1) as one_more:
            one_more.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                answered = Reply.read(one_more) is not None
            except TimeoutError:
                answered = False
            assert not answered, "the listener is not full"
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), 2 * harness.SLOWER) as connection:
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert Reply.read(connection).code == 200
        time.sleep((HEADER_SECONDS + 1) * harness.SLOWER)  # then the idle ones are cut
        assert server.request("GET", "/livez").code == 200
        for connection in idle:
            connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_health_listener_answers_however_many_hold_it_open():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def connect():
        return socket.create_connection(("127.0.0.1", port), 3 * harness.SLOWER)

    with Server("--health-listen", f"127.0.0.1:{port}") as server:
        scraper = connect()  # keeps its connection, and asks now and then
        held = []
        for i in range(300):
            held.append(connect())
            if i % 3 == 1:
                held[-1].sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n")
            if i % 3 == 2:
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            if i % 20 == 0:
                started = time.monotonic()
                with connect() as connection:
                    connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert Reply.read(connection).code == 200
                assert time.monotonic() - started < 1 * harness.SLOWER
        time.sleep(0.2)
        count = [line for line in server.request("GET", "/metrics").body.decode().splitlines()
                 if line.startswith("symtensor_http_connections ")]
        assert int(count[0].rsplit(" ", 1)[1]) <= HEALTH_CONNECTIONS_MAX + 1, count
        assert closes(scraper), "the oldest is the first to go"
        for connection in held:
            connection.close()


def test_waiting_clients_that_leave_take_nothing_with_them():
    with Server() as server:
        assert server.request("POST", "/v1/groups", {"id": "g", "devices": "all"}).code == 201
        assert server.request("POST", "/v1/tensors?wait=60", {
            "id": "t", "group": "g", "dtype": "uint8", "shape": [8 << 20]}).code == 201
        reader = server.connect()  # holds the shard, so that what follows waits
        reader.sendall(b"GET /v1/tensors/t/shards/0/data HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reader.recv(1000)
        body = b'{"value":1}'
        waiters = []
        for _ in range(WAITERS):
            connection = server.connect()
            connection.sendall(b"POST /v1/tensors/t:fill?wait=60 HTTP/1.1\r\nHost: localhost\r\n"
                               b"Content-Type: application/json\r\nContent-Length: 11\r\n\r\n" +
                               body)
            waiters.append(connection)
        time.sleep(1)
        for connection in waiters[::2]:
            connection.close()
        reader.close()  # the download ends, and the fills run
        for connection in waiters[1::2]:
            assert Reply.read(connection).code == 200
            connection.close()
        deadline = time.monotonic() + 10 * harness.SLOWER
        while time.monotonic() < deadline:
            metrics = server.request("GET", "/metrics").body.decode()
            if "symtensor_waiters 0\n" in metrics and "symtensor_http_connections 1\n" in metrics:
                break
            time.sleep(0.1)
        assert "symtensor_waiters 0\n" in metrics
        assert "symtensor_http_connections 1\n" in metrics
        assert server.request("GET", "/v1/tensors/t").json["contents"]["generation"] == WAITERS


if __name__ == "__main__":
    harness.run(globals())
