"""`meetpoint ca` and `meetpoint token`: what they make is taken, and a mistake is one line that says what to do."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from meetpoint.security import Verifier, read_certificate, read_revoked
from tests.cli.conftest import Command


def one_line(err: str) -> str:
    assert err.count("\n") == 1, err
    return err


# -- ca ----------------------------------------------------------------------------------------------------------------


def test_an_authority_issues_shows_and_revokes(meetpoint: Command, tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    assert meetpoint("ca", "init", ca, "--network", "shop").code == 0
    issued = meetpoint("ca", "issue", ca, "b1", "--address", "b1.example", "--address", "10.0.0.1", "--days", "30")
    assert issued.code == 0
    assert f"copy {ca / 'b1'} to the broker" in issued.out
    shown = json.loads(meetpoint("ca", "show", ca / "b1" / "certificate.pem", "--json").out)
    assert (shown["broker"], shown["network"], shown["authority"]) == ("b1", "shop", False)
    assert shown["addresses"] == ["b1.example", "10.0.0.1"]
    assert "network    shop\nauthority  yes" in meetpoint("ca", "show", ca / "ca.pem").out
    assert meetpoint("ca", "revoke", ca, "b1").code == 0
    assert read_revoked(ca / "revoked.crl", ca / "ca.pem") == {int(shown["serial"], 16)}
    assert shown["serial"] in meetpoint("ca", "show", ca / "revoked.crl").out
    assert (
        json.loads(meetpoint("ca", "show", ca / "revoked.crl", "--json").out)["revoked"][0]["serial"] == shown["serial"]
    )


def test_a_certificate_is_renewed_when_told_so_and_the_old_one_revoked(meetpoint: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    meetpoint("ca", "init", tmp_path / "ca")
    command = ("ca", "issue", tmp_path / "ca", "b1", "--address", "localhost", "--out", out)
    assert meetpoint(*command).code == 0
    first = read_certificate(out / "certificate.pem").serial
    refused = meetpoint(*command)
    assert refused.code == 2
    assert "--renew" in one_line(refused.err)
    assert read_certificate(out / "certificate.pem").serial == first
    assert meetpoint(*command, "--renew").code == 0
    assert read_certificate(out / "certificate.pem").serial != first
    assert stat.S_IMODE((out / "key.pem").stat().st_mode) == 0o600
    assert meetpoint("ca", "revoke", tmp_path / "ca", "b1", "--serial", f"{first:x}").code == 0
    assert read_revoked(tmp_path / "ca" / "revoked.crl", tmp_path / "ca" / "ca.pem") == {first}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("init", "{ca}"), "is there already"),
        (("init", "{ca}/ca.pem"), "cannot be made"),
        (("issue", "{tmp}", "b", "--address", "x"), "meetpoint ca init"),
        (("issue", "{ca}", "b"), "--address"),
        (("issue", "{ca}", "b", "--address", "x:1"), "without a port"),
        (("issue", "{ca}", "b", "--address", "x", "--days", "9999"), "fewer days"),
        (("revoke", "{ca}", "b"), "issued to: none"),
        (("revoke", "{ca}", "b", "--serial", "xyz"), "hexadecimal"),
        (("show", "{ca}/ca.key"), "holds no certificate"),
        (("show", "{tmp}/none"), "No such file"),
    ],
)
def test_mistakes_with_certificates_are_one_line(
    meetpoint: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    meetpoint("ca", "init", tmp_path / "ca")
    ran = meetpoint("ca", *(text.format(ca=tmp_path / "ca", tmp=tmp_path) for text in arguments))
    assert ran.code == 2
    assert said in one_line(ran.err)


# -- token -------------------------------------------------------------------------------------------------------------


def test_a_token_is_issued_shown_and_revoked(meetpoint: Command, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    assert meetpoint("token", "key", keys, "--network", "shop").code == 0
    said = ("--subscribe", "price > 8", "--deny-subscribe", "secret", "--role", "observe", "--expires", "2h")
    issued = meetpoint("token", "issue", keys, "--client", "alice", "--tenant", "T", "--publish", "*", *said)
    token = issued.out.strip()
    check = ("--keys", keys / "tokens.pub", "--revoked", keys / "revoked.txt")
    shown = meetpoint("token", "show", token, "--json", *check)
    assert shown.code == 0
    facts = json.loads(shown.out)
    assert (facts["client"], facts["tenant"], facts["verdict"]) == ("alice", "T", "counts")
    assert (facts["publish"], facts["subscribe"], facts["deny_subscribe"]) == (["*"], ["price > 8"], ["secret"])
    assert "deny_subscribe  secret" in meetpoint("token", "show", "-", stdin=token.encode()).out
    assert facts["id"] in meetpoint("token", "revoke", keys, token).out
    refused = meetpoint("token", "show", token, *check)
    assert refused.code == 1
    assert "was revoked" in one_line(refused.err)


def test_a_token_goes_into_a_private_file_that_is_not_overwritten(meetpoint: Command, tmp_path: Path) -> None:
    meetpoint("token", "key", tmp_path)
    command = ("token", "issue", tmp_path, "--client", "a", "--role", "operate", "--out", tmp_path / "a.token")
    ran = meetpoint(*command)
    assert (ran.code, ran.out) == (0, "")
    assert stat.S_IMODE((tmp_path / "a.token").stat().st_mode) == 0o600
    assert meetpoint(*command).code == 2
    assert "operate" in meetpoint("token", "show", tmp_path / "a.token").out
    assert meetpoint("token", "revoke", tmp_path, tmp_path / "a.token").code == 0


def test_all_tokens_of_a_client_are_revoked(meetpoint: Command, tmp_path: Path) -> None:
    meetpoint("token", "key", tmp_path)
    tokens = [
        meetpoint("token", "issue", tmp_path, "--client", client, "--subscribe", "*").out.strip()
        for client in ("alice", "alice", "bob")
    ]
    assert meetpoint("token", "revoke", tmp_path, "--client", "alice").out.count(", ") >= 1
    codes = [
        meetpoint("token", "show", token, "--keys", tmp_path / "tokens.pub", "--revoked", tmp_path / "revoked.txt").code
        for token in tokens
    ]
    assert codes == [1, 1, 0]


def test_keys_are_rotated_and_forgotten(meetpoint: Command, tmp_path: Path) -> None:
    old = re.findall("[0-9a-f]{16}", meetpoint("token", "key", tmp_path).out)[0]
    token = meetpoint("token", "issue", tmp_path, "--client", "a", "--publish", "*").out.strip()
    assert old in meetpoint("token", "key", tmp_path, "--rotate").out
    assert Verifier(tmp_path / "tokens.pub", None, "meetpoint")
    show = ("token", "show", token, "--keys", tmp_path / "tokens.pub")
    assert meetpoint(*show).code == 0
    assert old not in meetpoint("token", "key", tmp_path, "--forget", old).out
    assert meetpoint(*show).code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("key", "{keys}"), "is there already"),
        (("key", "{keys}", "--rotate", "--forget", "x"), "give one of them"),
        (("key", "{tmp}", "--rotate"), "meetpoint token key"),
        (("issue", "{keys}", "--client", "a"), "would permit nothing"),
        (("issue", "{keys}", "--publish", "*"), "--client"),
        (("issue", "{keys}", "--client", "a", "--publish", "x >"), "publish.allow: x >: filter, column"),
        (("issue", "{keys}", "--client", "a", "--role", "root"), "observe"),
        (("issue", "{keys}", "--client", "a", "--publish", "*", "--expires", "soon"), "30d"),
        (("issue", "{keys}", "--client", "a", "--publish", "*", "--expires", "0s"), "30d"),
        (("issue", "{keys}", "--client", "a", "--publish", "x LIKE '" + "y" * 3000 + "'"), "the limit is"),
        (("revoke", "{keys}"), "give one of them"),
        (("revoke", "{keys}", "--client", "nobody"), "check the name"),
        (("revoke", "{keys}", "not an id"), "is no id of a token"),
        (("revoke", "{keys}", "a.b.c"), "it is no token"),
        (("show", "nonsense"), "it is no token"),
        (("show", "x" * 5000), "the limit is"),
    ],
)
def test_mistakes_with_tokens_are_one_line(
    meetpoint: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    keys = tmp_path / "keys"
    meetpoint("token", "key", keys)
    ran = meetpoint("token", *(text.replace("{keys}", str(keys)).replace("{tmp}", str(tmp_path)) for text in arguments))
    assert ran.code == 2
    assert said in one_line(ran.err)
