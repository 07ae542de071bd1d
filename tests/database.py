"""A small database whose records, order and faults a test decides, and may change while it runs."""

import contextlib
import json
import time
from urllib.parse import parse_qs, urlsplit

from conftest import jpeg
from faulty import Faulty, answer

KEY = "k" * 39 + "7"


class Database(Faulty):
    """Pages of records by the protocol, and their pictures at /picture/ID?secret.

    Attributes:
        order: every id there ever was or will be, as the server sorts them.
        hidden: those of them that are not there (not yet, or not any more).
        records: id -> the record, where that is not the usual one.
        pictures: id -> what to do (as in Faulty), where that is not to send a good one.
        inclusive: a cursor's own record comes again.
        faults: number of a page, as they are asked for -> what to do instead.
    """

    def __init__(self, order):
        self.order, self.hidden, self.records, self.pictures = list(order), set(), {}, {}
        self.inclusive, self.faults = False, {}
        self.good = answer(jpeg(40, 30))
        super().__init__(None)

    def action(self, path, target, number):
        if path.startswith("/picture/"):
            action = self.pictures.get(path.rpartition("/")[2], self.good)
            return action[min(number, len(action) - 1)] if isinstance(action, list) else action
        if number in self.faults:
            return self.faults[number]
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        begin = self.order.index(query["cursor"]) + (not self.inclusive) if "cursor" in query else 0
        found = [name for name in self.order[begin:] if name not in self.hidden][: int(query["page_size"])]
        if found == [query.get("cursor")]:
            found = []
        following = f"{path}?page_size={query['page_size']}&cursor={found[-1]}" if found else None
        page = {"next": following, "results": [self.records.get(name, self.record(name)) for name in found]}
        return answer(json.dumps(page).encode())

    def record(self, name):
        return {"id": name, "source": "S", "image_direct_url": f"{self.url}/picture/{name}?secret=SECRET"}

    def asked(self):
        """The ids whose pictures were asked for so far."""
        return [asked[0].rpartition("/")[2] for asked in self.requests if asked[0].startswith("/picture/")]

    def config(self, **keys):
        top = {key: keys.pop(key) for key in ("limit", "samples_buffer_size", "ordered", "seed") if key in keys}
        source = {
            "sources": "", "page_size": 7, "require_images": True, "api_url": f"{self.url}/api/", "api_key": KEY, **keys
        }  # fmt: skip
        return {"source_config": source, **top}


def held(event, data):
    """Sends `data` once `event` is set."""

    def action(connection):
        event.wait(30)
        connection.sendall(data)
        return False

    return action


def until(condition, seconds=20):
    """Waits for a condition that other threads bring about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


@contextlib.contextmanager
def database(order):
    server = Database(order)
    try:
        yield server
    finally:
        server.stop()
