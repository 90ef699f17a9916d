"""The client's answers while a connection opens, and the sentence for a person when it does not open.

Pure: the target comes in, a method or a sentence goes out.
"""

import ssl

from redrive import wire
from redrive.client.amqp_url import BrokerTarget
from redrive.client.errors import AuthenticationFailed, ConnectionFailed
from redrive.wire import methods

_CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)
_TLS_RECORDS = (0x15, 0x16)
"""How TLS begins: an alert, or a handshake."""
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_WRONG_NAME = (62, 64)


def answer_start(start: methods.ConnectionStart, target: BrokerTarget, *, name: str) -> methods.ConnectionStartOk:
    """The start-ok that logs in. Raises `AuthenticationFailed` if the broker does not offer the target's mechanism."""
    offered = start.mechanisms.split()
    if target.mechanism not in offered:
        raise AuthenticationFailed((f"the broker does not offer {target.mechanism}, only {', '.join(offered)}",))
    response = b""  # EXTERNAL: the certificate is the login
    if target.mechanism == "PLAIN":
        response = wire.plain_response(target.user, target.password)
    elif target.mechanism == "AMQPLAIN":
        response = wire.amqplain_response(target.user, target.password)
    properties = {
        "product": "Redrive",
        "platform": "Python",
        "connection_name": name,
        "capabilities": dict.fromkeys(_CAPABILITIES, True),
    }
    return methods.ConnectionStartOk(client_properties=properties, mechanism=target.mechanism, response=response)


def refusal(code: int, text: str, *, where: str) -> ConnectionFailed:
    """The error for a connection.close before open-ok: 403 is a failed login, 530 a vhost this user may not use."""
    failed = AuthenticationFailed if code in (403, 530) else ConnectionFailed
    return failed((f"{where}: {code} {text}",))


def not_amqp(first: bytes) -> str:
    """A sentence about a server that began with these bytes instead of AMQP; without any, it hung up at once."""
    if not first:
        return (
            "it hung up without a word of AMQP; is a broker up there, and is this its AMQP port (not that of the "
            "management API, nor that of TLS)?"
        )
    if first.startswith(b"HTTP/"):
        return "it speaks HTTP and not AMQP; is this the port of the management API?"
    if first[0] in _TLS_RECORDS:
        return "it speaks TLS; write amqps:// for this port"
    return f"it does not speak AMQP: it begins with {first[:16]!r}"


def explain(error: Exception) -> str:
    """One sentence about an error of the operating system or of TLS, with what to do where that is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = error.verify_message.rstrip(".")
        if error.verify_code in _WRONG_NAME:
            hint = "connect by a name the certificate has, or give that name with server_name_indication=…"
        else:
            hint = "give the CA that signed it with cacertfile=…"
        return f"the broker's certificate can't be trusted: {problem}; {hint}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            return f"the broker ended the TLS handshake ({reason}); give a client certificate it trusts with certfile=…"
        return f"TLS failed ({reason}); is this the broker's TLS port?"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused; does a broker run there?"  # asyncio's own text has the address again
    return str(getattr(error, "strerror", None) or error)
