"""What the handler does, run by run, as words: `fail,fail,retry-after:2m,429,crash,reject,requeue,park,ok`.

    ok              it returns
    fail            it raises
    timeout         it does not end in time
    undecodable     the body is not what it takes
    429, 503:30s    an HTTP status, with a Retry-After if there is one
    retry-after:2m  it raises RetryAfter
    requeue         it raises Requeue; requeue:5s with a pause of its own
    park            it raises Park
    crash           the consumer dies while it handles the message
    reject          a plain basic.reject without requeue, whatever the shape would do
    nack            a plain basic.nack with requeue
    return          a plain basic.reject with requeue, which a quorum queue counts

`fail*3` is `fail,fail,fail`, and the last word holds for every run after it. A definitions.json does not say how a
consumer decides, so for its queues only direct actions are known: `ok`, `crash`, `reject`, `nack` and `return`; `ack`
is `ok` and `requeue` is `nack`.
"""

from dataclasses import dataclass
from enum import StrEnum

from redrive.core import (
    Answered,
    Finding,
    InvalidDuration,
    InvalidInput,
    Outcome,
    Park,
    Raised,
    Requeue,
    RetryAfter,
    Succeeded,
    TimedOut,
    Undecodable,
    did_you_mean,
    parse_duration_ms,
)

TIMES_MAX = 10_000
TIMEOUT_MS = 30_000


class SimulatedFailure(Exception):
    """What the handler raises where the script says `fail`."""


class DirectAction(StrEnum):
    """What a consumer does to a delivery directly, without a decision."""

    ACK = "ok"
    CRASH = "crash"
    REJECT = "reject"
    NACK = "nack"
    RETURN = "return"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """One run: its word, and the outcome to decide about or the direct action."""

    word: str
    does: Outcome | DirectAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The steps in order; the last one repeats."""

    steps: tuple[ScriptStep, ...]

    def step(self, run: int) -> ScriptStep:
        """What happens in a run; the first is 1."""
        return self.steps[min(run, len(self.steps)) - 1]

    @property
    def text(self) -> str:
        """The words, repeated ones together: `fail*3, ok`."""
        groups: list[tuple[str, int]] = []
        for step in self.steps:
            if groups and groups[-1][0] == step.word:
                groups[-1] = (step.word, groups[-1][1] + 1)
            else:
                groups.append((step.word, 1))
        return ", ".join(word if times == 1 else f"{word}*{times}" for word, times in groups)


class InvalidScript(InvalidInput):
    """A script has unknown words; the findings name every one."""


def parse_script(text: str, *, direct: bool = False) -> Script:
    """A script from its words. `direct`: only direct actions, for a queue that no redrive.yaml declares.

    Raises `InvalidScript`.
    """
    if not text.strip():
        raise InvalidScript([Finding(code="bad-script", address="--script", summary="the script is empty")])
    steps: list[ScriptStep] = []
    findings = []
    for written in (word.strip().lower() for word in text.split(",")):
        word, _, times = written.partition("*")
        problem = None
        if times and not (times.isascii() and times.isdigit() and 1 <= int(times) <= TIMES_MAX):
            problem = f"{written!r}: a word is repeated 1 to {TIMES_MAX} times"
        else:
            does = _direct(word) if direct else _decided(word)
            if isinstance(does, str) and not isinstance(does, DirectAction):
                problem = does
            else:
                steps += [ScriptStep(word=word, does=does)] * (int(times) if times else 1)
        if problem is not None:
            findings.append(Finding(code="bad-script", address="--script", summary=problem))
    if len(steps) > TIMES_MAX:
        summary = f"has {len(steps)} runs; {TIMES_MAX} are the most"
        findings.append(Finding(code="bad-script", address="--script", summary=summary))
    if findings:
        raise InvalidScript(findings)
    return Script(steps=tuple(steps))


def failing(times: int) -> Script:
    """Fails `times` times, then succeeds."""
    return parse_script(f"fail*{times},ok" if times else "ok")


_SIMPLE: dict[str, Outcome | DirectAction] = {
    "ok": Succeeded(),
    "fail": Raised(SimulatedFailure("as the script says")),
    "timeout": TimedOut(after_ms=TIMEOUT_MS),
    "undecodable": Undecodable(SimulatedFailure("the body is not what the handler takes")),
    "requeue": Raised(Requeue()),
    "park": Raised(Park()),
    "crash": DirectAction.CRASH,
    "reject": DirectAction.REJECT,
    "nack": DirectAction.NACK,
    "return": DirectAction.RETURN,
}
_DIRECT: dict[str, DirectAction] = {one.value: one for one in DirectAction} | {
    "ack": DirectAction.ACK,
    "requeue": DirectAction.NACK,
}


def _direct(word: str) -> DirectAction | str:
    """The direct action of a word, or what is wrong with it."""
    if word in _DIRECT:
        return _DIRECT[word]
    if not isinstance(_decided(word), str):
        return (
            f"{word!r} needs a queue that a redrive.yaml declares: FILE does not say how this queue's consumer "
            f"decides; use direct actions: {', '.join(_DIRECT)}"
        )
    return f"there is no word {word!r}; {did_you_mean(word, _DIRECT)}"


def _decided(word: str) -> Outcome | DirectAction | str:
    """The outcome or direct action of a word, or what is wrong with it."""
    if word in _SIMPLE:
        return _SIMPLE[word]
    name, colon, argument = word.partition(":")
    try:
        duration_ms = parse_duration_ms(argument) if colon else None
    except InvalidDuration as problem:
        return f"{word!r}: {problem}"
    if name.isascii() and name.isdigit() and len(name) == 3 and 100 <= int(name) <= 599:
        return Answered(status=int(name), retry_after_ms=duration_ms)
    if name == "retry-after" and duration_ms is not None:
        return Raised(RetryAfter(duration_ms / 1000))
    if name == "requeue" and duration_ms is not None:
        return Raised(Requeue(duration_ms / 1000))
    if name == "retry-after":
        return "retry-after needs a duration: retry-after:2m"
    if name.isascii() and name.isdigit():
        return f"there is no word {word!r}; any HTTP status from 100 to 599 is one"
    return f"there is no word {word!r}; {did_you_mean(name, [*_SIMPLE, 'retry-after', '503'])}"
