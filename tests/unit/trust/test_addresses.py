from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from tests.stopwatch import STOPWATCH

from dragoman.trust.addresses import Link, is_loopback, read_link, split_url

REFUSED = [
    "javascript:alert(1)",
    "JavaScript://github.com/%0aalert(1)",
    "file:///etc/passwd",
    "file://github.com/etc/passwd",
    "ms-msdt:/id PCWDiagnostic",
    "data:text/html,hello",
    "vbscript:x",
    "view-source:https://github.com",
    "ftp://github.com/",
    "ws://github.com/",
    "blob:https://github.com/x",
    "mailto:a@github.com",
    "-new-window",
    "--profile=/tmp/x",
    "-new-window https://github.com",
    "",
    "github.com",
    "//github.com/",
    "https:github.com",
    "https:/github.com",
    "https:///github.com",
    "https://",
    "https://?",
    "http://github.com/",
    "http://localhost.evil.example/",
    "http://127.0.0.1.evil.example/",
    "http://10.0.0.1/",
    "http://0.0.0.0/",
    "https://evil.example\\@github.com",
    "https://evil.example\\.github.com",
    "https:\\\\github.com",
    "https://github.com\\evil.example/",
    "https://github.com@evil.example/",
    "https://github.com:443@evil.example/",
    "https://user:pw@github.com/",
    "https://@github.com/",
    "https://github.com%2f@evil.example",
    "https://git%68ub.com/",
    "https://github.com%00.evil.example/",
    " https://github.com/",
    "https://github.com/ x",
    "https://git\thub.com/",
    "https://git\nhub.com/",
    "ht\ntps://github.com/",
    "https://github.com/\x00",
    "https://github.com/\x1b[31m",
    "https://github.com/\u202e",
    "https://git\u200bhub.com/",
    "https://github.com/\u00a0",
    "https://github.com/\ud800",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://1.2.3.4.5/",
    "https://256.0.0.1/",
    "https://github.com./",
    "https://.github.com/",
    "https://git..hub.com/",
    "https://-github.com/",
    "https://github.com:/",
    "https://github.com:0/",
    "https://github.com:65536/",
    "https://github.com:4x3/",
    "https://github.com:443:80/",
    "https://[::1/",
    "https://[fe80::1%25eth0]/",
    "https://[::1]evil.example/",
    "https://github.com,evil.example/",
    "https://github.com'evil.example/",
    "https://github.com/`id`",
    'https://github.com/"x"',
    f"https://{'a.' * 200}example/",
    f"https://github.com/{'a' * 9000}",
    f"https://{'é' * 100}.example/",
]


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_address_that_is_not_https_or_has_two_readings_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_link(text)


@pytest.mark.parametrize(
    ("text", "url", "host"),
    [
        ("https://github.com/a?b=c#d", "https://github.com/a?b=c#d", "github.com"),
        ("HTTPS://GitHub.COM:443/@user", "https://github.com/@user", "github.com"),
        ("https://github.com", "https://github.com", "github.com"),
        ("https://github.com:8443/", "https://github.com:8443/", "github.com:8443"),
        ("https://evil.example?@github.com", "https://evil.example/?@github.com", "evil.example"),
        ("https://evil.example#@github.com", "https://evil.example/#@github.com", "evil.example"),
        ("https://evil.example/@github.com", "https://evil.example/@github.com", "evil.example"),
        ("https://github.com.evil.example/", "https://github.com.evil.example/", "github.com.evil.example"),
        ("https://\u0433ithub.com/", "https://xn--ithub-mwe.com/", "xn--ithub-mwe.com"),
        ("https://fa\u00df.example/", "https://xn--fa-hia.example/", "xn--fa-hia.example"),
        ("https://github\u3002com/", "https://github.com/", "github.com"),
        ("https://github.com/\u00fc?q=\u00e9", "https://github.com/%C3%BC?q=%C3%A9", "github.com"),
        ("https://192.0.2.1/", "https://192.0.2.1/", "192.0.2.1"),
        ("https://[2001:DB8::1]:8/", "https://[2001:db8::1]:8/", "[2001:db8::1]:8"),
        ("http://127.0.0.1:8976/callback", "http://127.0.0.1:8976/callback", "127.0.0.1:8976"),
        ("http://[::1]/", "http://[::1]/", "[::1]"),
        ("http://app.localhost/x", "http://app.localhost/x", "app.localhost"),
    ],
)
def test_address_is_shown_as_it_is_opened_with_its_real_host(text: str, url: str, host: str) -> None:
    found = read_link(text)
    assert found == Link(url, host)
    assert found.url.isascii()
    assert read_link(found.url) == found


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *((host, True) for host in ("127.0.0.1", "127.255.0.9", "::1", "[::1]", "localhost", "LOCALHOST.")),
        ("a.b.localhost", True),
        *((host, False) for host in ("localhost.evil.example", "notlocalhost", "0.0.0.0", "127.1", "")),
        *((host, False) for host in ("2130706433", "0x7f000001", "::", "10.0.0.1", "127.0.0.1.evil.example")),
        ("::1%eth0", False),
    ],
)
def test_this_machine_is_known_by_few_names(host: str, here: bool) -> None:
    assert is_loopback(host) is here


