"""`meetpoint ca`: a private authority whose certificates brokers know each other by, and clients know brokers by."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meetpoint.cli.options import AsJson, NetworkName
from meetpoint.cli.output.streams import print_json

__all__ = ["ca_app"]

ca_app = typer.Typer(no_args_is_help=True, help="Certificates of brokers: an authority, what it issues and revokes.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The authority's folder.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The broker's name in its network.")]


@ca_app.command("init")
def ca_init(folder: Folder, network: NetworkName = "meetpoint") -> None:
    """Make an authority for one network. Whoever has its ca.key can make brokers: keep it off all of them."""
    from meetpoint.security import Authority

    Authority.create(folder, network)
    sys.stdout.write(
        f"made the authority of network {network} in {folder}\n"
        f"give {folder / 'ca.pem'} to brokers and clients; keep {folder / 'ca.key'} to yourself\n"
    )


@ca_app.command("issue")
def ca_issue(
    folder: Folder,
    name: Name,
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
    folder: Folder,
    name: Name,
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
    held = read_certificate(file)
    facts = {
        "broker": held.identity.name if held.identity else None,
        "network": held.network,
        "authority": "yes" if held.is_authority else None,
        "addresses": ", ".join(held.addresses),
        "begins": f"{held.begins:%Y-%m-%d %H:%M:%S} UTC",
        "ends": f"{held.ends:%Y-%m-%d %H:%M:%S} UTC",
        "serial": f"{held.serial:x}",
        "sha256": held.fingerprint,
    }
    if as_json:
        print_json({**facts, "authority": held.is_authority, "addresses": list(held.addresses)})
    else:
        sys.stdout.write("".join(f"{name:<10} {value}\n" for name, value in facts.items() if value not in (None, "")))


def _refuse_to_overwrite(folder: Path) -> None:
    """Before anything is issued: the files themselves are never overwritten either."""
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
