"""`ulnet pki`: a small authority of a site, and the certificates of its nodes (library cryptography)."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ulnet.cli.extras import how_to_add
from ulnet.cli.files import write_files
from ulnet.cli.output import of_output
from ulnet.cli.parsers import command_parser
from ulnet.lnd.tcp.certificate import MOST_NAMES, REVOKED, Certificate, RevokedList, certificate_in
from ulnet.nid import Nid, NidError, NidList

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["main", "make_authority", "make_node", "parser", "revoke"]

_EXAMPLES = """\
example:
  ulnet pki ca /root/site-ca
  ulnet pki node --ca /root/site-ca --out node7 10.0.0.7@tcp 10.1.0.7@tcp1
  ulnet pki show /etc/ulnet/pki
  ulnet pki revoke --ca /root/site-ca /root/site-ca/issued/5f3a9c.pem

`ca` makes the authority: ca.pem goes to all nodes, ca.key stays where it is. `node` makes ca.pem, node.pem
and node.key, which lnetd reads from the directory --credentials, and again when they change; NIDs may be
patterns (10.0.0.[1-8]@tcp). `show` tells whom certificates are for, until when, and which are revoked, and
what is in a list of those. `revoke` makes revoked.pem, a certificate revocation list (CRL): copy it to the
directories of all nodes. It names other certificates for the same NIDs that are good: who is to be shut out
may have these, too. The certificates that were made are in the directory issued of the authority.
Exit status: 0 done, 1 not done (of show: it is revoked, has expired, or will
within --warn days), 2 usage.
"""
_ISSUED = "issued"  # directory of an authority: the certificates that it has made
_SKEW = timedelta(hours=1)  # clocks of nodes differ
_DAY = 86400.0
_PATIENCE = 1.0  # seconds until it is told that somebody else is writing


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet pki --help`."""
    options = parser().parse_args(argv)
    try:
        status: int = options.run(options)
        return status
    except ImportError:
        print(f"ulnet pki: it takes the library cryptography: {how_to_add('pki')}", file=sys.stderr)
    except (OSError, ValueError) as failed:
        if isinstance(failed, OSError) and of_output(failed):
            raise
        _complain(failed)
    return 1


def _complain(failed: OSError | ValueError) -> None:
    text = str(failed)
    if isinstance(failed, OSError) and failed.filename is not None:
        text = f"{failed.filename}: {failed.strerror}"
    print(f"ulnet pki: {text}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet pki", "Certificates for secured connections between nodes.", _EXAMPLES)
    kinds = words.add_subparsers(required=True, metavar="ca | node | show | revoke")
    ca = kinds.add_parser("ca", help="make an authority")
    ca.add_argument("directory", help="where ca.pem and ca.key go; there must be none")
    ca.add_argument("--name", default="LNet", help="its name (LNet)")
    ca.add_argument("--days", type=_days, default=3650, metavar="N", help="how long it is good (3650)")
    ca.set_defaults(run=_ca)
    node = kinds.add_parser("node", help="make the certificate of a node, or a new one in its place")
    node.add_argument("nid", nargs="+", help="the NIDs that it may use")
    node.add_argument("--ca", required=True, metavar="DIR", help="where ca.pem and ca.key are")
    node.add_argument("--out", required=True, metavar="DIR", help="where ca.pem, node.pem and node.key go")
    node.add_argument("--name", help="its name (that of the first NID)")
    node.add_argument("--days", type=_days, default=365, metavar="N", help="how long it is good (365)")
    node.set_defaults(run=_node)
    show = kinds.add_parser("show", help="tell whom a certificate is for, and until when")
    show.add_argument("path", nargs="+", type=Path, help="a certificate, or the directory with node.pem")
    show.add_argument(
        "--warn", type=_days, default=0, metavar="N", help="exit status 1 N days before its end"
    )
    show.add_argument("--json", action="store_true", help="as a JSON object")
    show.set_defaults(run=_show)
    bad = kinds.add_parser("revoke", help="add certificates to the revocation list of DIR, revoked.pem")
    bad.add_argument("path", nargs="+", type=Path, help="a certificate, or the directory with node.pem")
    bad.add_argument("--ca", required=True, metavar="DIR", help="where ca.pem and ca.key are")
    bad.set_defaults(run=_revoke)
    return words


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 36500:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days: give 0 to 36500")
    return int(text)


def _ca(options: argparse.Namespace) -> int:
    make_authority(Path(options.directory), options.name, options.days)
    print(f"{options.directory}: ca.pem is for all nodes, ca.key for nobody but this place")
    return 0


def _node(options: argparse.Namespace) -> int:
    out = Path(options.out)
    make_node(Path(options.ca), out, options.nid, options.name, options.days)
    print(f"{out}: {_sentence(certificate_in(out / 'node.pem'))}")
    return 0


