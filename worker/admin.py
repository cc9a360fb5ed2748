"""`python -m worker.admin`: the first organisation, workspace, cluster and tokens of an installation.

Everything after that is done through the API by an admin's token. Uses the ledger that ASTRAEUS_LEDGER_URL names.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from astraeus.ledger import migrate, shares, tenancy, tokens
from astraeus.ledger.core import Ledger
from astraeus.model.errors import AstraeusError, Invalid
from astraeus.model.names import canonical, name_fault

DAY = 86_400.0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m worker.admin", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    workspace = commands.add_parser("workspace", help="make ORG/NAME on a cluster; prints a new admin token for it")
    workspace.add_argument("path", metavar="ORG/NAME")
    workspace.add_argument("--cluster", required=True)
    workspace.add_argument("--token-name", default="first-admin")
    machine = commands.add_parser("machine-token", help="prints a new token for the agents of a cluster")
    machine.add_argument("cluster")
    machine.add_argument("--token-name", default="machines")
    operator = commands.add_parser("operator-token", help="prints a new token of an admin of all workspaces")
    operator.add_argument("--token-name", default="operator")
    half_life = commands.add_parser("half-life", help="how long use takes to count half for fair shares on a cluster")
    half_life.add_argument("cluster")
    half_life.add_argument("days", type=float)
    commands.add_parser("upgrade", help="bring the ledger's schema up to date")
    return parser.parse_args(argv)


def checked(name: str, what: str) -> str:
    """A canonical name. Raises `Invalid` that says what is wrong with it."""
    name = canonical(name)
    if fault := name_fault(name):
        raise Invalid(f"{what} {name!r} {fault}")
    return name


async def carry_out(options: argparse.Namespace) -> str | None:
    """Do what was asked; answers the token to print, if one was made."""
    url = os.environ.get("ASTRAEUS_LEDGER_URL")
    if not url:
        raise Invalid("set ASTRAEUS_LEDGER_URL; see the operators' guide")
    ledger = Ledger(url)
    try:
        await migrate.upgrade(ledger)
        if options.command == "upgrade":
            return None
        if options.command == "operator-token":
            async with ledger.transaction() as tx:
                return (await tokens.create_token(tx, name=options.token_name, kind="user", role="admin"))[1]
        cluster = checked(options.cluster, "cluster")
        async with ledger.transaction() as tx:
            if options.command == "half-life":
                await shares.set_half_life(tx, cluster, options.days * DAY)
                return None
            await tenancy.ensure_cluster(tx, cluster)
            if options.command == "machine-token":
                _, secret = await tokens.create_token(
                    tx, name=options.token_name, kind="machine", role="machine", cluster=cluster
                )
            else:
                organisation, _, name = options.path.partition("/")
                names = checked(organisation, "organisation"), checked(name, "workspace")
                space = await tenancy.ensure_workspace(tx, *names, cluster)
                _, secret = await tokens.create_token(
                    tx, name=options.token_name, kind="user", role="admin", workspace_id=space.id
                )
        return secret
    finally:
        await ledger.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; answers the exit code. A token goes to stdout alone, so that it can be put into a file."""
    try:
        secret = asyncio.run(carry_out(arguments(argv)))
    except AstraeusError as error:
        print(f"astraeus: {error}", file=sys.stderr)
        return 1
    if secret is not None:
        print(secret)
    return 0


if __name__ == "__main__":
    sys.exit(main())
