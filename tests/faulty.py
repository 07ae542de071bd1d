"""A server that does what it is told to each path, byte by byte: for what no proper server does."""

import contextlib
import socket
import ssl
import threading
import time


def answer(body=b"", status="200 OK", length=None, **headers):
    """The bytes of an answer that keeps the connection; `length` lies about the body's."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Faulty:
    """Answers by `answers`: path (without query) -> what to do, or a list for the first, second … and all later ones.

    To do is: bytes to send, `cut(bytes)` to hang up behind them, or a function of the connection's socket that returns
    whether to hang up.
    """

    def __init__(self, answers, certificate=None, port=0):
        self.answers, self.requests, self.lock = answers, [], threading.Lock()
        self.connections, self.now, self.most = 0, 0, 0
        self.socket = socket.create_server(("127.0.0.1", port), backlog=256)
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
        self.port = self.socket.getsockname()[1]
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self.open = set()
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
                self.threads.append(thread)
                thread.start()

    def serve(self, connection):
        with self.lock:
            self.connections += 1
            self.now += 1
            self.most = max(self.most, self.now)
            self.open.add(connection)
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                while head := self.head(stream):
                    target = head[0].split()[1]
                    path = target.partition("?")[0]
                    with self.lock:
                        number = self.count(path)
                        self.requests.append((path, time.monotonic(), head, target))
                    action = self.action(path, target, number)
                    if callable(action):
                        if action(connection):
                            return
                    else:
                        connection.sendall(action)
        except (OSError, LookupError):
            pass
        finally:
            with self.lock:
                self.now -= 1

    def action(self, path, target, number):
        """What to do when `path` is asked for, as `target` with its query, after `number` times before."""
        action = self.answers[path]
        return action[min(number, len(action) - 1)] if isinstance(action, list) else action

    def head(self, stream):
        lines = []
        while line := stream.readline().rstrip().decode("latin-1"):
            lines.append(line)
        return lines

    def count(self, path):
        return sum(asked[0] == path for asked in self.requests)

    def times(self, path):
        return [asked[1] for asked in self.requests if asked[0] == path]

    def headers(self, number=-1):
        return list(self.requests[number][2][1:])

    def stop(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        with self.lock:  # one that was on its way may still come in
            connections = list(self.open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(2)


def cut(data=b""):
    def action(connection):
        connection.sendall(data)
        return True

    return action


def silent(data=b"", seconds=30):
    """Sends `data`, then nothing, until the other side or the server goes."""

    def action(connection):
        connection.sendall(data)
        connection.settimeout(seconds)
        connection.recv(1)
        return True

    return action


def drip(head, piece, pause, count=1000):
    def action(connection):
        connection.sendall(head)
        for _ in range(count):
            time.sleep(pause)
            connection.sendall(piece)
        return True

    return action


def slow(data, seconds):
    def action(connection):
        time.sleep(seconds)
        connection.sendall(data)
        return False

    return action


@contextlib.contextmanager
def faulty(answers, **options):
    server = Faulty(answers, **options)
    try:
        yield server
    finally:
        server.stop()