def _show(options: argparse.Namespace) -> int:
    status = 0
    for path in options.path:
        try:
            if path.name == REVOKED:
                _show_list(path, options.json)
                continue
            place = _certificate_at(path)
            one = certificate_in(place)
            revoked = _is_revoked(place, one)
        except (OSError, ValueError) as failed:  # the others are shown
            _complain(failed)
            status = 1
            continue
        if revoked or _days_left(one) <= options.warn:
            status = 1
        if options.json:
            told = {
                "name": one.name,
                "nids": list(map(str, one.nids)),
                "no_nids": list(one.odd),
                "expires": one.expires,
                "days": _days_left(one),
                "revoked": revoked,
            }
            print(json.dumps(told))
        else:
            print(f"{path}: {_sentence(one)}{'; revoked' if revoked else ''}")
    return status


def _show_list(path: Path, as_json: bool) -> None:
    """Which certificates are in a list. Raises OSError, ValueError."""
    path.stat()  # one that is not there would be an empty one
    for one in sorted(_list_in(path), key=lambda one: one.revocation_date_utc):
        since = one.revocation_date_utc
        if as_json:
            print(json.dumps({"serial": f"{one.serial_number:x}", "revoked_at": since.timestamp()}))
        else:
            print(f"{path}: {one.serial_number:x} since {since:%Y-%m-%d %H:%M} UTC")


def _is_revoked(path: Path, certificate: Certificate) -> bool:
    """Whether the list of its authority, or that beside it, has a certificate. Raises OSError, ValueError."""
    folder = path.absolute().parent
    listed = (folder.parent if folder.name == _ISSUED else folder) / REVOKED
    return listed.exists() and _revoked_in(listed).has(certificate)


def _revoked_in(path: Path) -> RevokedList:
    """The list in a file, without the library that makes one. Raises OSError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLError):
        context.load_verify_locations(cafile=path)
    if not context.cert_store_stats()["crl"]:
        raise ValueError(_no_list(path))
    return RevokedList(path.read_bytes())


def _no_list(path: Path) -> str:
    return f"{path} is no list of revoked certificates: bring it back, or begin anew without it"


def _revoke(options: argparse.Namespace) -> int:
    authority = Path(options.ca)
    places = [_certificate_at(path) for path in options.path]
    count = revoke(authority, places)
    print(f"{authority / REVOKED}: {count} revoked in all: copy it to the directories of all nodes")
    for path, nids in _others_of(authority, places):
        told = f"{path} is good as well, and for {', '.join(nids)}"
        print(f"{told}: to shut that node out, revoke it, too")
    return 0


def _others_of(authority: Path, places: list[Path]) -> Iterator[tuple[Path, list[str]]]:
    """Certificates that are good still and for NIDs of those, with these. Raises OSError, ValueError."""
    gone = [certificate_in(place) for place in places]
    revoked = _revoked_in(authority / REVOKED)
    for path in sorted((authority / _ISSUED).glob("*.pem")):
        try:
            one = certificate_in(path)
        except (OSError, ValueError) as failed:  # the others are told
            _complain(failed)
            continue
        if revoked.has(one) or _days_left(one) <= 0:
            continue
        nids = {text for other in gone for text in _common(one, other)}
        if nids:
            yield path, sorted(nids)


def _common(one: Certificate, other: Certificate) -> Iterator[str]:
    """NIDs that both are for, and patterns of one for some of which the other is by a pattern."""
    patterns = [nids for nids in other.nids if _nid_or_none(nids) is None]
    for nids in one.nids:
        nid = _nid_or_none(nids)
        if other.covers(nid) if nid is not None else any(map(nids.overlaps, patterns)):
            yield str(nids)
    for nids in other.nids:
        nid = _nid_or_none(nids)
        if nid is not None and one.covers(nid):
            yield str(nids)


def _nid_or_none(nids: NidList) -> Nid | None:
    """The NID; None for a pattern."""
    try:
        return Nid.parse(str(nids))
    except NidError:
        return None


def _certificate_at(path: Path) -> Path:
    return path / "node.pem" if path.is_dir() else path


def _days_left(found: Certificate) -> float:
    return (found.expires - time.time()) / _DAY


def _sentence(found: Certificate) -> str:
    left = _days_left(found)
    until = datetime.fromtimestamp(found.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
    when = f"good until {until}, for {left:.0f} days" if left > 0 else f"not good since {until}"
    return f"{found.name}: {', '.join(map(str, found.nids)) or 'no NIDs'}; {when}{found.hint}"


def make_authority(directory: Path, name: str = "LNet", days: int = 3650) -> None:
    """An authority in a directory that has none. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone_in(directory):
        _make_authority(directory, name, days)


