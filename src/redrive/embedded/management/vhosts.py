"""Vhosts: list, make, describe, delete."""

from redrive.embedded.management.fields import short, text
from redrive.embedded.management.house import NODE, House, VhostNote
from redrive.embedded.management.listing import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, bad_request, done, found, made
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The addresses of vhosts."""
    routes.add("vhosts", get=_list)
    routes.add("vhosts/{vhost}", get=_get, put=_put, delete=_delete)


def make_vhost(house: House, name: str, *, default_queue_type: str | None) -> bool:
    """Make a vhost; False if it is there. Raises Problem for a default queue type that the engine can't give."""
    if default_queue_type not in (None, "classic", "quorum", "undefined"):
        raise bad_request(
            f"the embedded broker does not support the default queue type {default_queue_type}; give each queue its "
            "x-queue-type"
        )
    is_new = name not in house.engine.vhosts
    vhost = house.engine.add_vhost(name)
    if default_queue_type in ("classic", "quorum") and house.engine.profile.fills_in_queue_type:
        vhost.default_queue_type = default_queue_type
    return is_new


def _default_queue_type(house: House, name: str) -> str:
    return house.engine.vhosts[name].default_queue_type or house.dialect.default_queue_type


def describe_vhost(house: House, name: str) -> dict[str, JSON]:
    """What people wrote about a vhost."""
    note = house.notes.get(name, VhostNote())
    described: dict[str, JSON] = {"description": note.description, "tags": note.tags}
    if house.dialect.described_definitions:
        described["default_queue_type"] = _default_queue_type(house, name)
    return described


def _show(house: House, name: str) -> dict[str, JSON]:
    metadata = describe_vhost(house, name)
    return {
        "name": name,
        "description": metadata["description"],
        "tags": metadata["tags"],
        "default_queue_type": _default_queue_type(house, name),
        "metadata": metadata,
        "tracing": False,
        "cluster_state": {NODE: "running"},
    }


def _list(request: Request) -> Reply:
    return listed([_show(request.house, name) for name in sorted(request.house.engine.vhosts)], request.query)


def _get(request: Request, vhost: str) -> Reply:
    request.house.vhost(vhost)
    return found(chosen(_show(request.house, vhost), request.query))


def _put(request: Request, vhost: str) -> Reply:
    fields = request.fields()
    wanted = fields.get("default_queue_type")
    is_new = make_vhost(
        request.house, short(vhost, "vhost"), default_queue_type=None if wanted is None else str(wanted)
    )
    if is_new or "description" in fields or "tags" in fields:
        tags = fields.get("tags", [])
        words = tags.split(",") if isinstance(tags, str) else list(tags) if isinstance(tags, list) else []
        note = VhostNote(text(fields, "description", ""), [str(word).strip() for word in words if word])
        request.house.notes[vhost] = note
    return made(new=is_new)


def _delete(request: Request, vhost: str) -> Reply:
    """A vhost goes with all in it; its clients are told so."""
    request.house.vhost(vhost)
    request.house.broker.remove_vhost(vhost)
    request.house.notes.pop(vhost, None)
    return done()
