#!/usr/bin/env python3
"""Start and end of the server: sockets, locks, options, listeners, who may, and the drain."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import harness
from harness import PROGRAM, Reply, Server, spawned, wait_for

BASE = ["--driver", "software", "--software-memory", "64MiB"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_fails(*options, environment=None, code=1):
    """Run a server that must not start; what it logged."""
    result = subprocess.run(
        [PROGRAM, *BASE, *options],
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        timeout=30 * harness.SLOWER,
    )
    text = result.stderr.decode()
    assert result.returncode == code, f"exit code {result.returncode}: {text}"
    return text


def tcp_request(port, path, host="localhost", timeout=10):
    with socket.create_connection(("127.0.0.1", port), timeout * harness.SLOWER) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return Reply.read(connection)


def test_the_socket_and_its_folder_have_their_modes():
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "made", "s.sock")
    with spawned("--health-listen", "off", "--unix-socket", path, umask=0o077) as process:
        wait_for(lambda: os.path.exists(path))
        time.sleep(0.2)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) & 0o027 == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30 * harness.SLOWER) == 0
    assert os.listdir(os.path.dirname(path)) == []
    shutil.rmtree(work)


def test_a_stale_socket_is_replaced_and_a_live_one_is_not():
    with Server() as server:
        text = start_fails("--health-listen", "off", "--unix-socket", server.socket)
        assert "ADDRESS_IN_USE" in text and "--unix-socket" in text and server.socket in text
        assert server.request("GET", "/livez").code == 200
        server.process.kill()
        server.process.wait()
        assert os.path.exists(server.socket)
        with spawned("--health-listen", "off", "--unix-socket", server.socket) as again:

            def answers():
                try:
                    return server.request("GET", "/livez").code == 200
                except OSError:
                    return False

            wait_for(answers)
            again.terminate()
            assert again.wait(30 * harness.SLOWER) == 0
        server.expect_exit = -signal.SIGKILL


def test_a_socket_of_another_program_is_left_alone():
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "s.sock")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen(1)
        text = start_fails("--health-listen", "off", "--unix-socket", path)
        assert "ADDRESS_IN_USE" in text and path in text
        assert os.path.exists(path)
    os.unlink(path)
    with open(path, "w", encoding="ascii") as file:
        file.write("mine")
    text = start_fails("--health-listen", "off", "--unix-socket", path)
    assert "is not a socket" in text
    with open(path, encoding="ascii") as file:
        assert file.read() == "mine"
    assert os.listdir(work) == ["s.sock"]
    shutil.rmtree(work)


def test_the_lock_decides_before_the_socket_is_touched():
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "s.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)  # nobody listens: it looks stale
    with open(path + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = start_fails("--health-listen", "off", "--unix-socket", path)
        assert "ADDRESS_IN_USE" in text and path in text
        assert sorted(os.listdir(work)) == ["s.sock", "s.sock.lock"]
    shutil.rmtree(work)


def test_many_servers_at_once_leave_one():
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "s.sock")
    options = ("--health-listen", "off", "--unix-socket", path)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(spawned(*options)) for _ in range(6)]
        time.sleep(3 * harness.SLOWER)
        running = [process for process in processes if process.poll() is None]
        assert len(running) == 1, f"{len(running)} run"
        running[0].terminate()
        assert running[0].wait(30 * harness.SLOWER) == 0
    assert os.listdir(work) == []
    shutil.rmtree(work)


def test_an_address_in_use_names_itself_and_the_option():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        text = start_fails("--unix-socket", "off", "--health-listen", "off", "--insecure",
                           "--listen", f"127.0.0.1:{port}")
        assert "ADDRESS_IN_USE" in text and "--listen" in text and str(port) in text
        work = tempfile.mkdtemp(prefix="symtensor-http.")
        path = os.path.join(work, "s.sock")
        text = start_fails("--unix-socket", path, "--health-listen", f"127.0.0.1:{port}")
        assert "ADDRESS_IN_USE" in text and "--health-listen" in text and str(port) in text
        assert os.listdir(work) == [], "a failed start leaves its socket"
        shutil.rmtree(work)


def test_wrong_options_end_with_2_and_a_message():
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    rows = [
        (["--listen", "127.0.0.1:1"], "--insecure", 2),
        (["--tokens-file", "x"], "--tokens-file: is not an option", 2),
        (["--drain-seconds", "-1"], "--drain-seconds", 2),
        (["--unix-socket", "off", "--health-listen", "off"], "--unix-socket", 1),
        (["--unix-socket", "/tmp/" + "x" * 120, "--health-listen", "off"], "--unix-socket", 1),
        (["--unix-socket", "/nonexistent/a/s.sock", "--health-listen", "off"], "--unix-socket", 1),
        (["--health-listen", "7412"], "--health-listen", 1),
        (["--health-listen", "127.0.0.1:"], "--health-listen", 1),
        (["--health-listen", "127.0.0.1:99999"], "--health-listen", 1),
        (["--allowed-hosts", "a,b c:d"], "--allowed-hosts", 1),
        (["--software-memory", "8000000GiB"], "software_memory: 4 devices can have at most", 1),
        (["--software-memory", str(machine // 4 + (1 << 30))], "at most", 1),
        (["--software-memory", "18446744073709551615"], "software_memory", 1),
    ]
    for options, message, code in rows:
        if "--unix-socket" not in options:
            options = options + ["--unix-socket", "/tmp/symtensor-never.sock"]
        text = start_fails(*options, code=code)
        assert message in text, (options, text)
    assert not os.path.exists("/tmp/symtensor-never.sock")
    for flag, text in (("--help", "--health-listen"), ("--version", "symtensord ")):
        result = subprocess.run([PROGRAM, flag], stdout=subprocess.PIPE, check=True)
        assert text in result.stdout.decode()


def test_the_default_place_follows_the_runtime_folder():
    if os.access("/run", os.W_OK) or os.path.exists("/run/symtensor"):
        return  # the first choice would be taken, which belongs to the machine
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "symtensor", "symtensord.sock")
    environment = {**os.environ, "XDG_RUNTIME_DIR": work}
    with spawned("--health-listen", "off", env=environment) as process:
        wait_for(lambda: os.path.exists(path))
        process.terminate()
        assert process.wait(30 * harness.SLOWER) == 0
    shutil.rmtree(work)


def test_tcp_needs_insecure_and_checks_the_host():
    port = free_port()
    with Server("--listen", f"127.0.0.1:{port}", "--insecure"):
        assert tcp_request(port, "/v1/groups").code == 200
        assert tcp_request(port, "/v1/groups", host=f"127.0.0.1:{port}").code == 200
        reply = tcp_request(port, "/v1/groups", host="rebound.example")
        assert reply.code == 403 and reply.reason == "FOREIGN_HOST"


def test_the_health_listener_serves_probes_only():
    port = free_port()
    with Server("--health-listen", f"127.0.0.1:{port}"):
        for path in ("/livez", "/readyz", "/version", "/metrics", "/readyz?verbose"):
            assert tcp_request(port, path, host="10.0.0.7:80").code == 200, path
        for path in ("/v1/groups", "/v1/node", "/"):
            assert tcp_request(port, path).code == 404, path


def as_user(uid, gid, groups, action):
    """Run action() as another user in a child; whether it returned true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            code = 0 if action() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_peer_decides_the_role():
    if os.geteuid() != 0:
        return  # only root can be somebody else
    with Server() as server:
        os.chmod(server.work, 0o755)

        def answers(method, path, code, reason=None, body=None):
            reply = server.request(method, path, body)
            return reply.code == code and (not reason or reply.reason == reason)

        def refused_by_the_system():
            try:
                server.connect()
            except PermissionError:
                return True
            return False

        assert as_user(65534, 65534, [], refused_by_the_system)
        os.chmod(os.path.dirname(server.socket), 0o755)
        os.chmod(server.socket, 0o666)
        assert as_user(65534, 65534, [],
                       lambda: answers("GET", "/v1/groups", 403, "FOREIGN_USER"))
        assert as_user(65534, 65534, [], lambda: answers("GET", "/livez", 200))
        assert as_user(65534, 65534, [],
                       lambda: answers("POST", "/v1/groups", 403, "FOREIGN_USER", {"devices": [0]}))
        member = {"id": "theirs", "devices": [0]}
        assert as_user(65534, 0, [], lambda: answers("POST", "/v1/groups", 201, body=member))
        assert as_user(65534, 65534, [0], lambda: answers("GET", "/v1/groups", 200))
        assert server.request("GET", "/v1/groups/theirs").json["owner"] == "uid:65534"


