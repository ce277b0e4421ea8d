"""Secured connections: TLS 1.3 between nodes that have certificates, under request, HELLO and messages.

A certificate names the NIDs that its node may use: URIs of its subject's other names, such as
`lnet:10.0.0.1@tcp` or `lnet:10.0.0.[1-8]@tcp*`. Who calls begins with TLS at once: kernel nodes, which do not
know it, hang up; where the net only offers it, they are called anew without.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from ulnet.core.status import LNetError
from ulnet.lnd.tcp.records import RecordWatch, told
from ulnet.nid import Nid, NidError, NidList

__all__ = ["FIRST_BYTE", "MOST_NAMES", "Certificate", "Credentials", "SecureSocket", "Security"]

FIRST_BYTE: Final = b"\x16"  # of a TLS record with a handshake; requests of any byte order begin otherwise
_CHUNK: Final = 65536  # bytes that are given to OpenSSL at a time: four records
_RECORD: Final = 16384  # bytes of payload in a record at most
_READS: Final = 128  # records with payload that are taken in one call; the selector tells of more
MOST_NAMES: Final = 1024  # NIDs or patterns of a certificate that are looked at
_PREFIX: Final = "lnet:"
_FILES: Final = ("ca.pem", "node.pem", "node.key")
_LOOK_AGAIN: Final = 1.0  # seconds between looks whether the files are others


class Security(IntEnum):
    """What a net wants of its connections (tunable `security`)."""

    OFF = 0
    OFFER = 1  # secured with whoever can, plain with others
    REQUIRE = 2


class Certificate(NamedTuple):
    """What a certificate says of its node."""

    name: str
    nids: tuple[NidList, ...]
    expires: float  # seconds since 1970

    def covers(self, nid: Nid) -> bool:
        """Whether the node may use that NID."""
        return any(one.match(nid) for one in self.nids)


def certificate_of(fields: dict[str, Any]) -> Certificate:
    """A certificate as Python's ssl shows it; names that are no NIDs, or too many, stand for none."""
    nids: list[NidList] = []
    for kind, text in fields.get("subjectAltName", ()):
        if kind == "URI" and text.startswith(_PREFIX) and len(nids) < MOST_NAMES:
            try:
                nids.append(NidList.parse(text[len(_PREFIX) :]))
            except NidError:
                continue
    names = [value for part in fields.get("subject", ()) for key, value in part if key == "commonName"]
    expires = ssl.cert_time_to_seconds(fields["notAfter"])
    return Certificate(names[0] if names else "", tuple(nids), float(expires))


class SecureSocket(ssl.SSLSocket):
    """A TLS connection with the manners of a plain socket that does not block.

    What is read fills all buffers as far as there is anything; "not now" is a BlockingIOError. `held` bytes
    of what was to be sent are OpenSSL's already, though not sent: the next call must begin with them.
    """

    held: int = 0
    _certificate: Certificate | None = None
    _sslobj: Any  # what Python has of OpenSSL; None: no connection, or none any more

    @cached_property
    def watch(self) -> RecordWatch:
        """What came by this connection."""
        return RecordWatch()

    def setsockopt(self, level: int, optname: int, *args: Any) -> None:
        """See socket.setsockopt; OpenSSL may hold a record of those bytes for which SO_RCVLOWAT waits."""
        if (level, optname) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT):
            args = (max(args[0] - _RECORD, 1),)
        super().setsockopt(level, optname, *args)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """See socket.recv."""
        buffer = bytearray(buflen)
        return bytes(buffer[: self.recv_into(buffer)])

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """See socket.recv_into."""
        return self._fill(memoryview(buffer), 0)

    def recvmsg_into(  # type: ignore[override]
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, Any]:
        """See socket.recvmsg_into."""
        total = 0
        for buffer in buffers:
            view = memoryview(buffer)
            count = self._fill(view, total)
            total += count
            if count < len(view):
                break
        return total, [], 0, None

    def _fill(self, view: memoryview, before: int) -> int:
        size, count = len(view), 0
        connection = self._sslobj
        if connection is None:  # Python makes such a socket of a connection that was reset, and reads once
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        read = connection.read  # a record at a time
        watch, reads = self.watch, _READS
        watch.records = 0
        try:
            while count < size and reads:
                got = read(size - count, view[count:])
                if not got:
                    watch.check()
                    break  # the end, which the next call finds again
                count += got
                reads -= 1
        except OSError as error:  # those of ssl are such, too
            watch.check()
            if isinstance(error, ssl.SSLEOFError):
                pass  # as above: it hung up without a word
            elif isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError)):
                if not count and not before:
                    raise BlockingIOError from None
            elif isinstance(error, ssl.SSLError):
                raise OSError(errno.EPROTO, _words(error)) from None
            else:
                raise
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        """See socket.send."""
        return self._put(memoryview(data), 0)

    def sendmsg(  # type: ignore[override]
        self, buffers: Iterable[Any], ancdata: Any = (), flags: int = 0, address: Any = None
    ) -> int:
        """See socket.sendmsg; OpenSSL writes records one by one, and the kernel is to join them."""
        super().setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        try:
            return self._put_all(buffers)
        finally:
            super().setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def _put_all(self, buffers: Iterable[Any]) -> int:
        total = 0
        for buffer in buffers:
            view = memoryview(buffer)
            count = self._put(view, total)
            total += count
            if count < len(view):
                break
        return total

    def _put(self, view: memoryview, before: int) -> int:
        size, count = len(view), 0
        try:
            while count < size:
                count += super().send(view[count : count + _CHUNK])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.held = min(size - count, _CHUNK)
            if not count and not before:
                raise BlockingIOError from None
            return count
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, _words(error)) from None
        self.held = 0
        return count

    def shake(self) -> str:
        """Go on with the handshake: "" when it is through, else "read" or "write". Raises OSError."""
        if self._sslobj is None:
            raise ConnectionResetError(errno.ECONNRESET, "it hung up during the TLS handshake")
        try:
            self._do_handshake()
        except ssl.SSLWantReadError:
            return "read"
        except ssl.SSLWantWriteError:
            return "write"
        except ssl.SSLCertVerificationError as error:
            raise OSError(errno.EACCES, f"its certificate is not good: {error.verify_message}") from None
        except ssl.SSLZeroReturnError:
            raise ConnectionResetError(errno.ECONNRESET, "it hung up during the TLS handshake") from None
        except ssl.SSLEOFError:
            raise ConnectionResetError(errno.ECONNRESET, "it hung up during the TLS handshake") from None
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, _words(error)) from None
        self.watch.shaken = True
        return ""

    def _do_handshake(self) -> None:
        self.watch.records = 0
        try:
            self.do_handshake()
        except OSError:
            self.watch.check()
            raise

    @property
    def certificate(self) -> Certificate:
        """The other end's, after the handshake."""
        if self._certificate is None:
            self._certificate = certificate_of(self.getpeercert() or {})
        return self._certificate


# What the other side means by an alert, by its name in OpenSSL behind "…_ALERT_".
_ALERTS: Final = {
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "CERTIFICATE_REVOKED": "our certificate is revoked there",
    "CERTIFICATE_EXPIRED": "our certificate has expired, by its clock",
    "UNKNOWN_CA": "our certificate is of an authority that it does not trust",
    "DECRYPT_ERROR": "our certificate is of an authority that it does not trust, though of the same name",
    "CERTIFICATE_REQUIRED": "it wants a certificate, and we have sent none",
    "ACCESS_DENIED": "our certificate is good, but it denies us",
    "HANDSHAKE_FAILURE": "it has no cipher in common with us",
    "INSUFFICIENT_SECURITY": "it has no cipher in common with us",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3",
}


