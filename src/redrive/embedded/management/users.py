"""Users and permissions, to be looked at: every user of the embedded broker is an administrator who may do everything.

Password hashes are RabbitMQ's kind, so that exported users log in after an import there. Their salt is made from the
name: the same broker always exports the same text.
"""

import base64
import hashlib

from redrive.embedded.management.house import House
from redrive.embedded.management.listing import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, found, object_not_found
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The addresses of users."""
    routes.add("whoami", get=_whoami)
    routes.add("users", get=lambda request: listed(show_users(request.house), request.query))
    routes.add("users/{user}", get=_get)
    routes.add("users/{user}/permissions", get=_of_user)
    routes.add("permissions", get=lambda request: listed(show_permissions(request.house), request.query))
    routes.add("permissions/{vhost}/{user}", get=_permission)
    routes.add("vhosts/{vhost}/permissions", get=_of_vhost)
    routes.add("topic-permissions", get=lambda _request: found([]))


def show_users(house: House) -> list[dict[str, JSON]]:
    """Every user, as definitions hold them too."""
    return [
        {
            "name": name,
            "password_hash": _password_hash(name, password),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {},
        }
        for name, password in house.broker.users.items()
    ]


def show_permissions(house: House) -> list[dict[str, JSON]]:
    """Everybody may do everything everywhere."""
    return [
        {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for user in house.broker.users
        for vhost in sorted(house.engine.vhosts)
    ]


def _whoami(request: Request) -> Reply:
    return found({"name": request.user, "tags": ["administrator"]})


def _get(request: Request, user: str) -> Reply:
    for one in show_users(request.house):
        if one["name"] == user:
            return found(chosen(one, request.query))
    raise object_not_found()


def _of_user(request: Request, user: str) -> Reply:
    _get(request, user)
    return listed([one for one in show_permissions(request.house) if one["user"] == user], request.query)


def _of_vhost(request: Request, vhost: str) -> Reply:
    request.house.vhost(vhost)
    return listed([one for one in show_permissions(request.house) if one["vhost"] == vhost], request.query)


def _permission(request: Request, vhost: str, user: str) -> Reply:
    for one in show_permissions(request.house):
        if one["vhost"] == vhost and one["user"] == user:
            return found(one)
    raise object_not_found()


def _password_hash(name: str, password: str) -> str:
    salt = hashlib.sha256(name.encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
