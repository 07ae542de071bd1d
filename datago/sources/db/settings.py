"""The keys of a db source_config."""

from dataclasses import dataclass

from datago.checks import BOOL, SECONDS, TEXT, integer
from datago.keys import key
from datago.sources.db.filters import NAMES, Filters


@dataclass(frozen=True, kw_only=True)
class DbSettings(Filters):
    page_size: int = key(integer(1), doc="Records per page; servers give 1 to 2000.")
    api_url: str = key(TEXT, "", "The url of the API.", "`DATAROOM_API_URL`")
    api_key: str = key(TEXT, "", "Sent to the host of `api_url` only; never in a log, error or repr.", "`DATAROOM_API_KEY`")
    require_images: bool = key(BOOL, False, "Ask for images; a record without one is a failure then.")
    require_embeddings: bool = key(BOOL, False, "Ask for `coca_embedding`.")
    return_latents: str = key(
        NAMES, "", "Masks, additional images and latents to download; those of `has_masks` always are.", "what `has_latents` names"
    )
    random_sampling: bool = key(
        BOOL, False,
        "The server draws images at random until draws bring nothing new; no image comes twice. Every draw is from the whole collection "
        "and finds about half a page; a draw that finds more than a page is not used.",
    )  # fmt: skip
    max_connections: int = key(integer(1, 2**12), 64, "Downloads at once; HTTP/1.1, kept alive.")
    read_timeout: float = key(SECONDS, 20, "Seconds without data after which a download is given up.")
    page_timeout: float = key(SECONDS, 120, "Seconds without data after which the request of a page is given up.")
    user_agent: str = key(TEXT, "datago", "The User-Agent header of all requests.")
