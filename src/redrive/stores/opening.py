"""The message of a content: out of its envelope, where it was parked in one. Contents are kept as they came."""

from redrive.records import MessageContent
from redrive.wire import open_envelope


def unwrap_envelope(content: MessageContent) -> MessageContent:
    """The message itself; the content as it is, where it is no whole envelope. To open it again changes nothing."""
    found = open_envelope(content.properties, content.body)
    return content if found is None else MessageContent(properties=found[0].raw, body=found[1])
