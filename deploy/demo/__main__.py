"""`python -m deploy.demo`: the whole recipe, or with `--torch` its steps 2 to 4 with PyTorch under torchrun."""

import argparse
import sys
import time

import httpx

from deploy.demo import recipe, surviving
from deploy.demo.stack import Stack, stack_of
from deploy.demo.telling import Unexpected, say
from deploy.demo.watch import Watch

START_SECONDS, TORCH_SECONDS = 60.0, 600.0


def whole(stack: Stack, watch: Watch) -> str:
    """Started, preempted, robbed of a machine and of half of Astraeus, and done all the same."""
    spec = recipe.specification(torch=False)
    save_every = int(spec["spec"]["task_template"]["env"]["SAVE_EVERY"])
    recipe.start(stack, watch, spec, START_SECONDS)
    surviving.preempted(stack, watch, save_every)
    lost = surviving.lost_machine(stack, watch, save_every)
    surviving.killed(stack, watch)
    surviving.succeeded(stack, watch)
    surviving.power_on(stack, watch, lost)
    return "a gang of 64 GPUs started together, was preempted, lost a machine, and trained to the end"


def short(stack: Stack, watch: Watch) -> str:
    """Started, trained."""
    recipe.start(stack, watch, recipe.specification(torch=True), TORCH_SECONDS)
    recipe.finish(stack, watch, TORCH_SECONDS)
    return "a gang of 64 GPUs placed, started together, trained"


def main() -> int:
    """Run the demo; answers the exit code."""
    parser = argparse.ArgumentParser(prog="deploy.demo", description="The 64-GPU recipe on a virtual fleet.")
    parser.add_argument("--torch", action="store_true", help="train with PyTorch under torchrun: 64 ranks; no faults")
    parser.add_argument("--keep", action="store_true", help="leave the stack up at the end")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        with stack_of(options.keep) as stack, stack.client() as client:
            told = (short if options.torch else whole)(stack, Watch(client, recipe.NAME))
            if not options.keep:
                recipe.clean_up(stack, client)
    except (Unexpected, httpx.HTTPError) as fault:
        say(f"# NOT as it should be: {fault}")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"# Done in {time.monotonic() - began:.0f} s: {told}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
