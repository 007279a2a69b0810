"""The configuration of a broker: one frozen object, read from a TOML file or made in code.

Every key has a docstring and a row in docs/configuration.md. The tables here are the broker's own: limits, TLS, access,
archive, log; those of the node, of overlays and of schemes are theirs. An unknown key is refused with the
nearest known one; a mistake is one line that names the file, the key and what to write.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta

from meetpoint.api.codec import FRAME_MAX
from meetpoint.api.handshake import SPOKEN
from meetpoint.catalog import NetworkConfig, network_signature, read_scheme
from meetpoint.errors import MeetpointError, SchemaError
from meetpoint.language.schema.schema import Schema
from meetpoint.node.settings import NodeSettings
from meetpoint.overlays.chord import ChordSettings
from meetpoint.overlays.hypercube.rules import HypercubeSettings
from meetpoint.overlays.pastry.rules import PastrySettings
from meetpoint.schemes.dmm.rules import DmmSettings
from meetpoint.schemes.lists import ListsSettings
from meetpoint.schemes.meet import MeetSettings
from meetpoint.schemes.reach.scheme import ReachSettings, ids_of
from meetpoint.schemes.rebeca.settings import RebecaSettings

__all__ = [
    "Access", "Address", "Archiving", "BrokerConfig", "BrokerError", "ConfigError", "Limits", "Logging", "Tls",
    "is_loopback", "parse_address", "read_config",
]  # fmt: skip


class BrokerError(MeetpointError):
    """A broker could not be started, or could not do what it was asked; the message says what to do next."""


Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(ge=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of what a broker holds, and how long it waits, before it refuses."""

    frame_bytes: Annotated[int, Meta(ge=512 << 10, le=FRAME_MAX)] = FRAME_MAX
    """The longest frame that is read; a longer one closes the connection before anything is held for it."""
    peer_queue_bytes: Annotated[int, Meta(ge=1 << 20)] = 32 << 20
    """How many bytes wait to be sent to one other broker; what comes on top is dropped, its sender says it again."""
    client_queue_bytes: Annotated[int, Meta(ge=1 << 10)] = 8 << 20
    """How many bytes wait to be sent to one client; then what it takes once is dropped, and the rest waits its turn."""
    unsettled_events: Count = 100_000
    """How many events may be under way to their subscribers; above, no client that publishes is read from."""
    unsynced_writes: Count = 2_000
    """How many writes may wait for the disk; above, no client that publishes is read from."""
    clients: Count = 10_000
    """How many clients may be connected at one time."""
    handshakes: Count = 1_000
    """How many connections may be open at one time that have not yet said who they are; further ones are closed."""
    connections_per_client: Count = 1_000
    """How many connections one client, by its name, may have at one time."""
    subscriptions_per_client: Count = 1_000
    """How many subscriptions one client may have at one broker."""
    constraints_per_filter: Count = 64
    """How many constraints a filter may have, those of all its conjunctions together."""
    publish_per_s: Rate = 50_000.0
    """How many events a second one client may publish for long; one that is quicker is not read from for a while.
    0 sets no limit."""
    publish_burst: Count = 100_000
    """How many events one client may publish at once, however fast."""
    publish_bytes_per_s: Rate = 67_108_864.0
    """How many bytes of events a second one client may publish for long. 0 sets no limit."""
    publish_bytes_burst: Annotated[int, Meta(ge=FRAME_MAX)] = 134_217_728
    """How many bytes of events one client may publish at once, however fast."""
    requests_under_way: Count = 10_000
    """How many requests of one connection may wait for their answers; above, it is not read from."""
    handshake_s: Seconds = 5.0
    """How long a connection may take to say who it is."""
    frame_s: Seconds = 10.0
    """How long a frame may take from its first byte to its last."""
    stall_s: Seconds = 10.0
    """How long a connection may take nothing although there is something for it, before it is closed."""
    dial_s: Seconds = 2.0
    """How long another broker may take to accept a connection."""
    drain_s: Seconds = 10.0
    """How long a broker that stops waits for its last answers and its disk."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS 1.3 with certificates of one authority: how connections are encrypted, and brokers know each other."""

    certificate: str | None = None
    """The broker's certificate, PEM, as `meetpoint ca issue` makes it for its name. With one, every connection is
    TLS."""
    key: str | None = None
    """The private key of the certificate, PEM."""
    ca: str | None = None
    """The certificate of the authority that all brokers of the network have theirs from, PEM."""
    revoked: str | None = None
    """The authority's list of certificates that count no more, PEM, as `meetpoint ca revoke` writes it."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens by which clients may connect."""

    keys: str | None = None
    """The public keys that tokens are signed with, as `meetpoint token key` writes them. With them every client needs a
    token."""
    revoked: str | None = None
    """The tokens that count no more, as `meetpoint token revoke` writes them."""


