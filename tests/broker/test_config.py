"""A configuration is read, or refused in one line that names the key and what to write; the page has every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from meetpoint.broker import BrokerConfig, ConfigError, read_config
from meetpoint.broker.config import fields_of, make_config, parse_address

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return path


def keys(kind: Any, within: str = "") -> list[str]:
    found = []
    for name, each in fields_of(kind).items():
        found.append(within + name)
        found += keys(each, f"{within}{name}.")
    return found


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "")) == BrokerConfig()


def test_every_part_of_a_file_is_read(tmp_path: Path) -> None:
    found = read_config(
        written(
            tmp_path,
            """
            name = "a"
            listen = "0.0.0.0:1"
            advertise = "h:1"
            join = ["h:1", "[::1]:2"]
            data = "kept"
            scheme = "lists:hybrid"
            admin = "none"
            insecure = true
            [limits]
            stall_s = 2
            [log]
            format = "json"
            [chord]
            successors = 3
            [lists]
            hash = "order"
            """,
        )
    )
    assert found.name == "a"
    assert found.join == ("h:1", "[::1]:2")
    assert found.data == str(tmp_path / "kept")
    assert found.admin_address is None
    assert found.limits.stall_s == 2
    assert found.log.format == "json"
    network = found.network_config()
    assert (network.scheme, network.lists.mode, network.lists.hash) == ("lists", "hybrid", "order")
    assert network.chord.successors == 3
    assert network.node.trace


def test_what_is_said_beside_the_file_counts_more(tmp_path: Path) -> None:
    path = written(tmp_path, 'network = "one"\nlisten = "127.0.0.1:1"\n[log]\nlevel = "error"\n')
    found = read_config(path, network="two", listen=None, data="here", log={"format": "json"})
    assert (found.network, found.listen, found.data) == ("two", "127.0.0.1:1", "here")
    assert (found.log.level, found.log.format) == ("error", "json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('lisen = "127.0.0.1:1"', "there is no key lisen; did you mean listen?"),
        ("[limits]\nstall = 3", "there is no key limits.stall; did you mean limits.stall_s?"),
        ("[zzz]\nq = 3", "there is no key zzz; known are: name, network"),
        ("[node]\nbudies = 3", "there is no key node.budies; did you mean node.buddies?"),
        ("listen = 7400", "listen: Expected `str`, got `int`"),
        ("join = 'a:1'", "join: Expected `array`, got `str`"),
        ("join = ['a:1', 2]", "join[1]: Expected `str`, got `int`"),
        ("[limits]\nstall_s = 0", "limits.stall_s: Expected `float` > 0.0"),
        ("[limits]\nclients = 'many'", "limits.clients: Expected `int`, got `str`"),
        ("[log]\nformat = 'xml'", "log.format: Invalid enum value 'xml'"),
        ("listen = '127.0.0.1'", "listen: '127.0.0.1' is no address; write HOST:PORT"),
        ("listen = '127.0.0.1:70000'", "listen: '127.0.0.1:70000' is no address"),
        ("listen = '::1:7400'", "is no address; write HOST:PORT, as 127.0.0.1:7400 or [::1]:7400"),
        ("listen = '0.0.0.0:7400'", "advertise: listen is '0.0.0.0:7400', which is no address to connect to"),
        ("listen = '[::]:7400'", "advertise: listen is '[::]:7400'"),
        ("advertise = 'h:0'", "advertise: 'h:0' has the port 0"),
        ("join = ['h']", "join: 'h' is no address"),
        ("admin = 'yes'", "admin: 'yes' is no address"),
        ("name = ''", "name: it has 0 characters"),
        ("network = ''", "network: it is empty"),
        ("wire_versions = [2, 1]", "wire_versions: [2, 1] is not the lowest and the highest of versions 1 to 2"),
        ("wire_versions = [1, 3]", "wire_versions: [1, 3]"),
        ("scheme = 'floods'", "there is no 'floods'; choose from: flood, lists, meet"),
        ("scheme = 'lists:fast'", "there is no 'fast'; choose from"),
        ("overlay = 'mesh'", "overlay: there is no 'mesh'; choose from: chord, pastry"),
        ("[lists]\nschema = 'x: 1'", "lists.schema: schema"),
        ("[dmm]\nschema = 'x: 1'", "dmm.schema: schema"),
        ("[dmm]\nthreshold = 0", "dmm.threshold: Expected `int` >= 1"),
        ("[dmm]\ndepth = -1", "dmm.depth: Expected `int` >= 0"),
        ("[dmm]\ndelegation = 'often'", "dmm.delegation: Invalid enum value 'often'"),
        ("[chord]\nsuccessors = 0", "a member needs a successor"),
        ("[pastry]\nhalf = 0", "a node needs a neighbour on each side"),
        ("[pastry]\ndigit_bits = 3", "a digit has 1, 2, 4 or 8 bits"),
        ("[pastry]\nlookup_timeout_us = 0", "pastry.lookup_timeout_us: 0 is no time"),
        ("[node]\ngossip_us = 0", "node.gossip_us: 0 is no time; write microseconds, 1 or more"),
        ("listen =", "Invalid value (at"),
        ("[tls]\ncertificate = 'c.pem'", "tls.key: is missing; TLS needs certificate, key and ca"),
        ("[tls]\ncertificate = 'c.pem'\nkey = 'k.pem'", "tls.ca: is missing"),
        ("[tls]\nrevoked = 'r.crl'", "tls.certificate: is missing"),
        ("[access]\nrevoked = 'r.txt'", "access.keys: is missing, and access.revoked is of no use without"),
        ("[limits]\npublish_per_s = -1", "limits.publish_per_s: Expected `float` >= 0.0"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert says in said
    assert "\n" not in said


TLS = "[tls]\ncertificate = 'c'\nkey = 'k'\nca = 'a'\n"
TOKENS = "[access]\nkeys = 't'\n"


@pytest.mark.parametrize(
    "where",
    [
        "listen = '10.0.0.1:7400'",
        "listen = 'broker.example.org:7400'",
        "listen = '0.0.0.0:7400'\nadvertise = 'broker.example.org:7400'",
        "listen = '[::]:7400'\nadvertise = 'broker.example.org:7400'",
        "admin = '0.0.0.0:7480'",
        "admin = '[fe80::1]:7480'",
    ],
)
def test_other_machines_connect_only_with_tls_and_tokens_or_where_it_is_said_that_they_may(
    tmp_path: Path, where: str
) -> None:
    key = where.partition(" ")[0]
    for guards, missing in (
        ("", "no certificate ([tls]) and no keys of tokens ([access])"),
        (TLS, "no keys of tokens ([access])"),
        (TOKENS, "no certificate ([tls])"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_config(written(tmp_path, f"{where}\n{guards}"))
        assert f"{key}: " in str(caught.value)
        assert f"can be reached from other machines, and there is {missing}; give both" in str(caught.value)
        assert "--insecure" in str(caught.value)
        assert read_config(written(tmp_path, f"{where}\ninsecure = true\n{guards}")).unguarded
    assert not read_config(written(tmp_path, f"{where}\n{TLS}{TOKENS}")).unguarded


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "[::1]", "localhost", "LOCALHOST"])
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert BrokerConfig(listen=f"{host}:1", admin=f"{host}:2").open_address is None


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read_config(written(tmp_path, f"{TLS}revoked = 'r'\n{TOKENS}revoked = '/x/y'\n"))
    assert found.tls.certificate == str(tmp_path / "c")
    assert found.tls.key == str(tmp_path / "k")
    assert found.tls.ca == str(tmp_path / "a")
    assert found.tls.revoked == str(tmp_path / "r")
    assert found.access.keys == str(tmp_path / "t")
    assert found.access.revoked == "/x/y"


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.write_bytes(b"\xff\xfe"), lambda path: path.mkdir()]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "b.toml"
    make(path)
    with pytest.raises(ConfigError, match=r"b\.toml: "):
        read_config(path)


def test_values_from_elsewhere_are_checked_as_a_file_is() -> None:
    assert make_config({"listen": "[::1]:1"}).listen == "[::1]:1"
    with pytest.raises(ConfigError, match=r"^journal_lines: Expected `int` >= 0"):
        make_config({"journal_lines": -1})


def test_addresses_have_two_forms() -> None:
    assert str(parse_address("mp://localhost:1", "x")) == "localhost:1"
    assert str(parse_address("[::1]:1", "x")) == "[::1]:1"
    assert parse_address("[::1]:1", "x").host == "::1"


def test_every_key_stands_on_the_page_with_its_default() -> None:
    for key in keys(BrokerConfig):
        assert f"| `{key}` |" in PAGE or f"[{key}]" in PAGE, key


def test_the_page_has_no_key_that_is_not_there() -> None:
    told = re.findall(r"^\| `([a-z_.]+)` \|", PAGE, re.MULTILINE)
    assert len(told) > 30
    assert set(told) <= set(keys(BrokerConfig))


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    defaults = msgspec.json.decode(msgspec.json.encode(BrokerConfig()))
    checked = 0
    for key, shown in re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \|", PAGE, re.MULTILINE):
        value: Any = defaults
        for part in key.split("."):
            value = value[part]
        assert msgspec.json.decode(shown) == value, key
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_on_the_page_is_read(tmp_path: Path, text: str) -> None:
    assert isinstance(read_config(written(tmp_path, text)), BrokerConfig)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
