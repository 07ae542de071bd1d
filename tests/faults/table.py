"""What can go wrong: with a picture, with a shard, with a disk, on a network."""

import gzip
import os
import random
import socket
import struct
import time

from conftest import jpeg, photo, png, saved
from faulty import answer, cut, silent, slow

JUNK = random.Random(7).randbytes(4000)
PICTURE = jpeg(45, 30, seed=5)


def overwritten(data, at, junk=JUNK[:16]):
    return data[:at] + junk + data[at + len(junk) :]


def sized(data, width, height):
    """A JPEG that says it has another size."""
    at = data.find(b"\xff\xc0") + 5
    return overwritten(data, at, struct.pack(">HH", height, width))


# fault: (what becomes of the victim's bytes, the reason that is counted; None: it is delivered, and counted as damaged)
PICTURES = {
    "junk": (lambda data: JUNK, "unsupported"),
    "a page of HTML": (lambda data: b"<!doctype html><html>" + b" " * 500, "unsupported"),
    "no bytes": (lambda data: b"", "empty"),
    "one byte": (lambda data: b"\xff", "unsupported"),
    "PNG: junk behind the signature": (lambda data: data[:8] + JUNK, "corrupt"),
    "PNG: junk in the pixels": (lambda data: overwritten(data, len(data) // 2), "corrupt"),
    "PNG: half": (lambda data: data[: len(data) // 2], "truncated"),
    "PNG: its head": (lambda data: data[:40], "truncated"),
    "PNG: 2^31 - 1 pixels square": (lambda data: png(2**31 - 1, 2**31 - 1, 8, 2, b""), "too_large"),
    "PNG: no rows": (lambda data: png(45, 30, 8, 2, b""), "truncated"),
    "JPEG: half": (lambda data: PICTURE[: len(PICTURE) // 2], "truncated"),
    "JPEG: its head": (lambda data: PICTURE[:100], "truncated"),
    "JPEG: junk in the pixels": (lambda data: overwritten(PICTURE, len(PICTURE) * 2 // 3, b"\xff\xd5\xff\xd3"), None),
    "JPEG: 65500 pixels square": (lambda data: sized(PICTURE, 65500, 65500), "too_large"),
    "JPEG: no height": (lambda data: sized(PICTURE, 45, 0), "corrupt"),
    "WebP: half": (lambda data: saved(photo(45, 30), "WEBP")[:300], "truncated"),
    "GIF: half": (lambda data: saved(photo(45, 30), "GIF")[:900], "truncated"),
    "TIFF: junk": (lambda data: b"II*\0\x08\0\0\0" + JUNK, "truncated"),
}


def at(archive, name, offset):
    return archive.index(name.encode()) + offset


def enlarged(archive, start):
    """A member says that it has 8 GB."""
    header = overwritten(overwritten(archive[start : start + 512], 124, b"77777777777\0"), 148, b" " * 8)
    return overwritten(archive, start, overwritten(header, 148, b"%06o\0 " % sum(header)))


# fault: (what becomes of the victim's shard, which of its four samples are lost: a set, or a list of those that may be)
ARCHIVES = {
    "no bytes": (lambda data: b"", {0, 1, 2, 3}),
    "junk": (lambda data: JUNK, {0, 1, 2, 3}),
    "a page of HTML": (lambda data: b"<html>" + b" " * 2000, {0, 1, 2, 3}),
    "cut where a member ends": (lambda data: data[: at(data, "p06.jpg", 0)], {2, 3}),
    "cut in a member": (lambda data: data[: at(data, "p06.jpg", 700)], {2, 3}),
    "cut in a header": (lambda data: data[: at(data, "p06.jpg", 200)], {2, 3}),
    "cut in the first member": (lambda data: data[:600], {0, 1, 2, 3}),
    "without its end": (lambda data: data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % 512), set()),
    "junk over a header": (lambda data: overwritten(data, at(data, "p06.jpg", 0), JUNK[:512]), {2, 3}),
    "a member of 8 GB": (lambda data: enlarged(data, at(data, "p06.jpg", 0)), {2, 3}),
    "gzip, cut": (lambda data: gzip.compress(data)[: len(gzip.compress(data)) * 2 // 3], [0, 1, 2, 3]),
    "gzip, junk in it": (lambda data: overwritten(gzip.compress(data), 3000), [0, 1, 2, 3]),
}


def removed(path):
    path.unlink()


def folder_instead(path):
    path.unlink()
    path.mkdir()


def link_to(target):
    def strike(path):
        path.unlink()
        path.symlink_to(target(path) if callable(target) else target)

    return strike


def pipe_instead(path):
    path.unlink()
    os.mkfifo(path)


# fault: (what becomes of the victim's file, whether it strikes shards too). They are struck before they are read, pictures after
# they were listed. A folder among the urls of shards is a wrong config, and what gives zeros is an empty archive.
DISK = {
    "vanished": (removed, True),
    "a folder in its place": (folder_instead, False),
    "a link to nowhere": (link_to("/no/such/place"), True),
    "a link to itself": (link_to(lambda path: path.name), True),
    "a device that gives nothing": (link_to("/dev/null"), True),
    "a device that gives no end": (link_to("/dev/zero"), False),
    "reads fail": (link_to("/proc/self/mem"), True),
    "emptied": (lambda path: path.write_bytes(b""), True),
    "shorter than it was": (lambda path: os.truncate(path, 700), True),
    "a pipe without a writer": (pipe_instead, False),
}


def reset(data=b""):
    def action(connection):
        connection.sendall(data)
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return True

    return action


def head(good):
    return good[: good.index(b"\r\n\r\n") + 4]


def body(good):
    return good[len(head(good)) :]


def half(good):
    return good[: len(head(good)) + len(body(good)) // 2]


def chunked(good, end=b"0\r\n\r\n"):
    data = body(good)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data) + data + b"\r\n" + end


def moved(location):
    return answer(status="302 Found", Location=location)


def slowly(good):
    """All of it, with pauses shorter than the time-out that together are longer."""

    def action(connection):
        step = -(-len(good) // 4)
        for start in range(0, len(good), step):
            connection.sendall(good[start : start + step])
            time.sleep(0.4)
        return False

    return action


# fault: (good answer -> what is said to the first, second … and all later requests; whether it passes)
NETWORK = {
    "reset before the answer": (lambda good: [reset(), reset(), good], True),
    "reset in the body": (lambda good: [reset(half(good)), reset(half(good)), good], True),
    "cut before the answer": (lambda good: [cut(), cut(), good], True),
    "cut in the head": (lambda good: [cut(good[:10]), cut(good[:30]), good], True),
    "cut in the body": (lambda good: [cut(half(good)), cut(half(good)), good], True),
    "cut in a chunk": (lambda good: [cut(half(chunked(good))), chunked(good)], True),
    "cut before the last chunk": (lambda good: [cut(chunked(good, b"")), chunked(good)], True),
    "silence before the answer": (lambda good: [silent(), good], True),
    "silence in the body": (lambda good: [silent(half(good)), good], True),
    "slow to answer": (lambda good: slow(good, 0.5), True),
    "slow but steady": (slowly, True),
    "500, 503": (lambda good: [answer(status="500 No"), answer(status="503 No"), good], True),
    "502, 504": (lambda good: [answer(status="502 No"), answer(status="504 No"), good], True),
    "503, come again in 1 s": (lambda good: [answer(status="503 No", Retry_After="1"), good], True),
    "429": (lambda good: [answer(status="429 No"), answer(status="429 No"), good], True),
    "429, come again in 1 s": (lambda good: [answer(status="429 No", Retry_After="1"), good], True),
    "408": (lambda good: [answer(status="408 No"), good], True),
    "moved": (lambda good: [moved("/elsewhere?sig=SECRET"), moved("/elsewhere"), moved("/elsewhere")], True),
    "not HTTP, then HTTP": (lambda good: [cut(b"SSH-2.0-x\r\n"), good], True),
    "always reset": (lambda good: reset(half(good)), False),
    "always cut": (lambda good: cut(half(good)), False),
    "always silent": (lambda good: silent(head(good)), False),
    "always 503": (lambda good: answer(b"busy SECRET", status="503 No"), False),
    "always 429": (lambda good: answer(status="429 No"), False),
    "429, come again tomorrow": (lambda good: answer(status="429 No", Retry_After="86400"), False),
    "400": (lambda good: answer(b'{"detail": "no"}', status="400 No"), False),
    "401": (lambda good: answer(b"<html>", status="401 No"), False),
    "403": (lambda good: answer(b"<Error>expired</Error>", status="403 No"), False),
    "404": (lambda good: answer(b'{"detail": "none"}', status="404 No"), False),
    "410": (lambda good: answer(status="410 Gone"), False),
    "a length that is too long": (lambda good: cut(answer(body(good), length=len(body(good)) + 100)), False),
    "a length that is too short": (lambda good: answer(body(good), length=len(body(good)) // 2), False),
    "a length that is none, and half of it": (lambda good: cut(b"HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n" + half(good)), False),
    "chunks that are none": (lambda good: cut(chunked(good).replace(b"\r\n\r\n", b"\r\n\r\nxyz", 1)), False),
    "no body": (lambda good: answer(b""), False),
    "a page of HTML": (lambda good: answer(b"<html>log in</html>"), False),
    "moved in a circle": (lambda good: moved("/circle"), False),
    "moved to a file": (lambda good: moved("file:///etc/passwd"), False),
    "moved to where nobody listens": (lambda good: moved("http://127.0.0.1:1/x"), False),
    "never HTTP": (lambda good: cut(b"SSH-2.0-x\r\n\r\n"), False),
}
