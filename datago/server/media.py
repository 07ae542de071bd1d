"""The bytes of images, masks and latents: a server of signed urls, on a port of its own.

A url is `/PATH?…&Expires=SECONDS&Signature=HEX`, where a member of a shard has `name=…&offset=…&size=…` in front of that. What
stands before `Expires` is a reference that the index lists, to the letter: it is looked up, never taken for a path. Errors have an
XML body, as those of the object stores have.
"""

import asyncio
import errno
import hmac
import mimetypes
import os
import random
import re
import time
from urllib.parse import parse_qs, unquote_to_bytes

from datago.server.places import open_place, place_of

CHUNK = 2**20  # larger files go out in pieces of this size, so that one slow reader holds no more in memory
RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")


class Signer:
    """Makes and checks urls. Two signers with the same secret (bytes) agree, so urls outlive a restart."""

    def __init__(self, secret, lifetime):
        self._secret, self._lifetime = secret, lifetime

    def sign(self, reference):
        """`reference` (path and query, without the leading slash) with an end and a signature."""
        text = f"/{reference}{'&' if '?' in reference else '?'}Expires={int(time.time() + self._lifetime)}"
        return f"{text}&Signature={self._signature(text.encode())}"

    def reference(self, path, query):
        """The reference in the url of a request.

        Raises:
            Refused: it was not signed here, or has expired.
        """
        text, _, signature = query.rpartition(b"&Signature=")
        if not hmac.compare_digest(signature, self._signature(path + b"?" + text).encode()):
            raise Refused(403, "SignatureDoesNotMatch", "The signature is not that of this url.")
        query, _, end = text.rpartition(b"Expires=")
        if time.time() > int(end):
            raise Refused(403, "AccessDenied", "Request has expired")
        return (path[1:] + (b"?" + query[:-1] if query else b"")).decode()

    def _signature(self, text):
        return hmac.digest(self._secret, text, "sha256").hex()


class Refused(Exception):
    def __init__(self, status, code, message, headers=()):
        self.status, self.code, self.message, self.headers = status, code, message, list(headers)


class Media:
    """The ASGI application.

    Args:
        root: the served folder.
        store: a `store.Store`, the index of that.
        signer: a Signer.
        latency: seconds to wait, about, before each answer.
    """

    def __init__(self, root, store, signer, latency=0):
        self._root, self._store, self._signer, self._latency = root, store, signer, latency

    async def __call__(self, scope, receive, send):
        if self._latency:
            # Equal waits would keep all connections in step, and let each wait for the others' answers too.
            await asyncio.sleep(self._latency * random.uniform(0.8, 1.2))
        try:
            file, offset, size, kind = await self._open(scope)
        except Refused as error:
            await _refuse(send, error)
            return
        try:
            status, headers, offset, size = _cut(scope, offset, size)
            headers += [(b"content-type", kind), (b"content-length", b"%d" % size), (b"accept-ranges", b"bytes")]
            headers += [(b"x-content-type-options", b"nosniff")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            end = offset + size if scope["method"] == "GET" else offset
            more = True
            while more:
                piece = os.pread(file, min(CHUNK, end - offset), offset)
                if len(piece) < min(CHUNK, end - offset):
                    return  # the file has become shorter: the connection is closed, so that the reader knows
                offset += len(piece)
                more = offset < end
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except Refused as error:
            await _refuse(send, error)
        finally:
            os.close(file)

    async def _open(self, scope):
        """The descriptor of what a request asks for, where in it, how much, and its media type."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        if any(name == b"authorization" for name, _ in scope["headers"]):
            raise Refused(400, "InvalidArgument", "Only one auth mechanism allowed: the url is signed.")
        reference = self._signer.reference(scope["raw_path"], scope["query_string"])
        # in a thread: neither a slow database nor a slow disk holds the other answers up
        return await asyncio.get_running_loop().run_in_executor(None, self._find, reference)

    def _find(self, reference):
        known = self._store.file(reference)
        if not known:
            raise Refused(404, "NoSuchKey", "The specified key does not exist: the index does not list it")
        place, stamp = known
        path, _, query = reference.partition("?")
        name = os.fsdecode(unquote_to_bytes(path))
        try:
            if name != place and place_of(self._root, name) != place:
                raise OSError(errno.ELOOP, "the link leads elsewhere now")
            file, state = open_place(self._root, place)
        except OSError as error:
            raise Refused(404, "NoSuchKey", f"The specified key does not exist: {error.strerror}") from None
        member = {name: values[0] for name, values in parse_qs(query).items()}
        offset, size = int(member.get("offset", 0)), int(member.get("size", state.st_size))
        if offset + size > state.st_size or stamp not in (None, state.st_mtime_ns):
            os.close(file)
            raise Refused(404, "NoSuchKey", "The specified key does not exist: the file is no longer what was indexed")
        suffix = (member.get("name") or path).rpartition(".")[2]
        kind = mimetypes.guess_type(f"a.{suffix}")[0] or "application/octet-stream"
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
