"""Certificates: what they say of a broker, and that TLS takes the good ones and nothing else."""

from __future__ import annotations

import shutil
import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.security import Authority, BrokerIdentity, CertificateError, identity_of, read_certificate, read_revoked
from meetpoint.security.certificates import certificate_of, uri_of
from meetpoint.security.files import FileError
from tests.security.authorities import BrokerFiles, TestAuthority


@pytest.fixture
def made(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


def der_of(path: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(path).read_text())


KEY = ec.generate_private_key(ec.SECP256R1())


def self_signed(*uris: str) -> bytes:
    """A certificate that says what it likes."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "anyone")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b1", "größe/2", "127.0.0.1:7400", " %2F ", "🙂", "x" * 200])
def test_a_certificate_names_its_broker(tmp_path: Path, name: str) -> None:
    issued = Authority.create(tmp_path, "net/1 ü").issue(name, ["localhost", "::1", "BROKER.example"])
    der = ssl.PEM_cert_to_DER_cert(issued.certificate.decode())
    assert identity_of(der) == ("net/1 ü", name)
    assert certificate_of(der).addresses == ("localhost", "broker.example", "::1")
    assert certificate_of(der).serial == issued.serial
    assert not certificate_of(der).is_authority


@pytest.mark.parametrize(
    "uris",
    [
        (),
        ("meetpoint://n/broker/a", "meetpoint://n/broker/b"),
        ("meetpoint://n/broker/",),
        ("meetpoint:///broker/a",),
        ("meetpoint://n/client/a",),
        ("meetpoint://n/broker/a/b",),
        ("meetpoint://n/broker/%61",),
        ("meetpoint://n/broker/%2f",),
        ("meetpoint://n/broker/" + "a" * 201,),
        ("https://n/broker/a",),
        ("meetpoint://n/",),
    ],
)
def test_a_certificate_in_another_spelling_names_nobody(uris: tuple[str, ...]) -> None:
    assert identity_of(self_signed(*uris)) is None


@given(st.binary(max_size=200))
def test_what_is_no_certificate_names_nobody(noise: bytes) -> None:
    assert identity_of(noise) is None
    with pytest.raises(CertificateError, match="cannot be read"):
        certificate_of(noise)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_byte_never_raises_anything_else(made: TestAuthority) -> None:
    der = bytearray(der_of(made.broker("b1").certificate))
    for at in range(len(der)):
        der[at] ^= 0xFF
        assert identity_of(bytes(der)) in {None, ("meetpoint", "b1")}
        der[at] ^= 0xFF


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50))
def test_every_name_has_a_spelling_of_its_own(network: str, name: str) -> None:
    try:
        uri = uri_of(BrokerIdentity(network, name))
    except CertificateError:
        assert any("\ud800" <= letter <= "\udfff" for letter in network + name)
        return
    assert uri.isascii()
    assert identity_of(self_signed(uri)) == (network, name)


# -- the authority -----------------------------------------------------------------------------------------------------


def test_private_keys_are_private_and_nothing_is_overwritten(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "n")
    folder = authority.issue("b1", ["localhost"]).write_to(tmp_path / "b1")
    for private in (tmp_path / "ca" / "ca.key", folder / "key.pem"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = (folder / "key.pem").read_bytes()
    with pytest.raises(FileError, match="left as it is"):
        authority.issue("b1", ["localhost"]).write_to(folder)
    with pytest.raises(FileError, match="left as it is"):
        Authority.create(tmp_path / "ca", "n")
    assert (folder / "key.pem").read_bytes() == key
    authority.issue("b1", ["localhost"]).write_to(folder, renew=True)
    assert (folder / "key.pem").read_bytes() != key


def test_an_authority_is_opened_as_it_was_made(tmp_path: Path) -> None:
    Authority.create(tmp_path, "n ü")
    again = Authority.open(tmp_path)
    assert again.network == "n ü"
    assert read_certificate(tmp_path / "ca.pem")[:2] == (None, "n ü")
    assert read_certificate(tmp_path / "ca.pem").is_authority


def test_what_is_no_authority_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="meetpoint ca init"):
        Authority.open(tmp_path)
    Authority.create(tmp_path / "one", "n")
    Authority.create(tmp_path / "two", "n")
    shutil.copy(tmp_path / "one" / "ca.pem", tmp_path / "two" / "ca.pem")
    with pytest.raises(CertificateError, match="is not the key of"):
        Authority.open(tmp_path / "two")
    (tmp_path / "one" / "ca.key").write_text("nothing")
    with pytest.raises(CertificateError, match="no private key"):
        Authority.open(tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "addresses", "days", "said"),
    [
        ("b", [], 1, "no address"),
        ("b", ["localhost:7400"], 1, "without a port"),
        ("b", ["*.example"], 1, "or a star"),
        ("b", ["a..b"], 1, "is no host"),
        ("b", ["x" * 64], 1, "is no host"),
        ("b", ["localhost"], 0, "no time"),
        ("b", ["localhost"], 10**9, "fewer days"),
        ("", ["localhost"], 1, "0 characters"),
        ("x" * 201, ["localhost"], 1, "201 characters"),
        ("\ud800", ["localhost"], 1, "no text that can be written"),
    ],
)
def test_a_certificate_that_makes_no_sense_is_not_issued(
    tmp_path: Path, name: str, addresses: list[str], days: float, said: str
) -> None:
    authority = Authority.create(tmp_path, "n")
    with pytest.raises(CertificateError, match=said):
        authority.issue(name, addresses, days)
    assert not (tmp_path / "issued.jsonl").exists()


def test_a_broker_whose_name_is_a_path_stays_within_the_folder(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "n")
    for name in ("..", ".", "../../etc", "/etc", "a/b"):
        assert authority.folder_of(name).resolve().parent == tmp_path.resolve()


def test_revoking_takes_back_all_that_a_broker_has_or_one_of_them(made: TestAuthority) -> None:
    authority = made.authority
    first, second = (authority.issue("b1", ["localhost"]).serial for _ in range(2))
    other = authority.issue("b2", ["localhost"]).serial
    assert authority.revoke("b1", serial=first) == (first,)
    assert read_revoked(made.revoked, made.ca) == {first}
    assert Authority.open(authority.folder).revoke("b1") == (second,)
    assert authority.revoke("b1") == ()
    third = authority.issue("b1", ["localhost"]).serial
    assert read_revoked(made.revoked, made.ca) == {first, second}
    assert not {third, other} & read_revoked(made.revoked, made.ca)
    with pytest.raises(CertificateError, match="b3: was issued no certificate"):
        authority.revoke("b3")
    with pytest.raises(CertificateError, match="no certificate"):
        authority.revoke("b2", serial=first)


def test_a_list_of_another_authority_is_refused(made: TestAuthority, tmp_path: Path) -> None:
    other = TestAuthority(tmp_path / "other")
    with pytest.raises(CertificateError, match="not signed by the authority"):
        read_revoked(other.revoked, made.ca)
    with pytest.raises(CertificateError, match="no list of revoked"):
        read_revoked(made.ca, made.ca)
    with pytest.raises(FileError, match="No such file"):
        read_revoked(tmp_path / "nowhere", made.ca)


def test_one_authority_follows_another(made: TestAuthority, tmp_path: Path) -> None:
    """Both certificates in one file, both lists in another: brokers of either know each other."""
    after = TestAuthority(tmp_path / "after")
    old, new = made.broker("old"), after.broker("new")
    gone = (made.authority.issue("x", ["localhost"]).serial, after.authority.issue("x", ["localhost"]).serial)
    for each in (made, after):
        each.authority.revoke("x")
    both, lists = tmp_path / "both.pem", tmp_path / "both.crl"
    both.write_text(Path(made.ca).read_text() + Path(after.ca).read_text())
    lists.write_text(Path(made.revoked).read_text() + Path(after.revoked).read_text())
    assert read_revoked(lists, both) == set(gone)
    with pytest.raises(CertificateError, match="not signed by the authority"):
        read_revoked(lists, made.ca)
    shared = {"ca": str(both), "revoked": str(lists)}
    server, client = context(old._replace(**shared), server=True), context(new._replace(**shared), server=False)
    assert shake(server, client, "localhost") is not None


def test_a_damaged_record_is_told_with_its_line(made: TestAuthority) -> None:
    made.authority.issue("b1", ["localhost"])
    with (made.authority.folder / "issued.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(CertificateError, match="line 2 cannot be read"):
        made.authority.revoke("b1")


def test_openssl_finds_nothing_to_complain_about_when_strict(made: TestAuthority) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here")
    files = made.broker("b1")
    for purpose in ("sslserver", "sslclient"):
        command = [openssl, "verify", "-x509_strict", "-purpose", purpose, "-CAfile", files.ca]
        command += ["-crl_check", "-CRLfile", files.revoked, files.certificate]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")


# -- TLS ---------------------------------------------------------------------------------------------------------------


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bytes | None:
    """A handshake without a network; gives the client's certificate as the server saw it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                end.read(0)
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() == ends[1].version() == "TLSv1.3"
    return ends[1].getpeercert(binary_form=True)


def context(files: BrokerFiles, *, server: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(files.ca)
    made.load_verify_locations(files.revoked)
    made.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_CRL_CHECK_LEAF
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(files.certificate, files.key)
    return made


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_two_brokers_of_one_authority_know_each_other(made: TestAuthority, host: str) -> None:
    one, two = made.broker("one"), made.broker("two")
    seen = shake(context(one, server=True), context(two, server=False), host)
    assert seen is not None
    assert identity_of(seen) == ("meetpoint", "two")


def test_tls_refuses_another_host_another_authority_the_expired_and_the_revoked(
    made: TestAuthority, tmp_path: Path
) -> None:
    good = made.broker("good")

    def refused(server: BrokerFiles, client: BrokerFiles, host: str, said: str) -> None:
        with pytest.raises(ssl.SSLError, match=said):
            shake(context(server, server=True), context(client, server=False), host)

    refused(good, good, "elsewhere.example", "Hostname mismatch")
    stranger = TestAuthority(tmp_path / "other").broker("good")
    refused(good, stranger, "localhost", "unable to get local issuer|self-signed|certificate verify failed")
    expired = made.broker("old", days=1, begins_days_ago=2)
    refused(expired, good, "localhost", "certificate has expired")
    refused(good, expired, "localhost", "certificate has expired")
    gone = made.broker("gone")
    made.authority.revoke("gone")
    refused(good, gone, "localhost", "certificate revoked")
    refused(gone, good, "localhost", "certificate revoked")


def test_a_broker_cannot_issue_certificates(made: TestAuthority, tmp_path: Path) -> None:
    """A certificate that a broker's key signed is refused: a broker is no authority."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    files = made.broker("one")
    issuer = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes())
    signer = load_pem_private_key(Path(files.key).read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    forged = Authority(made.authority.folder, "meetpoint", issuer, signer).issue("two", ["localhost"], 1)
    folder = forged.write_to(tmp_path / "forged")
    (folder / "certificate.pem").write_bytes(forged.certificate + issuer.public_bytes(Encoding.PEM))
    bad = BrokerFiles(str(folder / "certificate.pem"), str(folder / "key.pem"), files.ca, files.revoked)
    with pytest.raises(ssl.SSLError, match=r"certificate verify failed|invalid CA"):
        shake(context(files, server=True), context(bad, server=False), "localhost")


def test_validity_is_told_in_words(made: TestAuthority) -> None:
    held = read_certificate(made.broker("b1", days=1).certificate)
    assert held.why_not_now(held.begins.timestamp()) is None
    assert held.why_not_now(held.ends.timestamp()) is None
    assert "counts only from" in str(held.why_not_now(held.begins.timestamp() - 1))
    assert "expired at" in str(held.why_not_now(held.ends.timestamp() + 1))