class Archiving(msgspec.Struct, frozen=True, kw_only=True):
    """The archive of what this broker accepts."""

    folder: str | None = None
    """The folder for Parquet files of what was accepted, by the hour; without one there are none. Brokers of a network
    may share one."""
    flush_s: Seconds = 1.0
    """How often files are written."""
    rows: Count = 50_000
    """From how many events on files are written at once."""


class Logging(msgspec.Struct, frozen=True, kw_only=True):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""
    format: Literal["text", "json"] = "text"
    """The form of an entry: a line of text, or a JSON object."""


NAME_MAX = 200
_ANYWHERE = ("0.0.0.0", "::", "0")
_FILES = {
    "": ("data", "schema", "feedback"),
    "tls": ("certificate", "key", "ca", "revoked"),
    "access": ("keys", "revoked"),
    "archive": ("folder",),
}
"""The keys that name files, by their table."""
PORT_MAX = 65_535


class ConfigError(MeetpointError):
    """A configuration was refused; the message says which key, where, and what to write."""


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, what: str) -> Address:
    """Split `HOST:PORT`; an IPv6 host stands in brackets."""
    host, colon, port = text.strip().removeprefix("mps://").removeprefix("mp://").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address whose last part is no port
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ConfigError(f"{what}: {text!r} is no address; write HOST:PORT, as 127.0.0.1:7400 or [::1]:7400")
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one broker."""

    name: str | None = None
    """The broker's name in its network, for as long as its data lives; its place on the ring follows from it. Without
    one, the advertised address."""
    network: str = "meetpoint"
    """The network's name: brokers of another one are refused."""
    listen: str = "127.0.0.1:7400"
    """Where brokers and clients connect to. Port 0 takes any that is free."""
    advertise: str | None = None
    """The address that others are told, where it is not the one listened to."""
    join: tuple[str, ...] = ()
    """Addresses of brokers of the network. Without one, and without data, a broker begins a network of its own."""
    data: str | None = None
    """The folder for what must survive a restart; without one it is kept in memory, and survives only elsewhere."""
    scheme: str = "meet"
    """How events find subscriptions: dmm, flood, lists, meet, reach or rebeca, with options behind colons
    (`lists:hybrid:order`). The same at all brokers of a network."""
    overlay: str = "chord"
    """How brokers find each other: chord, hypercube or pastry. The same at all brokers of a network."""
    admin: str | None = "127.0.0.1:7480"
    """Where /healthz, /readyz and /metrics are served; none serves them nowhere."""
    wire_versions: tuple[int, int] = SPOKEN
    """The lowest and the highest version of the wire that is spoken."""
    feedback: str | None = None
    """A file of `meetpoint pipeline measure --feedback`: what events are like. It is loaded whenever it changes."""
    journal_lines: Annotated[int, Meta(ge=0)] = 200_000
    """How many steps of events are remembered for `meetpoint why`; 0 remembers none."""
    schema: str | None = None
    """A YAML file with attributes that the network's schema shall have."""
    insecure: bool = False
    """Whether it may listen elsewhere than on loopback although it has no certificate or asks for no tokens."""
    tls: Tls = Tls()
    """Certificates: what others know this broker by, and it knows them."""
    access: Access = Access()
    """Which tokens clients need."""
    archive: Archiving = Archiving()
    """The archive of what was accepted."""
    limits: Limits = Limits()
    """How much is held and waited for."""
    log: Logging = Logging()
    """The level and the format of the log."""
    node: NodeSettings = NodeSettings()
    """Times and counts of the protocol."""
    chord: ChordSettings = ChordSettings()
    """Times and counts of the overlay `chord`."""
    pastry: PastrySettings = PastrySettings()
    """Times and counts of the overlay `pastry`."""
    hypercube: HypercubeSettings = HypercubeSettings()
    """Times and counts of the overlay `hypercube`. The dimensions are the same at all brokers of a network."""
    lists: ListsSettings = ListsSettings()
    """Choices of the scheme `lists`. The same at all brokers of a network."""
    meet: MeetSettings = MeetSettings()
    """Choices of the scheme `meet`. The same at all brokers of a network."""
    dmm: DmmSettings = DmmSettings()
    """Choices of the scheme `dmm`. The same at all brokers of a network."""
    reach: ReachSettings = ReachSettings()
    """Choices of the scheme `reach`. The same at all brokers of a network."""
    rebeca: RebecaSettings = RebecaSettings()
    """Choices of the scheme `rebeca`. The lease is the same at all brokers of a network."""

    def __post_init__(self) -> None:
        if parse_address(self.listen, "listen").host in _ANYWHERE and self.advertise is None:
            raise ConfigError(
                f"advertise: listen is {self.listen!r}, which is no address to connect to; write one that is"
            )
        if self.advertise is not None and parse_address(self.advertise, "advertise").port == 0:
            raise ConfigError(f"advertise: {self.advertise!r} has the port 0; write the one that others connect to")
        for address in self.join:
            parse_address(address, "join")
        if self.admin_address is not None:
            parse_address(self.admin_address, "admin")
        self._check_tls()
        self._check_open()
        if self.name is not None and not 0 < len(self.name) <= NAME_MAX:
            raise ConfigError(f"name: it has {len(self.name)} characters; give it 1 to {NAME_MAX}, or leave it out")
        if not self.network:
            raise ConfigError('network: it is empty; write a name, or leave it out for "meetpoint"')
        low, high = self.wire_versions
        if not SPOKEN[0] <= low <= high <= SPOKEN[1]:
            raise ConfigError(
                f"wire_versions: [{low}, {high}] is not the lowest and the highest of versions "
                f"{SPOKEN[0]} to {SPOKEN[1]}; leave it out for both"
            )
        timed = {"node": self.node, "chord": self.chord, "pastry": self.pastry, "hypercube": self.hypercube}
        timed |= {"meet": self.meet, "reach": self.reach, "rebeca": self.rebeca}
        for table, settings in timed.items():
            for key in fields_of(type(settings)):
                value = getattr(settings, key)
                if key.endswith("_us") and isinstance(value, int) and value < 1:
                    raise ConfigError(f"{table}.{key}: {value} is no time; write microseconds, 1 or more")
        for table, schema in (("lists", self.lists.schema), ("dmm", self.dmm.schema)):
            try:
                Schema.from_yaml(schema) if schema else None
            except SchemaError as error:
                raise ConfigError(f"{table}.schema: {error}") from None
        try:
            ids_of(self.reach)
        except SchemaError as error:
            raise ConfigError(f"reach.schema: {error}") from None
        self.network_config()

    def _check_tls(self) -> None:
        given = [name for name in ("certificate", "key", "ca") if getattr(self.tls, name) is not None]
        missing = [name for name in ("certificate", "key", "ca") if name not in given]
        if missing and (given or self.tls.revoked is not None):
            raise ConfigError(
                f"tls.{missing[0]}: is missing; TLS needs certificate, key and ca (see: meetpoint ca issue --help)"
            )
        if self.access.revoked is not None and self.access.keys is None:
            raise ConfigError(
                "access.keys: is missing, and access.revoked is of no use without; name the keys of tokens"
            )

    def _check_open(self) -> None:
        """Refuse a broker that other machines can reach without certificate and tokens, unless it is `insecure`."""
        if self.open_address is not None and self.unguarded and not self.insecure:
            raise ConfigError(
                f"{self.open_address} can be reached from other machines, and there is no "
                f"{' and no '.join(self.unguarded)}; give both (docs/security.md), listen at 127.0.0.1, "
                "or say --insecure (insecure = true)"
            )

    @property
    def open_address(self) -> str | None:
        """The key and the address that other machines can connect to, the first if there are two."""
        for key, address in (("listen", self.listen), ("admin", self.admin_address)):
            if address is not None and not is_loopback(parse_address(address, key).host):
                return f"{key}: {address}"
        return None

    @property
    def unguarded(self) -> list[str]:
        """The missing settings that would keep strangers out."""
        missing = [] if self.has_tls else ["certificate ([tls])"]
        return missing if self.access.keys is not None else [*missing, "keys of tokens ([access])"]

    @property
    def has_tls(self) -> bool:
        """Whether connections are TLS."""
        return self.tls.certificate is not None

    @property
    def admin_address(self) -> str | None:
        """The address where HTTP is served, if any."""
        return None if self.admin in (None, "", "none") else self.admin

    @property
    def way(self) -> str:
        """The settings that all brokers of the network must have in common, in a word."""
        return network_signature(self.network_config())

    def network_config(self) -> NetworkConfig:
        """Return the configuration of the node."""
        said: dict[str, Any] = {"chord": self.chord, "pastry": self.pastry, "hypercube": self.hypercube}
        said |= {"lists": self.lists, "meet": self.meet, "dmm": self.dmm, "reach": self.reach}
        said |= {"rebeca": self.rebeca}
        options = read_scheme(self.scheme)
        name = options["scheme"]
        if name in options and name in said:
            options[name] = _with_options(said[name], options[name])
        node = msgspec.structs.replace(
            self.node, trace=self.journal_lines > 0, archives=self.archive.folder is not None
        )  # fmt: skip
        return NetworkConfig(**{**said, "overlay": self.overlay, "node": node, **options})


