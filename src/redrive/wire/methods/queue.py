"""queue.*: queues declared, bound, purged and deleted."""

from dataclasses import field

from redrive.wire.methods.codec import CLIENT, SERVER, Bit, Long, Method, Short, ShortText, Table, method


@method(0x0032000A, CLIENT)
class QueueDeclare(Method):
    """queue.declare"""

    ticket: Short = 0
    queue: ShortText = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x0032000B, SERVER)
class QueueDeclareOk(Method):
    """queue.declare-ok"""

    queue: ShortText = ""
    message_count: Long = 0
    consumer_count: Long = 0


@method(0x00320014, CLIENT)
class QueueBind(Method):
    """queue.bind"""

    ticket: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x00320015, SERVER)
class QueueBindOk(Method):
    """queue.bind-ok"""


@method(0x0032001E, CLIENT)
class QueuePurge(Method):
    """queue.purge"""

    ticket: Short = 0
    queue: ShortText = ""
    nowait: Bit = False


@method(0x0032001F, SERVER)
class QueuePurgeOk(Method):
    """queue.purge-ok"""

    message_count: Long = 0


@method(0x00320028, CLIENT)
class QueueDelete(Method):
    """queue.delete"""

    ticket: Short = 0
    queue: ShortText = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@method(0x00320029, SERVER)
class QueueDeleteOk(Method):
    """queue.delete-ok"""

    message_count: Long = 0


@method(0x00320032, CLIENT)
class QueueUnbind(Method):
    """queue.unbind"""

    ticket: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    arguments: Table = field(default_factory=dict)


@method(0x00320033, SERVER)
class QueueUnbindOk(Method):
    """queue.unbind-ok"""
