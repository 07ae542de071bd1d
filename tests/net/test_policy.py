"""One policy: each rule of datago/net/policy.py holds for whatever asks over HTTP."""

import json
import shutil
import ssl
import subprocess
import time
from email.utils import formatdate

import pytest
from network import answer, serve

from datago.errors import SourceError
from datago.net import policy
from datago.net._fetch import Fetcher
from datago.net._policy import backoff_s, is_bypassed
from datago.net.stream import open_stream
from datago.net.url import redact_text
from datago.sources.db.api import Api
from datago.sources.webdataset.listing import list_objects

pytestmark = pytest.mark.timeout(60)

GOOD = json.dumps({"items": [], "results": [], "next": None}).encode()  # a page, a listing and, as bytes, anything else
KEY = "k3y" * 9


def page(url, attempts):
    api = Api("http://127.0.0.1/", KEY, "datago", 5, attempts, 1 << 20)
    try:
        api.get(url, None, "page 1")
    finally:
        api.stop()


def shard(url, attempts):
    with open_stream(url, token=KEY, timeout=5, attempts=attempts) as stream:
        assert b"".join(stream) == GOOD


def listing(url, attempts):
    assert list_objects(url, KEY, timeout=5, attempts=attempts) == []


def download(url, attempts):
    fetcher = Fetcher(max_connections=1, timeout=5, attempts=attempts)
    try:
        fetcher.submit([(1, url)])
        ((_, _, body, error),) = fetcher.take(30)
    finally:
        fetcher.close()
    if error:
        raise SourceError(error[1])
    assert bytes(body) == GOOD


