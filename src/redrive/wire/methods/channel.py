"""channel.*: channels are opened, paused and closed."""

from redrive.wire.methods.codec import CLIENT, EITHER, SERVER, Bit, LongBytes, Method, Short, ShortText, method


@method(0x0014000A, CLIENT)
class ChannelOpen(Method):
    """channel.open"""

    out_of_band: ShortText = ""


@method(0x0014000B, SERVER)
class ChannelOpenOk(Method):
    """channel.open-ok"""

    channel_id: LongBytes = b""


@method(0x00140014, EITHER)
class ChannelFlow(Method):
    """channel.flow"""

    active: Bit = True


@method(0x00140015, EITHER)
class ChannelFlowOk(Method):
    """channel.flow-ok"""

    active: Bit = True


@method(0x00140028, EITHER)
class ChannelClose(Method):
    """channel.close"""

    reply_code: Short = 200
    reply_text: ShortText = ""
    class_id: Short = 0
    method_id: Short = 0


@method(0x00140029, EITHER)
class ChannelCloseOk(Method):
    """channel.close-ok"""
