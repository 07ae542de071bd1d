"""Every parameter of the API with many values, over SQLite and PostgreSQL, against a plain evaluation of the protocol's rules in Python."""

import json
import os
import re
from datetime import UTC, datetime
from fractions import Fraction
from urllib.parse import urlencode

import pytest
from serving import fetch, new_database, picture, postgres_url, serve  # noqa: F401

SIZES = [(32, 24), (24, 32), (64, 64), (100, 30), (48, 48)]
LONG = 2**62 + 1  # no double has it
ATTRIBUTES = [
    {"aes": 1e300, "n": LONG, "flag": True, "caption": "A red cat, asleep", "list": ["x", "y"], "meta": {"a": 1}},
    {"aes": -1.7e308, "n": LONG - 1, "flag": False, "caption": "a dog", "list": ["y"], "meta": {}},
    {"aes": 0.1, "n": 7, "caption": "", "list": [], "void": None},
    {"aes": 0, "n": -(2**63), "flag": None, "caption": "The cat's red 3.14 metres", "void": []},
    {"aes": 5e-324, "n": 2**63 - 1, "flag": True, "caption": "日本語 cat", "list": ["100%_a", "/"]},
    {"caption": "CAT red", "n": [1, 20]},
    {"caption": "w " * 200 + "end"},
    {},
]
TYPES = {"aes": float, "n": int, "flag": bool, "caption": str, "list": str, "void": str}


def make_records():
    records = []
    for i in range(20):
        width, height = SIZES[i % 5]
        records.append(
            {
                "id": f"r{i:02}",
                "source": ["X", "Y", "X,Y", "ünï", "none"][i % 5],
                "width": width,
                "height": height,
                "tags": [tag for tag, every in (("hq", 2), ("cat", 3), ("é", 5)) if i % every == 0 and i < 16],
                "datasets": [name for name, every in (("set/1", 2), ("set/2", 3), ("other/10", 7)) if i % every == 1],
                "latents": [name for name, every in (("vae", 2), ("person_mask", 3)) if i % every == 0],
                "duplicate_state": [None, 1, 2, None][i % 4],
                "coca_embedding": [1.0, 0.0] if i % 3 == 0 else None,
                "date": datetime(2020 + i, 1, 2, 3, 4, 5, 250000, UTC),
                "attributes": ATTRIBUTES[i % len(ATTRIBUTES)],
            }
        )
    return records


RECORDS = make_records()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("records")
    for record in RECORDS:
        path = root / f"{record['id']}.png"
        picture(path, (record["width"], record["height"]))
        own = {key: record[key] for key in ("source", "tags", "datasets", "duplicate_state", "coca_embedding")}
        path.with_suffix(".json").write_text(json.dumps({**own, **record["attributes"]}))
        if "vae" in record["latents"]:
            (root / f"{record['id']}.vae.npy").write_bytes(b"latent")
        if "person_mask" in record["latents"]:
            picture(root / f"{record['id']}.person_mask.png")
        os.utime(path, ns=(int(record["date"].timestamp()) * 10**9 + 250_000_000,) * 2)
    return root


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgresql"])
def server(request, folder, tmp_path_factory):
    with new_database(request, tmp_path_factory.mktemp("index")) as database, serve(folder, *database) as server:
        yield server


# ---- the rules, in plain Python ----