@pytest.mark.parametrize("piece", ["a", ".", "a.", "-", "é", "1", "%", "@", ":", "[", "xn--"])
def test_long_address_is_read_at_once(piece: str) -> None:
    def read(text: str) -> None:
        with suppress(ValueError):
            read_link(text)

    for text in (f"https://{piece * 8000}", f"https://{(piece * 8000)[:8000]}/", f"https://a/{piece * 4000}"):
        assert STOPWATCH.excess(partial(read, text[:8192]), most=32)[1] == ""


NO_URLS = [
    "//[",
    "//]",
    "http://[",
    "http://[::1",
    "http://::1]/",
    "http://[::1]evil.example/",
    "http://[::1]@[/",
    "http://[localhost]/",
    "http://[v1.x]/",
    "http://[::g]/",
    "http://[127.0.0.1]/",
    "http://host:port/",
    "http://host:-1/",
    "http://host:65536/",
    "http://host:\u0663/",
    "http://host:1e3/",
    "http://host: 80/",
    "http://::1/",
    "http://a:1:2/",
    "http://host\t/",
    "http://ho\nst/",
    "ht\ntp://host/",
    "http://host/\x00",
    "http://host/\x7f",
    "http://host/\x85",
    "\x1fhttp://host/",
    " http://host/",
    "http://ho st/",
    "http://ho\u00a0st/",
    "http://good\\@evil.example/",
    "http://evil.example\\.good/",
    "http://a\u2100b/",
]


@pytest.mark.parametrize("text", NO_URLS)
def test_a_text_that_is_no_url_has_no_parts(text: str) -> None:
    assert split_url(text) is None


def test_a_url_has_the_parts_that_it_is_written_with() -> None:
    found = split_url("HTTPS://us%40er:p:w@Example.COM:8443/a b//c?x=1&y#z")
    assert found is not None
    assert found.scheme == "https"
    assert found.netloc == "us%40er:p:w@Example.COM:8443"
    assert (found.username, found.password) == ("us%40er", "p:w")
    assert (found.host, found.port) == ("example.com", 8443)
    assert (found.path, found.query) == ("/a b//c", "x=1&y")
    assert found.unsplit("new=1") == "https://us%40er:p:w@Example.COM:8443/a b//c?new=1"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("//localhost:8000", "localhost", 8000),
        ("//[::1]", "::1", None),
        ("//[::1]:80", "::1", 80),
        ("http://[::FFFF:1.2.3.4]/", "::ffff:1.2.3.4", None),
        ("http://host:/", "host", None),
        ("http://a@b@host/", "host", None),
        ("http://host?x", "host", None),
        ("http://host#x:y", "host", None),
        ("//", "", None),
        ("", "", None),
        ("mailto:a@b", "", None),
        ("//b\u00fccher.example", "b\u00fccher.example", None),
    ],
)
def test_a_host_is_read_without_brackets_and_user(text: str, host: str, port: int | None) -> None:
    found = split_url(text)
    assert found is not None
    assert (found.host, found.port) == (host, port)
