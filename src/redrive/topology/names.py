"""What RabbitMQ refuses in a name, and what it takes but silently changes or can never reach again.

Measured on 3.10.8, 4.0.5 and 4.3.6, alike on all three:

- over AMQP a name is a short string of at most 255 bytes; the management API says 400 above that, while an import of
  definitions takes any length and leaves a queue that no client can name;
- `amq.` is reserved: 403 over AMQP, and an import skips the object without an error;
- carriage returns and line feeds are removed from names over AMQP (`c\\r\\nd` becomes queue `cd`) and kept by an
  import, so the two ways make two queues;
- every other control character, NUL included, is taken as it is. They are refused here all the same: no tool shows
  them, and databases refuse NUL.
"""

import unicodedata

NAME_BYTES_MAX = 255
RESERVED_PREFIX = "amq."

_RESERVING = frozenset({"queue", "exchange"})
_NAMELESS = {
    "queue": "is empty, for which RabbitMQ would make up a name",
    "exchange": "is empty, which is the default exchange's name",
}


def name_problem(name: str, kind: str = "queue") -> str | None:
    """Why `name` can't be the name of a `kind` ("queue", "exchange", "vhost", "policy"), as one phrase; None if it can.

    A routing key is no name: it may be empty and may begin with `amq.`; ask for it with the kind "routing key".
    """
    if not name:
        return None if kind == "routing key" else _NAMELESS.get(kind, "is empty")
    # Nearly every name is one of these; only the others need a closer look.
    if len(name) <= NAME_BYTES_MAX and name.isascii() and name.isprintable() and name[:4] != RESERVED_PREFIX:
        return None
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character and can't be sent"
    if size > NAME_BYTES_MAX:
        return f"has {size} bytes as UTF-8, and RabbitMQ takes at most {NAME_BYTES_MAX} bytes"
    if kind in _RESERVING and name.startswith(RESERVED_PREFIX):
        return f"begins with `{RESERVED_PREFIX}`, which RabbitMQ keeps for itself"
    return _control_problem(name)


def _control_problem(name: str) -> str | None:
    for character in name:
        if unicodedata.category(character) == "Cc":
            code = f"U+{ord(character):04X}"
            if character in "\r\n":
                return f"holds a line break (control character {code}), which RabbitMQ removes over AMQP"
            return f"holds the control character {code}, which no tool shows"
    return None
