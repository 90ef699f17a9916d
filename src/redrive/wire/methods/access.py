"""access.*: gone from AMQP 0-9-1, still sent by old clients and answered by RabbitMQ."""

from redrive.wire.methods.codec import CLIENT, SERVER, Bit, Method, Short, ShortText, method


@method(0x001E000A, CLIENT)
class AccessRequest(Method):
    """access.request"""

    realm: ShortText = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@method(0x001E000B, SERVER)
class AccessRequestOk(Method):
    """access.request-ok"""

    ticket: Short = 1
