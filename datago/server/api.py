"""The API: pages of images, random images, a count, one image, tags and datasets. `filters` turns the parameters of a request into
conditions.
"""

import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import ColumnElement, func
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from datago.server import filters, forms, lists
from datago.server.media import Signer
from datago.server.store import Store
from datago.server.tables import images

DEFAULT_FIELDS = tuple(
    "id source image_direct_url date_created date_updated author image_hash width height short_edge pixel_count "
    "aspect_ratio aspect_ratio_fraction original_url tags attributes datasets".split()
)
EVERY_FIELD = tuple(
    "id source image image_direct_url date_created date_updated author image_hash width height short_edge pixel_count aspect_ratio "
    "aspect_ratio_fraction thumbnail thumbnail_direct_url thumbnail_error original_url tags coca_embedding latents attributes "
    "duplicate_state related_images datasets".split()
)
# Fields that a folder has no values for. `image_hash` would be a hash of the decoded pixels, and no image is decoded.
ABSENT: dict[str, Any] = {
    "author": None,
    "image_hash": None,
    "original_url": None,
    "thumbnail": None,
    "thumbnail_direct_url": None,
    "thumbnail_error": False,
    "related_images": {},
}
COLUMNS = {"image": "location", "image_direct_url": "location", "date_created": "date", "date_updated": "date"}
SHAPE: dict[str, forms.Form] = {
    "fields": forms.names,
    "all_fields": forms.choice,
    "include_fields": forms.names,
    "exclude_fields": forms.names,
    "return_latents": forms.names,
}
HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
Endpoint = Callable[[Request, dict[str, str]], Any]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

# the response to each exception that an endpoint may raise
HANDLERS: dict[Any, Callable[[Request, Any], JSONResponse]] = {
    forms.Invalid: lambda request, error: JSONResponse(error.body, 400),
    HTTPException: lambda request, error: JSONResponse({"detail": error.detail}, error.status_code),
    405: lambda request, error: JSONResponse({"detail": "This token is read-only"}, 403),
    SQLAlchemyError: lambda request, error: JSONResponse({"detail": "The database did not answer in time."}, 503),
}


