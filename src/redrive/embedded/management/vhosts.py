"""Vhosts: list, create, describe, delete."""

from redrive.embedded.management.broker_view import NODE, BrokerView, VhostNote
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, bad_request, done, found, made
from redrive.embedded.management.request_fields import short, text
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The routes of vhosts."""
    routes.add("vhosts", get=_list)
    routes.add("vhosts/{vhost}", get=_get, put=_put, delete=_delete)


def make_vhost(view: BrokerView, name: str, *, default_queue_type: str | None) -> bool:
    """Create a vhost; False if it exists. Raises ApiError for a default queue type that is not supported."""
    if default_queue_type not in (None, "classic", "quorum", "undefined"):
        raise bad_request(
            f"the embedded broker does not support the default queue type {default_queue_type}; give each queue its "
            "x-queue-type"
        )
    is_new = name not in view.engine.vhosts
    vhost = view.engine.add_vhost(name)
    if default_queue_type in ("classic", "quorum") and view.engine.profile.fills_in_queue_type:
        vhost.default_queue_type = default_queue_type
    return is_new


def _default_queue_type(view: BrokerView, name: str) -> str:
    return view.engine.vhosts[name].default_queue_type or view.api_profile.default_queue_type


def describe_vhost(view: BrokerView, name: str) -> dict[str, JSON]:
    """A vhost's description and tags."""
    note = view.notes.get(name, VhostNote())
    described: dict[str, JSON] = {"description": note.description, "tags": note.tags}
    if view.api_profile.described_definitions:
        described["default_queue_type"] = _default_queue_type(view, name)
    return described


def _show(view: BrokerView, name: str) -> dict[str, JSON]:
    metadata = describe_vhost(view, name)
    return {
        "name": name,
        "description": metadata["description"],
        "tags": metadata["tags"],
        "default_queue_type": _default_queue_type(view, name),
        "metadata": metadata,
        "tracing": False,
        "cluster_state": {NODE: "running"},
    }


def _list(request: Request) -> Reply:
    return listed([_show(request.view, name) for name in sorted(request.view.engine.vhosts)], request.query)


def _get(request: Request, vhost: str) -> Reply:
    request.view.vhost(vhost)
    return found(chosen(_show(request.view, vhost), request.query))


def _put(request: Request, vhost: str) -> Reply:
    fields = request.fields()
    wanted = fields.get("default_queue_type")
    is_new = make_vhost(request.view, short(vhost, "vhost"), default_queue_type=None if wanted is None else str(wanted))
    if is_new or "description" in fields or "tags" in fields:
        tags = fields.get("tags", [])
        words = tags.split(",") if isinstance(tags, str) else list(tags) if isinstance(tags, list) else []
        note = VhostNote(text(fields, "description", ""), [str(word).strip() for word in words if word])
        request.view.notes[vhost] = note
    return made(new=is_new)


def _delete(request: Request, vhost: str) -> Reply:
    """Delete a vhost with everything in it; its connections are closed."""
    request.view.vhost(vhost)
    request.view.broker.remove_vhost(vhost)
    request.view.notes.pop(vhost, None)
    return done()
