"""exchange.*: exchanges declared, deleted and bound to one another."""

from dataclasses import field

from redrive.wire.methods.codec import CLIENT, SERVER, Bit, Method, Short, ShortText, Table, method


@method(0x0028000A, CLIENT)
class ExchangeDeclare(Method):
    """exchange.declare"""

    ticket: Short = 0
    exchange: ShortText = ""
    type: ShortText = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x0028000B, SERVER)
class ExchangeDeclareOk(Method):
    """exchange.declare-ok"""


@method(0x00280014, CLIENT)
class ExchangeDelete(Method):
    """exchange.delete"""

    ticket: Short = 0
    exchange: ShortText = ""
    if_unused: Bit = False
    nowait: Bit = False


@method(0x00280015, SERVER)
class ExchangeDeleteOk(Method):
    """exchange.delete-ok"""


@method(0x0028001E, CLIENT)
class ExchangeBind(Method):
    """exchange.bind"""

    ticket: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x0028001F, SERVER)
class ExchangeBindOk(Method):
    """exchange.bind-ok"""


@method(0x00280028, CLIENT)
class ExchangeUnbind(Method):
    """exchange.unbind"""

    ticket: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x00280033, SERVER)
class ExchangeUnbindOk(Method):
    """exchange.unbind-ok"""
