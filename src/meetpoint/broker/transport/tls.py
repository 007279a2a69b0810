"""TLS 1.3 on a broker's one port, and the check of the broker at the other end.

A broker has a certificate of the network's authority, which names the network and the broker. Its id follows from its
name, so a peer that says it is a broker must have a certificate for just that name: another id is a forged one. Both
ends check: the one that was dialled, and the dialler, also before it joins. Clients need no certificate.

TLS runs inside of `Connection` (`TlsPipe` turns bytes into bytes) and not in the event loop's transport, for three
reasons: a handshake that fails is reported with its reason and counted; a peer without TLS gets an answer that it can
read; and certificates are read anew (`TlsPolicy.reload`) for connections to come, while open ones stay. Nothing is
resumed: every connection shows its certificate, so that a revoked one is good for none.
"""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from meetpoint.api.codec import WireError
from meetpoint.api.ids import NodeId
from meetpoint.broker.config import BrokerConfig, BrokerError

if TYPE_CHECKING:  # `cryptography` is imported where there is TLS
    from meetpoint.security.certificates import BrokerIdentity

__all__ = ["TLS_FIRST_BYTE", "Credentials", "TlsError", "TlsPipe", "TlsPolicy", "WhyNot", "load_own", "serving_context"]

TLS_FIRST_BYTE: Final = 0x16
"""The first byte of TLS; a frame before the handshake begins with a zero, as it is short."""
READ_BYTES: Final = 1 << 18


class TlsError(WireError):
    """A failure of TLS, or its absence; `refusal` is the kind that it is counted under."""

    def __init__(self, refusal: str, problem: str) -> None:
        super().__init__("malformed", problem)
        self.refusal = refusal


class WhyNot(NamedTuple):
    """The kind of a refusal, and why a broker is not believed."""

    kind: str
    reason: str


class TlsPipe:
    """The TLS of one connection: bytes from the socket in, plain bytes out; and the other way."""

    def __init__(self, context: ssl.SSLContext, server_side: bool) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side)
        self.is_server = server_side
        self.is_ready = False
        """Whether the handshake is over."""
        self.has_ended = False
        """Whether the other side has said that nothing more comes."""
        self._is_broken = False

    def begin(self) -> bytes:
        """Return the dialler's first bytes."""
        self._shake()
        return self.pending()

    def feed(self, data: bytes) -> bytes:
        """Take received bytes, and return the plain bytes, perhaps none; raise TlsError where TLS fails."""
        self._in.write(data)
        if not self.is_ready:
            self._shake()
        if not self.is_ready:
            return b""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(READ_BYTES):
                pieces.append(piece)
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._problem(error) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def wrap(self, data: bytes) -> bytes:
        """Return the bytes to send for plain bytes."""
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
        return self._out.read()

    def pending(self) -> bytes:
        """Return the bytes that TLS itself has to send: its handshake, or why it fails."""
        return self._out.read()

    def goodbye(self) -> bytes:
        """Return the last bytes to send, which say that nothing was cut off."""
        if self.can_send:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
        return self._out.read()

    @property
    def can_send(self) -> bool:
        """Whether plain bytes can be sent: the handshake is over, and nothing has failed since."""
        return self.is_ready and not self._is_broken

    @property
    def certificate(self) -> bytes | None:
        """The other side's certificate, DER, checked against the authority; None of a client."""
        return self._tls.getpeercert(binary_form=True)

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._problem(error) from None
        self.is_ready = True

    def _problem(self, error: ssl.SSLError) -> TlsError:
        self._is_broken = True
        if isinstance(error, ssl.SSLCertVerificationError):
            return TlsError(
                "certificate",
                f"the certificate of the other side is not accepted: {error.verify_message}; "
                "both sides need one of the network's authority that is valid now (tls.certificate, tls.ca)",
            )
        words = _reason(error)
        if "alert" in words:
            said = words.partition("alert ")[2] or words
            return TlsError("tls", f"the other side does not accept this side's TLS or certificate: {said}")
        if "wrong version number" in words:
            return TlsError("tls", "the other side does not speak TLS; give it a certificate too ([tls])")
        if "unsupported protocol" in words:
            return TlsError("tls", "the other side speaks no TLS 1.3; update it")
        return TlsError("tls", f"TLS failed: {words}")


