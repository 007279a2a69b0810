"""`meetpoint ca` and `meetpoint token`: certificates of brokers, and tokens of clients."""

from __future__ import annotations

import re
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meetpoint.cli.options import AsJson, NetworkName
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, print_error, print_json
from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.security.tokens import Grant


__all__ = ["ca_app", "token_app"]


# -- certificates ------------------------------------------------------------------------------------------------------


ca_app = typer.Typer(no_args_is_help=True, help="Certificates of brokers: an authority, what it issues and revokes.")

AuthorityFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The authority's folder.")]
BrokerName = Annotated[str, typer.Argument(metavar="NAME", help="The broker's name in its network.")]


@ca_app.command("init")
def ca_init(folder: AuthorityFolder, network: NetworkName = "meetpoint") -> None:
    """Make an authority for one network. Whoever has its ca.key can make brokers: keep it off all of them."""
    from meetpoint.security import Authority

    Authority.create(folder, network)
    sys.stdout.write(
        f"made the authority of network {network} in {folder}\n"
        f"give {folder / 'ca.pem'} to brokers and clients; keep {folder / 'ca.key'} to yourself\n"
    )


@ca_app.command("issue")
def ca_issue(
    folder: AuthorityFolder,
    name: BrokerName,
    address: Annotated[
        list[str], typer.Option("--address", metavar="HOST", help="A host that others reach it by; repeatable.")
    ],
    days: Annotated[int, typer.Option(min=1, help="How long the certificate counts.")] = 365,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where the files go; DIR/NAME, if nothing is said.")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the certificate and the key that are there.")] = False,
) -> None:
    """Issue a certificate to a broker: a folder with all that it needs, to be copied there."""
    from meetpoint.security import Authority

    authority = Authority.open(folder)
    into = authority.folder_of(name) if out is None else out
    if not renew:
        _refuse_to_overwrite(into)
    issued = authority.issue(name, address, days)
    issued.write_to(into, renew=renew)
    sys.stdout.write(
        f"issued to {issued.identity}: counts until {issued.ends:%Y-%m-%d}, serial {issued.serial:x}\n"
        f"copy {into} to the broker: certificate.pem, key.pem, ca.pem, revoked.crl\n"
    )


@ca_app.command("revoke")
def ca_revoke(
    folder: AuthorityFolder,
    name: BrokerName,
    serial: Annotated[
        str | None, typer.Option("--serial", metavar="HEX", help="Only this certificate of the broker.")
    ] = None,
) -> None:
    """Revoke what a broker was issued; other brokers refuse it once they have the new revoked.crl and a SIGHUP."""
    from meetpoint.security import Authority

    authority = Authority.open(folder)
    revoked = authority.revoke(name, serial=None if serial is None else _read_serial(serial))
    told = ", ".join(f"{each:x}" for each in revoked) or "nothing that was not revoked before"
    sys.stdout.write(
        f"revoked of {name}: {told}\ncopy {folder / 'revoked.crl'} to all brokers, then send each a SIGHUP\n"
    )


@ca_app.command("show")
def ca_show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate, or a list of revoked ones.")],
    as_json: AsJson = False,
) -> None:
    """What a certificate or a list of revoked ones says; whether it is genuine is not looked at."""
    from meetpoint.security.certificates import load_revoked, read_certificate
    from meetpoint.security.files import read

    if b"BEGIN X509 CRL" in read(file, "certificate"):
        entries = [
            {"serial": f"{one.serial_number:x}", "revoked": f"{one.revocation_date_utc:%Y-%m-%d %H:%M:%S} UTC"}
            for listed in load_revoked(file)
            for one in listed
        ]
        if as_json:
            print_json({"revoked": entries})
            return
        told = [f"{one['serial']}  revoked {one['revoked']}" for one in entries]
        sys.stdout.write("\n".join([*told, f"{len(entries):,} revoked"]) + "\n")
        return
    certificate = read_certificate(file)
    facts = {
        "broker": certificate.identity.name if certificate.identity else None,
        "network": certificate.network,
        "authority": "yes" if certificate.is_authority else None,
        "addresses": ", ".join(certificate.addresses),
        "begins": f"{certificate.begins:%Y-%m-%d %H:%M:%S} UTC",
        "ends": f"{certificate.ends:%Y-%m-%d %H:%M:%S} UTC",
        "serial": f"{certificate.serial:x}",
        "sha256": certificate.fingerprint,
    }
    if as_json:
        print_json({**facts, "authority": certificate.is_authority, "addresses": list(certificate.addresses)})
    else:
        sys.stdout.write("".join(f"{name:<10} {value}\n" for name, value in facts.items() if value not in (None, "")))


