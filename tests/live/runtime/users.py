"""Users with exactly the rights that a test gives them."""

import secrets

import pika
from rig.brokers import Vhost


def add_user(vhost: Vhost, rights: dict[str, str]) -> str:
    """A user with these rights on the vhost; its URL."""
    name = f"redrive-{secrets.token_hex(4)}"
    vhost.management.put("users", name, body={"password": name, "tags": ""})
    vhost.management.put("permissions", vhost.name, name, body=rights)
    parameters = pika.URLParameters(vhost.amqp_url)
    return f"amqp://{name}:{name}@{parameters.host}:{parameters.port}/{vhost.name}"
