"""confirm.*: a channel on which the broker confirms what is published."""

from redrive.wire.methods.codec import CLIENT, SERVER, Bit, Method, method


@method(0x0055000A, CLIENT)
class ConfirmSelect(Method):
    """confirm.select"""

    nowait: Bit = False


@method(0x0055000B, SERVER)
class ConfirmSelectOk(Method):
    """confirm.select-ok"""