def _make_authority(directory: Path, name: str, days: int) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    if (directory / "ca.key").exists():
        text = f"{directory} has an authority already, which its nodes know: name another one"
        raise FileExistsError(text)
    key = _new_key()
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write((directory / "ca.key", _private(key), 0o600), (directory / "ca.pem", _public(certificate), 0o644))


def make_node(authority: Path, out: Path, nids: list[str], name: str | None = None, days: int = 365) -> None:
    """The files of a node whose certificate is good for these NIDs. Raises OSError, ValueError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if len(nids) > MOST_NAMES:
        text = (
            f"{len(nids)} NIDs are more than the {MOST_NAMES} that count: write patterns (10.0.0.[1-8]@tcp)"
        )
        raise ValueError(text)
    for nid in nids:
        try:
            NidList.parse(nid)
        except NidError as bad:
            raise ValueError(str(bad)) from None
    issuer, issuing = _authority_in(authority)
    key = _new_key()
    names = [x509.UniformResourceIdentifier(f"lnet:{nid}") for nid in nids]
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_name(name or nids[0]), issuer.subject, key, days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(issuing, hashes.SHA256())
    )
    issued = authority / _ISSUED
    for directory in (issued, out):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone_in(authority):
        # First: who wants to revoke it must have it.
        _write((issued / f"{certificate.serial_number:x}.pem", _public(certificate), 0o644))
        _write(  # a node may read them at any moment, and a key fits one certificate
            (out / "ca.pem", _public(issuer), 0o644),
            (out / "node.key", _private(key), 0o600),
            (out / "node.pem", _public(certificate), 0o644),
        )


def revoke(authority: Path, certificates: list[Path]) -> int:
    """Add certificates to the authority's list of those that are good no more: how many it has then.

    The list is good as long as the authority is. Who else revokes at the same time does so before, or after.
    Raises OSError, ValueError.
    """
    issuer, issuing = _authority_in(authority)
    with _alone_in(authority):
        return _add_to_list(authority / REVOKED, issuer, issuing, certificates)


def _add_to_list(
    place: Path, issuer: x509.Certificate, issuing: EllipticCurvePrivateKey, certificates: list[Path]
) -> int:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization

    now = datetime.now(UTC)
    revoked = {one.serial_number: one for one in _list_in(place)}
    for path in certificates:
        certificate = _certificate_in(path)
        try:
            certificate.verify_directly_issued_by(issuer)
        except (InvalidSignature, TypeError, ValueError):
            raise ValueError(f"{path} is of another authority than {place.parent}: name that") from None
        if certificate == issuer:
            text = f"{path} is the authority's own: make another one, and new certificates for all nodes"
            raise ValueError(text)
        number = certificate.serial_number
        if number <= 0:
            raise ValueError(
                f"{path} has the serial number {number}, which no list that ulnet makes may have: "
                "make the list with `openssl ca -revoke` and `-gencrl`"
            )
        one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
        revoked.setdefault(number, one)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - _SKEW)
        .next_update(issuer.not_valid_after_utc)
    )
    for one in revoked.values():
        builder = builder.add_revoked_certificate(one)
    signed = builder.sign(issuing, hashes.SHA256())
    _write((place, signed.public_bytes(serialization.Encoding.PEM), 0o644))
    return len(revoked)


@contextmanager
def _alone_in(authority: Path) -> Iterator[None]:
    """Commands that write to an authority's directory at the same time do so one after the other.

    Raises OSError.
    """
    descriptor = os.open(authority, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        tell_at = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > tell_at:
                    tell_at = float("inf")
                    text = f"ulnet pki: waits for another command that writes to {authority}"
                    print(text, file=sys.stderr, flush=True)
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _authority_in(directory: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    """Its certificate and key. Raises OSError, ValueError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    issuer = _certificate_in(directory / "ca.pem")
    path = directory / "ca.key"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except TypeError:
        text = f"{path} is encrypted: decrypt it by `openssl pkey -in {path} -out FILE`"
        raise ValueError(text) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        text = f"{path} is no key of an authority: name a directory of `ulnet pki ca`"
        raise ValueError(text)
    return issuer, key


def _certificate_in(path: Path) -> x509.Certificate:
    from cryptography import x509

    data = path.read_bytes()
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ValueError(
            f"{path}: it has no certificate in PEM form"
        ) from None  # as `certificate_in` says it


def _list_in(path: Path) -> list[x509.RevokedCertificate]:
    """Of the certificates that are revoked so far."""
    from cryptography import x509

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    try:
        return list(x509.load_pem_x509_crl(data))
    except ValueError:
        raise ValueError(_no_list(path)) from None


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _private(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(*files: tuple[Path, bytes, int]) -> None:
    try:
        write_files(*files)
    except OSError as failed:
        text = f"{failed.filename} cannot be written: {failed.strerror}"
        raise OSError(text) from None
