#!/usr/bin/env python3
"""Bounds on what one client can hold: descriptors, connections, time; and what is shown meanwhile."""

import os
import resource
import socket
import tempfile
import threading
import time

import harness
from harness import Reply, Server, closes, read_to_end, spawned, wait_for

CONNECTIONS_PER_UID_MAX = 768  # ST_HTTP_CONNECTIONS_PER_UID_MAX
PAGE_BYTES = 4 << 20  # ST_HTTP_PAGE_BYTES
REPLIES_BYTES = 256 << 20  # ST_HTTP_REPLIES_BYTES_MAX
HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"
DATA = b"/v1/tensors/t/shards/0/data"


def make_tensor(server, size, **fields):
    assert server.request("POST", "/v1/groups?wait=60", {"id": "g", "devices": "all"}).code == 201
    assert server.request("POST", "/v1/tensors?wait=60", {
        "id": "t", "group": "g", "dtype": "uint8", "shape": [size], **fields}).code == 201


def metric(server, name):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return int(next(line for line in lines if line.startswith(name + " ")).rsplit(" ", 1)[1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_health_listener_answers_while_the_devices_are_opened():
    port = free_port()
    environment = {**os.environ, "SYMTENSOR_SOFTWARE_HANG": "cuMemCreate:1:600000"}
    path = f"/tmp/symtensor-limits-{os.getpid()}.sock"
    with spawned("--health-listen", f"127.0.0.1:{port}", "--unix-socket", path,
                 env=environment) as process:

        def get(target):
            with socket.create_connection(("127.0.0.1", port), 5 * harness.SLOWER) as connection:
                connection.sendall(b"GET " + target + HEAD + b"\r\n")
                return Reply.read(connection)

        def answers():
            try:
                return get(b"/livez").code == 200
            except OSError:
                return False

        wait_for(answers, 10)
        assert get(b"/version").code == 200
        for target in (b"/readyz", b"/metrics"):
            reply = get(target)
            assert reply.code == 503 and reply.reason == "NODE_STARTING", reply.body
            assert "x-symtensor-incarnation" not in reply.headers
        process.terminate()
        assert process.wait(10 * harness.SLOWER) == 0


def test_a_listener_that_hangs_in_the_driver_does_not_hold_up_the_end():
    environment = {"SYMTENSOR_SOFTWARE_HANG": "cuMemcpyHtoDAsync:1:600000"}
    with Server("--drain-seconds", "1", environment=environment) as server:
        make_tensor(server, 1000)
        connection = server.connect(timeout=2)
        connection.sendall(b"PUT " + DATA + HEAD + b"Content-Length: 1000\r\n\r\n" + bytes(1000))
        try:
            raise AssertionError(f"the call does not hang: {Reply.read(connection).body}")
        except TimeoutError:
            pass
        started = time.monotonic()
        server.terminate()
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 20 * harness.SLOWER


def test_memory_leaves_descriptors_for_connections():
    program = harness.PROGRAM
    with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as script:
        script.write(f'#!/bin/sh\nulimit -n 400\nexec "{program}" "$@"\n')
    os.chmod(script.name, 0o755)
    try:
        harness.PROGRAM = script.name
        server = Server("--software-memory", "1GiB")
    finally:
        harness.PROGRAM = program
    with server:
        limits = server.request("GET", "/v1/node").json["limits"]
        assert limits["fds"] == 400 and limits["allocations"] == 200 and limits["mappings"] > 0
        assert server.request("POST", "/v1/groups", {"id": "g", "devices": "all"}).code == 201
        codes = []
        while len(codes) < 100 and (not codes or codes[-1] == 201):
            reply = server.request("POST", "/v1/tensors?wait=60", {
                "id": f"t{len(codes)}", "group": "g", "dtype": "uint8", "shape": [1],
                "attachable": True})
            codes.append(reply.code)
        assert codes[-1] == 429 and reply.reason == "FD_LIMIT", reply.body
        assert 40 <= len(codes) <= 51, len(codes)
        connections = [server.connect() for _ in range(100)]
        assert server.request("DELETE", "/v1/tensors/t0?wait=60").code == 204
        assert server.request("POST", "/v1/tensors?wait=60", {
            "id": "again", "group": "g", "dtype": "uint8", "shape": [1],
            "attachable": True}).code == 201
        for connection in connections:
            connection.close()
    os.remove(script.name)


def lives(server):
    """Whether it answers; while it still counts closed connections it may cut this one."""
    try:
        reply = server.request("GET", "/livez")
    except OSError:
        return False
    return reply is not None and reply.code == 200


def test_one_user_cannot_take_all_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with Server() as server:
        connections = [server.connect() for _ in range(CONNECTIONS_PER_UID_MAX)]
        connections[-1].sendall(b"GET /livez" + HEAD + b"\r\n")
        assert Reply.read(connections[-1]).code == 200
        with server.connect(timeout=5) as one_more:
            assert closes(one_more)
        for connection in connections:
            connection.close()
        wait_for(lambda: lives(server))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def labelled(server, count):
    """Tensors without memory whose text is some 9 kB each."""
    labels = {f"{i:02}" + "k" * 40: "v" * 255 for i in range(30)}
    assert server.request("POST", "/v1/groups", {"id": "g", "devices": [0, 1]}).code == 201
    for first in range(0, count, 100):
        tensors = [{"id": f"t{i:04}", "group": "g", "dtype": "uint8", "shape": [0],
                    "labels": labels} for i in range(first, min(first + 100, count))]
        reply = server.request("POST", "/v1/tensors:batch_create?wait=60", {"tensors": tensors})
        assert reply.code in (200, 201), reply.body[:300]


def test_a_page_ends_early_when_it_is_large():
    with Server() as server:
        labelled(server, 600)
        ids, token, pages = [], "", 0
        while pages == 0 or token:
            reply = server.request("GET", f"/v1/tensors?page_size=1000&page_token={token}")
            assert reply.code == 200
            assert len(reply.body) < PAGE_BYTES + (64 << 10), len(reply.body)
            ids += [tensor["id"] for tensor in reply.json["tensors"]]
            token, pages = reply.json["next_page_token"], pages + 1
        assert ids == [f"t{i:04}" for i in range(600)] and pages == 2, (len(ids), pages)


def test_replies_that_nobody_reads_are_bounded():
    with Server() as server:
        labelled(server, 600)
        limits = server.request("GET", "/v1/node").json["limits"]
        assert limits["replies_bytes"] == REPLIES_BYTES, limits
        connections = []
        for _ in range(REPLIES_BYTES // PAGE_BYTES + 10):
            connection = server.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(b"GET /v1/tensors?page_size=1000" + HEAD + b"\r\n")
            connections.append(connection)

        def refused():
            rejected = [line for line in server.request("GET", "/metrics").body.decode().splitlines()
                        if 'reason="TOO_MANY_REPLIES"' in line]
            return rejected and int(rejected[0].rsplit(" ", 1)[1]) >= 10

        wait_for(refused, 20)
        reply = server.request("GET", "/v1/tensors?page_size=1000")
        assert reply.code == 429 and reply.reason == "TOO_MANY_REPLIES", reply.body[:300]
        assert reply.headers["retry-after"] == "1" and reply.json["error"]["retryable"] is True
        # What is small, or says how the server is, is answered.
        assert server.request("GET", "/v1/tensors?page_size=1").code == 200
        assert server.request("GET", "/v1/groups/g").code == 200
        for connection in connections[:20]:  # read, or given up: room comes back
            Reply.read(connection)
        assert server.request("GET", "/v1/tensors?page_size=1000").code == 200
        for connection in connections:
            connection.close()
        for _ in range(3 * (REPLIES_BYTES // PAGE_BYTES)):
            wait_for(lambda: server.request("GET", "/v1/tensors?page_size=1000").code == 200, 5)


def test_a_reply_that_is_read_too_slowly_is_cut():
    with Server() as server:
        labelled(server, 100)
        connection = server.connect()
        connection.sendall(b"GET /v1/tensors?page_size=1000" + HEAD + b"\r\n")
        started = time.monotonic()
        while 'phase="reply"} 1' not in server.request("GET", "/metrics").body.decode():
            assert time.monotonic() - started < 55 * harness.SLOWER, "it is not cut"
            connection.recv(500)
            time.sleep(0.5)
        assert time.monotonic() - started > 20
        connection.close()


def test_a_slow_reader_of_a_shard_that_goes_on_is_not_cut():
    with Server() as server:
        make_tensor(server, 2 << 20)
        connection = server.connect()
        connection.sendall(b"GET " + DATA + HEAD + b"\r\n")
        got, started = 0, time.monotonic()
        while time.monotonic() - started < 20:  # some 12 kB a second
            got += len(connection.recv(6000))
            time.sleep(0.5)
        while got < 2 << 20:
            piece = connection.recv(1 << 20)
            assert piece, f"cut after {got} bytes"
            got += len(piece)
        connection.close()


def test_clients_that_leave_while_they_wait_free_their_place():
    environment = {"SYMTENSOR_SOFTWARE_HANG": "cuMemCreate:60:25000"}
    with Server(environment=environment) as server:
        assert server.request("POST", "/v1/groups?wait=60", {"id": "g", "devices": "all"}).code == 201
        waiting = []
        for i in range(14):
            body = b'{"id":"t%d","group":"g","dtype":"uint8","shape":[3145728]}' % i
            waiting.append(server.connect())
            waiting[-1].sendall(b"POST /v1/tensors?wait=60" + HEAD + b"Content-Type: application/json"
                                b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(1)
        assert metric(server, "symtensor_waiters") > 0
        started = time.monotonic()
        for connection in waiting:
            connection.close()
        wait_for(lambda: metric(server, "symtensor_waiters") == 0 and
                 metric(server, "symtensor_http_connections") == 1, 18)
        assert time.monotonic() - started < 18
        wait_for(lambda: server.request("GET", "/v1/tensors/t13").json["state"] == "ready", 40)


def test_a_stalled_body_does_not_keep_its_connection():
    with Server() as server:
        make_tensor(server, 1 << 20)
        connections = [server.connect(timeout=40) for _ in range(3)]
        stalled, chunked, head = connections
        for connection, more in ((stalled, b"Content-Length: 1048576\r\n\r\n" + bytes(1000)),
                                 (chunked, b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n" +
                                  bytes(1000) + b"\r\n"),
                                 (head, b"x-request-id: slow")):
            shard = str(connections.index(connection)).encode()
            connection.sendall(b"PUT " + DATA.replace(b"0", shard) + HEAD + more)
        started = time.monotonic()
        for connection in connections:  # each is told why, without sending more
            reply = Reply.read(connection)
            assert reply is not None, "cut without a reply"
            assert reply.code == 408 and reply.reason == "TRANSFER_STALLED", reply.body
            assert reply.headers["connection"] == "close" and reply.headers["x-request-id"]
            assert not reply.rest and closes(connection)
            assert time.monotonic() - started < 13 * harness.SLOWER
        shards = server.request("GET", "/v1/tensors/t").json["shards"]
        assert [shard["contents"]["state"] for shard in shards[:2]] == ["undefined"] * 2
        lines = [line for line in server.log_lines() if line.get("reason") == "TRANSFER_STALLED"]
        assert [line["code"] for line in lines] == [408] * 3, lines


def shard_state(server, rank=0):
    shards = server.request("GET", "/v1/tensors/t").json["shards"]
    return shards[rank]["contents"]["state"]


def test_a_client_that_leaves_in_the_middle_of_a_body_is_seen_at_once():
    port = free_port()
    with Server("--listen", f"127.0.0.1:{port}", "--insecure") as server:
        make_tensor(server, 8 << 20)

        def over_tcp():
            return socket.create_connection(("127.0.0.1", port), 20 * harness.SLOWER)

        endings = (lambda c: c.close(), lambda c: c.shutdown(socket.SHUT_WR))
        framings = ((b"Content-Length: 8388608\r\n\r\n", b"", 0),
                    (b"Content-Length: 8388608\r\n\r\n", bytes(100000), 0),
                    (b"Content-Length: 8388608\r\n\r\n", bytes(100), 0.2),
                    (b"Transfer-Encoding: chunked\r\n\r\n", b"3e8\r\n" + bytes(900), 0))
        for connect in (over_tcp, server.connect):
            for end in endings:
                for framing, body, pause in framings:
                    connection = connect()
                    connection.sendall(b"PUT " + DATA + HEAD + framing)
                    wait_for(lambda: shard_state(server) == "writing", 5)
                    # In one segment with the end, so that the library sees one event.
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1) \
                        if connect is over_tcp else None
                    connection.sendall(body) if body else None
                    time.sleep(pause)
                    end(connection)
                    started = time.monotonic()
                    wait_for(lambda: shard_state(server) != "writing", 8)
                    seconds = time.monotonic() - started
                    assert seconds < 1.2 * harness.SLOWER, (connect, framing, len(body), seconds)
                    connection.close()


def test_a_client_that_ends_its_sending_behind_a_request_is_answered():
    port = free_port()
    with Server("--listen", f"127.0.0.1:{port}", "--insecure") as server:
        make_tensor(server, 8 << 20)
        connects = (server.connect, lambda: socket.create_connection(("127.0.0.1", port), 30))
        for connect in connects:
            for request, code in ((b"PUT " + DATA + HEAD + b"Content-Length: 8388608\r\n\r\n" +
                                   bytes(8 << 20), 200),
                                  (b"POST /v1/tensors/t:fill?wait=30" + HEAD + b"Content-Type: "
                                   b"application/json\r\nContent-Length: 11\r\n\r\n"
                                   b'{"value":1}', 200),
                                  (b"GET /v1/tensors" + HEAD + b"\r\n", 200)):
                with connect() as connection:
                    connection.sendall(request)
                    connection.shutdown(socket.SHUT_WR)
                    reply = Reply.read(connection)
                    assert reply and reply.code == code, (request[:40], reply and reply.body)
        connections = [connect() for connect in connects]
        for connection in connections:  # what is read slowly goes on to its end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(b"GET " + DATA + HEAD + b"Connection: close\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
        got, started = [0, 0], time.monotonic()
        while time.monotonic() - started < 12:
            for i, connection in enumerate(connections):
                got[i] += len(connection.recv(8192))
            time.sleep(0.1)
        for i, connection in enumerate(connections):
            while piece := connection.recv(1 << 20):
                got[i] += len(piece)
            assert got[i] > 8 << 20, f"cut after {got[i]} bytes"
            connection.close()


def test_a_delete_by_force_does_not_wait_for_a_body_that_drips():
    with Server() as server:
        for path in ("/v1/tensors/t", "/v1/groups/g"):
            if path == "/v1/tensors/t":
                make_tensor(server, 1 << 20)
            else:
                assert server.request("POST", "/v1/tensors?wait=60", {
                    "id": "t", "group": "g", "dtype": "uint8", "shape": [1 << 20]}).code == 201
            connection = server.connect()
            connection.sendall(b"PUT " + DATA + HEAD + b"Content-Length: 1048576\r\n\r\n")
            stop = threading.Event()

            def drip():
                while not stop.wait(0.05):
                    try:
                        connection.send(bytes(200))
                    except OSError:
                        return

            thread = threading.Thread(target=drip)
            thread.start()
            wait_for(lambda: shard_state(server) == "writing", 5)
            time.sleep(0.5)
            waiting = server.request("DELETE", path + "?wait=0.3")
            started = time.monotonic()
            if path == "/v1/tensors/t":  # without force it waits; the second finds it deleting
                assert waiting.code == 202, waiting.body
                stop.set()
                connection.close()
                thread.join()
                wait_for(lambda: server.request("GET", path).code == 404, 15)
                assert server.request("POST", "/v1/tensors?wait=60", {
                    "id": "t", "group": "g", "dtype": "uint8", "shape": [1 << 20]}).code == 201
                connection = server.connect()
                connection.sendall(b"PUT " + DATA + HEAD + b"Content-Length: 1048576\r\n\r\n")
                stop.clear()
                thread = threading.Thread(target=drip)
                thread.start()
                wait_for(lambda: shard_state(server) == "writing", 5)
                started = time.monotonic()
            reply = server.request("DELETE", path + "?force=true&wait=8")
            assert reply.code == 204, reply.body
            assert time.monotonic() - started < 1 * harness.SLOWER
            reply = Reply.read(connection)
            assert reply.code == 499 and reply.reason == "OPERATION_CANCELLED", reply.body
            assert reply.headers["connection"] == "close"
            stop.set()
            thread.join()
            connection.close()


def test_a_body_that_drips_is_told_of_the_end_of_the_server():
    with Server("--drain-seconds", "2") as server:
        make_tensor(server, 1 << 20)
        connection = server.connect()
        connection.sendall(b"PUT " + DATA + HEAD + b"Content-Length: 1048576\r\n\r\n" + bytes(1000))
        wait_for(lambda: shard_state(server) == "writing", 5)
        started = time.monotonic()
        server.terminate()
        reply = Reply.read(connection)
        assert reply is not None, "cut without a reply"
        assert reply.code == 499 and reply.reason == "OPERATION_CANCELLED", reply.body
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 2.5 * harness.SLOWER
        connection.close()


def test_the_end_of_the_server_is_told_once_and_with_when_to_come_back():
    with Server("--drain-seconds", "1") as server:
        body, head = server.connect(), server.connect()
        body.sendall(b"POST /v1/groups" + HEAD + b"Content-Type: application/json\r\n"
                     b"Content-Length: 100\r\n\r\n{")
        head.sendall(b"GET /livez" + HEAD)
        wait_for(lambda: metric(server, "symtensor_http_requests_active") == 3, 5)
        server.terminate()
        time.sleep(1.4)  # the grace time is over, and the listeners end within a second
        head.sendall(b"X: " + bytes([97]) * (64 << 10))  # the library answers this itself
        got = read_to_end(head)
        assert got.count(b"HTTP/1.1 ") == 1 and got.split()[1] in (b"431", b"503"), got
        reply = Reply.read(body)
        assert reply.code == 503 and reply.reason == "NODE_DRAINING", reply.body
        assert reply.headers["retry-after"] == "1", reply.headers
        for connection in (body, head):
            connection.close()


def test_if_range_holds_for_what_is_sent():
    with Server() as server:
        make_tensor(server, 4 << 20)
        with server.connect() as connection:
            connection.sendall(b"HEAD " + DATA + HEAD + b"\r\n")
            etag = Reply.read(connection, "HEAD").headers["etag"]
        reader = server.connect()
        reader.sendall(b"GET " + DATA + HEAD + b"\r\n")
        reader.recv(100)
        fill = threading.Thread(target=server.request, args=(
            "POST", "/v1/tensors/t:fill?wait=30", {"value": 7}))
        fill.start()
        time.sleep(0.5)
        connection = server.connect()
        connection.sendall(b"GET " + DATA + HEAD + b"Range: bytes=0-9\r\nIf-Range: " +
                           etag.encode() + b"\r\n\r\n")
        time.sleep(0.5)
        reader.close()
        fill.join()
        reply = Reply.read(connection)
        assert reply.code == 200 and len(reply.body) == 4 << 20, (reply.code, len(reply.body))
        assert set(reply.body) == {7} and "content-range" not in reply.headers
        connection.close()


def test_multicast_objects_name_the_tensors_that_are_bound():
    with Server() as server:
        make_tensor(server, 8 << 20, attachable=True)
        objects = server.request("GET", "/v1/multicast_groups").json["multicast_groups"]
        assert [thing["tensors"] for thing in objects] == [["t"]], objects
        one = server.request("GET", f"/v1/multicast_groups/{objects[0]['id']}").json
        assert one["tensors"] == ["t"] and one["bound_count"] == 1, one


def test_clients_over_tcp_that_leave_are_seen_too():
    port = free_port()
    environment = {"SYMTENSOR_SOFTWARE_HANG": "cuMemCreate:60:25000"}
    with Server("--listen", f"127.0.0.1:{port}", "--insecure", environment=environment) as server:
        assert server.request("POST", "/v1/groups?wait=60", {"id": "g", "devices": "all"}).code == 201
        waiting = []
        for i in range(14):
            body = b'{"id":"t%d","group":"g","dtype":"uint8","shape":[3145728]}' % i
            waiting.append(socket.create_connection(("127.0.0.1", port)))
            waiting[-1].sendall(b"POST /v1/tensors?wait=60" + HEAD + b"Content-Type: application/json"
                                b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(1)
        for connection in waiting:
            connection.close()
        wait_for(lambda: metric(server, "symtensor_http_connections") == 1, 18)


if __name__ == "__main__":
    harness.run(globals())
