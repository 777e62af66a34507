"""For tests/http/*.py: the real server in a folder of its own, raw sockets, and tables of cases.

SYMTENSORD names the program. A test is a function whose name begins with test_; run() runs them all.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.environ.get("SYMTENSORD", "symtensord")
SLOWER = float(os.environ.get("SYMTENSORD_SLOWER", "1"))


class Server:
    """One server process; use it with `with`: its end asserts exit 0 and that nothing is left."""

    def __init__(self, *options, environment=None, unix=True, expect_exit=0):
        self.work = tempfile.mkdtemp(prefix="symtensor-http.")
        self.socket = os.path.join(self.work, "run", "symtensord.sock")
        self.expect_exit = expect_exit
        arguments = [PROGRAM, "--driver", "software", "--software-memory", "64MiB"]
        arguments += ["--unix-socket", self.socket if unix else "off"]
        if "--health-listen" not in options:
            arguments += ["--health-listen", "off"]
        os.mkdir(os.path.join(self.work, "run"), 0o750)
        self.log_path = os.path.join(self.work, "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                arguments + list(options),
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def log_lines(self):
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    def wait_ready(self):
        deadline = time.monotonic() + 30 * SLOWER
        while '"message":"ready"' not in self.log():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the server did not start:\n" + self.log())
            time.sleep(0.02)
        return self

    def connect(self, timeout=30):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout * SLOWER)
        for _ in range(1000):  # a socket with a timeout does not wait for room in the backlog
            try:
                connection.connect(self.socket)
                return connection
            except BlockingIOError:
                time.sleep(0.01)
        raise AssertionError("the backlog stays full")

    def request(self, method, path, body=None, headers=()):
        """One request on a connection of its own. A dict is sent as JSON."""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        if isinstance(body, (dict, list)):
            lines.append("Content-Type: application/json")
        if data is not None:
            lines.append(f"Content-Length: {len(data)}")
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        with self.connect() as connection:
            connection.sendall(head + (data or b""))
            return Reply.read(connection, method)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, seconds=30):
        return self.process.wait(timeout=seconds * SLOWER)

    def __enter__(self):
        return self.wait_ready()

    def __exit__(self, kind, value, trace):
        try:
            if self.process.poll() is None:
                self.terminate()
                try:
                    self.wait_exit()
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                    raise AssertionError("the server runs 30 s after SIGTERM:\n" + self.log())
            if kind is not None:
                print(self.log()[-4000:], file=sys.stderr)
                return
            code = self.process.returncode
            assert code == self.expect_exit, f"exit code {code}:\n{self.log()}"
            left = os.listdir(os.path.join(self.work, "run"))
            assert not left, f"left behind: {left}"
        finally:
            shutil.rmtree(self.work)


@contextlib.contextmanager
def spawned(*options, **arguments):
    """A server process that does not outlive the test, whatever becomes of it."""
    process = subprocess.Popen(
        [PROGRAM, "--driver", "software", "--software-memory", "64MiB", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **arguments,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(condition, seconds=30):
    """Wait until condition() holds."""
    deadline = time.monotonic() + seconds * SLOWER
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


class Reply:
    def __init__(self, code, headers, body):
        self.code = code
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def reason(self):
        return self.json["error"]["details"][0]["reason"]

    @property
    def field(self):
        return self.json["error"]["details"][0].get("field", "")

    @staticmethod
    def read(connection, method="GET", rest=b""):
        """Read one reply. None: the connection was closed without one."""
        data = rest
        try:
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65536)
                if not piece:
                    return None
                data += piece
        except ConnectionResetError:
            return None
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        code = int(lines[0].split(" ")[1])
        length = int(headers.get("content-length", "0"))
        if method == "HEAD" or code in (204, 304):
            length = 0
        while len(body) < length:
            piece = connection.recv(65536)
            assert piece, "the reply ends early"
            body += piece
        reply = Reply(code, headers, body[:length])
        reply.rest = body[length:]
        return reply


def closes(connection):
    """Whether the peer closes without sending more."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def read_to_end(connection):
    """All bytes that the peer sends before it closes."""
    got = b""
    try:
        while piece := connection.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    return got


def run(module):
    """Run the functions test_* of a module's dict; those given as arguments, or all."""
    names = sys.argv[1:] or [name for name in module if name.startswith("test_")]
    failed = []
    for name in names:
        started = time.monotonic()
        try:
            module[name]()
            print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:  # every test runs, whatever one of them raises
            failed.append(name)
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
