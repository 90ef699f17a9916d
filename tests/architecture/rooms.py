"""The rooms of `src/redrive`, lowest first, and what each may import. ARCHITECTURE.md is drawn from this table.

A room may import rooms of lower layers, and of its own layer those that stand before it: never more than is listed
here. A package that is not listed does not exist.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Rooms that a reader meets together; `owns` is what they are for."""

    owns: str
    rooms: dict[str, set[str]]


LAYERS = (
    Layer(
        owns="pure: no I/O, no clock, no randomness, no logging",
        rooms={
            "core": set(),
            "wire": {"core"},
            "topology": {"core"},
            "records": {"core"},
        },
    ),
    Layer(
        owns="adapters: AMQP, RabbitMQ's HTTP API, SQL, the embedded broker, logs and metrics",
        rooms={
            "http1": set(),
            "client": {"core", "wire"},
            "inspection": {"client"},
            "management": {"core", "topology"},
            "stores": {"core", "wire", "records"},
            "embedded": {"core", "wire", "topology", "http1"},
            "telemetry": {"core", "http1"},
        },
    ),
    Layer(
        owns="use cases",
        rooms={
            "runtime": {"core", "wire", "topology", "client", "inspection"},
            "deploy": {"core", "topology", "client", "inspection"},
            "deadletters": {"core", "wire", "records", "topology", "client", "inspection", "management", "stores"},
            "simulation": {"core", "topology", "embedded", "runtime"},
        },
    ),
    Layer(
        owns="chooses the client, the broker and the store for a use case",
        rooms={
            "wiring": {
                "core",
                "wire",
                "topology",
                "records",
                "client",
                "inspection",
                "management",
                "stores",
                "embedded",
                "telemetry",
                "runtime",
                "deploy",
                "deadletters",
            },
        },
    ),
    Layer(
        owns="what people, machines and tests touch; parts come from wiring",
        rooms={
            "testing": {"core", "embedded", "wiring"},
            "demo": {"core", "topology", "client", "embedded", "runtime", "deploy", "wiring"},
            "admin": {"core", "records", "client", "management", "stores", "deadletters", "wiring"},
            "serving": {
                "core",
                "records",
                "client",
                "management",
                "stores",
                "telemetry",
                "deadletters",
                "wiring",
                "admin",
            },
            "cli": {
                "core",
                "topology",
                "records",
                "stores",
                "runtime",
                "deploy",
                "deadletters",
                "simulation",
                "wiring",
                "demo",
                "serving",
            },
        },
    ),
)

ROOMS = {name: allowed for layer in LAYERS for name, allowed in layer.rooms.items()} | {"__main__": {"cli"}}
PURE = set(LAYERS[0].rooms)
FOUNDATION = {"lazy_exports"}
"""No rooms: modules that import nothing of redrive, and that every room may import."""
PARTS = {"Client", "Collector", "EmbeddedBroker", "Management", "Redriver", "Runner", "Telemetry", "open_store"}
"""What wiring chooses. `cli` and `admin` import values, errors and types of the rooms below, but none of these."""


def draw_rooms() -> str:
    """The layers, highest first, and the imports of each room, as Markdown."""
    lines = ["  ".join(f"{name}/" for name in reversed(layer.rooms)) for layer in LAYERS]
    width = max(map(len, lines)) + 3
    drawing = [
        f"{line:<{width}}{layer.owns}".rstrip() for line, layer in reversed(list(zip(lines, LAYERS, strict=True)))
    ]
    order = list(ROOMS)
    rows = [
        f"| `{name}` | {', '.join(f'`{one}`' for one in sorted(allowed, key=order.index)) or '–'} |"
        for layer in reversed(LAYERS)
        for name, allowed in reversed(layer.rooms.items())
    ]
    return "\n".join(["```", *drawing, "```", "", "| room | may import |", "|---|---|", *rows])
