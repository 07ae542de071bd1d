"""What a url is made of, and how it may be shown."""

import os
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from datago.errors import SourceValueError, printable, without_credentials

PORTS = {"http": 80, "https": 443}


def scheme_of(url: str) -> str:
    """The scheme in lower case; empty for a local path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):/", url, re.I | re.A)
    return (found[1] or found[2]).lower() if found else ""


def local_path(url: str) -> str:
    """The path that a file:// url or a plain path means. Raises SourceValueError: that of another host, or none at all."""
    found = re.fullmatch(r"file:(?://([^/]*))?(/.*)", url, re.I | re.S | re.A)
    if found and found[1] and found[1].lower() != "localhost":
        raise SourceValueError(f"{url}: file urls of another host cannot be read")
    try:
        path = os.fsencode(url) if not found else unquote_to_bytes(found[2].encode("utf-8", "surrogateescape"))
    except UnicodeError:
        path = b"\0"
    if b"\0" in path:
        raise SourceValueError(f"{redact(url)}: zero byte or unpaired surrogate in a path")
    return os.fsdecode(path)


def redact(url: str) -> str:
    """`url` as it may be shown: without user name, password, query and fragment, and printable. A local path has none of these."""
    return printable(url) if scheme_of(url) in ("", "file") else bare(url)


def bare(url: str) -> str:
    """`redact` for a text that was meant as a url and may be none."""
    url = re.sub(r"^([A-Za-z][\w+.-]*://)[^/?#]*@", r"\1", url, count=1)
    path, _, query = url.partition("#")[0].partition("?")
    return printable(path) + ("?…" if query else "")


def redact_text(text: str, *secrets: str) -> str:
    """The words of a server or a library as printable text, without these secrets, and without users and queries of the urls in it."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    return printable(without_credentials(text))


class Url(NamedTuple):
    """An http(s) url in its parts. `target` is what the request line says: the given bytes, without the fragment."""

    scheme: str
    user: str
    host: str
    port: int
    target: str

    @classmethod
    def parse(cls, text: str) -> "Url":
        """Raises SourceValueError, and nothing else, whatever the text."""
        # ASCII: elsewhere there are other digits, and letters that Unicode takes for an "s" or a "k" of another case.
        found = re.fullmatch(
            r"(https?)://(?:([^/?#\\]*)@)?(\[[0-9A-Fa-f:.]+\]|[^/?#\\@:\[\]\s\x00-\x1f]+)(?::(\d{0,5}))?([/?][^#]*)?(#.*)?",
            text,
            re.I | re.S | re.A,
        )
        scheme = found[1].lower() if found else ""
        port = int(found[4] or PORTS[scheme]) if found else 0
        if not found or not 0 < port < 65536:
            raise SourceValueError(f"not an http url: {bare(text)}")
        try:
            host = found[3].strip("[]").lower().encode("idna").decode()
            host.encode("idna")  # there are letters that become dots
            rest = (found[5] or "/").encode("utf-8", "surrogateescape")
            (found[2] or "").encode("utf-8", "surrogateescape")
        except UnicodeError:  # the name, or an unpaired surrogate
            raise SourceValueError(f"not a host name, or not text: {bare(text)}") from None
        # What the rules of international names make of a letter may be a delimiter.
        if not re.fullmatch(r"[!-~]{1,253}", host) or ":" not in found[3] and re.search(r"[/?#\\@:\[\]]", host):
            raise SourceValueError(f"not a host name: {bare(text)}")
        # Only what cannot stand in a request line is escaped: blanks, control characters, bytes beyond ASCII.
        target = re.sub(rb"[^!-~]", lambda byte: b"%%%02X" % byte[0][0], rest).decode()
        return cls(scheme, found[2] or "", host, port, target if target[0] == "/" else f"/{target}")

    @property
    def place(self) -> str:
        """Host and port, as the Host header has them: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{bare(self.target)}"

    def __repr__(self) -> str:
        return str(self)