def _with_options(settings: msgspec.Struct, chosen: msgspec.Struct) -> msgspec.Struct:
    """Return the settings of a table, overridden by what the words behind a scheme's name chose."""
    default = type(chosen)()
    differs = {
        name: getattr(chosen, name)
        for name in chosen.__struct_fields__
        if getattr(chosen, name) != getattr(default, name)
    }
    return msgspec.structs.replace(settings, **differs)


def read_config(path: str | os.PathLike[str], **overrides: Any) -> BrokerConfig:
    """Read a configuration from a TOML file; `overrides` that are not None replace its keys.

    Paths in the file (`data`, `schema`, those of [tls] and [access]) are relative to the file's folder.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: it is no text in UTF-8; write a TOML file") from None
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}; see docs/configuration.md") from None
    for key in _unknown(said, BrokerConfig, ""):
        raise ConfigError(f"{file}: {key}")
    for table, names in _FILES.items():
        within = said.get(table, {}) if table else said
        for name in names:
            if isinstance(within, dict) and isinstance(within.get(name), str):
                within[name] = str(file.parent / within[name])
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(said.get(key), dict):
            said[key] = {**said[key], **value}
        elif value is not None:
            said[key] = value
    return make_config(said, f"{file}: ")


def make_config(said: dict[str, Any], where: str = "") -> BrokerConfig:
    """Make a configuration from plain values; an error names the key, after `where`."""
    try:
        return msgspec.convert(said, BrokerConfig)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        key = path.rstrip("`").removeprefix("$.").removeprefix("$")
        raise ConfigError(f"{where}{key + ': ' if key else ''}{problem}; see docs/configuration.md") from None
    except (MeetpointError, AssertionError) as error:  # of settings that only programs made before
        raise ConfigError(f"{where}{error}") from None


def _unknown(said: dict[str, Any], kind: Any, within: str) -> Iterator[str]:
    """Yield what is wrong with the keys of a table, and of those in it."""
    known = fields_of(kind)
    for key, value in said.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {within}{near[0]}?" if near else f"known are: {', '.join(known)}"
            yield f"there is no key {within}{key}; {hint}"
        elif isinstance(value, dict) and fields_of(known[key]):
            yield from _unknown(value, known[key], f"{within}{key}.")


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the keys of a table and their types; none where the type is no table."""
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind)):
        return get_type_hints(kind)
    return {}
