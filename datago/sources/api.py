"""Requests to the database's API: the key, retries, and what a refusal says. Its urls and errors never show the key."""

import email.utils
import json
import random
import re
import time
from urllib.parse import urlsplit

from datago._fetch import redacted
from datago.errors import SourceOSError, SourceValueError
from datago.threads import Flag

CONNECT_TIMEOUT = 10  # seconds
FIRST_WAIT, LONGEST_WAIT = 0.2, 20  # seconds before a retry; they double in between
LONGEST_RETRY_AFTER = 120  # seconds; who asks for more is not asked again


class Api:
    """
    Args:
        base: the API's url, with or without a slash at the end.
        key: sent as `Authorization: Token <key>`, to this host alone.
        timeout: seconds of silence after which a request is given up.
        attempts: how often a page is asked for in all, if the network fails or the answer is 408, 429 or 5xx.

    Raises:
        SourceValueError: the url or the key cannot be used.
    """

    def __init__(self, base, key, user_agent, timeout, attempts):
        import requests

        key = key.strip()
        try:
            usable = urlsplit(base).scheme in ("http", "https") and urlsplit(base).hostname
        except ValueError:
            usable = False
        if not usable:
            raise SourceValueError(f"api_url (or DATAROOM_API_URL): got {redacted(base)!r}, wanted a http or https url")
        if not re.fullmatch(r"[!-~]+", key):
            raise SourceValueError("api_key (or DATAROOM_API_KEY): wanted one word of ASCII letters and signs")
        self.base = base if base.endswith("/") else base + "/"
        self.where = redacted(self.base)
        self._key, self._timeout, self._attempts = key, timeout, attempts
        self._requests, self._stopped = requests, Flag()
        self._session = requests.Session()
        self._session.max_redirects = 10
        self._session.headers["User-Agent"] = user_agent

    def __repr__(self):
        return f"<Api {self.where}>"

    def stop(self):
        """From any thread. A request that is under way goes on, but nothing comes of it."""
        self._stopped.set()

    def close(self):
        """No more requests; their connections are closed."""
        self._session.close()

    @property
    def stopped(self):
        return self._stopped.is_set()

    def get(self, url, params, what):
        """The JSON that a GET gives, and the url it came from; None once stopped.

        Raises:
            SourceOSError: no answer after all attempts, or a refusal.
            SourceValueError: a refusal because of what was asked for (400), or no JSON.
        """
        for attempt in range(1, self._attempts + 1):
            least, fatal = 0, None
            try:
                answer = self._session.get(
                    url, params=params, auth=self._sign, timeout=(CONNECT_TIMEOUT, self._timeout)
                )
            except self._requests.exceptions.RequestException as error:
                problem = self._hide(_words(error))
                if not isinstance(error, self._passing()):
                    fatal = SourceValueError
            else:
                if answer.status_code == 200:
                    try:
                        return self._content(answer, url, what)
                    except SourceValueError:
                        # Without a length, an answer that was cut looks like this.
                        if attempt == self._attempts or {"Content-Length", "Transfer-Encoding"} & set(answer.headers):
                            raise
                problem, least = f"HTTP {answer.status_code}{self._detail(answer)}", _retry_after(answer)
                passing = answer.status_code in (200, 408, 429) or answer.status_code >= 500
                if not passing or least > LONGEST_RETRY_AFTER:
                    fatal = SourceValueError if answer.status_code == 400 else SourceOSError
            if fatal:
                raise fatal(f"{what}: {problem}; from {redacted(url)}")
            if attempt < self._attempts and not self.stopped:
                wait = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.5, 1)
                self._stopped.wait(max(wait, least))
            if self.stopped:
                return None
        raise SourceOSError(f"{what}: {problem} (attempt {attempt} of {attempt}); from {redacted(url)}")

    def _sign(self, request):
        # As `auth`, so that no .netrc overrides it; requests drops it where a redirect leads to another host.
        request.headers["Authorization"] = f"Token {self._key}"
        return request

    def _passing(self):
        errors = self._requests.exceptions
        return errors.ConnectionError, errors.Timeout, errors.ChunkedEncodingError, errors.ContentDecodingError

    def _content(self, answer, url, what):
        if urlsplit(url).scheme == "https" and urlsplit(answer.url).scheme != "https":
            raise SourceValueError(f"{what}: redirected from https to {redacted(answer.url)}")
        try:
            return json.loads(answer.content), answer.url
        except (ValueError, RecursionError):
            kind = answer.headers.get("Content-Type", "no content type")
            moved = f", redirected to {redacted(answer.url)}" if answer.history else ""
            raise SourceValueError(
                f"{what}: the answer is not JSON but {len(answer.content)} bytes ({kind}){moved}: is api_url right? "
                f"From {redacted(url)}"
            ) from None

    def _detail(self, answer):
        """What the server says about a refusal, on one line, if it says it in JSON."""
        try:
            said = json.loads(answer.content)
        except (ValueError, RecursionError):
            return ""
        said = said["detail"] if isinstance(said, dict) and "detail" in said else said
        return ": " + self._hide(json.dumps(said, ensure_ascii=False)[:200])

    def _hide(self, text):
        return text.replace(self._key, "…")


def _words(error):
    """What the operating system or the HTTP library said in the first place. What requests says has the whole url."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    text = getattr(error, "strerror", None) or str(error)
    return text if text and "url" not in text.lower() and "://" not in text else type(error).__name__


def _retry_after(answer):
    """Seconds to wait as the header says, 0 without it."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return int(value)
    try:
        return max(0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0
