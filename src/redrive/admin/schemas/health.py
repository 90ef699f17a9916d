"""Schemas of health and readiness."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Health(BaseModel):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether everything can be reached; `ok` or a sentence for each part. A wrong clock harms nothing that several
    instances share, because the database's clock decides; it should be set nevertheless."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"status": "ready", "database": "ok", "broker": "ok", "worker": "collecting", "clock": "ok"}]
        }
    )
    status: Literal["ready", "not ready"]
    database: str
    broker: str
    worker: str
    clock: str
