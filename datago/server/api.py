"""The API: pages of images, random images, a count, one image. What is asked for is understood in `filters`."""

import hmac
import math
import secrets
from urllib.parse import urlencode

from sqlalchemy import func
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from datago.server import filters
from datago.server.store import images

DEFAULT_FIELDS = tuple(
    "id source image_direct_url date_created date_updated author image_hash width height short_edge pixel_count "
    "aspect_ratio aspect_ratio_fraction original_url tags attributes datasets".split()
)
EVERY_FIELD = DEFAULT_FIELDS + tuple(
    "image thumbnail thumbnail_direct_url thumbnail_error coca_embedding latents duplicate_state related_images".split()
)
# What a folder knows nothing of. The hash would be that of all pixels.
ABSENT = {
    "author": None,
    "image_hash": None,
    "original_url": None,
    "datasets": [],
    "thumbnail": None,
    "thumbnail_direct_url": None,
    "thumbnail_error": False,
    "related_images": {},
}
COLUMNS = {"image": "location", "image_direct_url": "location", "date_created": "date", "date_updated": "date"}
TRUE, FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class Api:
    """The ASGI application is `app`.

    Args:
        store: a `store.Store`.
        signer: a `media.Signer`, for the urls of files.
        media_port: where those are served, on the host that a request names.
        token: what clients have to show.
        page_size_max: the largest page.
        prefix_length: of images/random/ by default; None: as the number of images asks for.
    """

    def __init__(self, store, signer, media_port, token, page_size_max=2000, prefix_length=None):
        self._store, self._signer, self._media_port = store, signer, media_port
        self._token, self._page_size_max, self._prefix_length = token, page_size_max, prefix_length
        api = [("images/", self._list), ("images/random/", self._random), ("images/count/", self._count)]
        routes = [Route(f"/api/{path}", self._guarded(endpoint)) for path, endpoint in api]
        self.app = Starlette(
            routes=[
                *routes,
                Route("/api/images/{id}/", self._guarded(self._one)),
                Route("/_health/", lambda request: PlainTextResponse("OK")),
                # The hosted service sends what it does not know to its web pages.
                Route("/login/", lambda request: HTMLResponse("<!doctype html><title>Log in</title>")),
                Route("/{path:path}", _to_login),
            ],
            exception_handlers={
                filters.Invalid: lambda request, error: JSONResponse(error.body, 400),
                HTTPException: lambda request, error: JSONResponse({"detail": error.detail}, error.status_code),
                405: lambda request, error: JSONResponse({"detail": "This token is read-only"}, 403),
            },
        )
        self.app.router.redirect_slashes = False

    def _guarded(self, endpoint):
        def guarded(request):
            self._authenticate(request.headers.get("authorization", "").split())
            params = dict(request.query_params)
            for name, value in params.items():
                if "\0" in value:
                    raise filters.Invalid({name: ["Null characters are not allowed."]})
            return JSONResponse(endpoint(request, params))

        return guarded

    def _authenticate(self, words):
        if not words or words[0].lower() != "token":
            raise HTTPException(403, "Authentication credentials were not provided.")
        if len(words) == 1:
            raise HTTPException(403, "Invalid token header. No credentials provided.")
        if len(words) > 2:
            raise HTTPException(403, "Invalid token header. Token string should not contain spaces.")
        if not hmac.compare_digest(words[1].encode(), self._token.encode()):
            raise HTTPException(403, "Invalid token.")

    def _list(self, request, params):
        size = self._page_size(params)
        fields = _fields(params)
        conditions = filters.conditions(params, self._store) + filters.partition(params)
        if params.get("cursor"):
            conditions.append(images.c.id > params["cursor"])
        results = self._results(request, params, conditions, size, fields)
        if not results:
            return {"next": None, "results": []}
        query = urlencode({**params, "cursor": results[-1]["id"]})
        return {"next": str(request.url.replace(query=query)), "results": results}

    def _random(self, request, params):
        size, fields = self._page_size(params), _fields(params)
        conditions = filters.conditions(params, self._store)
        count = filters.integer(params, "num_prefixes", 1, 300, 100)
        length = filters.integer(params, "prefix_length", 1, 64, None) or self._prefix_length
        if length is None:
            # The longest prefixes, up to the hosted service's 5, that find a page's worth among the images there are:
            # each finds one in 16**length.
            length = min(5, max(1, int(math.log(max(1, self._store.count(conditions) * count / size), 16))))
        draws = {secrets.token_hex(32)[:length] for _ in range(count)}
        conditions.append(func.substr(images.c.draw, 1, length).in_(draws))
        return {"next": None, "results": self._results(request, params, conditions, size, fields)}

    def _count(self, request, params):
        return {"count": self._store.count(filters.conditions(params, self._store) + filters.partition(params))}

    def _one(self, request, params):
        identity = request.path_params["id"]
        results = self._results(request, params, [images.c.id == identity], 1, _fields(params))
        if not results:
            raise HTTPException(404, f'OSImage with id "{identity}" does not exist')
        return results[0]

    def _page_size(self, params):
        return filters.integer(params, "page_size", 1, self._page_size_max, min(100, self._page_size_max))

    def _results(self, request, params, conditions, size, fields):
        columns = dict.fromkeys(COLUMNS.get(field, field) for field in fields if field not in ABSENT)
        wanted = {kind for kind in params.get("return_latents", "").split(",") if kind}
        host = request.url.hostname or ""
        base = f"{request.url.scheme}://{f'[{host}]' if ':' in host else host}:{self._media_port}"
        return [
            {field: self._value(field, row, base, wanted) for field in fields}
            for row in self._store.page(conditions, size, columns)
        ]

    def _value(self, field, row, base, wanted):
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


def _to_login(request):
    return RedirectResponse(f"/login/?{urlencode({'next': request.url.path})}", 302)


def _fields(params):
    """The fields to show, in order; the id is always among them."""
    named = {name: params.get(name, "").split(",") for name in ("fields", "include_fields", "exclude_fields")}
    if params.get("fields"):
        return list(dict.fromkeys(["id", *(field for field in named["fields"] if field in EVERY_FIELD)]))
    choice = params.get("all_fields", "").lower()
    if choice in TRUE:
        return list(EVERY_FIELD)
    if choice and choice not in FALSE:
        raise filters.Invalid({"all_fields": ["Must be a valid boolean."]})
    chosen = dict.fromkeys([*DEFAULT_FIELDS, *(field for field in named["include_fields"] if field in EVERY_FIELD)])
    return [field for field in chosen if field == "id" or field not in named["exclude_fields"]]