def _refuse_to_overwrite(folder: Path) -> None:
    """Check before anything is issued that no certificate is there."""
    from meetpoint.security.files import FileError

    for name in ("key.pem", "certificate.pem"):
        if (folder / name).exists():
            raise FileError(f"{folder / name}: is there already; say --renew to replace it, or name another --out")


def _read_serial(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no serial number; write hexadecimal digits, as `meetpoint ca show` does.",
            param_hint="--serial",
        ) from None


# -- tokens ------------------------------------------------------------------------------------------------------------


token_app = typer.Typer(no_args_is_help=True, help="Tokens of clients: keys, what they permit, and revoking them.")

_TIME = re.compile(r"([0-9]{1,6})([smhdwy])", re.ASCII)
_TIMES_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}

KeyFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the token key.")]
Filters = list[str] | None


class RoleName(StrEnum):
    """The rights of a client beyond its own subscriptions."""

    observe = "observe"
    operate = "operate"


@token_app.command("key")
def token_key(
    folder: KeyFolder,
    network: NetworkName = "meetpoint",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="A new key; tokens of the old one count until they expire.")
    ] = False,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="ID", help="Trust this old key no more, nor any token of it.")
    ] = None,
) -> None:
    """Make the key that tokens of a network are signed with, or change it. Only its public part goes to brokers."""
    from meetpoint.security.tokens import Issuer, PublicKeys

    if rotate and forget is not None:
        raise typer.BadParameter("give one of them: --rotate first, --forget when no old token is in use.")
    if rotate:
        issuer = Issuer.open(folder).rotate()
    elif forget is not None:
        issuer = Issuer.open(folder)
        issuer.forget(forget)
    else:
        issuer = Issuer.create(folder, network)
    trusted = ", ".join(key.id for key in PublicKeys.read(issuer.public_keys).keys)
    sys.stdout.write(
        f"tokens of network {issuer.network} are signed with key {issuer.key_id}, trusted: {trusted}\n"
        f"copy {issuer.public_keys} to all brokers (a running one reads it at SIGHUP); "
        f"keep {folder / 'tokens.key'} to yourself\n"
    )


@token_app.command("issue")
def token_issue(
    folder: KeyFolder,
    client: Annotated[str, typer.Option("--client", metavar="NAME", help="Whom the token is for.")],
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Its tenant: it sees this tenant's events only.")
    ] = "",
    publish: Annotated[
        Filters, typer.Option("--publish", metavar="FILTER", help="May publish these events; '*' is all. Repeatable.")
    ] = None,
    subscribe: Annotated[
        Filters, typer.Option("--subscribe", metavar="FILTER", help="May subscribe within these. Repeatable.")
    ] = None,
    deny_publish: Annotated[
        Filters, typer.Option("--deny-publish", metavar="FILTER", help="But not publish these. Repeatable.")
    ] = None,
    deny_subscribe: Annotated[
        Filters, typer.Option("--deny-subscribe", metavar="FILTER", help="But not get these. Repeatable.")
    ] = None,
    role: Annotated[
        list[RoleName] | None,
        typer.Option("--role", help="observe: status, brokers, metrics. operate: also act on all. Repeatable."),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long it counts: 90s, 12h, 30d.")
    ] = "30d",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it into a new file that only you may read.")
    ] = None,
) -> None:
    """Issue a token and print it. Whoever has it may do what it says: pass it on as you would a password."""
    from meetpoint.security.files import PRIVATE, write_new
    from meetpoint.security.tokens import Issuer, Rights

    if not (publish or subscribe or role):
        raise typer.BadParameter("the token would permit nothing: give --publish, --subscribe or --role.")
    token = Issuer.open(folder).issue(
        client,
        seconds=_read_time(expires),
        tenant=tenant,
        publish=Rights(tuple(publish or ()), tuple(deny_publish or ())),
        subscribe=Rights(tuple(subscribe or ()), tuple(deny_subscribe or ())),
        roles=[each.value for each in role or ()],
    )
    if out is None:
        sys.stdout.write(token + "\n")
    else:
        write_new(out, token.encode() + b"\n", PRIVATE)