class Api:
    """Makes the ASGI application `app`.

    Args:
        signer: signs the urls of files.
        media_port: the port that serves files, on the host that a request names.
        token: the token that clients must send.
        page_size_max: images in the largest page.
        prefix_length: the default of images/random/; None: it depends on the number of images.
    """

    def __init__(
        self, store: Store, signer: Signer, media_port: int, token: str, page_size_max: int = 2000, prefix_length: int | None = None
    ) -> None:
        self._store, self._signer, self._media_port = store, signer, media_port
        self._token, self._prefix_length = token, prefix_length
        self._page_size = min(100, page_size_max)
        sized: dict[str, forms.Form] = {**SHAPE, "page_size": forms.whole(1, page_size_max)}
        self._paged = {**sized, "cursor": forms.filled}
        self._drawn = {**sized, "prefix_length": forms.whole(1, 64), "num_prefixes": forms.whole(1, 300)}
        endpoints: list[tuple[str, Endpoint]] = [
            ("images/", self._list),
            ("images/random/", self._random),
            ("images/count/", self._count),
            ("images/{id}/", self._one),
            ("tags/", self._tags),
            ("tags/{id}/", self._tag),
            ("datasets/", self._datasets),
            ("datasets/{slug}/{version}/", self._dataset),
        ]
        self.app = Starlette(
            routes=[
                *(Route(f"/api/{path}", self._guarded(endpoint), methods=METHODS) for path, endpoint in endpoints),
                Route("/_health/", lambda request: PlainTextResponse("OK")),
                # The hosted service redirects unknown paths to its web pages.
                Route("/login/", lambda request: HTMLResponse("<!doctype html><title>Log in</title>")),
                Route("/{path:path}", _to_login),
            ],
            exception_handlers=HANDLERS,
        )
        self.app.router.redirect_slashes = False

    def _guarded(self, endpoint: Endpoint) -> Callable[[Request], JSONResponse]:
        def guarded(request: Request) -> JSONResponse:
            self._authenticate(request.headers.get("authorization", "").split())
            if request.method not in ("GET", "HEAD"):
                raise HTTPException(403, "This token is read-only")
            return JSONResponse(endpoint(request, dict(request.query_params)))

        return guarded

    def _authenticate(self, words: list[str]) -> None:
        if not words or words[0].lower() != "token":
            raise HTTPException(403, "Authentication credentials were not provided.")
        if len(words) == 1:
            raise HTTPException(403, "Invalid token header. No credentials provided.")
        if len(words) > 2:
            raise HTTPException(403, "Invalid token header. Token string should not contain spaces.")
        if not hmac.compare_digest(words[1].encode(), self._token.encode()):
            raise HTTPException(403, "Invalid token.")

    def _list(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        shape = forms.read(params, self._paged)
        conditions = filters.conditions(params, self._store) + filters.partition(params)
        if "cursor" in shape:
            conditions.append(images.c.id > shape["cursor"])
        results = self._results(request, shape, conditions)
        return {"next": _link(request, results[-1]["id"]) if results else None, "results": results}

    def _random(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        shape = forms.read(params, self._drawn)
        conditions = filters.conditions(params, self._store)
        count = shape.get("num_prefixes", 100)
        length = shape.get("prefix_length") or self._prefix_length
        if length is None:
            # The longest prefixes, up to the hosted service's 5 digits, that find a whole page of images. A prefix finds one image in
            # 16**length.
            found = self._store.count(conditions) * count / shape.get("page_size", self._page_size)
            length = min(5, max(1, int(math.log(max(1, found), 16))))
        draws = {secrets.token_hex(32)[:length] for _ in range(count)}
        conditions.append(func.substr(images.c.draw, 1, length).in_(draws))
        return {"next": None, "results": self._results(request, shape, conditions)}

    def _count(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        return {"count": self._store.count(filters.conditions(params, self._store) + filters.partition(params))}

    def _one(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        identity, shape = request.path_params["id"], forms.read(params, SHAPE)
        results = self._results(request, shape, [images.c.id == identity]) if "\0" not in identity else []
        if not results:
            raise HTTPException(404, f'OSImage with id "{identity}" does not exist')
        return results[0]

    def _tags(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        return _page(request, lists.tags(self._store), params)

    def _tag(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        return _named("Tag", [tag for tag in lists.tags(self._store) if tag["id"] == request.path_params["id"]])

    def _datasets(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        slug = forms.read(params, {"slug": forms.text}).get("slug")
        return _page(request, [one for one in lists.datasets(self._store) if slug in (None, one["slug"])], params)

    def _dataset(self, request: Request, params: dict[str, str]) -> dict[str, Any]:
        name = "{slug}/{version}".format(**request.path_params)
        return _named("Dataset", [one for one in lists.datasets(self._store) if one["slug_version"] == name])

    def _results(self, request: Request, shape: dict[str, Any], conditions: list[ColumnElement[bool]]) -> list[dict[str, Any]]:
        fields = _fields(shape)
        columns = dict.fromkeys(COLUMNS.get(field, field) for field in fields if field not in ABSENT)
        wanted, base = set(shape.get("return_latents", ())), _base(request, self._media_port)
        return [
            {field: self._value(field, row, base, wanted) for field in fields}
            for row in self._store.page(conditions, shape.get("page_size", self._page_size), columns)
        ]

    def _value(self, field: str, row: Mapping[str, Any], base: str, wanted: set[str]) -> Any:
        if field in ("image", "image_direct_url"):
            return base + self._signer.sign(row["location"])
        if field == "latents":
            return [
                {
                    "latent_type": latent["latent_type"],
                    "file_direct_url": base + self._signer.sign(latent["reference"]),
                    "is_mask": latent["is_mask"],
                }
                for latent in row["latents"]
                if not wanted or latent["latent_type"] in wanted
            ]
        if field == "coca_embedding":
            return row[field] and {"vector": row[field], "author": None}
        return ABSENT[field] if field in ABSENT else row[COLUMNS.get(field, field)]


def _to_login(request: Request) -> RedirectResponse:
    return RedirectResponse(f"/login/?{urlencode({'next': request.scope['path']})}", 302)


def _page(request: Request, items: list[dict[str, Any]], params: dict[str, str]) -> dict[str, Any]:
    page = lists.page(items, params, lambda cursor: _link(request, cursor))
    if page is None:
        raise HTTPException(404, "Invalid cursor")
    return page


def _named(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found:
        raise HTTPException(404, f"No {kind} matches the given query.")
    return found[0]


def _base(request: Request, port: int | None = None) -> str:
    """Scheme, host and port of the url that a request was sent to. `port` replaces its port."""
    match = HOST.fullmatch(request.headers.get("host", "{}:{}".format(*request.scope["server"])))
    if not match:
        raise HTTPException(400, "Invalid Host header.")
    return f"{request.scope['scheme']}://{match[1]}{f':{port}' if port else match[2] or ''}"


def _link(request: Request, cursor: str) -> str:
    """The url of a request, with its cursor replaced."""
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return f"{_base(request)}{request.scope['path']}?{urlencode([*query, ('cursor', cursor)])}"


def _fields(shape: dict[str, Any]) -> list[str]:
    """The fields to return, in order. They always include the id."""
    if "fields" in shape:
        return list(dict.fromkeys(["id", *(field for field in shape["fields"] if field in EVERY_FIELD)]))
    if shape.get("all_fields"):
        return list(EVERY_FIELD)
    chosen = dict.fromkeys([*DEFAULT_FIELDS, *(field for field in shape.get("include_fields", ()) if field in EVERY_FIELD)])
    return [field for field in chosen if field == "id" or field not in shape.get("exclude_fields", ())]
