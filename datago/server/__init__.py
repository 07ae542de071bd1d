"""A local server of the db source's protocol. `datago.cli.serve` describes what it serves and its options.

    walk.py ──► index.py ──► store.py ──► filters.py, api.py        the API's port
    files       records      tables  └──► media.py                  the files' port

It needs the packages of the extra `datago[serve]`, and is imported only when a server is started.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from datago.server import limits
from datago.server.api import Api
from datago.server.index import VERSION, describe
from datago.server.media import Media, Signer
from datago.server.secret import kept_secret
from datago.server.store import Store
from datago.server.walk import Report, walk

BACKLOG = 2048  # connections that wait to be accepted
GRACE = 2  # seconds for answers that have begun when the server ends


def serve(options: Namespace) -> int:
    """Indexes the folder and serves it until a signal comes. Returns the exit status. `options`: see `datago.cli.serve`."""
    os.umask(0o077)  # the index contains a secret, and so do the journal files that SQLite makes next to it
    limits.Limited.most = limits.connections()
    root = os.path.abspath(options.folder)
    token = options.token or secrets.token_hex(20)
    try:
        if token.split() != [token] or not token.isascii():
            raise ValueError("token: wanted ASCII characters without spaces")
        with contextlib.ExitStack() as stack:
            api = stack.enter_context(_listener(options.host, options.port))
            media = stack.enter_context(_listener(options.host, options.media_port))
            store = Store(options.database) if options.database else _default_store(root)
            stack.enter_context(contextlib.closing(store))
            count = _index(store, root, options.source, options.follow_links)
            signer = Signer(store.secret, options.url_ttl)
            port = media.getsockname()[1]
            app = Api(store, signer, port, token, options.page_size_max, options.prefix_length).app
            ready = {
                "api_url": f"{_base(options.host, api)}/api/",
                "media_url": f"{_base(options.host, media)}/",
                "images": count,
                **({} if options.token else {"token": token}),
            }
            for listener in (api, media):
                listener.listen(BACKLOG)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_run([(app, api), (Media(root, store, signer, options.latency), media)], ready))
    except (OSError, ValueError, SQLAlchemyError) as error:
        print(f"serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while indexing
        return 130
    return 0


def _index(store: Store, root: str, source: str, follow_links: bool) -> int:
    """Updates the index, reports that on stderr, and returns the number of images."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # only headers are read
    report = Report()
    written, kept, removed = store.sync(
        walk(root, report, follow_links),
        lambda entry: entry.fingerprint(source),
        lambda entry: describe(entry, root, source, report),
        report,
    )
    lines = [f"{root}: {written} images indexed, {kept} unchanged, {removed} removed or replaced", *report.lines()]
    print("\n  ".join(lines), file=sys.stderr, flush=True)
    if not written + kept:
        raise ValueError(f"no images below {root!r}")
    return written + kept


def _default_store(root: str) -> Store:
    """The index of a folder for which no --database is given."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "datago", f"serve-{VERSION}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.sqlite")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab"):
            return Store(f"sqlite:///{path}")
    except OSError as error:
        print(f"serve: the index is in memory: {error}", file=sys.stderr)
        store = Store("")
    try:
        store.secret = kept_secret(root)
    except OSError as error:
        print(f"serve: urls are valid only until the server ends: {error}", file=sys.stderr)
    return store


def _listener(host: str, port: int) -> socket.socket:
    """A bound socket. It is bound before the index is made, so that a port in use is reported at once."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{host} port {port}: {error.strerror}") from None
    return listener


def _base(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Server(uvicorn.Server):
    """A server without signal handlers. There are two of them in the process, so `_run` handles the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(sites: Sequence[tuple[Any, socket.socket]], ready: dict[str, Any]) -> None:
    """Serves each (application, socket) until SIGTERM or SIGINT. Prints `ready` once all servers have started."""
    config = functools.partial(
        uvicorn.Config, http=limits.Limited, lifespan="off", ws="none", interface="asgi3", proxy_headers=False, server_header=False,
        access_log=False, log_level="error", timeout_keep_alive=limits.IDLE, timeout_graceful_shutdown=GRACE, backlog=BACKLOG,
    )  # fmt: skip
    servers = [_Server(config(app)) for app, _ in sites]

    def stop() -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # answers that are cut off now are expected
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    running = [asyncio.create_task(server.serve([listener])) for server, (_, listener) in zip(servers, sites, strict=True)]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.01)
    print(json.dumps(ready), flush=True)
    await asyncio.gather(*running)
