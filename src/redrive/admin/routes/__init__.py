"""The routes: one module a subject, each with a `router`."""

from fastapi import APIRouter

from redrive.admin.routes import (
    audit,
    bookly,
    events,
    groups,
    health,
    messages,
    pipeline,
    queues,
    redactions,
    redrives,
    rules,
    statistics,
    tokens,
)

ROUTERS: tuple[APIRouter, ...] = (
    messages.router,
    groups.router,
    redrives.router,
    statistics.router,
    queues.router,
    rules.router,
    events.router,
    audit.router,
    tokens.router,
    redactions.router,
    bookly.router,
    pipeline.router,
    health.router,
)
"""In the order of the documentation."""
