"""Serves the bytes of images, masks and latents under signed urls, on a port of its own.

A url is `/PATH?…&Expires=SECONDS&Signature=HEX`. For a member of a shard, `…` is `name=…&offset=…&size=…`. The part before `Expires` is
a reference. It is never used as a path: it must be listed in the index character for character. Error responses have an XML body in
the form that object stores use.
"""

import asyncio
import errno
import hmac
import mimetypes
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_to_bytes

from datago.server.places import open_place, place_of

if TYPE_CHECKING:
    from datago.server.store import Store

CHUNK = 2**20  # larger files are sent in pieces of this size, so that a slow client holds no more than one piece in memory
RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")
# what ASGI defines
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Signer:
    """Makes and checks signed urls. A url stays valid after a restart, because signers with the same secret make the same signatures.

    Args:
        secret: the key of the signatures.
        lifetime: seconds for which a url is valid.
    """

    def __init__(self, secret: bytes, lifetime: float) -> None:
        self._secret, self._lifetime = secret, lifetime

    def sign(self, reference: str) -> str:
        """The url of `reference` (path and query without the leading slash), with its expiry time and its signature."""
        text = f"/{reference}{'&' if '?' in reference else '?'}Expires={int(time.time() + self._lifetime)}"
        return f"{text}&Signature={self._signature(text.encode())}"

    def reference(self, path: bytes, query: bytes) -> str:
        """The reference in the url of a request.

        Raises:
            Refused: the url was not signed with this secret, or has expired.
        """
        text, _, signature = query.rpartition(b"&Signature=")
        if not hmac.compare_digest(signature, self._signature(path + b"?" + text).encode()):
            raise Refused(403, "SignatureDoesNotMatch", "The signature is not that of this url.")
        query, _, end = text.rpartition(b"Expires=")
        if time.time() > int(end):
            raise Refused(403, "AccessDenied", "Request has expired")
        return (path[1:] + (b"?" + query[:-1] if query else b"")).decode()

    def _signature(self, text: bytes) -> str:
        return hmac.digest(self._secret, text, "sha256").hex()


class Refused(Exception):
    """A request that is answered with an error: its HTTP status, and the code and message of the XML body."""

    def __init__(self, status: int, code: str, message: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.status, self.code, self.message, self.headers = status, code, message, list(headers)


class Media:
    """The ASGI application.

    Args:
        root: the served folder.
        store: the index of that folder.
        signer: makes and checks the urls.
        latency: seconds to wait before each answer, on average.
    """

    def __init__(self, root: str, store: "Store", signer: Signer, latency: float = 0) -> None:
        self._root, self._store, self._signer, self._latency = root, store, signer, latency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._latency:
            # Equal waits would keep all connections in step, so that each would also wait for the others' answers.
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
                    return  # the file was truncated: the connection is closed, so that the client notices
                offset += len(piece)
                more = offset < end
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except Refused as error:
            await _refuse(send, error)
        finally:
            os.close(file)

    async def _open(self, scope: Scope) -> tuple[int, int, int, bytes]:
        """The descriptor of the file that a request asks for, the offset and size of the bytes in it, and their media type."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        if any(name == b"authorization" for name, _ in scope["headers"]):
            raise Refused(400, "InvalidArgument", "Only one auth mechanism allowed: the url is signed.")
        reference = self._signer.reference(scope["raw_path"], scope["query_string"])
        # in a thread, so that a slow database or disk does not delay the other answers
        return await asyncio.get_running_loop().run_in_executor(None, self._find, reference)

    def _find(self, reference: str) -> tuple[int, int, int, bytes]:
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


def _cut(scope: Scope, offset: int, size: int) -> tuple[int, Headers, int, int]:
    """Status, headers, offset and size of the answer: the range of a Range header, or the whole file."""
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


async def _refuse(send: Send, error: Refused) -> None:
    template = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>'
    body = (template % (error.code, error.message)).encode()
    headers = [(b"content-type", b"application/xml"), (b"content-length", b"%d" % len(body)), *error.headers]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
