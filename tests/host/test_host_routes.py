"""Source addresses by route lookup."""

from __future__ import annotations

import errno

import pytest

from ulnet.host import HostError, source_address_for


@pytest.mark.parametrize(
    ("to", "source"), [("127.0.0.1", "127.0.0.1"), ("127.3.2.1", "127.0.0.1"), ("::1", "::1")]
)
def test_loopback_is_reached_from_loopback(to: str, source: str) -> None:
    assert source_address_for(to) == source


@pytest.mark.parametrize("text", ["", "banana", "300.1.1.1", "10.0.0.1@tcp"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(HostError, match="not an IP address") as refused:
        source_address_for(text)
    assert refused.value.errno == errno.EINVAL


def test_an_address_without_route_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "unreachable")

    monkeypatch.setattr("ulnet.host.routes.socket.connect", unreachable)
    with pytest.raises(HostError, match=r"no route to 192\.0\.2\.77 .*ip route get 192\.0\.2\.77") as refused:
        source_address_for("192.0.2.77")
    assert refused.value.errno == errno.ENETUNREACH
