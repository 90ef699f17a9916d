"""Users and permissions, read-only: every user of the embedded broker may do everything, whatever its tags.

A request to grant all permissions succeeds without effect; any other change is refused with the reason.

Password hashes are RabbitMQ's kind, so that exported users log in after an import there. Their salt is made from the
name: the same broker always exports the same text.
"""

import base64
import hashlib

from redrive.embedded.management.broker_view import BrokerView
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, bad_request, found, made, object_not_found
from redrive.embedded.management.request_fields import text
from redrive.embedded.management.routes import Request, Routes

_RIGHTS = ("configure", "write", "read")


def add_routes(routes: Routes) -> None:
    """The routes of users."""
    routes.add("whoami", get=_whoami)
    routes.add("users", get=lambda request: listed(show_users(request.view), request.query))
    routes.add("users/without-permissions", get=lambda _request: found([]))
    routes.add("users/{user}", get=_get, put=_keep_user, delete=_keep_user)
    routes.add("users/{user}/permissions", get=_of_user)
    routes.add("users/{user}/topic-permissions", get=_nothing_of_user)
    routes.add("permissions", get=lambda request: listed(show_permissions(request.view), request.query))
    routes.add("permissions/{vhost}/{user}", get=_permission, put=_grant, delete=_revoke)
    routes.add("vhosts/{vhost}/permissions", get=_of_vhost)
    routes.add("vhosts/{vhost}/topic-permissions", get=_nothing_of_vhost)
    routes.add("topic-permissions", get=lambda _request: found([]))
    routes.add("user-limits", get=lambda _request: found([]))
    routes.add("user-limits/{user}", get=_nothing_of_user)
    routes.add("vhost-limits", get=lambda _request: found([]))
    routes.add("vhost-limits/{vhost}", get=_nothing_of_vhost)


def show_users(view: BrokerView) -> list[dict[str, JSON]]:
    """Every user, as definitions hold them too."""
    return [
        {
            "name": name,
            "password_hash": _password_hash(name, password),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": list(view.broker.tags[name]),
            "limits": {},
        }
        for name, password in view.broker.users.items()
    ]


def show_permissions(view: BrokerView) -> list[dict[str, JSON]]:
    """Every user may do everything in every vhost."""
    return [
        {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for user in view.broker.users
        for vhost in sorted(view.engine.vhosts)
    ]


def _whoami(request: Request) -> Reply:
    return found({"name": request.user, "tags": list(request.view.broker.tags[request.user])})


def _get(request: Request, user: str) -> Reply:
    for one in show_users(request.view):
        if one["name"] == user:
            return found(chosen(one, request.query))
    raise object_not_found()


def _of_user(request: Request, user: str) -> Reply:
    _get(request, user)
    return listed([one for one in show_permissions(request.view) if one["user"] == user], request.query)


def _of_vhost(request: Request, vhost: str) -> Reply:
    request.view.vhost(vhost)
    return listed([one for one in show_permissions(request.view) if one["vhost"] == vhost], request.query)


def _permission(request: Request, vhost: str, user: str) -> Reply:
    for one in show_permissions(request.view):
        if one["vhost"] == vhost and one["user"] == user:
            return found(one)
    raise object_not_found()


def _nothing_of_user(request: Request, user: str) -> Reply:
    _get(request, user)
    return found([])


def _nothing_of_vhost(request: Request, vhost: str) -> Reply:
    request.view.vhost(vhost)
    return found([])


def _grant(request: Request, vhost: str, user: str) -> Reply:
    """RabbitMQ's answer for a missing vhost or user (measured); otherwise only full permissions are accepted."""
    if vhost not in request.view.engine.vhosts or user not in request.view.broker.users:
        raise bad_request("vhost_or_user_not_found")
    fields = request.fields()
    rights = {name: text(fields, name) for name in _RIGHTS}
    if any(pattern != ".*" for pattern in rights.values()):
        raise bad_request(f"the embedded broker has no permissions: {user} may do everything in every vhost")
    return made(new=False)


def _revoke(request: Request, vhost: str, user: str) -> Reply:
    _permission(request, vhost, user)
    raise bad_request(f"the embedded broker has no permissions: {user} may do everything in every vhost")


def _keep_user(request: Request, user: str) -> Reply:
    raise bad_request(f"the embedded broker's users come with it and can't be changed; {user} is left as it is")


def _password_hash(name: str, password: str) -> str:
    salt = hashlib.sha256(name.encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
