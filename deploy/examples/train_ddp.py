"""Data-parallel training in PyTorch that survives: a small image classifier under torchrun, NCCL on GPUs, gloo on CPUs.

What a run needs to come back by itself, in five points:
1. it saves to a drive (CKPT_DIR, by default /ckpt/<run>), never to the container's own files;
2. it resumes at its start, from the newest checkpoint that any rank can read;
3. it saves on SIGTERM, within the grace, and every SAVE_EVERY steps, since a lost machine sends no signal;
4. it saves atomically: a kill in the middle of a save keeps the checkpoint before;
5. it is started with exec, so that the signal reaches torchrun, which hands it on to every rank.

STEPS is how many steps to train (50000); SAVE_EVERY and LOG_EVERY are counted in steps (200).
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "50000"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "200"))
LOG_EVERY = int(os.environ.get("LOG_EVERY", "200"))
CHECKPOINT = Path(os.environ.get("CKPT_DIR", f"/ckpt/{os.environ.get('ASTRAEUS_RUN_NAME', 'run')}")) / "latest.pt"
BATCH, SIZE, CLASSES = 8, 16, 10

stop_asked = False


def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
    """Only take note: the step that runs is finished first."""
    global stop_asked
    stop_asked = True


def join_gang() -> torch.device:
    """Become a rank of the gang: on this rank's own GPU, or on one thread where there is none."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        return device
    torch.set_num_threads(1)
    if os.environ.get("MASTER_ADDR", "").startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    return torch.device("cpu")


def small_network() -> nn.Module:
    """A convolutional classifier that even one CPU core trains."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (SIZE // 4) ** 2, CLASSES),
    )


def batch(step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """This rank's images of one step, and the brightest block of each as its class; repeatable after a restart."""
    source = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=source)
    blocks = nn.functional.avg_pool2d(images.mean(1, keepdim=True), SIZE // 4).flatten(1)
    return images.to(device), blocks[:, :CLASSES].argmax(1).to(device)


def save(next_step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write beside the last checkpoint, then swap."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    unfinished = CHECKPOINT.with_suffix(f".{os.environ.get('ASTRAEUS_ATTEMPT', '1')}.tmp")
    with unfinished.open("wb") as file:
        torch.save({"next": next_step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(CHECKPOINT)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the newest checkpoint that any rank can read, on all ranks; returns the step to begin with.

    A drive may be a directory of each machine's own, and after a restart rank 0 may be on another machine than the one
    it saved on: ranks that looked only at their own disk would begin at different steps.
    """
    state: dict[str, Any] = torch.load(CHECKPOINT, map_location="cpu") if CHECKPOINT.exists() else {"next": 0}
    mine = torch.tensor([state["next"]], device=device)
    steps = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(steps, mine)
    held = torch.cat(steps)
    if not int(held.max()):
        return 0
    box = [state]
    dist.broadcast_object_list(box, src=int(held.argmax()), device=device)
    model.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    return int(box[0]["next"])


def gang_stops(device: torch.device) -> bool:
    """Whether any rank was asked to stop, decided by all together so that all end after the same step."""
    flag = torch.tensor([int(stop_asked)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def train(device: torch.device) -> None:
    """Train to the last step, or until the gang is asked to stop."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = small_network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    start = resume(model, optimizer, device)
    if start and rank == 0:
        print(f"resuming at step {start}", flush=True)
    replicas = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    loss_of = nn.CrossEntropyLoss()
    for step in range(start, STEPS):
        images, labels = batch(step, device)
        loss = loss_of(replicas(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stopping, last = gang_stops(device), step == STEPS - 1
        if rank == 0 and (stopping or last or (step + 1) % SAVE_EVERY == 0):
            save(step + 1, model, optimizer)
        if rank == 0 and (stopping or last or step == start or step % LOG_EVERY == 0):
            print(f"step {step}/{STEPS} loss {loss.item():.3f} on {world} GPUs", flush=True)
        if stopping:
            if rank == 0:
                print(f"stopped after step {step}, checkpoint saved", flush=True)
            break
    dist.barrier()


def main() -> None:
    """Join, train, leave."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    device = join_gang()
    signal.signal(signal.SIGTERM, ask_to_stop)
    try:
        train(device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
