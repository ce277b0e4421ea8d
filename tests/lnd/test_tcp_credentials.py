"""Files of credentials that cannot be used: they are told, hold nobody up, and the former ones stay."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ulnet.cli import lnetd_daemon
from ulnet.cli.pki import make_authority, make_node, revoke
from ulnet.core.status import LNetError
from ulnet.lnd.tcp.secure import Credentials

NAMES = ["ca.pem", "node.pem", "node.key", "revoked.pem"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The credentials of a node, with a list of revoked certificates."""
    make_authority(tmp_path / "ca", "site")
    for nid in ("10.0.0.1@tcp", "10.0.0.2@tcp"):
        make_node(tmp_path / "ca", tmp_path / nid, [nid])
    revoke(tmp_path / "ca", [tmp_path / "10.0.0.2@tcp" / "node.pem"])
    place = tmp_path / "10.0.0.1@tcp"
    (place / "revoked.pem").write_bytes((tmp_path / "ca" / "revoked.pem").read_bytes())
    return place


class Used:
    """Credentials in use, whose files change."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.reports: list[str] = []
        self.credentials = Credentials(str(place), lambda: 0.0, self.reports.append)
        self.before = self._state()

    def _state(self) -> list[object]:
        used = self.credentials
        return [used.own, used.listener, used.caller, used.revoked]

    def look(self) -> str:
        """What is told of files that are of no use: the former stay, and nobody begins with them."""
        self.credentials.look()
        assert self._state() == self.before
        assert not self.credentials.revised
        (line,) = self.reports
        assert line.endswith("; those read before stay in use")
        with pytest.raises(LNetError) as failed:
            Credentials(str(self.place), lambda: 0.0, self.reports.append)
        assert line.startswith(failed.value.text)
        return line


def test_files_that_may_be_read_by_now_are_read(place: Path) -> None:
    """They come as root's, with the times that they had, and are given to the daemon's user then."""
    used = Used(place)
    path = place / "node.key"
    stamp = used.credentials._stamps()
    path.chmod(0o640)
    assert used.credentials._stamps() != stamp


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_nobody_is_asked_for_the_pass_phrase_of_a_key(place: Path, form: PrivateFormat) -> None:
    used = Used(place)
    path = place / "node.key"
    key = load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))
    line = used.look()
    assert f"{path} is encrypted" in line
    assert f"openssl pkey -in {path} -out" in line
    assert "ulnet pki node" in line


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_regular_file_is_not_opened(place: Path, name: str, kind: str) -> None:
    used = Used(place)
    path = place / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert f"{path} is no regular file" in used.look()


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_too_long_are_not_read(place: Path, name: str) -> None:
    used = Used(place)
    path = place / name
    whole = path.read_bytes()
    path.write_bytes(whole * (1 + (4 << 20) // len(whole)))
    assert f"{path} has more than {4096 if name == 'revoked.pem' else 256} KiB" in used.look()


def test_a_symbolic_link_to_a_file_is_followed(place: Path) -> None:
    used = Used(place)
    for name in NAMES:
        (place / f"{name}.1").write_bytes((place / name).read_bytes())
        (place / name).unlink()
        (place / name).symlink_to(f"{name}.1")
    used.credentials.look()
    assert "was read anew" in used.reports[0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ca.pem", " has no certificate in PEM form"),
        ("node.pem", ": it has no certificate in PEM form"),
        ("node.key", " has no private key in PEM form"),
        ("node.key of another node", " is not the key of"),
    ],
)
@pytest.mark.parametrize("text", ["", "no certificate"])
def test_the_file_is_named_that_is_of_no_use(place: Path, name: str, why: str, text: str) -> None:
    """OpenSSL says "PEM lib", and no more."""
    used = Used(place)
    name, _, other = name.partition(" of ")
    path = place / name
    path.write_text((place.parent / "10.0.0.2@tcp" / name).read_text() if other else text)
    line = used.look()
    assert line.startswith(f"{place} is of no use for secured connections: {path}{why}")


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_file_that_is_not_there_is_named(place: Path, name: str) -> None:
    used = Used(place)
    (place / name).unlink()
    assert f": there is no {place / name}; " in used.look()


def test_a_key_that_openssl_takes_for_too_weak_is_called_that(place: Path) -> None:
    used = Used(place)
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([])
    now = datetime.now(UTC)
    weak = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    (place / "node.pem").write_bytes(weak.sign(key, SHA256()).public_bytes(Encoding.PEM))
    form = PrivateFormat.TraditionalOpenSSL
    (place / "node.key").write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    assert "ee key too small" in used.look()


def test_lnetd_warns_of_no_such_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for given in (None, str(tmp_path)):
        lnetd_daemon._look_for(given)
    assert caplog.messages == []
    lnetd_daemon._look_for(str(tmp_path / "nowhere"))
    (line,) = caplog.messages
    assert line.startswith(f"--credentials {tmp_path}/nowhere: there is no such directory now")
