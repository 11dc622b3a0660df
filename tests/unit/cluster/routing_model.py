"""The protocol of routing in small, so that every one of its states can be visited.

One chat, one node that hears it, a registry that forgets, and two workers, of which one may be a zombie: it
was put out of its group and does not know it. A `Protocol` with its defaults is what the code does; each
other value is a change that looks harmless and is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

ENTRIES = 2
FAULTS = 2
"""How often the registry forgets, a worker dies or takes over, or a node does not confirm."""

IDLE, REGISTERED, READ = range(3)


@dataclass(frozen=True)
class Protocol:
    registers_first: bool = True
    """And then reads the head; otherwise the other way round."""
    notices_loss: bool = True
    """A renewal that finds its registration gone registers and reads again; otherwise it is set again."""
    looks_up_afterwards: bool = True
    """A worker has the event when it looks up who hears it; otherwise it knows that from before."""
    waits_for_confirmation: bool = True
    """The offset is committed when the node has confirmed; otherwise as soon as the interest is known."""


@dataclass(frozen=True)
class Worker:
    """`at`: the event that it is about. `heard`: what a lookup said, if there was one."""

    at: int = 0
    has_event: bool = False
    heard: bool | None = None


@dataclass(frozen=True)
class State:
    """`got`: the node fills every gap below what it knows of, so the highest is enough."""

    stored: int = 0
    is_registered: bool = False
    phase: int = IDLE
    head: int = 0
    got: int = 0
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    is_zombie_there: bool = False
    committed: int = 0
    faults: int = 0


def steps(state: State, protocol: Protocol) -> Iterator[State]:
    """What happens by itself, in any order."""
    if state.stored < ENTRIES:
        yield replace(state, stored=state.stored + 1)
    yield from _node_steps(state, protocol)
    for number, worker in enumerate(state.workers):
        if number == 0 or state.is_zombie_there:
            yield from _worker_steps(state, protocol, number, worker)


def faults(state: State) -> Iterator[State]:
    if state.faults == FAULTS:
        return
    after = replace(state, faults=state.faults + 1)
    yield replace(after, is_registered=False)  # it forgot, or the node was paused beyond its lease
    first, second = state.workers
    yield replace(after, workers=(Worker(state.committed), second))  # it died, and another one begins
    yield replace(after, workers=(Worker(state.committed), first), is_zombie_there=True)
    if first.heard and first.has_event:  # the node does not confirm: its tenure is ended, and the event done
        yield _done(replace(after, is_registered=False), 0, first)


def _node_steps(state: State, protocol: Protocol) -> Iterator[State]:
    if state.phase == IDLE:
        if protocol.registers_first:
            yield replace(state, is_registered=True, phase=REGISTERED)
        else:
            yield replace(state, got=max(state.got, state.stored), phase=REGISTERED)
    elif state.phase == REGISTERED:
        if protocol.registers_first:
            yield replace(state, got=max(state.got, state.stored), phase=READ)
        else:
            yield replace(state, is_registered=True, phase=READ)
    elif not state.is_registered:
        if protocol.notices_loss:
            yield replace(state, phase=IDLE)
        else:
            yield replace(state, is_registered=True)


def _worker_steps(state: State, protocol: Protocol, number: int, worker: Worker) -> Iterator[State]:
    if worker.has_event and worker.heard is not None:
        if worker.heard:
            told = replace(state, got=max(state.got, worker.at + 1))
            yield _done(told, number, worker)
            if not protocol.waits_for_confirmation:
                yield replace(state, committed=max(state.committed, worker.at + 1))
        else:
            yield _done(state, number, worker)
        return
    may_look_up = worker.has_event or not protocol.looks_up_afterwards
    if worker.heard is None and may_look_up:
        yield _with(state, number, replace(worker, heard=state.is_registered))
    if not worker.has_event and worker.at < state.stored:
        yield _with(state, number, replace(worker, has_event=True))


def _done(state: State, number: int, worker: Worker) -> State:
    committed = max(state.committed, worker.at + 1)
    return _with(replace(state, committed=committed), number, Worker(worker.at + 1))


def _with(state: State, number: int, worker: Worker) -> State:
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return replace(state, workers=workers)


def explore(protocol: Protocol) -> tuple[int, list[State]]:
    """How many states can be reached, and those in which nothing more happens and an entry is missing."""
    seen = {State()}
    waiting = [State()]
    lost: list[State] = []
    while waiting:
        state = waiting.pop()
        following = [after for after in steps(state, protocol) if after != state]
        if not following and state.got < ENTRIES:
            lost.append(state)
        for after in [*following, *faults(state)]:
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return len(seen), lost