def _words(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    alert = reason.partition("ALERT_")[2]
    if not alert:
        return f"TLS failed: {reason.replace('_', ' ').lower()}"
    name = alert.replace("_", " ").lower()
    meaning = _ALERTS.get(alert)
    return f"it ended TLS: {meaning} (alert {name!r})" if meaning else f"it ended TLS by the alert {name!r}"


class Credentials:
    """A node's certificate and key, and the authority that it trusts: three files of a directory.

    They are read anew when they have changed, for connections that are made from then on. What is of no use
    then is told, and what there was stays: what cannot be read, has expired, or is not for all NIDs that are
    `needed`. Raises LNetError where there is nothing to begin with.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_looked",
        "_missing",
        "_report",
        "_stamp",
        "caller",
        "listener",
        "needed",
        "own",
    )

    def __init__(self, directory: str, clock: Callable[[], float], report: Callable[[str], None]) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._report = report
        self.needed: set[Nid] = set()  # of our NIs that have secured connections
        self._missing: set[Nid] = set()  # those of them that the certificate in the files is not for
        self._looked = clock()
        self._stamp = self._stamps()
        self.own, self.listener, self.caller = self._load()
        self._look_at_key()

    def _look_at_key(self) -> None:
        """Whoever can read the key can be this node."""
        key = self._directory / _FILES[2]
        try:
            open_to_all = os.stat(key).st_mode & 0o007
        except OSError:
            return
        if open_to_all:
            self._report(f"{key} is open to every user here, who could be this node: chmod o-rwx {key}")

    def _stamps(self) -> tuple[int, ...]:
        stamps: list[int] = []
        for name in _FILES:
            try:
                found = os.stat(self._directory / name)
            except OSError:
                continue
            stamps += [found.st_mtime_ns, found.st_ino, found.st_size]  # times move a few ms at once
        return tuple(stamps)

    def _load(self) -> tuple[Certificate, ssl.SSLContext, ssl.SSLContext]:
        authority, certificate, key = [str(self._directory / name) for name in _FILES]
        contexts = []
        try:
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
                context = ssl.SSLContext(protocol)
                context.sslsocket_class = SecureSocket
                # What Python has around it makes enumerations of each argument.
                vars(ssl._ssl._SSLContext)["_msg_callback"].__set__(context, told)  # type: ignore[attr-defined]
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.check_hostname = False  # its NIDs are looked at instead
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cafile=authority)
                context.load_cert_chain(certificate, key)
                contexts.append(context)
            contexts[0].num_tickets = 0
            own = certificate_in(certificate)
        except (OSError, ValueError) as error:
            known = getattr(error, "strerror", None) or error
            why = _words(error) if isinstance(error, ssl.SSLError) else known
            text = (
                f"no secured connections with what is in {self._directory}: {why}; it takes "
                f"{', '.join(_FILES)}, as `ulnet pki` makes them"
            )
            raise LNetError(getattr(error, "errno", None) or errno.EINVAL, text) from None
        return own, contexts[0], contexts[1]

    def refresh(self) -> None:
        """See whether the files are others by now, unless that was seen a moment ago."""
        now = self._clock()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self.look()

    def look(self) -> None:
        """See whether the files are others by now, or are of use by now."""
        stamp = self._stamps()
        if stamp == self._stamp and self._missing <= self.needed:
            return
        self._stamp = stamp
        self._missing = set()
        try:
            own, listener, caller = self._load()
        except LNetError as failed:
            self._report(f"{failed.text}; those read before stay in use")
            return
        until = datetime.fromtimestamp(own.expires, UTC)
        if until <= datetime.now(UTC):
            text = f"the new certificate of {self._directory} has expired on {until:%Y-%m-%d}"
            self._report(f"{text}: that read before stays in use")
            return
        self._missing = {nid for nid in self.needed if not own.covers(nid)}
        if self._missing:
            names = ", ".join(map(str, sorted(self._missing)))
            text = f"the new certificate of {self._directory} is not for {names}"
            self._report(
                f"{text}: that read before stays in use; make one with `ulnet pki` for all of these, too"
            )
            return
        self.own, self.listener, self.caller = own, listener, caller
        self._report(f"the certificate of {self._directory} was read anew: it is good until {until:%Y-%m-%d}")
        self._look_at_key()


def certificate_in(path: str | os.PathLike[str]) -> Certificate:
    """The certificate in a file. Raises OSError, whose words name the file."""
    with open(path, "rb"):  # what ssl raises names neither the file nor what is wrong with it
        pass
    try:
        # ssl itself shows the fields of none but a peer's.
        fields = ssl._ssl._test_decode_cert(os.fspath(path))  # type: ignore[attr-defined]
    except ssl.SSLError:
        raise OSError(errno.EINVAL, "it has no certificate in PEM form", os.fspath(path)) from None
    return certificate_of(fields)