each = pytest.mark.parametrize("ask", [page, shard, listing, download])
TRUST = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """An environment that names nothing, and short waits."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in (*TRUST, "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(policy, "backoff", lambda attempt: 0.005)


def error_of(ask, url, attempts=3):
    with pytest.raises(SourceError) as caught:
        ask(url, attempts)
    return str(caught.value)


# ---- trust ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A folder with key.pem, cert.pem and `hashed`, where OpenSSL finds the certificate by its subject."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {folder}/cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", folder / "cert.pem"], check=True, capture_output=True, timeout=30)
    (folder / "hashed").mkdir()
    shutil.copy(folder / "cert.pem", folder / "hashed" / f"{name.stdout.decode().strip()}.0")
    return folder


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with serve([answer(GOOD)], context=context) as server:
        yield server


@each
@pytest.mark.parametrize("name", TRUST)
def test_each_variable_alone_names_the_certificates(ask, name, secure, certificate, monkeypatch):
    monkeypatch.setenv(name, str(certificate / ("hashed" if name == "SSL_CERT_DIR" else "cert.pem")))
    ask(secure.url + "/o", 1)
    assert len(secure.requests) == 1


@each
def test_a_bundle_may_be_a_folder(ask, secure, certificate, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate / "hashed"))
    ask(secure.url + "/o", 1)


@each
def test_who_is_not_trusted_gets_no_request(ask, secure, certificate, monkeypatch, tmp_path):
    assert "certificate" in error_of(ask, secure.url + "/o")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "gone.pem"))  # it comes first, and is not there
    text = error_of(ask, secure.url + "/o")
    assert "gone.pem" in text and "certificate" in text and "attempt" not in text and not secure.requests


def test_without_a_variable_it_is_certifi(certificate):
    import certifi

    assert policy.trust({})[0] == certifi.where()
    assert policy.trust({"SSL_CERT_FILE": "a", "SSL_CERT_DIR": "b"}) == ("a", "b")
    assert policy.trust({"CURL_CA_BUNDLE": "c", "SSL_CERT_DIR": "b"}) == ("c", "")
    assert policy.trust({"CURL_CA_BUNDLE": "c", "REQUESTS_CA_BUNDLE": str(certificate)}) == ("", str(certificate))


# ---- proxies --------------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_for_http(ask, name, monkeypatch):
    with serve([answer(GOOD)]) as proxy:
        monkeypatch.setenv(name, proxy.url)
        ask("http://images.invalid/o", 1)
        assert proxy.requests[0].line == "GET http://images.invalid/o HTTP/1.1"


@each
@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("status, times", [("407 Who", 1), ("403 No", 1), ("503 Busy", 2)])
def test_a_proxy_for_https_and_its_refusals(ask, name, status, times, monkeypatch):
    with serve([answer(status=status)]) as proxy:
        monkeypatch.setenv(name, proxy.url.replace("//", "//joe:pa55@"))
        assert "pa55" not in error_of(ask, "https://images.invalid/o", attempts=2)
        assert [request.line for request in proxy.requests] == ["CONNECT images.invalid:443 HTTP/1.1"] * times
        assert all(request.headers["proxy-authorization"] for request in proxy.requests) and KEY not in proxy.requests[0].head


@each
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
@pytest.mark.parametrize("names", ["example.org, 127.0.0.1", "*", "127.0.0.0/8", "127.0.0.1:PORT"])
def test_hosts_without_a_proxy(ask, name, names, monkeypatch):
    with serve([answer(GOOD)]) as proxy, serve([answer(GOOD)]) as server:
        monkeypatch.setenv("all_proxy", proxy.url)
        monkeypatch.setenv(name, names.replace("PORT", str(server.port)))
        ask(server.url + "/o", 1)
        assert len(server.requests) == 1 and not proxy.requests
        if names != "*":
            ask("http://images.invalid/o", 1)
            assert len(proxy.requests) == 1


def test_which_proxy_is_named():
    assert policy.proxies({"http_proxy": "a", "HTTPS_PROXY": "b", "NO_PROXY": "c", "ALL_PROXY": "d"}) == ("a", "b", "c")
    assert policy.proxies({"http_proxy": "a", "HTTP_PROXY": "b", "all_proxy": "c"}) == ("a", "c", "")
    assert policy.proxies({"https_proxy": "", "HTTPS_PROXY": "b", "no_proxy": "", "NO_PROXY": "*"}) == ("", "", "")
    assert policy.proxies({"HTTP_PROXY": "a", "HTTPS_PROXY": "b", "REQUEST_METHOD": "GET"}) == ("", "b", "")


@pytest.mark.parametrize(
    "names, url, bypassed",
    [
        ("example.org", "http://example.org/a", True), ("example.org", "http://a.EXAMPLE.org", True), (".example.org", "http://example.org", True),
        ("example.org", "http://badexample.org/", False), ("EXAMPLE.ORG.", "http://a.example.org./x", True), ("org", "http://org.com/", False),
        ("a b,,c", "http://b/", True), ("", "http://b/", False), (" , ", "http://b/", False), ("x,*", "https://b/", True),
        ("b:443", "https://b/", True), ("b:443", "http://b/", False), ("b:8080", "http://b:8080/", True), ("b", "http://b:8080?q", True),
        ("10.0.0.0/8", "http://10.1.2.3/", True), ("10.0.0.0/8", "http://11.1.2.3/", False), ("10.64.0.0/10", "http://10.127.0.1/", True),
        ("10.64.0.0/10", "http://10.128.0.1/", False), ("10.0.0.0/33", "http://10.0.0.0/", False), ("fe80::/10", "http://[fe90::1]:8/", True),
        ("10.0.0.0/8", "http://example.org/", False), ("::1", "http://[::1]/", True), ("[::1]:80", "http://[::1]/", True),
        ("[::1]:81", "http://[::1]/", False), ("::2", "http://[::1]/", False), ("b", "http://b@c/", False), ("c", "http://u:p@@c:1/b", True),
        ("x" * 300, "http://b/", False), ("b", "http://" + "x" * 300 + "/", False), ("[", "http://b/", False), ("]", "http://[/", False),
    ],
)  # fmt: skip
def test_hosts_of_no_proxy(names, url, bypassed):
    assert is_bypassed(names, url) == bypassed


# ---- what is asked for again, and when -------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507, 599])
def test_statuses_that_pass(ask, status):
    with serve([answer(b"busy", status=f"{status} Busy"), answer(GOOD)]) as server:
        ask(server.url + "/o", 2)
        assert len(server.requests) == 2


@each
@pytest.mark.parametrize("status", [300, 400, 401, 403, 404, 405, 410, 416, 418, 425, 451])
def test_statuses_that_stand(ask, status):
    with serve([answer(b"no", "Retry-After: 0", status=f"{status} No"), answer(GOOD)]) as server:
        assert str(status) in error_of(ask, server.url + "/o")
        assert len(server.requests) == 1


def test_waits_double_up_to_a_bound():
    assert [round(backoff_s(attempt, 1), 6) for attempt in (1, 2, 3, 7, 8, 9, 255)] == [0.2, 0.4, 0.8, 12.8, 20, 20, 20]
    assert [round(backoff_s(attempt, 0), 6) for attempt in (1, 2, 255)] == [0.1, 0.2, 10]


@pytest.mark.network
@each
@pytest.mark.parametrize("value", [lambda: "1", lambda: " 1 ", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_retry_after_is_waited_for(ask, value):
    with serve(lambda request: answer(GOOD) if request.number else answer(b"", f"Retry-After: {value()}", status="429 Slow")) as server:
        ask(server.url + "/o", 2)
        first, second = (request.time for request in server.requests)
        assert second - first > 0.9


@each
@pytest.mark.parametrize("value", ["121", "86400", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_who_asks_for_too_much_is_not_asked_again(ask, value):
    with serve([answer(b"", f"Retry-After: {value}", status="503 Closed"), answer(GOOD)]) as server:
        text = error_of(ask, server.url + "/o")
        assert "503" in text and "asks to come again in" in text and len(server.requests) == 1
    assert policy.MAX_RETRY_AFTER == 120


@pytest.mark.parametrize(
    "form", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S +0000"]
)
@pytest.mark.parametrize("days", [0, 20, 59, 60, 100, 365, 1096, 9000])
def test_dates_of_retry_after(form, days):
    moment = time.time() + 3600 + days * 86400
    assert policy.retry_after(time.strftime(form, time.gmtime(moment))) == pytest.approx(moment - time.time(), abs=2)


def test_values_of_retry_after():
    assert [policy.retry_after(text) for text in ("0", "120", " 7\t", "Sun, 06 Nov 1994 08:49:37 GMT", "999999999")] == [
        0,
        120,
        7,
        0,
        999999999,
    ]
    for text in (
        "", " ", "soon", "-1", "1.5", "1e9", "1, 2", "9999999999", "\xb2", "٣", "9" * 5000, "Mon, 99 Foo 2026", "Mon, 20 Nov 2099", ",",
        "Mon, 20 Nov 2099 12:00:00 +0100", "Mon, 20 Nov 9999999999 12:00:00 GMT", "Mon, 20 Nov 2099 25:00:00 GMT", "Mon, 20 Nov 1800 12:00:00 GMT",
        "Mon, -1 Nov 2099 12:00:00 GMT", "Mon", "Mon Nov", "Mon, 20 N\0v 2099 12:00:00 GMT",
    ):  # fmt: skip
        assert policy.retry_after(text) is None, text


# ---- what is shown --------------------------------------------------------------------------------------------------


@each
def test_errors_name_the_url_without_its_secrets(ask):
    with serve([answer(b'{"detail": "u53r:pa55 s1g k3yk3y"}', status="403 No")]) as server:
        text = error_of(ask, server.url.replace("//", "//u53r:pa55@") + "/some/o?sig=s1gnature#frag")
    assert f"127.0.0.1:{server.port}/some/o?…" in text and "403" in text
    assert not any(secret in text for secret in ("u53r:pa55@", "s1gnature", "frag", KEY))


def test_words_of_others_are_redacted():
    assert redact_text("see https://u:p@h/a?sig=1 or 'http://h/b?c' k3y", "k3y", "") == "see https://h/a?… or 'http://h/b?…' …"
    assert redact_text("what?\x1b[2J") == "what?\\x1b[2J"
