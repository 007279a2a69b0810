"""Tokens: the good are read, everything else is refused with its kind, and revoking and rotating do what they say."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.security import Grant, Issuer, KeyFileError, Rights, TokenError, Verifier
from meetpoint.security.files import FileError
from meetpoint.security.tokens import CLOCKS_APART_S, TOKEN_MAX, PublicKeys, SigningKey, read_unverified

NOW = 1_800_000_000.0
ALL = Rights(("*",))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer.create(tmp_path, "n")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    return verifier(Issuer.create(tmp_path_factory.mktemp("keys"), "n"))


def verifier(issuer: Issuer, network: str = "n") -> Verifier:
    return Verifier(issuer.public_keys, issuer.revoked, network)


def issue(issuer: Issuer, **said: Any) -> str:
    return issuer.issue(**{"client": "alice", "seconds": 60, "subscribe": ALL, "now": NOW, **said})


def refused(reader: Verifier, token: str, now: float = NOW) -> TokenError:
    with pytest.raises(TokenError) as caught:
        reader.read(token, now)
    assert "\n" not in str(caught.value)
    return caught.value


def signed(issuer: Issuer, claims: object, **header: Any) -> str:
    """A token with any content, signed with the right key."""
    key = SigningKey.read(issuer.folder / "tokens.key")
    content = claims if isinstance(claims, bytes) else msgspec.json.encode(claims)
    return jwt.PyJWS().encode(content, key.loaded(), algorithm="EdDSA", headers={"kid": issuer.key_id, **header})


CLAIMS = {"aud": "n", "sub": "alice", "jti": "1", "nbf": int(NOW), "exp": int(NOW) + 60}

# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_token_says_what_it_was_issued_for(issuer: Issuer) -> None:
    publish, subscribe = Rights(("a > 1",), ("b = 2",)), Rights(("*",), ("c = 'ü'", "d IS NULL"))
    token = issue(issuer, tenant="T", publish=publish, subscribe=subscribe, roles=("observe", "observe"), seconds=90.5)
    grant = verifier(issuer).read(token, NOW)
    assert grant == read_unverified(token)
    assert (grant.client, grant.tenant, grant.publish, grant.subscribe) == ("alice", "T", publish, subscribe)
    assert (grant.roles, grant.begins, grant.expires) == (("observe",), NOW, NOW + 90)
    assert grant.key == issuer.key_id
    assert grant.id != verifier(issuer).read(issue(issuer), NOW).id


def test_a_token_counts_from_its_beginning_to_its_end(issuer: Issuer) -> None:
    token, reader = issue(issuer, begins=NOW + 100, seconds=60), verifier(issuer)
    assert refused(reader, token, NOW + 99 - CLOCKS_APART_S).kind == "not_yet"
    reader.read(token, NOW + 100 - CLOCKS_APART_S)
    reader.read(token, NOW + 159.999)
    assert refused(reader, token, NOW + 160).kind == "expired"


def test_no_token_is_missing(issuer: Issuer) -> None:
    assert refused(verifier(issuer), "").kind == "missing"


def test_a_token_of_another_network_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    other = Issuer.create(tmp_path / "other", "m")
    assert refused(verifier(issuer), issue(other)).kind == "signature"
    assert refused(verifier(issuer), signed(issuer, {**CLAIMS, "aud": "m"})).kind == "network"
    with pytest.raises(KeyFileError, match="keys of network 'n', and this is 'm'"):
        verifier(issuer, "m")


def test_a_forged_token_is_refused(issuer: Issuer) -> None:
    reader, token = verifier(issuer), issue(issuer)
    head, content, signature = token.split(".")
    richer = base64.urlsafe_b64encode(msgspec.json.encode({**CLAIMS, "roles": ["operate"]})).rstrip(b"=").decode()
    assert refused(reader, f"{head}.{richer}.{signature}").kind == "signature"
    stranger = Ed25519PrivateKey.generate()
    forged = jwt.encode(CLAIMS, stranger, algorithm="EdDSA", headers={"kid": issuer.key_id})
    assert refused(reader, forged).kind == "signature"
    assert refused(reader, jwt.encode(CLAIMS, stranger, algorithm="EdDSA")).kind == "malformed"  # no key named
    assert refused(reader, f"{head}.{content}.").kind == "signature"


def test_the_algorithm_is_never_the_tokens_choice(issuer: Issuer) -> None:
    """Neither none, nor the public key taken as a shared secret."""
    reader, header = verifier(issuer), {"kid": issuer.key_id}
    unsigned = jwt.encode(CLAIMS, "", algorithm="none", headers=header)
    assert refused(reader, unsigned).kind in ("malformed", "signature")
    public = PublicKeys.read(issuer.public_keys).keys[0].loaded().public_bytes_raw()
    shared = jwt.PyJWS().encode(msgspec.json.encode(CLAIMS), public, algorithm="HS256", headers=header)
    assert refused(reader, shared).kind in ("malformed", "signature")


@pytest.mark.parametrize(
    "claims",
    [
        {},
        [],
        b"",
        b"\xff",
        b"[" * 1500,
        {**CLAIMS, "only_on_mondays": True},
        {**CLAIMS, "roles": ["root"]},
        {**CLAIMS, "exp": "never"},
        {**CLAIMS, "aud": ["n"]},
        {**CLAIMS, "publish": {"allow": ["*"], "unless": []}},
        {key: value for key, value in CLAIMS.items() if key != "exp"},
    ],
)
def test_content_that_is_not_known_is_refused_although_signed(issuer: Issuer, claims: object) -> None:
    assert refused(verifier(issuer), signed(issuer, claims)).kind == "malformed"
    verifier(issuer).read(signed(issuer, CLAIMS), NOW)


def test_a_token_that_is_too_long_is_refused_unread_and_not_issued(issuer: Issuer) -> None:
    assert refused(verifier(issuer), "a" * (TOKEN_MAX + 1)).kind == "malformed"
    with pytest.raises(TokenError, match="the limit is 3,072"):
        issue(issuer, publish=Rights(tuple(f"attribute_{n} = 'a rather long value {n}'" for n in range(60))))
    assert len(issue(issuer, publish=Rights(tuple(f"a{n} = {n}" for n in range(60))))) <= TOKEN_MAX


NESTED = base64.urlsafe_b64encode(b"[" * 2000).decode().rstrip("=")


@pytest.mark.parametrize(
    "text", ["x", ".", "..", "a.b.c", "e30.e30.e30", f"{NESTED}.e30.e30", "ü.ü.ü", "\ud800", "a b.c"]
)
def test_what_is_no_token_is_malformed(issuer: Issuer, text: str) -> None:
    assert refused(verifier(issuer), text).kind == "malformed"
    with pytest.raises(TokenError):
        read_unverified(text)


def test_no_changed_character_makes_another_token(issuer: Issuer) -> None:
    """But for the last one, where base64 has bits that say nothing."""
    reader, token = verifier(issuer), issue(issuer)
    good = reader.read(token, NOW)
    for at in range(len(token) - 1):
        other = "A" if token[at] != "A" else "B"
        assert refused(reader, token[:at] + other + token[at + 1 :]).kind in ("malformed", "signature")
    assert reader.read(token, NOW) == good


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_token_or_refused(reader: Verifier, text: str) -> None:
    assert refused(reader, text).kind in ("missing", "malformed")


# -- issuing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"client": ""}, "client: it has 0 characters"),
        ({"client": "x" * 101}, "client: it has 101 characters"),
        ({"client": "a/b"}, "has a slash"),
        ({"tenant": "a\nb"}, "cannot be printed"),
        ({"seconds": 0}, "no lifetime"),
        ({"publish": Rights(("a >",))}, "publish.allow: a >: filter, column"),
        ({"subscribe": Rights(("*",), ("`$tenant` = 'x'",))}, "network's own attribute"),
        ({"subscribe": Rights(("a = 1",) * 65)}, "over 64 filters"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_issued(issuer: Issuer, said: dict[str, Any], words: str) -> None:
    with pytest.raises(TokenError, match=words):
        issue(issuer, **said)
    assert not (issuer.folder / "issued.jsonl").exists()


def test_the_private_key_is_private_and_not_overwritten(issuer: Issuer) -> None:
    assert stat.S_IMODE((issuer.folder / "tokens.key").stat().st_mode) == 0o600
    assert b'"d"' not in issuer.public_keys.read_bytes()
    with pytest.raises(FileError, match="left as it is"):
        Issuer.create(issuer.folder, "n")
    verifier(issuer).read(issue(Issuer.open(issuer.folder)), NOW)


# -- taking back -------------------------------------------------------------------------------------------------------


def test_a_revoked_token_is_refused_also_where_it_was_read_before(issuer: Issuer) -> None:
    token, other = issue(issuer), issue(issuer)
    grant = verifier(issuer).read(token, NOW)
    assert issuer.revoke([grant.id]) == (grant.id,)
    assert issuer.revoke([grant.id]) == ()
    later = verifier(issuer)
    assert refused(later, token).kind == "revoked"
    with pytest.raises(TokenError, match="was revoked"):
        later.check(grant, NOW)
    later.read(other, NOW)


def test_all_tokens_of_a_client_are_found_and_no_one_elses(issuer: Issuer) -> None:
    mine = [read_unverified(issue(issuer)).id for _ in range(2)]
    issue(issuer, tenant="T")
    issue(issuer, client="bob")
    issue(issuer, now=NOW - 100)
    assert list(issuer.issued_to("alice", now=NOW)) == mine


def test_a_key_is_rotated_and_the_old_one_forgotten(issuer: Issuer) -> None:
    old = issue(issuer)
    grant = verifier(issuer).read(old, NOW)
    rotated = issuer.rotate()
    new = issue(Issuer.open(issuer.folder))
    reader = verifier(issuer)
    assert {reader.read(old, NOW).key, reader.read(new, NOW).key} == {issuer.key_id, rotated.key_id}
    with pytest.raises(KeyFileError, match="signs new tokens"):
        rotated.forget(rotated.key_id)
    with pytest.raises(KeyFileError, match="holds no key"):
        rotated.forget("nothing")
    rotated.forget(issuer.key_id)
    reader = verifier(issuer)
    assert refused(reader, old).kind == "signature"
    with pytest.raises(TokenError, match="no longer trusted"):
        reader.check(grant, NOW)
    reader.read(new, NOW)


def test_keys_do_not_pile_up(issuer: Issuer) -> None:
    for _ in range(15):
        issuer = issuer.rotate()
    with pytest.raises(KeyFileError, match="forget one first"):
        issuer.rotate()


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff", b"[" * 5000, b'{"network": "n", "keys": []}', b'{"network": "n", "keys": [{"x": "AA"}]}'],
)
def test_a_file_that_holds_no_keys_is_told(issuer: Issuer, content: bytes) -> None:
    issuer.public_keys.write_bytes(content)
    with pytest.raises(KeyFileError, match=r"tokens\.pub: "):
        verifier(issuer)


def test_a_key_of_a_wrong_length_is_told(issuer: Issuer) -> None:
    text = issuer.public_keys.read_text()
    key = PublicKeys.read(issuer.public_keys).keys[0].x
    for wrong in (key[:-4], key + "AAAA", "!" * len(key)):
        issuer.public_keys.write_text(text.replace(key, wrong))
        with pytest.raises(KeyFileError, match="not 32 bytes"):
            verifier(issuer)


def test_a_list_of_revoked_tokens_has_comments_and_no_nonsense(issuer: Issuer) -> None:
    grant = verifier(issuer).read(issue(issuer), NOW)
    issuer.revoked.write_text(f"# why\n\n  {grant.id}  # lost in a train\n")
    with pytest.raises(TokenError, match="revoked"):
        verifier(issuer).check(grant, NOW)
    issuer.revoked.write_text("one two\n")
    with pytest.raises(KeyFileError, match="line 1 is no id"):
        verifier(issuer)
    issuer.revoked.write_bytes(b"\xff")
    with pytest.raises(KeyFileError, match="no text"):
        verifier(issuer)
    issuer.revoked.unlink()
    with pytest.raises(FileError, match="No such file"):
        verifier(issuer)
    Verifier([issuer.public_keys], None, "n").check(grant, NOW)


def test_a_folder_without_a_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="meetpoint token key"):
        Issuer.open(tmp_path)


def test_whoever_operates_may_observe() -> None:
    def grant(*roles: Any) -> Grant:
        return Grant(client="c", roles=roles, expires=0)

    assert [(g.may_observe, g.may_operate) for g in (grant(), grant("observe"), grant("operate"))] == [
        (False, False),
        (True, False),
        (True, True),
    ]
