"""Servers on loopback that say exactly what a test wants said."""

import contextlib
import random
import socket
import threading
import time
from types import SimpleNamespace

BODY = random.Random(4).randbytes(20480)
ETAG = 'ETag: "v1"'


def answer(body=b"", *headers, status="200 OK", length=True):
    """The bytes of an answer that ends the connection; `length`: whether it has a Content-Length, or which."""
    size = [f"Content-Length: {len(body) if length is True else length}"] if length is not False else []
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *size, *headers, "", ""]).encode() + body


def from_range(request, body=BODY, *headers):
    """What a server that knows ranges answers."""
    wanted = request.headers.get("range")
    if not wanted:
        return answer(body, *headers)
    start = int(wanted.removeprefix("bytes=").removesuffix("-"))
    part = f"Content-Range: bytes {start}-{len(body) - 1}/{len(body)}"
    return answer(body[start:], part, *headers, status="206 Partial Content")


@contextlib.contextmanager
def serve(answers, context=None, host="127.0.0.1"):
    """A server whose n-th request is answered by `answers[n]` (the last one again and again), or by `answers(request)`.

    An answer is bytes, after which the connection is closed, or a function of the request that does as it likes with
    `request.sock` and returns bytes or None. The server has `url`, `requests` and `most`, the connections open at once.
    """
    server = SimpleNamespace(requests=[], most=0, now=0, lock=threading.Lock(), closing=threading.Event())
    listener = socket.create_server((host, 0), backlog=64)
    server.port = listener.getsockname()[1]
    server.url = f"http{'s' if context else ''}://{host}:{server.port}"

    def handle(sock):
        with server.lock:
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            with contextlib.suppress(OSError):
                sock.settimeout(20)
                if context:
                    sock = context.wrap_socket(sock, server_side=True)
                head = b""
                while b"\r\n\r\n" not in head:
                    data = sock.recv(65536)
                    if not data:
                        return
                    head += data
                lines = head.decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) if ": " in line else (line, "") for line in lines[1:] if line)
                with server.lock:
                    request = SimpleNamespace(
                        line=lines[0],
                        target=lines[0].split(" ")[1],
                        headers=headers,
                        head=head.decode("latin-1"),
                        sock=sock,
                        time=time.monotonic(),
                        number=len(server.requests),
                        closing=server.closing,
                    )
                    server.requests.append(request)
                said = answers if callable(answers) else answers[min(request.number, len(answers) - 1)]
                said = said(request) if callable(said) else said
                if said:
                    sock.sendall(said)
        finally:
            with server.lock:
                server.now -= 1  # before the client can see that this is over
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            sock.close()

    def accept():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        server.closing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        listener.close()


def silence(request):
    """Says no more until the test is over or the client leaves."""
    request.sock.settimeout(0.05)
    while not request.closing.is_set():
        try:
            if not request.sock.recv(1):
                return
        except TimeoutError:
            pass


def then_silence(data):
    def said(request):
        request.sock.sendall(data)
        silence(request)

    return said
