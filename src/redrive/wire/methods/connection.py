"""connection.*: a connection begins, is tuned, blocked and closed.

What holds a secret is left out of the readable form, which ends up in logs.
"""

from dataclasses import field

from redrive.wire.methods.codec import (
    CLIENT,
    EITHER,
    SERVER,
    Bit,
    Long,
    LongBytes,
    LongText,
    Method,
    Octet,
    Short,
    ShortText,
    Table,
    method,
)


@method(0x000A000A, SERVER)
class ConnectionStart(Method):
    """connection.start"""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = field(default_factory=dict)
    mechanisms: LongText = "PLAIN AMQPLAIN"
    locales: LongText = "en_US"


@method(0x000A000B, CLIENT)
class ConnectionStartOk(Method):
    """connection.start-ok"""

    client_properties: Table = field(default_factory=dict)
    mechanism: ShortText = "PLAIN"
    response: LongBytes = field(default=b"", repr=False)
    locale: ShortText = "en_US"


@method(0x000A0014, SERVER)
class ConnectionSecure(Method):
    """connection.secure"""

    challenge: LongBytes = b""


@method(0x000A0015, CLIENT)
class ConnectionSecureOk(Method):
    """connection.secure-ok"""

    response: LongBytes = field(default=b"", repr=False)


@method(0x000A001E, SERVER)
class ConnectionTune(Method):
    """connection.tune"""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat_s: Short = 0


@method(0x000A001F, CLIENT)
class ConnectionTuneOk(Method):
    """connection.tune-ok"""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat_s: Short = 0


@method(0x000A0028, CLIENT)
class ConnectionOpen(Method):
    """connection.open"""

    virtual_host: ShortText = "/"
    capabilities: ShortText = ""
    insist: Bit = False


@method(0x000A0029, SERVER)
class ConnectionOpenOk(Method):
    """connection.open-ok"""

    known_hosts: ShortText = ""


@method(0x000A0032, EITHER)
class ConnectionClose(Method):
    """connection.close"""

    reply_code: Short = 200
    reply_text: ShortText = ""
    class_id: Short = 0
    method_id: Short = 0


@method(0x000A0033, EITHER)
class ConnectionCloseOk(Method):
    """connection.close-ok"""


@method(0x000A003C, SERVER)
class ConnectionBlocked(Method):
    """connection.blocked"""

    reason: ShortText = ""


@method(0x000A003D, SERVER)
class ConnectionUnblocked(Method):
    """connection.unblocked"""


@method(0x000A0046, CLIENT)
class ConnectionUpdateSecret(Method):
    """connection.update-secret"""

    new_secret: LongBytes = field(default=b"", repr=False)
    reason: ShortText = ""


@method(0x000A0047, SERVER)
class ConnectionUpdateSecretOk(Method):
    """connection.update-secret-ok"""
