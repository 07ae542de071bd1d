"""The server's API: every rule of the protocol, over SQLite and PostgreSQL, against the real server on loopback."""

import json
import os
import subprocess
from urllib.parse import urlencode

import pytest
from serving import COUNT, TOKEN, album, fetch, new_database, numbers, postgres_url, serve  # noqa: F401

from datago.server import partition

pytestmark = pytest.mark.network


@pytest.fixture(scope="module", params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def server(request, album, tmp_path_factory):
    """A server of `folder`, for tests that only ask."""
    with (
        new_database(request, tmp_path_factory.mktemp("index")) as database,
        serve(album, *database, "--source", "A") as server,
    ):
        yield server


def test_pages(server):
    """Pages in the order of ids; only an empty page has no next."""
    url, seen, requests = f"{server.api_url}images/?page_size=16&fields=id,width&tags=", [], 0
    while url:
        status, page = server.ask(url)
        assert status == 200
        requests += 1
        seen += page["results"]
        assert (page["next"] is None) == (page["results"] == [])
        if page["next"]:
            assert page["next"].startswith(server.api_url) and f"cursor={seen[-1]['id']}" in page["next"]
        url = page["next"]
    assert [image["id"] for image in seen] == numbers() and requests == 5
    assert seen[1] == {"id": "im-001", "width": 48}
    assert server.ids(cursor="im-057") == ["im-058", "im-059"]


@pytest.mark.parametrize("count", [2, 3, 48])
def test_partitions(server, count):
    parts = [server.ids(partitions_count=count, partition=part) for part in range(count)]
    assert sorted(sum(parts, [])) == numbers()
    assert parts[1] == [identity for identity in numbers() if partition.partition_of(identity) % count == 1]
    _, page = server.ask(partitions_count=2, partition=1, page_size=1)
    assert "partitions_count=2" in page["next"] and "partition=1" in page["next"]
    assert server.ask("images/count/", partitions_count=count, partition=1)[1] == {"count": len(parts[1])}


def test_partition_formula():
    names = ["test-logo", "test-logo_alt", "test-logo_small", "test-girl", "test-perfume"]
    assert [partition.partition_of(name) for name in names] == [30, 10, 40, 44, 29]


def hq(i):
    return i % 3 == 0


def cat(i):
    return i % 4 == 0


FILTERS = [
    ({"sources": "A"}, lambda i: i < 40),
    ({"sources": "A,B"}, lambda i: True),
    ({"sources": "nowhere"}, lambda i: False),
    ({"sources__ne": "A"}, lambda i: i >= 40),
    ({"tags": "hq"}, hq),
    ({"tags": "hq,cat"}, lambda i: hq(i) or cat(i)),
    ({"tags__all": "hq,cat"}, lambda i: hq(i) and cat(i)),
    ({"tags__ne": "hq,cat"}, lambda i: not (hq(i) or cat(i))),
    ({"tags__ne_all": "hq,cat"}, lambda i: not (hq(i) and cat(i))),
    ({"tags__empty": "true"}, lambda i: not (hq(i) or cat(i))),
    ({"tags__empty": "False"}, lambda i: hq(i) or cat(i)),
    ({"tags__empty": "perhaps"}, lambda i: True),
    ({"has_masks": "person_mask"}, lambda i: i % 2 == 0),
    ({"has_latents": "dino,person_mask"}, lambda i: i % 10 == 0),
    ({"lacks_latents": "dino,person_mask"}, lambda i: i % 2 and i % 5),
    ({"lacks_masks": "masked_image"}, lambda i: i % 10),
    ({"has_attributes": "aes,caption"}, lambda i: True),
    ({"lacks_attributes": "aes"}, lambda i: False),
    ({"short_edge__gte": 24, "pixel_count__gt": 32 * 24}, lambda i: i % 3),
    ({"aspect_ratio__lte": 1.4}, lambda i: i % 3 == 0),
    ({"aspect_ratio_fraction": "4:3"}, lambda i: i % 3 == 0),
    ({"duplicate_state": "1"}, lambda i: i % 6 == 1),
    ({"duplicate_state": "None"}, lambda i: i % 6 not in (1, 2)),
    ({"coca_embedding__empty": "false"}, lambda i: i < 4),
    ({"attributes": "aes__gte:0.5,aes__lt:0.75"}, lambda i: 30 <= i < 45),
    ({"attributes": "number:7"}, lambda i: i == 7),
    ({"attributes": "number__ne:7"}, lambda i: i != 7),
    ({"attributes": "even:true"}, lambda i: i % 2 == 0),
    ({"attributes": "title__match:blue cat"}, lambda i: True),
    ({"attributes": "title__match_phrase:cat 3"}, lambda i: i % 7 == 3),
    ({"attributes": "title__not_match_phrase:cat 3"}, lambda i: i % 7 != 3),
    ({"attributes": "title__prefix:A red"}, lambda i: True),
    ({"attributes": "title__prefix:a red"}, lambda i: False),
    ({"attributes": "caption:caption 9"}, lambda i: i == 9),
    ({"attributes": "words:y1"}, lambda i: i % 2),
    ({"date_created__gt": "2001-01-01T00:00:00Z"}, lambda i: True),
    ({"date_updated__lt": "2001-01-01"}, lambda i: False),
    ({"datasets__empty": "false"}, lambda i: False),
    ({"tags": "hq", "has_masks": "person_mask", "sources": "A", "unheard_of": "x"}, lambda i: i % 6 == 0 and i < 40),
]


@pytest.mark.parametrize("params, test", FILTERS, ids=[urlencode(params) for params, _ in FILTERS])
def test_filters(server, params, test):
    assert server.ids(**params) == numbers(test)
    assert server.ask("images/count/", **params)[1] == {"count": len(numbers(test))}


ERRORS = [
    ({"page_size": 2001}, {"page_size": ["Ensure this value is less than or equal to 2000."]}),
    ({"page_size": 0}, {"page_size": ["Ensure this value is greater than or equal to 1."]}),
    ({"page_size": "x"}, {"page_size": ["A valid integer is required."]}),
    ({"short_edge__gte": "wide"}, {"short_edge__gte": ["Enter a number."]}),
    ({"tags__ne": "hq,nope"}, ["One or more tags do not exist: 'nope'"]),
    ({"lacks_masks": "nope"}, ["Latent type 'nope' does not exist"]),
    ({"has_attributes": "nope"}, ['Field "nope" not found in schema']),
    ({"attributes": "nope:1"}, ['Field "nope" not found in schema']),
    ({"attributes": "aes"}, ["Invalid filter value for attributes"]),
    ({"attributes": "title__gt:1"}, ["Invalid comparator 'gt' for attribute 'title' of type 'text'"]),
    ({"duplicate_state": 0}, ["Invalid value for duplicate_state: 0"]),
    ({"datasets": "x/1"}, ["One or more datasets do not exist: 'x/1'"]),
    ({"partition": 1}, ['Both "partitions_count" and "partition" parameters must be provided']),
    ({"partitions_count": 49, "partition": 1}, ['"partitions_count" should be between 2 and 48']),
    ({"partitions_count": 2, "partition": 2}, ['"partition" should be between 0 and 1']),
    ({"sources": "\0"}, {"sources": ["Null characters are not allowed."]}),
    ({"partitions_count": 2, "partition": -1}, ['Invalid "partition" parameter']),
]


@pytest.mark.parametrize("params, body", ERRORS, ids=[urlencode(params) for params, _ in ERRORS])
def test_errors(server, params, body):
    assert server.ask(**params) == (400, body)


def test_authentication(server):
    missing, url = "Authentication credentials were not provided.", f"{server.api_url}images/"
    for header, detail in [
        (None, missing),
        (f"Bearer {TOKEN}", missing),
        ("Token wrong", "Invalid token."),
        ("Token é", "Invalid token."),
        ("Token", "Invalid token header. No credentials provided."),
    ]:
        status, _, body = fetch(url, **({"authorization": header} if header else {}))
        assert (status, json.loads(body)) == (403, {"detail": detail})
    assert fetch(url, "POST", authorization=f"Token {TOKEN}")[0] == 403


def test_other_paths(server):
    root = server.api_url.removesuffix("/api/")
    assert fetch(f"{root}/_health/")[::2] == (200, b"OK")
    for path in ("/api/images", "/api/nothing/", "/"):
        status, headers, _ = fetch(root + path)
        assert status == 302 and headers["location"].startswith("/login/?next=")
    assert fetch(f"{root}/login/")[1]["content-type"].startswith("text/html")
    assert server.ask("images/zzz/") == (404, {"detail": 'OSImage with id "zzz" does not exist'})


def test_fields(server):
    _, page = server.ask(page_size=1, fields="id,source,nothing,tags,tags,latents,coca_embedding,duplicate_state,attributes")
    image = page["results"][0]
    assert list(image) == ["id", "source", "tags", "latents", "coca_embedding", "duplicate_state", "attributes"]
    assert image["tags"] == ["hq", "cat"] and image["duplicate_state"] is None
    assert image["coca_embedding"] == {"vector": [0.5] * 4, "author": None}
    assert image["attributes"] == {
        "aes": 0.0,
        "number": 0,
        "even": True,
        "title": "A red Cat, 0",
        "words": ["x", "y0"],
        "caption": "caption 0",
    }
    assert {latent["latent_type"]: latent["is_mask"] for latent in image["latents"]} == {
        "person_mask": True,
        "masked_image": False,
        "dino": False,
    }
    _, page = server.ask(page_size=1, fields="latents", return_latents="dino,")
    assert [latent["latent_type"] for latent in page["results"][0]["latents"]] == ["dino"]
    assert len(server.image("im-000")) == 25
    _, page = server.ask(page_size=1, include_fields="latents", exclude_fields="id,source")
    assert "latents" in page["results"][0] and "id" in page["results"][0] and "source" not in page["results"][0]


def test_random(server):
    """By default prefixes are as long as finds a page's worth; every image has its chance."""
    status, page = server.ask("images/random/", page_size=10, partitions_count=999)
    assert status == 200 and page["next"] is None
    seen = set()
    for _ in range(40):
        drawn = server.ask("images/random/", page_size=10, fields="id", tags__empty="true")[1]["results"]
        assert 0 < len(drawn) <= 10
        seen |= {image["id"] for image in drawn}
    assert len(seen) > 20 and seen <= set(server.ids(tags__empty="true"))
    assert server.ids("images/random/", prefix_length=40) == []
    assert server.ask("images/random/", prefix_length=65)[0] == 400


REFERENCE = """
import collections, json, sys
from datago import DatagoClient
client = DatagoClient(sys.argv[1])
found = []
while (sample := client.get_sample()) is not None:
    found.append([sample.id, sample.image.get_payload().width, sorted(sample.masks), sorted(sample.additional_images),
                  {name: bytes(latent.data).decode() for name, latent in sample.latents.items()}, sorted(sample.tags)])
print(json.dumps(found))
"""


@pytest.mark.skipif(not os.environ.get("DATAGO_REFERENCE_PYTHON"), reason="no DATAGO_REFERENCE_PYTHON")
def test_reference_client(server, tmp_path):
    """The reference's own client reads every image once, whatever it asks for."""

    def read(**config):
        config = {"sources": "A,B", "page_size": 16, "require_images": True, **config}
        text = json.dumps({"source_config": config, "limit": 1000, "samples_buffer_size": 16})
        environment = {"DATAROOM_API_URL": server.api_url, "DATAROOM_API_KEY": TOKEN, "PATH": os.environ["PATH"]}
        command = [os.environ["DATAGO_REFERENCE_PYTHON"], "-c", REFERENCE, text]
        result = subprocess.run(command, capture_output=True, text=True, timeout=40, env=environment, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return sorted(json.loads(result.stdout))

    everything = read()
    assert [sample[0] for sample in everything] == numbers() and everything[1][1] == 48
    parts = [read(rank=rank, world_size=2) for rank in (0, 1)]
    assert sorted(parts[0] + parts[1]) == everything
    assert [sample[0] for sample in read(tags="hq", sources_ne="B")] == numbers(hq, lambda i: i < 40)
    masked = read(has_masks="person_mask,masked_image", has_latents="dino")
    assert [sample[0] for sample in masked] == numbers(lambda i: i % 10 == 0)
    assert masked[1][2:5] == [["person_mask"], ["masked_image"], {"dino": "latent 10"}]
    drawn = [sample[0] for sample in read(random_sampling=True)]
    assert 0 < len(drawn) <= 16 and set(drawn) <= set(numbers())
