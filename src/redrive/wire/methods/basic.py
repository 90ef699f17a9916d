"""basic.*, the cold part: consuming begins and ends, one message is asked for, prefetch is set."""

from dataclasses import field

from redrive.wire.methods.codec import CLIENT, EITHER, SERVER, Bit, Long, Method, Short, ShortText, Table, method


@method(0x003C000A, CLIENT)
class BasicQos(Method):
    """basic.qos"""

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    per_channel: Bit = False


@method(0x003C000B, SERVER)
class BasicQosOk(Method):
    """basic.qos-ok"""


@method(0x003C0014, CLIENT)
class BasicConsume(Method):
    """basic.consume"""

    ticket: Short = 0
    queue: ShortText = ""
    consumer_tag: ShortText = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(0x003C0015, SERVER)
class BasicConsumeOk(Method):
    """basic.consume-ok"""

    consumer_tag: ShortText = ""


@method(0x003C001E, EITHER)
class BasicCancel(Method):
    """basic.cancel"""

    consumer_tag: ShortText = ""
    nowait: Bit = False


@method(0x003C001F, EITHER)
class BasicCancelOk(Method):
    """basic.cancel-ok"""

    consumer_tag: ShortText = ""


@method(0x003C0046, CLIENT)
class BasicGet(Method):
    """basic.get"""

    ticket: Short = 0
    queue: ShortText = ""
    no_ack: Bit = False


@method(0x003C0048, SERVER)
class BasicGetEmpty(Method):
    """basic.get-empty"""

    cluster_id: ShortText = ""


@method(0x003C0064, CLIENT)
class BasicRecoverAsync(Method):
    """basic.recover-async"""

    requeue: Bit = False


@method(0x003C006E, CLIENT)
class BasicRecover(Method):
    """basic.recover"""

    requeue: Bit = False


@method(0x003C006F, SERVER)
class BasicRecoverOk(Method):
    """basic.recover-ok"""
