"""One policy for all that is asked over HTTP: pages of a database, shards, listings, and downloads.

| rule | what it says |
|---|---|
| certificates | `trust`: the files that the environment names, else certifi's |
| proxies | `proxies`, `proxy_for`: http_proxy, https_proxy, all_proxy and no_proxy, in small or capital letters |
| which answers are asked for again | `is_retried`: 408, 429 and 5xx |
| when | `backoff`: after 0.2 s, twice as long each time, 20 s at most, cut by up to half at random |
| Retry-After | `retry_after`: the least to wait; above MAX_RETRY_AFTER seconds the answer stands |
| which hosts are left alone | `unreachable_hosts`: those that a request of the same pass could not reach, but for one request every
  HOST_REST seconds. Pages of a database are on their own, as one that does not come ends the pass |
| what may be shown | `redact`, `bare` and `redact_text` of url.py |

The download thread calls the same functions without Python: they stand in _policy.pyx and _hosts.pyx.
"""

import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from datago.net._hosts import Hosts, is_own_want
from datago.net._policy import MAX_RETRY_AFTER, backoff_s, is_bypassed, is_retried, retry_after

if TYPE_CHECKING:
    from datago.net.url import Url

__all__ = [
    "HOST_REST", "MAX_RETRY_AFTER", "Hosts", "Proxies", "backoff", "is_own_want", "is_retried", "proxies", "proxy_for", "retry_after",
    "trust", "unreachable_hosts",
]  # fmt: skip

HOST_REST = 10.0  # seconds from one attempt at a host that could not be reached to the next


class Proxies(NamedTuple):
    """The proxy for http, that for https, and the hosts that are asked without one; empty where the environment names none."""

    http: str
    https: str
    no_proxy: str


def trust(environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """(file, folder) of the certificates that servers are checked against; one of them may be empty.

    REQUESTS_CA_BUNDLE or else CURL_CA_BUNDLE, each a file or a folder; else SSL_CERT_FILE, SSL_CERT_DIR or both; else what certifi
    has, and the system's folder, where administrators put their own. Each of these replaces those after it.
    """
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if path := environment.get(name):
            return ("", path) if os.path.isdir(path) else (path, "")
    file, folder = environment.get("SSL_CERT_FILE", ""), environment.get("SSL_CERT_DIR", "")
    if file or folder:
        return file, folder
    import ssl

    import certifi

    system = ssl.get_default_verify_paths().openssl_capath
    return certifi.where(), system if os.path.isdir(system) else ""


def proxies(environment: Mapping[str, str] = os.environ) -> Proxies:
    """The Proxies that the environment names. Small letters come first, and an empty value means none.

    Capital HTTP_PROXY is not looked at where REQUEST_METHOD is set: in a CGI program a client can set it by its `Proxy` header.
    """

    def named(name: str) -> str:
        if name in environment or name == "http_proxy" and "REQUEST_METHOD" in environment:
            return environment.get(name, "")
        return environment.get(name.upper(), "")

    return Proxies(named("http_proxy") or named("all_proxy"), named("https_proxy") or named("all_proxy"), named("no_proxy"))


def proxy_for(url: "Url") -> str:
    """The proxy to ask for a Url, as the environment has it; empty: none."""
    found = proxies()
    proxy = found.https if url.scheme == "https" else found.http
    return "" if not proxy or is_bypassed(found.no_proxy, f"{url.scheme}://{url.place}/") else proxy


def backoff(attempt: int) -> float:
    """Seconds to wait after attempt 1, 2 … failed."""
    return backoff_s(attempt, random.random())


def unreachable_hosts() -> Hosts:
    """The Hosts of a pass that begins."""
    return Hosts(HOST_REST)
