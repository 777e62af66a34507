#!/usr/bin/env python3
"""What must be refused before it does harm: framing, paths, headers, JSON; over raw bytes."""

import json
import re
import time

import harness
from harness import Reply, Server, closes, read_to_end

server = None
JSON = b"Content-Type: application/json\r\n"
HOST = b"Host: localhost\r\n"


def exchange(raw):
    """Send raw bytes; the first reply, or None when the connection was closed without one."""
    with server.connect() as connection:
        connection.sendall(raw)
        return Reply.read(connection)


def expect(raw, code, reason, field=None):
    reply = exchange(raw)
    assert reply is not None, f"no reply to {raw[:80]!r}"
    assert reply.code == code, f"{reply.code} instead of {code} for {raw[:80]!r}: {reply.body[:300]!r}"
    if reason:
        assert reply.reason == reason, f"{reply.reason} instead of {reason} for {raw[:80]!r}"
        assert reply.headers["x-request-id"] and reply.headers["x-symtensor-incarnation"]
    if field is not None:
        assert reply.field == field, f"field {reply.field} instead of {field} for {raw[:80]!r}"
    return reply


def post(body, headers=b"", path=b"/v1/groups"):
    return (b"POST " + path + b" HTTP/1.1\r\n" + HOST + JSON + headers +
            b"Content-Length: %d\r\n\r\n" % len(body) + body)


def get(path, headers=b""):
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n"


def test_smuggling_is_refused_and_the_connection_closed():
    smuggled = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON
    rows = [
        (head + b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
         "Transfer-Encoding"),
        (head + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
         "Transfer-Encoding"),
        (head + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + smuggled, "Content-Length"),
        (head + b"Content-Length: 0\r\nContent-Length: 2\r\n\r\n{}" + smuggled, "Content-Length"),
        (head + b"Transfer-Encoding: gzip\r\n\r\n{}" + smuggled, "Transfer-Encoding"),
        (head + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + smuggled,
         "Transfer-Encoding"),
        (head + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
         smuggled, "Transfer-Encoding"),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
         b"\r\n0\r\n\r\n" + smuggled, "Transfer-Encoding"),
        (head + b"Content-Length : 40\r\n\r\n" + smuggled, ""),
        (head + b"Transfer-Encoding : chunked\r\n\r\n" + smuggled, ""),
        (head + b"X\tY: 1\r\nContent-Length: 2\r\n\r\n{}" + smuggled, ""),
        (b"DELETE /v1/tensors/t\0/anything HTTP/1.1\r\n" + HOST + b"\r\n" + smuggled, ""),
        (b"GET /livez?verbose=true\0x HTTP/1.1\r\n" + HOST + b"\r\n" + smuggled, ""),
        (get(b"/livez", b"X: a\0b\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\0\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\0\r\nY: b\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\0Content-Length: 2\r\nY: b\r\n") + smuggled, ""),
        (get(b"/livez", b"\0X: a\r\n") + smuggled, ""),
        (get(b"/livez", b"\0\r\n") + smuggled, ""),
        (b"GET /livez HTTP/1.0\r\n\0\r\n\r\n" + smuggled, ""),
        (get(b"/livez", b"X: a\rb\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\r\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\rContent-Length: 2\r\n") + smuggled, ""),
        (get(b"/livez", b"X\r: a\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\r\n b\r\n") + smuggled, ""),
        (get(b"/livez", b"X: a\r\n\tb\r\nY: b\r\n") + smuggled, ""),
        (b"GET /livez HTTP/1.1\r\nHost:\r\n localhost\r\n\r\n" + smuggled, ""),
        (get(b"/livez", b"X: a\n") + smuggled, ""),
        (b"GET /livez HTTP/1.1\n" + HOST + b"\r\n" + smuggled, ""),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"\n" + smuggled, ""),
        (b"GET /livez HTTP/1.1\r\n\r\n" + smuggled, "Host"),
        (b"POST /v1/groups HTTP/1.1\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}" + smuggled, "Host"),
    ]
    for raw, field in rows:
        with server.connect() as connection:
            connection.sendall(raw)
            reply = Reply.read(connection)
            assert reply.code == 400 and reply.reason == "INVALID_HEADER", reply.body
            assert reply.field == field, reply.body
            assert reply.headers.get("connection", "").lower() == "close", reply.headers
            assert not reply.rest and closes(connection), f"a second reply after {raw[:120]!r}"


