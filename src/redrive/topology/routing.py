"""How an exchange decides: does a binding's key match a message's?"""

from redrive.topology.model import ExchangeType


def routes(exchange_type: str, binding_key: str, routing_key: str) -> bool:
    """Whether a binding takes a message, as far as the keys say. Headers and plugin exchanges never do for certain."""
    match exchange_type:
        case ExchangeType.FANOUT:
            return True
        case ExchangeType.DIRECT:
            return binding_key == routing_key
        case ExchangeType.TOPIC:
            return topic_matches(binding_key, routing_key)
    return False


def topic_matches(pattern: str, routing_key: str) -> bool:
    """RabbitMQ's topic match: words between dots, `*` one word, `#` any number of words, none included."""
    words = routing_key.split(".") if routing_key else []
    # The set of word positions the pattern read so far can have reached: linear in words × pattern, never exponential.
    reached = {0}
    for part in pattern.split(".") if pattern else []:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached
