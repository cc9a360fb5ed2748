"""Data-parallel training in NumPy: a real ring all-reduce over TCP, and the contract of a run that survives.

The gang's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) are all it needs to find its peers. It resumes from
the newest checkpoint that any member can read, saves every SAVE_EVERY steps and on SIGTERM, and ends with an error as
soon as a peer is lost. Of all members only rank 0 writes.

STEPS         how many steps to train (50000)
STEP_SECONDS  how long to stretch each step, to stand for the work of real GPUs (0)
SAVE_EVERY    steps between two checkpoints (200)
LOG_EVERY     steps between two lines in the log (200)
CKPT_DIR      where the checkpoint lies (/ckpt/$ASTRAEUS_RUN_NAME)
PEER_SECONDS  silence after which a peer, or a rendezvous, is given up (300)
"""

import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

INPUTS, HIDDEN, CLASSES = 32, 64, 10
SAMPLES_PER_GPU = 16
LEARNING_RATE, MOMENTUM = 0.1, 0.9
HELLO_SECONDS = 5.0
RETRY_SECONDS = 0.05


class PeerLost(Exception):
    """A member of the gang is gone, silent for too long, or refused this one."""


@dataclass(frozen=True)
class Settings:
    """Who this worker is, and what it trains."""

    rank: int
    world: int
    master: tuple[str, int]
    gpus: int
    run: str
    attempt: int
    checkpoint: Path
    steps: int
    step_seconds: float
    save_every: int
    log_every: int
    peer_seconds: float

    @classmethod
    def from_environment(cls) -> "Settings":
        """What the environment says; alone on one GPU where it says nothing."""
        env = os.environ.get
        run = env("ASTRAEUS_RUN_NAME", "run")
        return cls(
            rank=int(env("RANK", "0")),
            world=int(env("WORLD_SIZE", "1")),
            master=(env("MASTER_ADDR", "127.0.0.1"), int(env("MASTER_PORT", "29500"))),
            gpus=max(1, int(env("ASTRAEUS_GPU_COUNT", "1"))),
            run=run,
            attempt=int(env("ASTRAEUS_ATTEMPT", "1")),
            checkpoint=Path(env("CKPT_DIR", f"/ckpt/{run}")) / "latest.npz",
            steps=int(env("STEPS", "50000")),
            step_seconds=float(env("STEP_SECONDS", "0")),
            save_every=int(env("SAVE_EVERY", "200")),
            log_every=int(env("LOG_EVERY", "200")),
            peer_seconds=float(env("PEER_SECONDS", "300")),
        )

    @property
    def hello(self) -> dict[str, Any]:
        """What a member says of itself before it is let in."""
        return {"run": self.run, "attempt": self.attempt, "world": self.world, "rank": self.rank}


# ---------------------------------------------------------------- the ring


def send_line(sock: socket.socket, message: dict[str, Any]) -> None:
    """One JSON value, as a line."""
    sock.sendall(json.dumps(message).encode() + b"\n")


def receive_line(sock: socket.socket, seconds: float) -> dict[str, Any]:
    """The next line, read byte by byte so that nothing behind it is taken; empty when it is not one of ours."""
    sock.settimeout(seconds)
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < 65536:
        byte = sock.recv(1)
        if not byte:
            return {}
        line += byte
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def refusal(mine: dict[str, Any], theirs: dict[str, Any], expected: set[int]) -> str | None:
    """Why a caller is not let in: it must be a member of the same attempt, and one that is still missing."""
    for key in ("run", "attempt", "world"):
        if theirs.get(key) != mine[key]:
            return f"this is {key} {mine[key]}, not {theirs.get(key)}"
    return None if theirs.get("rank") in expected else f"rank {theirs.get('rank')} is not expected here"


def listen(address: tuple[str, int]) -> socket.socket:
    """A listener at the address, or on all addresses where that one is not this machine's own to bind."""
    try:
        return socket.create_server(address, backlog=1024)
    except OSError:
        return socket.create_server(("", address[1]), backlog=1024)


def admit(listener: socket.socket, settings: Settings, expected: set[int]) -> tuple[socket.socket, dict[str, Any]]:
    """The next caller that belongs here. Strays are told why and hung up on."""
    deadline = time.monotonic() + settings.peer_seconds
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            caller, _ = listener.accept()
        except TimeoutError:
            break
        try:
            hello = receive_line(caller, HELLO_SECONDS)
            why = refusal(settings.hello, hello, expected)
            if why is None:
                return caller, hello
            send_line(caller, {"refused": why, "attempt": settings.attempt})
        except OSError:
            pass
        caller.close()
    raise PeerLost(f"ranks {sorted(expected)} did not come within {settings.peer_seconds:.0f} s")


def call(address: tuple[str, int], hello: dict[str, Any], settings: Settings) -> tuple[socket.socket, dict[str, Any]]:
    """Connect, say hello and hear the answer; tries again while nobody, or only an older attempt, listens there."""
    deadline = time.monotonic() + settings.peer_seconds
    while time.monotonic() < deadline:
        try:
            sock = socket.create_connection(address, timeout=settings.peer_seconds)
        except OSError:
            time.sleep(RETRY_SECONDS)
            continue
        try:
            send_line(sock, hello)
            answer = receive_line(sock, settings.peer_seconds)
        except OSError:
            answer = {}
        if "refused" not in answer and answer:
            return sock, answer
        sock.close()
        if answer.get("attempt", 0) >= settings.attempt:
            raise PeerLost(f"refused by {address[0]}:{address[1]}: {answer['refused']}")
        time.sleep(RETRY_SECONDS)
    raise PeerLost(f"nobody of this attempt answered at {address[0]}:{address[1]}")


def gather(settings: Settings, listener: socket.socket) -> tuple[list[list[Any]], socket.socket]:
    """Rank 0: collect every member's address, then tell them all. Returns the addresses and its own ring listener."""
    ring = listen((listener.getsockname()[0], 0))
    peers: dict[int, list[Any]] = {0: [settings.master[0], ring.getsockname()[1]]}
    callers = []
    while missing := set(range(settings.world)) - peers.keys():
        caller, hello = admit(listener, settings, missing)
        peers[hello["rank"]] = [caller.getpeername()[0], hello["port"]]
        callers.append(caller)
    addresses = [peers[rank] for rank in range(settings.world)]
    for caller in callers:
        send_line(caller, {"peers": addresses})
        caller.close()
    return addresses, ring


def attend(settings: Settings) -> tuple[list[list[Any]], socket.socket]:
    """Every other rank: give the own ring address to rank 0 and hear everybody's."""
    ring = listen(("", 0))
    sock, answer = call(settings.master, {**settings.hello, "port": ring.getsockname()[1]}, settings)
    sock.close()
    return answer["peers"], ring


class Ring:
    """All members in a circle: each sends to the next and receives from the one before."""

    def __init__(self, settings: Settings) -> None:
        self.rank, self.world = settings.rank, settings.world
        self.seconds = settings.peer_seconds
        if self.world == 1:
            return
        if self.rank == 0:
            with listen(settings.master) as listener:
                addresses, own = gather(settings, listener)
        else:
            addresses, own = attend(settings)
        with own:
            self._join(settings, addresses, own)

    def _join(self, settings: Settings, addresses: list[list[Any]], own: socket.socket) -> None:
        """Ranks 0 to n-1 connect in turn: rank 0 calls first and answers last, so that nobody waits in a circle."""
        host, port = addresses[(self.rank + 1) % self.world]
        before = {(self.rank - 1) % self.world}
        if self.rank == 0:
            self.next, _ = call((host, port), settings.hello, settings)
        self.previous, _ = admit(own, settings, before)
        send_line(self.previous, {"welcome": True})
        if self.rank != 0:
            self.next, _ = call((host, port), settings.hello, settings)
        for sock in (self.next, self.previous):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setblocking(False)

    def all_reduce(self, values: Vector) -> Vector:
        """The sum over all members, bit for bit the same on each: reduce-scatter, then all-gather."""
        total = values.copy()
        parts = np.array_split(total, self.world)
        incoming = np.empty_like(parts[0])
        for hop in range(self.world - 1):
            into = parts[(self.rank - hop - 1) % self.world]
            self._exchange(parts[(self.rank - hop) % self.world], incoming[: into.size])
            into += incoming[: into.size]
        for hop in range(self.world - 1):
            self._exchange(parts[(self.rank - hop + 1) % self.world], parts[(self.rank - hop) % self.world])
        return total

    def _exchange(self, outgoing: Vector, incoming: Vector) -> None:
        """Send and receive at once: if all sent first, the ring would lock up once the kernel's buffers are full."""
        sending, receiving = outgoing.data.cast("B"), incoming.data.cast("B")
        while sending or receiving:
            readers = [self.previous] if receiving else []
            writers = [self.next] if sending else []
            readable, writable, _ = select.select(readers, writers, [], self.seconds)
            if not readable and not writable:
                raise PeerLost(f"no peer moved for {self.seconds:.0f} s")
            try:
                if writable:
                    sending = sending[self.next.send(sending) :]
                if readable:
                    count = self.previous.recv_into(receiving)
                    if not count:
                        raise PeerLost("the connection was closed")
                    receiving = receiving[count:]
            except BlockingIOError:
                continue
            except OSError as error:
                raise PeerLost(str(error)) from error

    def newest(self, step: int) -> tuple[int, int]:
        """The highest step any member has, and the lowest rank that has it."""
        mine = np.zeros(self.world)
        mine[self.rank] = step
        steps = self.all_reduce(mine)
        return int(steps.max()), int(steps.argmax())


# ---------------------------------------------------------------- the model


@dataclass
class State:
    """What training knows between two steps: all of it is in the checkpoint."""

    step: int
    parameters: Vector
    velocity: Vector

    @classmethod
    def fresh(cls) -> "State":
        """The same first weights on every member."""
        rng = np.random.default_rng(0)
        first = rng.normal(0, INPUTS**-0.5, INPUTS * HIDDEN)
        second = rng.normal(0, HIDDEN**-0.5, HIDDEN * CLASSES)
        parameters = np.concatenate([first, np.zeros(HIDDEN), second, np.zeros(CLASSES)])
        return cls(0, parameters, np.zeros_like(parameters))


@dataclass
class Stop:
    """Whether this process was asked to stop."""

    asked: bool = field(default=False)

    def ask(self, *_: object) -> None:
        """The signal handler: it only takes note, so that no step is left half done."""
        self.asked = True


def layers(flat: Vector) -> list[Vector]:
    """Views of the two weight matrices and biases in a flat vector."""
    shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]


def batch(step: int, gpu: int) -> tuple[Vector, NDArray[np.intp]]:
    """One GPU's samples of one step: the whole gang's batch is the same however the GPUs are spread over workers."""
    samples = np.random.default_rng((1, step, gpu)).normal(size=(SAMPLES_PER_GPU, INPUTS))
    teacher = np.random.default_rng(2).normal(size=(INPUTS, CLASSES))
    return samples, (samples @ teacher).argmax(axis=1)


def gradient(parameters: Vector, samples: Vector, labels: NDArray[np.intp]) -> tuple[Vector, float]:
    """The summed cross-entropy's gradient and value."""
    first, bias1, second, bias2 = layers(parameters)
    hidden = np.maximum(samples @ first + bias1, 0)
    logits = hidden @ second + bias2
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(chances[rows, labels]).sum())
    chances[rows, labels] -= 1
    back = (chances @ second.T) * (hidden > 0)
    parts = [samples.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)]
    return np.concatenate([part.ravel() for part in parts]), loss


def train_step(state: State, settings: Settings, ring: Ring, stop: Stop) -> tuple[float, bool]:
    """One step of all members: the mean loss, and whether any of them was asked to stop.

    The stop flag travels with the gradient, so that all agree on the last step.
    """
    local = np.zeros(state.parameters.size + 2)
    for gpu in range(settings.rank * settings.gpus, (settings.rank + 1) * settings.gpus):
        grad, loss = gradient(state.parameters, *batch(state.step, gpu))
        local[:-2] += grad
        local[-2] += loss
    local[-1] = float(stop.asked)
    total = ring.all_reduce(local)
    samples = settings.gpus * settings.world * SAMPLES_PER_GPU
    state.velocity = MOMENTUM * state.velocity + total[:-2] / samples
    state.parameters = state.parameters - LEARNING_RATE * state.velocity
    state.step += 1
    return float(total[-2]) / samples, bool(total[-1])


# ---------------------------------------------------------------- the checkpoint


def save(state: State, settings: Settings) -> None:
    """Write the checkpoint beside the old one and swap: a kill in the middle keeps the old one whole."""
    settings.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    unfinished = settings.checkpoint.with_suffix(f".{settings.attempt}.tmp")
    with unfinished.open("wb") as file:
        _write(file, state, settings.attempt)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(settings.checkpoint)


def _write(file: BinaryIO, state: State, attempt: int) -> None:
    np.savez(file, step=state.step, attempt=attempt, parameters=state.parameters, velocity=state.velocity)


def load(path: Path) -> State:
    """The checkpoint, or fresh weights where there is none."""
    try:
        with np.load(path) as saved:
            return State(int(saved["step"]), saved["parameters"], saved["velocity"])
    except FileNotFoundError:
        return State.fresh()


def resume(settings: Settings, ring: Ring) -> State:
    """Begin where the newest checkpoint of any member ends: a drive may be a directory of each machine's own, and
    rank 0 may have been on another machine when it saved."""
    state = load(settings.checkpoint)
    step, holder = ring.newest(state.step)
    mine = np.concatenate([state.parameters, state.velocity])
    parameters, velocity = np.split(ring.all_reduce(mine if settings.rank == holder else np.zeros_like(mine)), 2)
    return State(step, parameters, velocity)


def train(settings: Settings, ring: Ring, stop: Stop) -> None:
    """Train to the last step, or to the step at which the gang agrees to stop."""
    say = print if settings.rank == 0 else lambda *_, **__: None
    state = resume(settings, ring)
    start, world = state.step, settings.gpus * settings.world
    if start:
        say(f"resuming at step {start}", flush=True)
    stopping = False
    while state.step < settings.steps and not stopping:
        step = state.step
        loss, stopping = train_step(state, settings, ring, stop)
        if step % settings.log_every == 0 or step in (start, settings.steps - 1):
            say(f"step {step}/{settings.steps} loss {loss:.3f} on {world} GPUs", flush=True)
        if settings.rank == 0 and (stopping or state.step == settings.steps or state.step % settings.save_every == 0):
            save(state, settings)
        time.sleep(0 if stopping else settings.step_seconds)
    if stopping:
        say(f"stopped after step {state.step - 1}, checkpoint saved", flush=True)
    else:
        say(f"finished {settings.steps} steps on {world} GPUs", flush=True)
    ring.all_reduce(np.zeros(1))


def main() -> int:
    """Find the peers, train, and say in one line why if that fails."""
    settings, stop = Settings.from_environment(), Stop()
    # Until there is anything to save, a SIGTERM ends the process at once, also where it is process 1 of a container.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        ring = Ring(settings)
        signal.signal(signal.SIGTERM, stop.ask)
        train(settings, ring, stop)
    except PeerLost as lost:
        print(f"rank {settings.rank} of attempt {settings.attempt} lost a peer: {lost}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
