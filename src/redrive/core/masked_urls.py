"""URLs as they may be shown: without passwords, even if the URL was mistyped."""

import re

MASK = "***"
_SCHEME = re.compile(r"(?:amqps?|https?|postgres(?:ql)?|sqlite):/*", re.IGNORECASE)
_NO_PORT = re.compile(r"([^:/?#@\[]*):(?!\d{1,5}(?:[,/?#]|$)).*", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&#]*(?:password|passphrase|secret|token|key)[^=&#]*)=[^&#]*")


def mask_url(text: str) -> str:
    """Masks the secrets in a URL, or in what was meant as one. Everything up to the last @ belongs to the account: a
    password that should have been quoted may have any character. Without an @, what follows a colon and is no port may
    be a password."""
    found = _SCHEME.match(text)
    scheme = "" if found is None else found[0]
    account, at, place = text[len(scheme) :].rpartition("@")
    if at:
        user, colon, _ = account.partition(":")
        account = f"{user}:{MASK}" if colon else account if scheme.endswith("//") else MASK
    elif not scheme.lower().startswith("sqlite"):
        place = _NO_PORT.sub(rf"\1:{MASK}", place, count=1) if _NO_PORT.match(place) else place
    return _SECRET_PARAMETER.sub(rf"\1={MASK}", f"{scheme}{account}{at}{place}")
