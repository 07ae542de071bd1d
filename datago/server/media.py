"""The bytes of images, masks and latents: a server of signed urls, on a port of its own.

A url is `/PATH?…&Expires=SECONDS&Signature=HEX`; PATH lies below the served folder. A member of a shard has
`name=…&offset=…&size=…` in front of that. The signature is over all that stands before it, so what it says needs no
database, and no other check than that no link has come to lead out of the folder. Errors have an XML body, as those of
the object stores have.
"""

import asyncio
import hmac
import mimetypes
import os
import random
import re
import stat
import time
from urllib.parse import parse_qs, unquote_to_bytes

from datago.server.walk import leads_out

CHUNK = 2**20  # larger files go out in pieces of this size, so that one slow reader holds no more in memory
RANGE = re.compile(rb"bytes=(\d*)-(\d*)")


class Signer:
    """Makes and checks urls. Two signers with the same token agree, so urls outlive a restart."""

    def __init__(self, token, lifetime):
        self._key = hmac.digest(token.encode(), b"datago media", "sha256")
        self._lifetime = lifetime

    def sign(self, reference):
        """`reference` (path and query, without the leading slash) with an end and a signature."""
        text = f"/{reference}{'&' if '?' in reference else '?'}Expires={int(time.time() + self._lifetime)}"
        return f"{text}&Signature={self._signature(text.encode())}"

    def is_genuine(self, path, query):
        text, _, signature = query.rpartition(b"&Signature=")
        return hmac.compare_digest(signature, self._signature(path + b"?" + text).encode())

    def _signature(self, text):
        return hmac.digest(self._key, text, "sha256").hex()


class Refused(Exception):
    def __init__(self, status, code, message, headers=()):
        self.status, self.code, self.message, self.headers = status, code, message, list(headers)


class Media:
    """The ASGI application."""

    def __init__(self, root, signer, latency=0, follow_links=False):
        self._root, self._signer, self._latency, self._follow_links = root, signer, latency, follow_links

    async def __call__(self, scope, receive, send):
        if self._latency:
            # Equal waits would keep all connections in step, and let each wait for the others' answers too.
            await asyncio.sleep(self._latency * random.uniform(0.8, 1.2))
        try:
            file, offset, size, kind = self._open(scope)
        except Refused as error:
            await _refuse(send, error)
            return
        try:
            status, headers, offset, size = _cut(scope, offset, size)
            headers += [(b"content-type", kind), (b"content-length", b"%d" % size), (b"accept-ranges", b"bytes")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            end = offset + size if scope["method"] == "GET" else offset
            while end - offset > CHUNK:
                await send({"type": "http.response.body", "body": os.pread(file, CHUNK, offset), "more_body": True})
                offset += CHUNK
            await send({"type": "http.response.body", "body": os.pread(file, end - offset, offset)})
        except Refused as error:
            await _refuse(send, error)
        finally:
            os.close(file)

    def _open(self, scope):
        """The descriptor of what a request asks for, where in it, how much, and its media type."""
        path, query = scope["raw_path"], scope["query_string"]
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        if any(name == b"authorization" for name, _ in scope["headers"]):
            raise Refused(400, "InvalidArgument", "Only one auth mechanism allowed: the url is signed.")
        if not self._signer.is_genuine(path, query):
            raise Refused(403, "SignatureDoesNotMatch", "The signature is not that of this url.")
        options = {name: values[0] for name, values in parse_qs(query.decode()).items()}
        if time.time() > int(options["Expires"]):
            raise Refused(403, "AccessDenied", "Request has expired")
        name = os.fsdecode(unquote_to_bytes(path[1:]))
        if not self._follow_links and leads_out(self._root, name):  # a link that has taken the file's place
            raise Refused(404, "NoSuchKey", "The specified key does not exist: it leads out of the folder")
        try:
            # not to hang at a FIFO that has taken the file's place
            file = os.open(os.path.join(self._root, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Refused(404, "NoSuchKey", f"The specified key does not exist: {os.strerror(error.errno)}") from None
        state = os.fstat(file)
        offset, size = int(options.get("offset", 0)), int(options.get("size", state.st_size))
        if not stat.S_ISREG(state.st_mode) or offset + size > state.st_size:
            os.close(file)
            raise Refused(404, "NoSuchKey", "The specified key does not exist: the file is no longer what was indexed")
        kind = mimetypes.guess_type(options.get("name") or name)[0] or "application/octet-stream"
        return file, offset, size, kind.encode()


def _cut(scope, offset, size):
    """Status, headers and extent of the answer: the part that a Range header asks for, or everything."""
    wanted = next((value for name, value in scope["headers"] if name == b"range"), None)
    match = wanted and RANGE.fullmatch(wanted)
    if not match or match[0] == b"bytes=-":
        return 200, [], offset, size
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last) + 1 if last else size, size)
    else:
        start, end = max(0, size - int(last)), size
    if start >= end:
        whole = [(b"content-range", b"bytes */%d" % size)]
        raise Refused(416, "InvalidRange", "The requested range is not satisfiable", whole)
    return 206, [(b"content-range", b"bytes %d-%d/%d" % (start, end - 1, size))], offset + start, end - start


async def _refuse(send, error):
    body = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>'
    body = (body % (error.code, error.message)).encode()
    headers = [(b"content-type", b"application/xml"), (b"content-length", b"%d" % len(body)), *error.headers]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