class Credentials:
    """The files of [tls] as read at one moment: the own certificate, and the authority."""

    def __init__(self, config: BrokerConfig) -> None:
        from meetpoint.security.certificates import read_certificate, read_revoked

        tls = config.tls
        assert tls.certificate is not None, "the configuration has seen to it"
        assert tls.ca is not None, "the configuration has seen to it"
        own = read_certificate(tls.certificate)
        if own.identity is None:
            raise BrokerError(f"tls.certificate {tls.certificate}: is no broker's; have one issued: meetpoint ca issue")
        if (problem := own.why_not_now(time.time())) is not None:
            raise BrokerError(f"tls.certificate {tls.certificate}: {problem}; have another issued: meetpoint ca issue")
        self.identity: BrokerIdentity = own.identity
        self.expires = own.ends.timestamp()
        """The end of the broker's certificate, in seconds since 1970."""
        self.hosts = frozenset(own.addresses)
        """The hosts where the certificate says that clients reach the broker."""
        self.revoked = frozenset() if tls.revoked is None else read_revoked(tls.revoked, tls.ca)
        self.accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.accepting.verify_mode = ssl.CERT_OPTIONAL
        self.accepting.num_tickets = 0
        self.dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.dialling.check_hostname = False  # a broker is known by its name, wherever it is
        for context in (self.accepting, self.dialling):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            load_own(context, config)
            try:
                context.load_verify_locations(cafile=tls.ca)
            except (OSError, ssl.SSLError) as error:
                raise BrokerError(
                    f"tls.ca {tls.ca}: {_reason(error)}; give the authority's certificate, in PEM"
                ) from None


def serving_context(config: BrokerConfig) -> ssl.SSLContext:
    """Return a context for HTTPS, with the broker's certificate, that asks for no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_own(context, config)
    return context


def load_own(context: ssl.SSLContext, config: BrokerConfig) -> None:
    """Load the broker's certificate into a context."""
    certificate, key = config.tls.certificate, config.tls.key
    assert certificate is not None
    try:
        context.load_cert_chain(certificate, key, password=b"")
    except (OSError, ssl.SSLError) as error:
        raise BrokerError(
            f"tls.certificate {certificate} and tls.key {key}: cannot be used together: {_reason(error)}; "
            "have both issued, in PEM and without a password: meetpoint ca issue"
        ) from None


class TlsPolicy:
    """The broker's certificate, and the check of others'; without [tls] there is no check."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._hash = config.network_config().ring.hash
        self._credentials = Credentials(config) if config.has_tls else None

    @property
    def identity(self) -> BrokerIdentity | None:
        """The identity in this broker's own certificate."""
        return None if self._credentials is None else self._credentials.identity

    @property
    def expires(self) -> float:
        """The end of this broker's own certificate, in seconds since 1970; 0 where there is none."""
        return 0.0 if self._credentials is None else self._credentials.expires

    def names(self, host: str) -> bool:
        """Return whether clients that reach this broker at a host find it in its certificate."""
        return self._credentials is None or host.lower() in self._credentials.hosts

    def check_name(self, name: str) -> None:
        """Raise BrokerError unless the broker is called as its certificate says."""
        identity, config = self.identity, self._config
        if identity is not None and (identity.name, identity.network) != (name, config.network):
            raise BrokerError(
                f"tls.certificate {config.tls.certificate}: is for the {identity}, and this is broker {name} of "
                f"network {config.network}; set name and network so, or have another issued: meetpoint ca issue"
            )

    def reload(self) -> None:
        """Read the files again, for connections to come; where that fails (MeetpointError), nothing changes."""
        if self._credentials is None:
            return
        found = Credentials(self._config)
        if found.identity != self._credentials.identity:
            raise BrokerError(
                f"tls.certificate {self._config.tls.certificate}: is for the {found.identity} now, and this is the "
                f"{self._credentials.identity}; have one issued for it: meetpoint ca issue"
            )
        self._credentials = found

    def accept(self) -> TlsPipe | None:
        """Return the TLS of an accepted connection; None without [tls]."""
        return None if self._credentials is None else TlsPipe(self._credentials.accepting, server_side=True)

    def dial(self) -> TlsPipe | None:
        """Return the TLS of a dialled connection; None without [tls]."""
        return None if self._credentials is None else TlsPipe(self._credentials.dialling, server_side=False)

    def why_not(self, certificate: bytes | None, id_: NodeId | None) -> WhyNot | None:
        """Return why a certificate is not that of the broker with an id, or of any broker."""
        if self._credentials is None:
            return None
        from meetpoint.security.certificates import CertificateError, certificate_of

        if certificate is None:
            return WhyNot("certificate", "a broker needs a certificate of the network's authority; set its [tls]")
        try:
            found = certificate_of(certificate)
        except CertificateError as error:
            return WhyNot("certificate", str(error))
        identity = found.identity
        if identity is None:
            return WhyNot("certificate", "the certificate is no broker's; have one issued: meetpoint ca issue")
        if identity.network != self._config.network:
            return WhyNot("certificate", f"the certificate is for the {identity}, not of {self._config.network}")
        if found.serial in self._credentials.revoked:
            return WhyNot("certificate", f"the certificate for the {identity} was revoked; have another issued")
        if id_ is not None and self._hash(identity.name.encode()) != id_:
            return WhyNot("identity", f"the certificate is for the {identity}, and the id is another broker's")
        return None


def _reason(error: OSError) -> str:
    """Return an error's reason without OpenSSL's names of source locations."""
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (reason or str(error)).lower().replace("_", " ")
