"""Who asks (`authentication`, an ASGI middleware), what they may do (`guard`, dependencies of routes), what they see of
messages (`redaction`), and what becomes of those who may not (`slowing`, `refusals`).

A route takes its caller as a parameter and says with its type which role it needs:

    async def resolve(caller: OperatorCaller, view: CurrentView, …)
"""

from redrive.admin.access.caller import Caller
from redrive.admin.access.first_token import ensure_admin_token, keep_first, mint_first
from redrive.admin.access.guard import (
    CALLER,
    AdminCaller,
    Needs,
    NeedsBeyondLoopback,
    OperatorCaller,
    PayloadCaller,
    ViewerCaller,
    WholeAdminCaller,
    caller_of,
)
from redrive.admin.access.redaction import CurrentView, Redactor
from redrive.records import View

__all__ = [
    "CALLER",
    "AdminCaller",
    "Caller",
    "CurrentView",
    "Needs",
    "NeedsBeyondLoopback",
    "OperatorCaller",
    "PayloadCaller",
    "Redactor",
    "View",
    "ViewerCaller",
    "WholeAdminCaller",
    "caller_of",
    "ensure_admin_token",
    "keep_first",
    "mint_first",
]
