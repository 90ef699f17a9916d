"""The JSON Schema of `redrive.yaml`, for editors: generated from the reader's keys and the shapes' options."""

from dataclasses import fields
from typing import Any

from redrive.topology.declaration.auto_retry_reader import ATTEMPTS, PAUSE
from redrive.topology.declaration.data_reader import PAUSE_AFTER
from redrive.topology.declaration.keys import (
    APPLY_TO,
    AUTO_RETRY_KEYS,
    BINDING_KEYS,
    DEFAULT_KEYS,
    EXCHANGE_KEYS,
    POLICY_KEYS,
    QUEUE_KEYS,
    TOP_KEYS,
)
from redrive.topology.model import ExchangeType, QueueType
from redrive.topology.option_types import Delays
from redrive.topology.shapes import DEFAULT_SHAPE, SHAPES, Shape

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_FLAG: dict[str, Any] = {"type": "boolean"}
_ARGUMENTS: dict[str, Any] = {"type": ["object", "null"]}


def declaration_schema() -> dict[str, Any]:
    """The whole schema, JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "redrive.yaml",
        "description": "RabbitMQ queues and how they retry.",
        **_object(
            {
                "vhost": _TEXT | {"description": "the vhost everything is declared in", "default": "/"},
                "broker": _TEXT | {"description": "amqp(s)://… , when neither --url nor REDRIVE_URL says one"},
                "database": _TEXT | {"description": "sqlite:///… or postgresql://…, for dead letters"},
                "exchanges": _named({"oneOf": [_exchange_type(), {"$ref": "#/$defs/exchange"}]}, "name: type"),
                "defaults": {"$ref": "#/$defs/defaults"},
                "queues": _named({"$ref": "#/$defs/queue"}, "name: where it binds and how it retries"),
                "services": {
                    "description": "services of shape service, by name",
                    "oneOf": [{"type": "array", "items": _TEXT}, _named({"$ref": "#/$defs/queue"}, "")],
                },
                "policies": _named({"$ref": "#/$defs/policy"}, "name: policy"),
                "operator_policies": _named({"$ref": "#/$defs/policy"}, "name: operator policy"),
            },
            TOP_KEYS,
        ),
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Any]:
    queue = {
        "from": {"$ref": "#/$defs/from"},
        "type": {"enum": list(QueueType), "description": "left out, the shape decides"},
        "durable": _FLAG | {"default": True},
        "auto_delete": _FLAG | {"default": False},
        "arguments": _ARGUMENTS | {"description": "RabbitMQ's own x-… arguments"},
        "retry": {"$ref": "#/$defs/retry"},
        "service": _TEXT | {"description": "the service dead letters are filed under"},
        "pause_after": PAUSE_AFTER.schema()
        | {"description": "failures in a row, as of a dependency that is down, that pause its consumers; 0 is never"},
        "auto_retry": {"$ref": "#/$defs/auto-retry"},
    }
    return {
        "exchange": _object(
            {
                "type": _exchange_type(),
                "durable": _FLAG | {"default": True},
                "auto_delete": _FLAG | {"default": False},
                "internal": _FLAG | {"default": False, "description": "no client may publish to it"},
                "alternate": _TEXT | {"description": "takes what no binding matches"},
                "arguments": _ARGUMENTS,
                "from": {"$ref": "#/$defs/from"},
            },
            EXCHANGE_KEYS,
        )
        | {"required": ["type"]},
        "queue": _object(queue, QUEUE_KEYS, empty=True),
        "defaults": _object({key: queue[key] for key in DEFAULT_KEYS}, DEFAULT_KEYS, empty=True)
        | {"description": "merged into every queue, key by key"},
        "from": {
            "description": "exchange: routing keys; an exchange alone where keys mean nothing",
            "oneOf": [
                _TEXT,
                {"type": "array", "items": _TEXT},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/keys"}},
                {"type": "null"},
            ],
        },
        "keys": {
            "oneOf": [
                {"type": ["string", "null"], "maxLength": 255},
                {"$ref": "#/$defs/binding"},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"oneOf": [{"type": ["string", "null"], "maxLength": 255}, {"$ref": "#/$defs/binding"}]},
                },
            ]
        },
        "binding": _object({"key": {"type": ["string", "null"]}, "arguments": _ARGUMENTS}, BINDING_KEYS),
        "policy": _object(
            {
                "pattern": _TEXT,
                "definition": {"type": "object"},
                "apply_to": {"enum": list(APPLY_TO)},
                "priority": {"type": "integer"},
            },
            POLICY_KEYS,
        )
        | {"required": ["pattern", "definition"]},
        "auto-retry": {
            "description": "sends its dead letters back by themselves; `redrive serve` does it, every 30 s",
            "anyOf": [
                _FLAG,
                {"type": "null"},
                _object(
                    {
                        "attempts": ATTEMPTS.schema() | {"default": 3, "description": "redrives before it is failed"},
                        "first": PAUSE.schema()
                        | {"default": "1s", "description": "the first pause, doubled each time"},
                        "max": PAUSE.schema() | {"default": "1m", "description": "the longest pause"},
                        "settle": PAUSE.schema()
                        | {"default": "10m", "description": "not come back for so long is resolved"},
                    },
                    AUTO_RETRY_KEYS,
                ),
            ],
        },
        "retry": {
            "description": f"delays, for shape {DEFAULT_SHAPE}; or a shape with its options; or false for none",
            "anyOf": [
                {"const": False},
                {"type": "null"},
                Delays().schema(),
                *({"$ref": f"#/$defs/retry-{name}"} for name in SHAPES),
            ],
        },
        **{f"retry-{name}": _shape(shape) for name, shape in SHAPES.items()},
    }


def _shape(shape: type[Shape]) -> dict[str, Any]:
    """A shape's options. `shape` itself may be missing: a default may say it."""
    options: dict[str, Any] = {"shape": {"const": shape.name}}
    for one in fields(shape):
        kind = one.metadata["type"].schema()
        described = "; ".join(part for part in (one.metadata["doc"], kind.pop("description", "")) if part)
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        options[one.name] = kind | {"description": described} | ({} if default is None else {"default": default})
    return _object(options, ("shape", *(one.name for one in fields(shape)))) | {
        "description": (shape.__doc__ or "").strip()
    }


def _object(properties: dict[str, Any], keys: tuple[str, ...], *, empty: bool = False) -> dict[str, Any]:
    assert set(properties) == set(keys), "the schema and the reader must know the same keys"
    return {"type": ["object", "null"] if empty else "object", "additionalProperties": False, "properties": properties}


def _named(entry: dict[str, Any], description: str) -> dict[str, Any]:
    described = {"description": description} if description else {}
    return {"type": ["object", "null"], "additionalProperties": entry} | described


def _exchange_type() -> dict[str, Any]:
    return {"anyOf": [{"enum": list(ExchangeType)}, {"type": "string", "pattern": "^x-"}]}
