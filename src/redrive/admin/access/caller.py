"""The caller of a request, as routes know it: a role, queues, and whether it sees payloads."""

from dataclasses import dataclass

from redrive.records import DeadLetter, NameTerm, Role, Term, Token, covers, guess_failed_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request. `queues` are names with `*`; none means every queue."""

    token_id: str
    name: str
    role: Role
    queues: tuple[str, ...] = ()
    dlqs: tuple[str, ...] = ()
    """Dead-letter queues of `queues` whose own names are not among them."""
    sees_payloads: bool = False

    @property
    def who(self) -> str:
        """The name for the audit."""
        return self.name

    @property
    def all_dlqs(self) -> tuple[str, ...]:
        """The dead-letter queues whose letters the caller may see, names with `*`; none means every one."""
        return (*self.queues, *self.dlqs) if self.queues else ()

    def may(self, needed: Role) -> bool:
        """Whether the role is enough."""
        return self.role.includes(needed)

    def scope_terms(self) -> tuple[Term, ...]:
        """Terms to add to every filter, so that it finds only what the caller may see; none: everything."""
        return (NameTerm(field="dlq", values=self.all_dlqs),) if self.queues else ()

    def sees(self, letter: DeadLetter) -> bool:
        """Whether the caller may see a dead letter: by the queue it was collected from, never by what it says."""
        return self.sees_dlq(letter.dlq)

    def sees_dlq(self, dlq: str) -> bool:
        """Whether the caller may see what lies in a dead-letter queue."""
        return covers(self.queues, dlq) or dlq in self.dlqs

    def knows_dlq(self, dlq: str, declared_for: str | None) -> bool:
        """Whether the caller may see a dead-letter queue of the broker: by its name or its declaration, as for its
        letters once they are collected."""
        if self.sees_dlq(dlq):
            return True
        return "*" not in dlq and self.may_use(guess_failed_queue(dlq) if declared_for is None else declared_for)

    def may_use(self, queue: str) -> bool:
        """Whether the caller may use a queue."""
        return covers(self.queues, queue)


LOCAL = Caller(token_id="local", name="local", role=Role.ADMIN, sees_payloads=True)
"""The caller of an API without authentication, which listens on this machine only."""


def caller_with(token: Token, *, dlqs: tuple[str, ...] = ()) -> Caller:
    """The caller with this valid token."""
    return Caller(
        token_id=token.id,
        name=token.name,
        role=token.role,
        queues=token.queues,
        dlqs=dlqs,
        sees_payloads=token.shows_payloads,
    )