def test_a_drain_of_an_idle_server_is_quick():
    with Server() as server:
        idle = server.connect()  # connections that do nothing hold nobody up
        started = time.monotonic()
        server.terminate()
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 5 * harness.SLOWER
        idle.close()


def make_tensor(server, megabytes):
    assert server.request("POST", "/v1/groups", {"id": "g", "devices": "all"}).code == 201
    assert server.request("POST", "/v1/tensors?wait=60", {
        "id": "t", "group": "g", "dtype": "uint8", "shape": [megabytes << 20]}).code == 201


class Waiters:
    """Requests that wait behind a download that nobody reads."""

    def __init__(self, server, count):
        self.replies = []
        self.reader = server.connect()
        self.reader.sendall(b"GET /v1/tensors/t/shards/0/data HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.reader.recv(1000)
        self.threads = [threading.Thread(target=self.wait, args=(server,)) for _ in range(count)]
        for thread in self.threads:
            thread.start()
        time.sleep(1 * harness.SLOWER)

    def wait(self, server):
        self.replies.append(server.request("POST", "/v1/tensors/t:fill?wait=60", {"value": 1}))

    def join(self):
        for thread in self.threads:
            thread.join()
        self.reader.close()
        return self.replies


def test_a_drain_cancels_what_does_not_end_and_answers_the_waiters():
    with Server("--drain-seconds", "1") as server:
        make_tensor(server, 32)
        waiters = Waiters(server, 8)
        assert server.process.poll() is None and not waiters.replies
        started = time.monotonic()
        server.terminate()
        time.sleep(0.3)
        assert server.request("GET", "/readyz").code == 503
        assert server.request("GET", "/livez").code == 200
        refused = server.request("POST", "/v1/groups", {"devices": [0]})
        assert refused.code == 503 and refused.reason == "NODE_DRAINING"
        assert refused.headers["retry-after"] == "1"
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 15 * harness.SLOWER
        replies = waiters.join()
        assert len(replies) == 8 and None not in replies, replies
        assert {reply.code for reply in replies} <= {499, 202}, [reply.code for reply in replies]


def test_a_drain_lets_work_end():
    with Server("--drain-seconds", "30") as server:
        make_tensor(server, 32)
        waiters = Waiters(server, 2)
        server.terminate()
        time.sleep(0.5)
        while waiters.reader.recv(1 << 20):  # now the download is read, so the fills can run
            if len(waiters.replies) == 2:
                break
        assert server.wait_exit() == 0
        assert [reply.code for reply in waiters.join()] == [200, 200]


def test_a_second_signal_ends_the_grace_time():
    with Server("--drain-seconds", "3600") as server:
        make_tensor(server, 32)
        waiters = Waiters(server, 1)
        server.terminate()
        time.sleep(0.5)
        assert server.process.poll() is None
        started = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 6 * harness.SLOWER  # the stalled download ends later
        assert len(waiters.join()) == 1


def test_a_driver_that_hangs_at_the_start_does_not_hold_up_the_end():
    work = tempfile.mkdtemp(prefix="symtensor-http.")
    path = os.path.join(work, "s.sock")
    environment = {**os.environ, "SYMTENSOR_SOFTWARE_HANG": "cuMemCreate:1:600000"}
    with spawned("--health-listen", "off", "--unix-socket", path, env=environment) as process:
        time.sleep(1 * harness.SLOWER)
        assert process.poll() is None
        process.terminate()
        assert process.wait(10 * harness.SLOWER) == 0
    assert os.listdir(work) == []
    shutil.rmtree(work)


def test_a_hanging_driver_call_does_not_hold_up_the_end():
    # More calls than the start makes, fewer than those of all the tensors below.
    environment = {"SYMTENSOR_SOFTWARE_HANG": "cuMemCreate:60:600000"}
    with Server("--drain-seconds", "1", environment=environment) as server:
        assert server.request("POST", "/v1/groups?wait=60", {"id": "g", "devices": "all"}).code == 201
        codes = [server.request("POST", "/v1/tensors?wait=0.3", {
            "id": f"t{i}", "group": "g", "dtype": "uint8", "shape": [3 << 20]}).code
            for i in range(14)]
        assert 202 in codes, codes
        assert server.request("GET", "/readyz").code == 200
        started = time.monotonic()
        server.terminate()
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 20 * harness.SLOWER


def test_sighup_changes_nothing():
    with Server() as server:
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert server.request("GET", "/readyz").code == 200


def test_sigpipe_of_clients_that_leave_does_not_end_the_server():
    with Server() as server:
        make_tensor(server, 32)
        for _ in range(20):
            connection = server.connect()
            connection.sendall(b"GET /v1/tensors/t/shards/0/data HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(100)
            connection.close()
        assert server.request("GET", "/livez").code == 200


if __name__ == "__main__":
    harness.run(globals())
