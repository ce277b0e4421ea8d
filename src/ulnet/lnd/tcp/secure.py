"""Secured connections: TLS 1.3 between nodes that have certificates, under request, HELLO and messages.

Who calls begins with TLS at once: kernel nodes, which do not
know it, hang up; where the net only offers it, they are called anew without.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Final

from ulnet.core.status import LNetError
from ulnet.lnd.forks import of_this_process
from ulnet.lnd.tcp.alerts import words_of
from ulnet.lnd.tcp.certificate import (
    REVOKED,
    Certificate,
    KnownCertificates,
    RevokedList,
    certificate_in,
)
from ulnet.lnd.tcp.secure_socket import MOST_PIECE, SecureSocket
from ulnet.nid import Nid

__all__ = ["FIRST_BYTE", "Credentials", "Security"]

FIRST_BYTE: Final = b"\x16"  # of a TLS record with a handshake; requests of any byte order begin otherwise
_FILES: Final = ("ca.pem", "node.pem", "node.key")
_MOST: Final = 1 << 18  # bytes of each of those: OpenSSL takes seconds for more
_MOST_REVOKED: Final = 4 << 20
# What OpenSSL says of a certificate where the list is at fault: there is none of its authority, the signature
# is another's, it is not good yet, or not any more (X509_V_ERR_…).
_BAD_LIST: Final = frozenset({3, 5, 8, 11, 12, 15, 16, 33})
# The one group of the key exchange: for those that OpenSSL offers beside it (ffdhe8192) a hello takes 0.2 s.
_CURVE: Final = "prime256v1"
_LOOK_AGAIN: Final = 1.0  # seconds between looks whether the files are others


class Security(IntEnum):
    """What a net wants of its connections (tunable `security`)."""

    OFF = 0
    OFFER = 1  # secured with whoever can, plain with others
    REQUIRE = 2


class Credentials:
    """A node's certificate and key, the authority that it trusts, and the certificates that this has revoked.

    Those are files of a directory; of the revoked ones there need not be a list.

    They are read anew when they have changed, for connections that are made from then on. What is of no use
    then is told, and what there was stays: what cannot be read, is too long, has expired, or is not for all
    NIDs that are `needed`. Where the list is another then, `revised` is set, for connections that were made
    before.

    Raises LNetError where there is nothing to begin with.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_known",
        "_looked",
        "_missing",
        "_report",
        "_scratch",
        "_stamp",
        "caller",
        "listener",
        "needed",
        "own",
        "revised",
        "revoked",
    )

    def __init__(self, directory: str, clock: Callable[[], float], report: Callable[[str], None]) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._report = report
        self.needed: set[Nid] = set()  # of our NIs that have secured connections
        self._missing: set[Nid] = set()  # those of them that the certificate in the files is not for
        self._looked = clock()
        self._scratch = memoryview(bytearray(MOST_PIECE))  # that all connections share
        self._known = KnownCertificates()
        self._stamp = self._stamps()
        self.revised: bool = False  # whoever ends connections for it takes it back
        self.revoked: RevokedList | None
        self.own, self.listener, self.caller, self.revoked = self._load()
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
        for name in (*_FILES, REVOKED):
            try:
                found = os.stat(self._directory / name)
            except OSError:
                continue
            # Times move a few ms at once. The last one tells that others may read it, too.
            stamps += [found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns]
        return tuple(stamps)

    def _load(self) -> tuple[Certificate, ssl.SSLContext, ssl.SSLContext, RevokedList | None]:
        authority, certificate, key = [str(self._directory / name) for name in _FILES]
        contexts = []
        try:
            self._look_at_files()
            own = certificate_in(certificate)
            revoked = self._list_of_revoked()
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
                context = ssl.SSLContext(protocol)
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.check_hostname = False  # its NIDs are looked at instead
                context.verify_mode = ssl.CERT_REQUIRED
                context.set_ecdh_curve(_CURVE)
                _trust(context, authority)
                self._load_own(context, certificate, key)
                if revoked is not None:
                    self._refuse_revoked(context)
                contexts.append(context)
            contexts[0].num_tickets = 0
            if revoked is not None:
                self._try_list(contexts[0], contexts[1])
        except (OSError, ValueError) as error:
            why = _why(error)
            text = (
                f"{self._directory} is of no use for secured connections: {why}; they take "
                f"{', '.join(_FILES)}, as `ulnet pki` makes them"
            )
            raise LNetError(getattr(error, "errno", None) or errno.EINVAL, text) from None
        return own, contexts[0], contexts[1], revoked

    def _look_at_files(self) -> None:
        """Opening a pipe would hold up the loop, and so would reading a file without end. Raises OSError."""
        for name, most in (*((name, _MOST) for name in _FILES), (REVOKED, _MOST_REVOKED)):
            path = self._directory / name
            try:
                found = os.stat(path)
            except FileNotFoundError:
                if name in _FILES:
                    raise OSError(errno.ENOENT, f"there is no {path}") from None
                continue
            if not stat.S_ISREG(found.st_mode):
                text = f"{path} is no regular file"
                raise OSError(errno.EINVAL, text)
            if found.st_size > most:
                text = f"{path} has more than {most >> 10} KiB"
                raise OSError(errno.EFBIG, text)

    def _load_own(self, context: ssl.SSLContext, certificate: str, key: str) -> None:
        """Load this node's certificate and key. Raises OSError: the words of OpenSSL name neither file."""
        try:
            context.load_cert_chain(certificate, key, self._no_pass_phrase)
        except ssl.SSLError as error:
            reason = getattr(error, "reason", None)  # which its type says is a text
            text = f"{certificate} with {key}: {words_of(error)}"
            if reason == "KEY_VALUES_MISMATCH":
                text = f"{key} is not the key of {certificate}"
            elif not reason:  # "PEM lib"
                text = f"{key} has no private key in PEM form, or {certificate} a part that is no certificate"
            raise OSError(errno.EINVAL, text) from None

    def _no_pass_phrase(self) -> str:
        """Without this OpenSSL would ask for it on the terminal. Raises OSError."""
        key = self._directory / _FILES[2]
        text = (
            f"{key} is encrypted, and nobody is asked for its pass phrase: decrypt it by "
            f"`openssl pkey -in {key} -out FILE`, or make another by `ulnet pki node`"
        )
        raise OSError(errno.EINVAL, text)

    def _list_of_revoked(self) -> RevokedList | None:
        try:
            return RevokedList((self._directory / REVOKED).read_bytes())
        except FileNotFoundError:
            return None

    def _refuse_revoked(self, context: ssl.SSLContext) -> None:
        """Refuse the certificates of that list. Raises OSError."""
        path = self._directory / REVOKED
        with suppress(ssl.SSLError):  # its words name neither the file nor what is wrong with it
            context.load_verify_locations(cafile=str(path))
        if not context.cert_store_stats()["crl"]:
            text = f"{path} has no list of revoked certificates in PEM form: copy that of the authority again"
            raise OSError(errno.EINVAL, text)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def _try_list(self, listener: ssl.SSLContext, caller: ssl.SSLContext) -> None:
        """Have our own certificate verified with the list of its authority. Raises OSError."""
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = caller.wrap_bio(back, there), listener.wrap_bio(there, back, server_side=True)
        for end in ends * 2:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code in _BAD_LIST:
                    text = f"{self._directory / REVOKED} is of no use for our certificate: "
                    why = f"{error.verify_message}: copy that of its authority"
                    raise OSError(errno.EINVAL, text + why) from None
                return

    def _use_list(self, revoked: RevokedList | None) -> None:
        """A list is there with a certificate that is of no use: the former one is used with that list."""
        if revoked is not None and (self.revoked is None or revoked.pem != self.revoked.pem):
            for context in (self.listener, self.caller):
                self._refuse_revoked(context)
            self.revoked, self.revised = revoked, True

    def is_revoked(self, certificate: Certificate) -> bool:
        """Whether a certificate is in the list, which may be younger than a connection."""
        return self.revoked is not None and self.revoked.has(certificate)

    def secure(self, sock: socket.socket, *, listening: bool = False) -> SecureSocket:
        """TLS on a connection that is called, or where `listening` was: the handshake is to follow."""
        context = self.listener if listening else self.caller
        scratch, known = self._scratch, self._known
        secured = SecureSocket(sock, context, listening=listening, scratch=scratch, known=known)
        of_this_process(secured)
        return secured

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
            own, listener, caller, revoked = self._load()
        except LNetError as failed:
            self._report(f"{failed.text}; those read before stay in use")
            return
        until = datetime.fromtimestamp(own.expires, UTC)
        if until <= datetime.now(UTC):
            text = f"the new certificate of {self._directory} has expired on {until:%Y-%m-%d}"
            self._report(f"{text}: that read before stays in use")
            self._use_list(revoked)
            return
        self._missing = {nid for nid in self.needed if not own.covers(nid)}
        if self._missing:
            names = ", ".join(map(str, sorted(self._missing)))
            text = f"the new certificate of {self._directory} is not for {names}"
            self._report(
                f"{text}: that read before stays in use; make one with `ulnet pki` for all of these, too"
            )
            self._use_list(revoked)
            return
        self.own, self.listener, self.caller = own, listener, caller
        self._report(f"the certificate of {self._directory} was read anew: it is good until {until:%Y-%m-%d}")
        before, self.revoked = self.revoked, revoked
        if revoked is None and before is not None:
            self._report(f"there is no list of revoked certificates in {self._directory} any more")
        elif revoked is not None and (before is None or before.pem != revoked.pem):
            self.revised = True
        self._look_at_key()


def _trust(context: ssl.SSLContext, authority: str) -> None:
    """Verify certificates by that authority. Raises OSError."""
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError:
        raise OSError(errno.EINVAL, f"{authority} has no certificate in PEM form") from None


def _why(error: Exception) -> str:
    """What an error means, and of which file."""
    if isinstance(error, ssl.SSLError):
        return words_of(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return str(error)