COMPARE = {
    "": lambda a, b: a == b, "eq": lambda a, b: a == b, "gt": lambda a, b: a > b, "gte": lambda a, b: a >= b, "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}  # fmt: skip


def words(text):
    return re.findall(r"cat's|\d+\.\d+|[日本語]|[^\W日本語]+", text.lower())


def text_meets(text, test, value):
    if test == "match":
        return bool(set(words(value)) & set(words(text)))
    if test == "match_phrase":
        some, all_ = words(value), words(text)
        return bool(some) and any(all_[i : i + len(some)] == some for i in range(len(all_)))
    if len(text) > 256:  # is only known by its words
        return False
    return text.startswith(value) if test == "prefix" else text == value


def attribute_meets(record, pair):
    name, _, value = pair.partition(":")
    stem, _, test = name.rpartition("__") if "__" in name else (name, "", "eq")
    value_of = record["attributes"].get(stem)
    items = [item for item in (value_of if isinstance(value_of, list) else [value_of]) if item is not None]
    negated, test = test == "ne" or test.startswith("not_"), {"ne": "eq"}.get(test, test.removeprefix("not_"))
    kind = TYPES[stem]
    if kind is str:
        found = any(text_meets(item, test, value) for item in items)
    elif kind is bool:
        found = any(item == (value.lower() == "true") for item in items)
    else:
        wanted = Fraction(value) if kind is int and "." not in value and "e" not in value else float(value)
        found = any(COMPARE[test](item, wanted) for item in items)
    return found != negated


def number_of(record, column):
    width, height = record["width"], record["height"]
    return {"short_edge": min(width, height), "pixel_count": width * height, "aspect_ratio": width / height}[column]


def has_value(record, name):
    return record["attributes"].get(name) not in (None, [])


def member_meets(held, test, wanted):
    any_, all_ = bool(set(held) & set(wanted)), set(wanted) <= set(held)
    return {"": any_, "ne": not any_, "all": all_, "ne_all": not all_}[test]


def meets(record, name, value):
    """Whether `record` is kept by one parameter."""
    column, _, test = name.partition("__")
    if name == "attributes":
        return all(attribute_meets(record, pair) for pair in value.split(","))
    if not value.strip():
        return True
    if test == "empty":
        empty = {
            "source": record["source"] == "", "aspect_ratio_fraction": False, "tags": not record["tags"],
            "datasets": not record["datasets"], "coca_embedding": record["coca_embedding"] is None,
        }[column]  # fmt: skip
        return empty == (value in ("true", "True")) if value in ("true", "True", "false", "False") else True
    value = value.strip()
    if name == "source":
        return record["source"] == value
    if column == "sources":
        return (record["source"] in value.split(",")) == (test == "")
    if column in ("tags", "datasets"):
        return member_meets(record[column], test, value.split(","))
    if column in ("short_edge", "pixel_count", "aspect_ratio"):
        return COMPARE[test](number_of(record, column), float(value))
    if name == "aspect_ratio_fraction":
        ratio = Fraction(record["width"], record["height"]).limit_denominator(10)
        return f"{ratio.numerator}:{ratio.denominator}" == value
    if column in ("date_created", "date_updated"):
        moment = datetime.fromisoformat(value)
        return COMPARE[test](record["date"], moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if name == "duplicate_state":
        return record["duplicate_state"] == (None if value == "None" else int(value))
    has, _, kind = name.partition("_")
    held = [one for one in value.split(",") if (has_value(record, one) if kind == "attributes" else one in record["latents"])]
    return len(held) == len(value.split(",")) if has == "has" else not held


def expected(params):
    return [record["id"] for record in RECORDS if all(meets(record, name, value) for name, value in params)]


NUMBERS = {
    "short_edge": ["24", "24.0", "24.5", " 32 ", "-1", "1e50", "0", "1_00", "-1e400", "1e-400"],
    "pixel_count": ["768", "768.5", "3000", "1e18", "-0"],
    "aspect_ratio": ["1", "0.75", "1.3333333333333333", "3.3", "1e-9"],
}
BOOLEANS = ["true", "True", "false", "False", "TRUE", "1", "0", "perhaps", "null", " true"]
MOMENTS = [
    "2025-01-02T03:04:05.250000+00:00", "2025-01-02", "2025-01-02T03:04:05.250Z", "2025-01-02 05:04:05.25+02:00", "2030-06-01T00:00:00",
    "1999-12-31", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
]  # fmt: skip
MEMBERS = {
    "tags": ["hq", "hq,cat", "cat,hq,cat", "é", " hq ", ",".join(["hq", "cat", "é"] * 500)],
    "datasets": ["set/1", "set/1,set/2", "other/10", ",".join(["set/1", "other/10"] * 700)],
}
LISTS = ["vae", "person_mask", "vae,person_mask"]
PAIRS = [
    "aes:0.1", "aes:0", "aes:0.0", "aes__eq:1e300", "aes__ne:0.1", "aes__gte:0.1", "aes__gt:1.7e308", "aes__lt:0", "aes__gte:-1.7e308",
    "aes__gt:0", "aes__lte:5e-324", "aes__gt:1e299,aes__lt:1.79e308", "aes__gte: 0.1 ", "aes:+.1",
    f"n:{LONG}", f"n__ne:{LONG}", f"n__gte:{LONG}", f"n__gt:{LONG - 1}", f"n__lt:{LONG}", "n:7.0", "n:7.5", "n__gt:6.5", "n__gte:7.5",
    "n__lt:7.5", "n__lte:6.5", "n:1e400", "n__lt:1e400", "n__gt:1e400", "n__gt:-1e999", f"n:{2**63}", f"n__gte:{2**63}", f"n__gte:{2**63 - 1}",
    f"n__lte:-{2**63}", f"n:{10**60}", "n:1", "n:20", "n__gt:19,n__lt:2",
    "flag:true", "flag:False", "flag__ne:true", "flag__ne:FALSE", "flag__eq:TRUE",
    "caption:a dog", "caption:A dog", "caption:", "caption__ne:", "caption: a dog", "caption__eq:CAT red", "caption__ne:a dog",
    "caption__match:cat", "caption__match:dog zebra", "caption__match:", "caption__match:...", "caption__not_match:cat",
    "caption__not_match:", "caption__match_phrase:red cat", "caption__match_phrase:cat red", "caption__match_phrase:", "caption__match_phrase: ",
    "caption__not_match_phrase:", "caption__not_match_phrase:red cat", "caption__match_phrase:3.14 metres", "caption__match_phrase:14 metres",
    "caption__match:cat's", "caption__match:日", "caption__match_phrase:日 本", "caption__match_phrase:日 語", "caption__match_phrase:w end",
    "caption__match:end", "caption__prefix:A", "caption__prefix:a", "caption__prefix:", "caption__not_prefix:a", "caption__prefix:%",
    "caption__prefix:w w", "caption:" + ("w " * 200 + "end"), "list:x", "list:y", "list__ne:y", "list:x,list:y", "list:100%_a", "list:100x_a",
    "list__prefix:100%", "list__match:a", "list__match:100", "void:x", "void__ne:x", "void__match:x",
    "caption__match:" + " ".join(f"word{i}" for i in range(900)) + " cat", ",".join(f"aes__gte:-{i}" for i in range(1, 1000)),
    ",".join(["caption__match:cat"] * 2500), "list__match:" + "_" * 30000, "caption__match_phrase:" + "%" * 100 + "cat",
]  # fmt: skip

CASES = [
    *(("source", value) for value in ["X", "Y", "X,Y", "ünï", " X ", "x", "none", "", "X\u3000", "'; DROP TABLE datago_images; --"]),
    *((name, value) for name in ("sources", "sources__ne") for value in ["X", "X,Y", "X, Y", ",", "X,,Y", "ünï,none", "nowhere", " Y"]),
    *((name, ",".join(f"{i:x}" for i in range(8000)) + ",Y") for name in ("sources", "sources__ne")),
    *((f"{name}__empty", value) for name in ("source", "aspect_ratio_fraction", "tags", "datasets", "coca_embedding") for value in BOOLEANS),
    *((f"{name}{test}", value) for name in NUMBERS for test in ("", "__gt", "__gte", "__lt", "__lte") for value in NUMBERS[name]),
    *(("aspect_ratio_fraction", value) for value in ["4:3", "3:4", "1:1", "10:3", " 1:1", "8:6", "1", "x"]),
    *((f"{name}{test}", value) for name in MEMBERS for test in ("", "__ne", "__all", "__ne_all") for value in MEMBERS[name]),
    *((name, value) for name in ("has_latents", "lacks_latents", "has_masks", "lacks_masks") for value in LISTS),
    *((name, value) for name in ("has_attributes", "lacks_attributes") for value in ["aes", "n,aes", "flag", "void", "list", "aes,aes"]),
    *(("duplicate_state", value) for value in ["None", "1", "2", " 1", "01", "+2"]),
    *((f"date_{which}__{test}", value) for which in ("created", "updated") for test in ("gt", "gte", "lt", "lte") for value in MOMENTS),
    *(("attributes", pair) for pair in PAIRS),
]


def test_every_filter_has_cases():
    from datago.server.filters import FILTERS

    assert {name for name, _ in CASES} == set(FILTERS)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_filters_against_python(server, name):
    for value in [value for one, value in CASES if one == name]:
        wanted = expected([(name, value)])
        assert server.ids(**{name: value}) == wanted, (name, value[:100])
        assert server.ask("images/count/", **{name: value})[1] == {"count": len(wanted)}
        assert server.ids("images/random/", **{name: value}, prefix_length=1, num_prefixes=300) == wanted


def test_filters_together(server):
    for params in (
        {"tags": "hq", "datasets__ne": "set/2", "short_edge__gte": "24", "attributes": "caption__match:cat,aes__gte:0"},
        {"has_latents": "vae", "lacks_masks": "person_mask", "coca_embedding__empty": "true", "date_created__gt": "2022-01-01"},
        {"sources__ne": "X", "duplicate_state": "None", "has_attributes": "caption", "tags__ne_all": "hq,cat"},
    ):
        wanted = expected(params.items())
        assert server.ids(**params) == wanted and 0 < len(wanted) < len(RECORDS)
        parts = [server.ids(**params, partitions_count=5, partition=number) for number in range(5)]
        assert sorted(sum(parts, [])) == wanted


# ---- what is wrong, and how that is said ----

NO_NUMBER, NO_INTEGER, NO_DATE = ["Enter a number."], ["A valid integer is required."], ["Enter a valid date/time."]
NULL = ["Null characters are not allowed."]
WRONG = [
    *(({f"{name}{test}": value}, {f"{name}{test}": NO_NUMBER}) for name in NUMBERS for test in ("", "__lt")
      for value in ("x", " ", "nan", "sNaN", "inf", "-Infinity", "1e", "0x10", "\0", "1,5", "1e99999999999999999999")),
    ({"short_edge": "1e51"}, {"short_edge": ["Ensure this value is less than or equal to 1e+50."]}),
    ({"short_edge": "x", "date_created__gt": "y", "tags": "nope"}, {"short_edge": NO_NUMBER, "date_created__gt": NO_DATE}),
    *(({"date_created__gt": value}, {"date_created__gt": NO_DATE}) for value in ("x", "2020-13-01", "2020-01-01T25:00", "1e9", "\0", " ")),
    *(({name: "a\0"}, {name: NULL}) for name in ("source", "sources", "tags", "attributes", "has_latents", "datasets", "cursor", "fields")),
    *(({"page_size": value}, {"page_size": NO_INTEGER}) for value in ("x", " ", "1.5", "1e3", "\0", "nan", "--1", "1 0")),
    ({"page_size": "9" * 1000}, {"page_size": ["Ensure this value is less than or equal to 2000."]}),
    ({"page_size": "9" * 1001}, {"page_size": ["String value too large."]}),
    ({"page_size": "-1"}, {"page_size": ["Ensure this value is greater than or equal to 1."]}),
    ({"page_size": "x", "all_fields": "perhaps", "fields": " "},
     {"page_size": NO_INTEGER, "all_fields": ["Must be a valid boolean."], "fields": ["This field may not be blank."]}),
    ({"partitions_count": "0", "partition": "0"}, ['Invalid "partitions_count" parameter']),
    ({"partitions_count": "1", "partition": "0"}, ['"partitions_count" should be between 2 and 48']),
    ({"partitions_count": "9" * 5000, "partition": "0"}, ['Invalid "partitions_count" parameter']),
    ({"partitions_count": "2", "partition": "9" * 4000}, ['"partition" should be between 0 and 1']),
    ({"partitions_count": "x", "partition": "0"}, ['Invalid "partitions_count" parameter']),
    ({"partitions_count": ""}, ['Both "partitions_count" and "partition" parameters must be provided']),
    *(({"duplicate_state": value}, [f"Invalid value for duplicate_state: {value}"]) for value in ("0", "3", "x", "none", "1.0", "9" * 5000)),
    ({"tags": "hq,"}, ["One or more tags do not exist: ''"]),
    ({"tags__all": "x,hq,y"}, ["One or more tags do not exist: 'x','y'"]),
    ({"tags": "HQ"}, ["One or more tags do not exist: 'HQ'"]),
    ({"datasets__ne": "set/3,set"}, ["One or more datasets do not exist: 'set/3','set'"]),
    ({"has_latents": "vae,vae"}, ["Duplicate latent type 'vae'"]),
    ({"lacks_masks": "VAE"}, ["Latent type 'VAE' does not exist"]),
    ({"has_attributes": "aes, n"}, ['Field " n" not found in schema']),
    ({"has_attributes": "meta"}, ["Existance checks on object attributes are not supported. Attribute: meta"]),
    ({"attributes": "meta:1"}, ["Attribute 'meta' is not indexed and can therefore not be used for filtering."]),
    ({"attributes": " "}, ["Invalid filter value for attributes"]),
    ({"attributes": "aes:1:2"}, ["Invalid filter value for attributes"]),
    ({"attributes": "aes:1,"}, ["Invalid filter value for attributes"]),
    ({"attributes": "my__name:1"}, ['Field "my" not found in schema']),
    *(({"attributes": f"{name}__{test}:1"}, [f"Invalid comparator '{test}' for attribute '{name}' of type '{kind}'"])
      for name, kind, tests in (("flag", "boolean", ["gt", "lte", "match", "prefix"]), ("n", "long", ["match", "not_prefix"]),
                                ("aes", "double", ["match_phrase", "prefix"]), ("caption", "text", ["lt", "gte"]), ("void", "text", ["gt"]))
      for test in tests),
    *(({"attributes": f"{name}:{value}"}, [f"Invalid filter value '{value}' for attribute '{name}'"])
      for name in ("aes", "n") for value in ("", "x", "nan", "inf", "1_000", "0x1", "\u0661")),
    ({"attributes": "aes:1e400"}, ["Invalid filter value '1e400' for attribute 'aes'"]),
    ({"attributes": "n:1e99999999999999999999"}, ["Invalid filter value '1e99999999999999999999' for attribute 'n'"]),
    *(({"attributes": f"flag:{value}"}, [f"Invalid filter value '{value}' for attribute 'flag'"]) for value in ("1", " true", "yes", "")),
    ({"attributes": "caption__match:" + "w " * 1025}, ["Too many conditions on attributes: at most 1024 are taken"]),
    ({"attributes": ",".join(f"n:{i}" for i in range(1025))}, ["Too many conditions on attributes: at most 1024 are taken"]),
]  # fmt: skip


def test_errors_say_what_is_wrong(server):
    for params, body in WRONG:
        assert server.ask(**params) == (400, body), str(params)[:200]


def test_shape_of_pages(server):
    """What is empty counts as absent; of what comes more than once the last counts, and all goes on into `next`."""
    every = [record["id"] for record in RECORDS]
    for query, ids in (
        ("page_size=&cursor=&fields=&return_latents=&all_fields=&partition=&partitions_count=", every),
        ("page_size=5.0", every[:5]),
        ("page_size=%205%20", every[:5]),
        ("page_size=x&page_size=3", every[:3]),
        ("cursor=r17", every[18:]),
        ("cursor=%20r17%20&page_size=1", every[18:19]),
        ("cursor=zzz", []),
        ("cursor=%F0%9F%98%80", []),
        ("tags=nope&tags=cat", expected([("tags", "cat")])),
        ("unheard=%00&short_edge__near=x&cursor=r18", every[19:]),
        ("&&&=&%=%&cursor=r18", every[19:]),
    ):
        status, page = server.ask(f"{server.api_url}images/?{query}")
        assert status == 200 and [image["id"] for image in page["results"]] == ids, query
    status, page = server.ask(f"{server.api_url}images/?tags=nope&tags=cat&x=1&x=2&page_size=2")
    assert page["next"] == f"{server.api_url}images/?tags=nope&tags=cat&x=1&x=2&page_size=2&cursor={page['results'][-1]['id']}"
    for path in ("images/count/", "images/r00/"):  # these have no pages
        assert server.ask(path, page_size="x")[0] == 200
    assert server.ask("images/random/", cursor="a\0", partition="x")[0] == 200
    for name, most in (("prefix_length", 64), ("num_prefixes", 300)):
        assert server.ask("images/random/", **{name: most})[0] == server.ask("images/random/", **{name: ""})[0] == 200
        assert server.ask("images/random/", **{name: most + 1})[1] == {name: [f"Ensure this value is less than or equal to {most}."]}


def test_return_latents(server):
    def types(**params):
        _, page = server.ask(page_size=1, fields="latents", **params)
        return sorted(latent["latent_type"] for latent in page["results"][0]["latents"])

    assert types() == types(return_latents="") == types(return_latents="vae,person_mask") == ["person_mask", "vae"]
    assert types(return_latents="vae,") == types(return_latents=" vae") == ["vae"]
    assert types(return_latents="nothing") == types(return_latents=",") == []


def test_hosts(server):
    """`next` and the files are where the request was sent to; a head that names no host is refused."""
    url, token = f"{server.api_url}images/?page_size=1", f"Token {server.token}"
    for host, names in (("data.example:8000", "data.example"), ("[::1]:8000", "[::1]"), ("my_box", "my_box")):
        page = json.loads(fetch(url, authorization=token, host=host)[2])
        assert page["next"].startswith(f"http://{host}/api/images/")
        assert page["results"][0]["image_direct_url"].startswith(f"http://{names}:{server.media_url.rsplit(':', 1)[1]}")
    for host in ("", "[", "a b", "x:y", "x:999999", "user@host", "a/b", "a?b", "é"):
        assert fetch(url, authorization=token, host=host)[0] == 400, host


def test_tags_and_datasets(server):
    """As a list of Django REST framework: next, previous and results, the most frequent tag first, the newest version of a dataset first."""
    counts = {tag: sum(tag in record["tags"] for record in RECORDS) for tag in ("hq", "cat", "é")}
    status, page = server.ask("tags/")
    assert status == 200 and page["next"] is page["previous"] is None
    assert [(tag["name"], tag["image_count"]) for tag in page["results"]] == sorted(counts.items(), key=lambda item: -item[1])
    assert set(page["results"][0]) == {"id", "name", "description", "image_count"}
    assert server.ask(f"tags/{page['results'][1]['id']}/") == (200, page["results"][1])
    names = [one["slug_version"] for one in server.ask("datasets/")[1]["results"]]
    assert names == ["other/10", "set/2", "set/1"]
    _, one = server.ask("datasets/set/1/")
    assert one == {
        "slug_version": "set/1", "slug": "set", "version": 1, "name": "set", "author": None, "image_count": 10, "description": "",
        "is_frozen": True,
    }  # fmt: skip
    assert [one["version"] for one in server.ask("datasets/", slug="set")[1]["results"]] == [2, 1]
    assert server.ask("datasets/", slug="no")[1] == {"next": None, "previous": None, "results": []}
    first, second = server.ask("tags/", page_size=2)[1], None
    second = server.ask(first["next"])[1]
    assert [tag["name"] for tag in first["results"] + second["results"]] == [tag["name"] for tag in page["results"]]
    assert second["next"] is None and server.ask(second["previous"])[1]["results"] == first["results"]
    assert server.ask("tags/", page_size="x")[1] == page
    assert server.ask("tags/", page_size=2001) == (400, ["Page size should be at most 2000."])
    for cursor in ("x", "é", "bz0x\0", "bz14", "=" * 5000, "bz05OTk5OTk5OTk5OTk5OTk5"):
        assert server.ask("tags/", cursor=cursor) == (404, {"detail": "Invalid cursor"})
    for path in ("tags/nope/", "tags/%00/", "datasets/set/9/", "datasets/set/x/"):
        assert server.ask(path)[0] == 404
    url = f"{server.api_url}tags/"
    assert fetch(url)[0] == 403
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        status, _, body = fetch(url, method, authorization=f"Token {server.token}")
        assert (status, json.loads(body)) == (403, {"detail": "This token is read-only"})


def test_long_lists_that_are_not_known(server):
    """Thousands of names in one request are an answer, however they are given."""
    for name, text in (("tags", "tags do"), ("datasets__all", "datasets do")):
        status, body = server.ask(**{name: ",".join(f"t{i}" for i in range(5000))})
        assert status == 400 and text in body[0]
    for name in ("has_attributes", "attributes", "has_latents", "fields", "return_latents"):
        assert server.ask(**{name: ",".join(f"t{i}" for i in range(5000))})[0] in (200, 400)
    assert len(urlencode({"tags": ",".join(["hq"] * 12000)})) < 2**16
    assert server.ids(tags=",".join(["hq"] * 12000)) == expected([("tags", "hq")])
