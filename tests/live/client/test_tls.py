"""TLS with a test CA: the right certificates connect; a wrong CA, a wrong name and a missing certificate do not."""

from pathlib import Path
from urllib.parse import quote

import pytest
from rig.node import Node
from rig.node_config import Tls
from rig.node_pool import OwnNodes

from redrive.client import AuthenticationFailed, Client, Confirmed, ConnectionFailed, InvalidUrl
from tests.live.client.accounts import bodies
from tests.live.client.certificates import Authority
from tests.unit.client.scenario import ended, run_scenario

BY_CERTIFICATE = """
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = AMQPLAIN
auth_mechanisms.3 = EXTERNAL
ssl_cert_login_from = common_name
"""


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_tls_connects_with_the_right_certificates_and_reports_wrong_ones(own_node: OwnNodes, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server = ours.sign("server", alternative_names="DNS:localhost,DNS:broker.example")
    node = own_node(
        tls=Tls(ca=ours.certificate, certificate=server.certificate, key=server.key, verify_peer=True),
        conf=BY_CERTIFICATE,
        plugins=("rabbitmq_auth_mechanism_ssl",),
    )
    node.ctl("add_user", "billing", "unused")
    node.ctl("set_permissions", "billing", ".*", ".*", ".*")
    client, stranger = ours.sign("billing"), theirs.sign("billing")
    ca = f"cacertfile={quote(str(ours.certificate))}"
    certificate = f"certfile={quote(str(client.certificate))}&keyfile={quote(str(client.key))}"
    foreign = f"certfile={quote(str(stranger.certificate))}&keyfile={quote(str(stranger.key))}"

    run_scenario(check_publishing(node, f"{ca}&{certificate}", ours.certificate))
    assert bodies(node.amqp_url(), "secure") == [b"by password", b"by certificate"]
    run_scenario(
        check_refusals(
            {
                # Nothing to trust it by but the system's own store.
                url(node, certificate): "the broker's certificate can't be trusted: ",
                url(node, f"cacertfile={quote(str(theirs.certificate))}&{certificate}"): "; give the CA that signed it",
                url(node, f"{ca}&{certificate}", host="127.0.0.1"): "IP address mismatch, certificate is not valid for",
                url(
                    node, f"{ca}&{certificate}&server_name_indication=other.example"
                ): "; connect by a name the certificate",
                # The broker wants a certificate, and one it knows the issuer of.
                url(node, ca): "certificate",
                url(node, f"{ca}&{foreign}"): "unknown ca",
                f"amqps://localhost:{node.place.amqp_port}/?{ca}&{certificate}": "is this the broker's TLS port?",
            }
        )
    )
    run_scenario(check_odd_ones(node, ca, certificate))


def url(node: Node, query: str, *, host: str = "localhost", user: str = "guest:guest@") -> str:
    return f"amqps://{user}{host}:{node.place.tls_port}/?{query}"


async def check_publishing(node: Node, query: str, ca: Path) -> None:
    """With a password over TLS, and with the certificate alone (EXTERNAL)."""
    async with Client(url(node, query)) as client:
        await (await client.channel()).declare_queue("secure")
        publisher = await client.publisher()
        assert await publisher.publish("", "secure", b"by password") == Confirmed()
        large = bytes(300_000)
        assert await publisher.publish("", "secure", large) == Confirmed()
        channel = await client.channel()
        first = await channel.get_message("secure")
        second = await channel.get_message("secure")
        assert first is not None
        assert second is not None
        assert second.body == large
        channel.nack(first, requeue=True)
        channel.ack(second)
        await channel.close()
    async with Client(url(node, query, user="")) as client:
        assert client.target.mechanism == "EXTERNAL"
        publisher = await client.publisher()
        assert await publisher.publish("", "secure", b"by certificate") == Confirmed()
    async with Client(url(node, f"{query}&server_name_indication=broker.example", host="127.0.0.1")):
        pass


async def check_refusals(refusals: dict[str, str]) -> None:
    for address, sentence in refusals.items():
        (error,) = await ended(Client(address).start())
        assert isinstance(error, ConnectionFailed), f"{address}: {error!r}"
        assert sentence.lower() in str(error).lower(), address
        assert str(error).startswith(("localhost:", "127.0.0.1:"))
        assert "_ssl.c" not in str(error)
        assert "\n" not in str(error)


async def check_odd_ones(node: Node, ca: str, certificate: str) -> None:
    # Verification is turned off in so many words, so any name will do.
    async with Client(url(node, f"verify=verify_none&{certificate}", host="127.0.0.1")):
        pass
    # EXTERNAL for a user the broker has not.
    (error,) = await ended(Client(url(node, f"{ca}&{certificate}&auth_mechanism=AMQPLAIN", user="no:body@")).start())
    assert isinstance(error, AuthenticationFailed)
    (error,) = await ended(Client(url(node, "cacertfile=/nowhere/ca.pem")).start())
    assert isinstance(error, InvalidUrl)
    assert "/nowhere/ca.pem" in str(error)