@token_app.command("revoke")
def token_revoke(
    folder: KeyFolder,
    token: Annotated[str | None, typer.Argument(metavar="[TOKEN|ID|FILE|-]", help="Which one; - reads it.")] = None,
    client: Annotated[str | None, typer.Option("--client", metavar="NAME", help="All that this client has.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="The client's tenant.")] = "",
) -> None:
    """Revoke a token, or all of a client; brokers refuse them once they have the new revoked.txt and a SIGHUP."""
    from meetpoint.security.tokens import Issuer, read_unverified

    issuer = Issuer.open(folder)
    if (token is None) == (client is None):
        raise typer.BadParameter("give one of them: a token, or --client NAME.")
    if client is not None:
        ids = issuer.issued_to(client, tenant)
        if not ids:
            whose = f"{client} of tenant {tenant}" if tenant else client
            raise MeetpointError(f"{folder}: no token of {whose} was issued that has not expired; check the name")
    else:
        given = _read_token(token or "")
        ids = (read_unverified(given).id if "." in given else given,)
    revoked = issuer.revoke(ids)
    told = ", ".join(revoked) or "nothing that was not revoked before"
    sys.stdout.write(f"revoked: {told}\ncopy {issuer.revoked} to all brokers, then send each a SIGHUP\n")


@token_app.command("show")
def token_show(
    token: Annotated[str, typer.Argument(metavar="TOKEN|FILE|-", help="A token, a file that holds one, or -.")],
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="Check it with these public keys (tokens.pub).")
    ] = None,
    revoked: Annotated[
        Path | None, typer.Option("--revoked", metavar="FILE", help="And with this list (revoked.txt).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a token says; with --keys also whether a broker would take it now, and exit with 1 where not."""
    from meetpoint.security.tokens import PublicKeys, TokenError, Verifier, read_unverified

    given = _read_token(token)
    grant = read_unverified(given)
    verdict = None
    if keys is not None:
        try:
            Verifier(keys, revoked, PublicKeys.read(keys).network).read(given, time.time())
            verdict = "counts"
        except TokenError as error:
            verdict = f"refused: {error.reason}"
    facts = _facts(grant) | ({} if verdict is None else {"verdict": verdict})
    if as_json:
        print_json(facts)
    else:
        told = {name: ", ".join(value) if isinstance(value, list) else value for name, value in facts.items()}
        sys.stdout.write("".join(f"{name:<15} {value}\n" for name, value in told.items() if value))
    if verdict not in (None, "counts"):
        print_error(f"token {grant.id} is {verdict}")
        raise typer.Exit(EXIT_SET_ASIDE)


def _facts(grant: Grant) -> dict[str, str | list[str]]:
    from meetpoint.security.grants import show_time

    return {
        "id": grant.id,
        "client": grant.client,
        "tenant": grant.tenant,
        "publish": list(grant.publish.allow),
        "deny_publish": list(grant.publish.deny),
        "subscribe": list(grant.subscribe.allow),
        "deny_subscribe": list(grant.subscribe.deny),
        "roles": list(grant.roles),
        "begins": show_time(grant.begins),
        "expires": show_time(grant.expires),
        "key": grant.key,
    }


def _read_token(given: str) -> str:
    """Return a token as it was typed, or from a file or standard input, where no other process sees it."""
    from meetpoint.security.files import read

    if given == "-":
        return sys.stdin.read().strip()
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):  # longer than any file's name
        is_file = False
    return read(Path(given), "token").decode("utf-8", "replace").strip() if is_file else given.strip()


def _read_time(text: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise typer.BadParameter(f"{text!r} is no time; write 90s, 30m, 12h, 30d, 4w or 1y.", param_hint="--expires")
    return int(found[1]) * _TIMES_S[found[2]]