def test_lengths_that_the_library_refuses_are_refused_by_us():
    rows = [(length, 400, "INVALID_HEADER")
            for length in (b"-1", b"3abc", b"+3", b"0x3", b"3,3", b"2 ", b"")]
    rows += [(length, 413, "BODY_TOO_LARGE") for length in (b"18446744073709551616", b"1" * 40)]
    for length, code, reason in rows:
        for before in (b"", JSON):
            with server.connect() as connection:
                connection.sendall(b"POST /v1/groups HTTP/1.1\r\n" + HOST + before +
                                   b"Content-Length: " + length + b"\r\n\r\n{}" + get(b"/livez"))
                reply = Reply.read(connection)
                assert reply.code == code and reply.reason == reason, (length, reply.body)
                assert reply.field == "Content-Length" and reply.headers["x-request-id"]
                assert reply.headers["connection"] == "close"
                assert not reply.rest and closes(connection), (length, reply.rest)
    for length in (b"18446744073709551615", b"9007199254740992", b"1048577"):
        expect(b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: " + length +
               b"\r\n\r\n", 413, "BODY_TOO_LARGE", "Content-Length")


def test_paths_with_escapes_or_other_bytes_are_refused():
    for path in (b"/livez%00zzz", b"/%6civez", b"/v1/groups/a%2Fb", b"/v1/groups/%2e%2e",
                 b"/v1/groups/a%3Abarrier", b"/v1/tensors/\xff", b"/v1/tensors/a\x01",
                 b"/v1/tensors/a\x7f", b"/v1/tensors/a b", b"/livez ", b"*", b"http://localhost/livez", b"livez", b"/v1/%"):
        reply = expect(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_PATH")
        assert "retryable" in reply.json["error"]


def test_ids_in_paths_follow_the_grammar():
    for name in (b"..", b".", b"a..b", b"a.", b"-a", b".a", b"a~", b"a" * 256, b""):
        expect(get(b"/v1/tensors/" + name), 400, "INVALID_ID")
    expect(get(b"/v1/tensors/" + b"a" * 255), 404, "TENSOR_NOT_FOUND")


def test_unknown_paths_and_methods():
    for path in (b"/", b"/nope", b"/v1", b"/v2/groups", b"/v1/groups/x:nope", b"/livez/",
                 b"//livez", b"/livez/../livez"):
        expect(get(path), 404, "ROUTE_NOT_FOUND")
    rows = [(b"POST", b"/livez", "GET, HEAD"), (b"BREW", b"/v1/groups", "GET, HEAD, POST"),
            (b"OPTIONS", b"/v1/tensors/x", "GET, HEAD, PATCH, DELETE"),
            (b"GET", b"/v1/tensors/x:all_reduce", "POST"), (b"TRACE", b"/livez", "GET, HEAD"),
            (b"get", b"/livez", "GET, HEAD"), (b"CONNECT", b"/livez", "GET, HEAD")]
    for method, path, allow in rows:
        reply = expect(method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n", 405,
                       "METHOD_NOT_ALLOWED")
        assert reply.headers["allow"] == allow, reply.headers
    for path in (b"/openapi.json", b"/v1/bundles", b"/v1/events", b"/v1/session", b"/v1/programs",
                 b"/v1/tensors/x/views", b"/v1/peers", b"/v1/node/manifest"):
        expect(get(path), 501, "NOT_AVAILABLE_YET")
    expect(post(b'{"any":1}', path=b"/v1/node:drain"), 501, "NOT_AVAILABLE_YET")


def test_hosts_and_origins():
    for host in (b"evil.example", b"evil.example:80", b"localhost.evil.example", b"127.0.0.2",
                 b"[::2]", b"localhost:80x", b"user@localhost"):
        expect(b"GET /v1/groups HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", 403, "FOREIGN_HOST",
               "Host")
    for host in (b"localhost", b"LOCALHOST:7411", b"127.0.0.1", b"[::1]:99", b"node-a",
                 b"extra.example:1"):
        expect(b"GET /v1/groups HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", 200, None)
    for origin in (b"http://evil.example", b"null", b"https://localhost.evil", b"file://"):
        expect(get(b"/v1/groups", b"Origin: " + origin + b"\r\n"), 403, "FOREIGN_HOST", "Origin")
    expect(get(b"/v1/groups", b"Origin: http://localhost:3000\r\n"), 200, None)
    expect(get(b"/v1/groups", b"Host: localhost\r\n"), 400, "INVALID_HEADER", "Host")
    expect(b"GET /livez HTTP/1.1\r\n\r\n", 400, "INVALID_HEADER", "Host")
    expect(b"GET /livez HTTP/1.0\r\n\r\n", 200, None)
    expect(b"\r\n" + get(b"/livez", b"Cookie: a=b; c\r\nX:\r\nY:  b \r\n"), 200, None)


def test_content_types():
    body = b"{}"
    for kind, hint in ((b"application/x-www-form-urlencoded", "--json"), (b"text/plain", "--json"),
                       (b"application/jsonx", "--json"), (b"", "--json"),
                       (b"application/json; charset=latin1", "--json")):
        reply = expect(b"POST /v1/groups HTTP/1.1\r\n" + HOST + b"Content-Type: " + kind +
                       b"\r\nContent-Length: 2\r\n\r\n" + body, 415, "UNSUPPORTED_MEDIA_TYPE",
                       "Content-Type")
        assert hint in reply.json["error"]["message"]
    expect(b"POST /v1/groups HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}", 415,
           "UNSUPPORTED_MEDIA_TYPE")
    for kind in (b"application/json", b"application/JSON; charset=UTF-8",
                 b'application/json ;charset="utf-8"'):
        expect(b"POST /v1/groups HTTP/1.1\r\n" + HOST + b"Content-Type: " + kind +
               b"\r\nContent-Length: 7\r\n\r\n{\"x\":1}", 400, "UNKNOWN_FIELD", "x")
    expect(post(body, b"Content-Encoding: gzip\r\n"), 415, "UNSUPPORTED_MEDIA_TYPE",
           "Content-Encoding")
    expect(post(body, JSON), 400, "INVALID_HEADER", "Content-Type")
    put = b"PUT /v1/tensors/x/shards/0/data HTTP/1.1\r\n" + HOST
    expect(put + b"\r\n", 411, "LENGTH_REQUIRED")
    reply = expect(put + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1"
                   b"\r\n\r\nx", 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type")
    assert "curl -T" in reply.json["error"]["message"]
    expect(put + b"Content-Range: bytes 0-0/2\r\nContent-Length: 1\r\n\r\nx", 400,
           "INVALID_HEADER", "Content-Range")
    expect(get(b"/v1/groups", b"Content-Length: 1\r\n") + b"x", 400, "INVALID_VALUE")


def test_a_key_that_would_be_ignored_is_refused():
    key = b"Idempotency-Key: a\r\n"
    for raw in (post(b'{"devices":"all"}', key),
                b"DELETE /v1/groups/x HTTP/1.1\r\n" + HOST + key + b"\r\n"):
        expect(raw, 501, "NOT_AVAILABLE_YET", "Idempotency-Key")
    expect(get(b"/v1/groups", key), 200, None)


def test_conditions_that_would_be_ignored_are_refused():
    for name in (b"If-Match", b"If-None-Match"):
        header = name + b': "x"\r\n'
        for path in (b"/v1/tensors/t:fill", b"/v1/tensors/t:all_reduce", b"/v1/tensors/t:copy",
                     b"/v1/tensors/t:checksum", b"/v1/tensors", b"/v1/tensors:batch_delete"):
            expect(post(b"{}", header, path=path), 400, "INVALID_HEADER", name.decode())
        expect(get(b"/v1/groups", header), 200, None)
    for method in (b"PATCH /v1/tensors/t", b"DELETE /v1/tensors/t", b"DELETE /v1/groups/g"):
        expect(method + b" HTTP/1.1\r\n" + HOST + b"If-None-Match: *\r\n\r\n", 400,
               "INVALID_HEADER", "If-None-Match")
    for name in (b"If-Match", b"If-None-Match", b"Range", b"If-Range"):
        expect(get(b"/v1/tensors/t/shards/0/data", (name + b": bytes=0-1\r\n") * 2), 400,
               "INVALID_HEADER", name.decode())


def test_queries_hold_no_blanks_or_control_bytes():
    for query in (b"group=a\x01", b"group=a\x7f", b"group=%\x14\x11", b"group=a\tb"):
        expect(get(b"/v1/tensors?" + query), 400, "INVALID_QUERY")


def test_json_bodies():
    rows = [
        (b"", "MISSING_FIELD", None),
        (b"[]", "INVALID_JSON", ""),
        (b'{"id":"g","id":"h"}', "INVALID_JSON", "id"),
        (b'{"id":"g","\\u0069d":"h"}', "INVALID_JSON", None),
        (b'{"ID":"g"}', "UNKNOWN_FIELD", "ID"),
        (b'{"id":5}', "INVALID_TYPE", "id"),
        (b'{"devices":[0.0]}', "INVALID_TYPE", "devices[0]"),
        (b'{"devices":[1e0]}', "INVALID_TYPE", "devices[0]"),
        (b'{"devices":[9007199254740992]}', None, "devices[0]"),
        (b'{"devices":[9223372036854775808]}', "INVALID_JSON", "devices[0]"),
        (b'{"devices":[-1]}', "INVALID_VALUE", "devices[0]"),
        (b'{"devices":[NaN]}', "INVALID_JSON", "devices[0]"),
        (b'{"devices":[0]} x', "INVALID_JSON", None),
        (b'{"devices":[0]}{}', "INVALID_JSON", None),
        (b'{"devices":[0]}\0', "INVALID_JSON", ""),
        (b'{"id":"a\\u0000b"}', "INVALID_JSON", "id"),
        (b'{"id":"\xff"}', "INVALID_JSON", "id"),
        (b'\xef\xbb\xbf{}', "INVALID_JSON", None),
        (b"{'id':'g'}", "INVALID_JSON", None),
        (b'{"id":"g",}', "INVALID_JSON", None),
        (b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", "INVALID_JSON", None),
        (b'{"a":' + b"[" * 31 + b"]" * 31 + b"}", "UNKNOWN_FIELD", "a"),
        (b"[" * 500000, "INVALID_JSON", None),
        (b'{"id":"' + b"x" * 1048000 + b'"}', "INVALID_ID", "id"),
    ]
    for body, reason, field in rows:
        expect(post(body) if body else b"POST /v1/groups HTTP/1.1\r\n" + HOST + b"\r\n", 400,
               reason, field)


def test_a_body_in_many_chunks_is_one_body():
    body = b'{"nope":' + b"1" * 15 + b"}"
    chunks = b"".join(b"1;ext=1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    expect(head + chunks, 400, "UNKNOWN_FIELD", "nope")
    with server.connect() as connection:  # in single bytes, and with another request behind it
        for byte in head + chunks + get(b"/livez"):
            connection.sendall(bytes([byte]))
        first = Reply.read(connection)
        assert first.code == 400 and first.reason == "UNKNOWN_FIELD"
        assert Reply.read(connection, rest=first.rest).code == 200


def test_a_chunked_body_is_bounded_as_well():
    head = b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    expect(head + piece * 17 + b"0\r\n\r\n", 413, "BODY_TOO_LARGE")
    with server.connect() as connection:  # and one without an end is cut
        try:
            connection.sendall(head)
            for _ in range(1024):
                connection.sendall(piece)
        except OSError:
            pass
        else:
            assert Reply.read(connection) is None, "64 MiB of JSON were read"


def test_bad_chunks_do_no_harm():
    head = b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    for chunk in (b"zz\r\n", b"-1\r\n", b"10000000000000000\r\nx", b"2\r\n{}xx", b"\r\n"):
        reply = exchange(head + chunk)
        assert reply is None or reply.code in (400, 413), (chunk, reply.code)


def test_a_broken_chunk_behind_a_refused_body_is_answered_once():
    head = b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    for pieces in (1, 17):  # of 17 the body is refused as too large, and read on
        with server.connect() as connection:
            connection.sendall(head + (b"10000\r\n" + b" " * 65536 + b"\r\n") * pieces + b"ZZ\r\n")
            got = read_to_end(connection)
        assert got.count(b"HTTP/1.1 ") == 1, got


def test_a_large_body_is_refused_before_it_is_sent():
    head = (b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 100000000\r\n")
    for more in (b"\r\n", b"Expect: 100-continue\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(head + more)
            reply = Reply.read(connection)
            assert reply.code == 413 and reply.reason == "BODY_TOO_LARGE"
            assert closes(connection)
    with server.connect() as connection:  # a good one is asked for
        connection.sendall(b"POST /v1/groups HTTP/1.1\r\n" + HOST + JSON +
                           b"Content-Length: 7\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(b'{"x":1}')
        assert Reply.read(connection).reason == "UNKNOWN_FIELD"


def test_an_unknown_expectation_is_refused():
    for value in (b"foo", b"", b"100-continue, foo"):
        head = b"Expect: " + value + b"\r\n"
        expect(get(b"/livez", head), 417, "INVALID_HEADER", "Expect")
        reply = expect(post(b'{"x":1}', head), 417, "INVALID_HEADER", "Expect")
        assert reply.json["error"]["code"] == 417
    twice = b"Expect: 100-continue\r\n" * 2
    expect(post(b'{"x":1}', twice), 417, "INVALID_HEADER", "Expect")


def test_a_refusal_with_a_small_body_keeps_the_connection():
    with server.connect() as connection:
        connection.sendall(post(b'{"id":"x"}', path=b"/nope") + get(b"/livez"))
        first = Reply.read(connection)
        assert first.code == 404 and first.headers.get("connection") != "close"
        assert Reply.read(connection, rest=first.rest).code == 200


def test_keep_alive_and_pipelining():
    with server.connect() as connection:
        connection.sendall(get(b"/livez") * 50)
        rest = b""
        for _ in range(50):
            reply = Reply.read(connection, rest=rest)
            assert reply.code == 200
            rest = reply.rest


def test_head_answers_as_get_without_a_body():
    whole = exchange(get(b"/v1/groups"))
    with server.connect() as connection:
        connection.sendall(b"HEAD /v1/groups HTTP/1.1\r\n" + HOST + b"\r\n" + get(b"/livez"))
        reply = Reply.read(connection, "HEAD")
        assert reply.code == 200
        assert reply.headers["content-length"] == whole.headers["content-length"]
        assert Reply.read(connection, rest=reply.rest).code == 200


def test_request_ids():
    rows = [("abc-DEF_1.2", True), ("x" * 64, True), ("x" * 65, False), ("a b", False),
            ("a/b", False), ("\xe9", False)]
    seen = set()
    for given, kept in rows:
        reply = exchange(get(b"/livez", b"x-request-id: " + given.encode("latin-1") + b"\r\n"))
        answer = reply.headers["x-request-id"]
        assert (answer == given) == kept, (given, answer)
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", answer)
        seen.add(answer)
    seen.update(exchange(get(b"/livez")).headers["x-request-id"] for _ in range(100))
    assert len(seen) == len(rows) + 100


def test_grpc_timeouts():
    for value in (b"", b"S", b"1", b"1s", b"123456789S", b"-1S", b"1.5S", b"1 S"):
        expect(get(b"/v1/groups", b"grpc-timeout: " + value + b"\r\n"), 400, "INVALID_HEADER",
               "grpc-timeout")
    expect(get(b"/v1/groups", b"grpc-timeout: 1S\r\ngrpc-timeout: 1S\r\n"), 400, "INVALID_HEADER")
    expect(get(b"/v1/groups", b"grpc-timeout: 0n\r\n"), 504, "OPERATION_DEADLINE")
    expect(post(b'{"id":"late","devices":[0]}', b"grpc-timeout: 1n\r\n"), 504, "OPERATION_DEADLINE")
    expect(get(b"/v1/groups/late"), 404, "GROUP_NOT_FOUND")
    expect(get(b"/v1/groups", b"grpc-timeout: 99999999H\r\n"), 200, None)


def test_waits():
    for value in (b"601", b"-1", b"x", b"1e1", b"nan", b"1&wait=1", b""):
        expect(post(b'{"devices":[0]}', path=b"/v1/groups?wait=" + value), 400, "INVALID_QUERY",
               "wait")
    expect(get(b"/v1/groups?wait=1"), 400, "INVALID_QUERY", "wait")


def test_queries():
    expect(get(b"/v1/groups?nope=1"), 400, "INVALID_QUERY", "nope")
    expect(get(b"/v1/groups?page_size=1&page_size=1"), 400, "INVALID_QUERY", "page_size")
    expect(get(b"/v1/groups?page_size=%31"), 200, None)
    expect(get(b"/v1/groups?page_size=%3"), 400, "INVALID_QUERY")
    expect(get(b"/v1/groups?page_size=1%00"), 400, "INVALID_QUERY")
    expect(get(b"/livez?x"), 400, "INVALID_QUERY", "x")
    for count in (65, 450, 2000, 9000):
        for pair in (b"a=b", b"a", b"label.k=v", b""):
            started = time.monotonic()
            query = b"&".join([pair] * count)[:30000]
            reply = expect(get(b"/v1/tensors?" + query), 400, "INVALID_QUERY")
            assert time.monotonic() - started < 2 * harness.SLOWER
            assert "at most 64 parameters" in reply.json["error"]["message"], reply.body
    labels = [b"label.k%d=v" % i for i in range(32)]
    expect(get(b"/v1/tensors?" + b"&".join(labels)), 200, None)


def test_large_heads_are_refused():
    assert exchange(get(b"/livez", b"X: " + b"a" * 40000 + b"\r\n")).code == 431
    assert exchange(get(b"/livez", b"X: a\r\n" * 20000)).code in (400, 431)
    assert exchange(get(b"/" + b"a" * 40000)).code in (414, 431)
    for cookies in (b"a=b; " * 500, b"a;" * 5000):
        with server.connect() as connection:
            connection.sendall(get(b"/livez", b"Cookie: " + cookies + b"\r\n"))
            reply = Reply.read(connection)
            assert reply.code == 431 and reply.field == "Cookie", reply.body
            assert not reply.rest and closes(connection), reply.rest
    expect(get(b"/livez", b"Cookie: " + b"a=b; " * 200 + b"\r\n"), 200, None)
    expect(get(b"/v1/groups/" + b"a" * 12000), 400, "INVALID_ID")
    expect(get(b"/v1/groups?x=" + b"a" * 12000), 400, "INVALID_QUERY")


def test_bytes_that_are_no_http_do_no_harm():
    for raw in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 512, b"\0" * 1000,
                b"GET\r\n\r\n", b"GET /livez\r\n\r\n", b"\r\n\r\n\r\n", b"GET /livez HTTP/9.9\r\n\r\n",
                b"GET /livez HTTP/1.1\r\nHost : localhost\r\n\r\n",
                b"GET /livez HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
                b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with server.connect(timeout=1) as connection:
            connection.sendall(raw)
            try:
                Reply.read(connection)
            except (TimeoutError, IndexError, ValueError):
                pass
    expect(get(b"/livez"), 200, None)


def test_errors_look_as_documented():
    error = expect(get(b"/v1/tensors/none"), 404, "TENSOR_NOT_FOUND").json["error"]
    assert error["code"] == 404 and error["status"] == "NOT_FOUND" and error["retryable"] is False
    assert error["message"] and isinstance(error["details"], list)
    text = expect(post(b'{"\xc3\xa9\\n":1}'), 400, "UNKNOWN_FIELD").body
    json.loads(text)


def test_probes_and_metrics():
    assert expect(get(b"/livez"), 200, None).json["status"] == "live"
    assert expect(get(b"/readyz"), 200, None).json == {"status": "ready"}
    for query in (b"verbose", b"verbose=1", b"verbose=true"):
        verbose = expect(get(b"/readyz?" + query), 200, None).json
        assert verbose["driver"] == "software" and verbose["devices"][0]["state"] == "ok"
    assert "v1" in expect(get(b"/version"), 200, None).json["api_versions"]
    reply = expect(get(b"/metrics"), 200, None)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    sample = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$')
    families = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            families.add(line.split(" ")[2])
        elif not line.startswith("#"):
            assert sample.match(line), line
            assert re.sub(r"(_bucket|_sum|_count)?(\{.*| .*)$", "", line) in families, line
    assert 'symtensor_http_requests_total{method="GET",route="/livez",code="200"}' in text
    assert 'symtensor_http_rejected_total{reason="INVALID_PATH"}' in text
    assert 'route="/v1/tensors/{tensor}"' in text


def test_each_change_and_failure_is_one_log_line():
    before = len(server.log_lines())
    expect(post(b'{"id":"logged","devices":[0]}', b"x-request-id: log-1\r\n"), 201, None)
    expect(get(b"/v1/groups/logged", b"x-request-id: log-2\r\n"), 200, None)
    expect(get(b"/v1/groups/none", b"x-request-id: log-3\r\n"), 404, None)
    expect(b"DELETE /v1/groups/logged HTTP/1.1\r\n" + HOST + b"\r\n", 204, None)
    deadline = time.monotonic() + 5 * harness.SLOWER
    lines = []
    while len(lines) < 3 and time.monotonic() < deadline:  # a line is written after the reply
        lines = [line for line in server.log_lines()[before:] if line["message"] == "request"]
    by_id = {line["request_id"]: line for line in lines}
    assert len(lines) == 3 and "log-2" not in by_id, lines
    assert by_id["log-1"]["level"] == "info" and by_id["log-1"]["code"] == 201
    assert by_id["log-1"]["route"] == "/v1/groups" and by_id["log-1"]["principal"].startswith("uid:")
    assert by_id["log-3"]["level"] == "warning" and by_id["log-3"]["reason"] == "GROUP_NOT_FOUND"


if __name__ == "__main__":
    with Server("--node-name", "node-a", "--allowed-hosts", "extra.example,other") as server:
        try:
            harness.run(globals())
        except SystemExit as end:
            code = end.code
    raise SystemExit(code)
