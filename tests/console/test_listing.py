"""The list of runs, from both kinds of database."""

from typing import Any

from support.tenants import CLUSTER, workspace

from api.console import listing
from api.console.listing import Wanted
from astraeus.ledger import orders, runs
from astraeus.ledger.core import Ledger
from astraeus.ledger.tenancy import Workspace
from astraeus.model.faults import parse_submission


async def submit(ledger: Ledger, home: Workspace, name: str, **labels: str) -> None:
    raw: dict[str, Any] = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"task_template": {"command": "true", "requested_resources": {"gpu_requests": {"count": 16}}}},
    }
    async with ledger.transaction() as tx:
        await runs.submit(tx, home, CLUSTER, parse_submission(raw), raw, "dev")


async def names(ledger: Ledger, home: Workspace, **wanted: Any) -> tuple[list[str], int]:
    async with ledger.reading() as tx:
        rows, total = await listing.runs(tx, home.id, Wanted(**wanted))
    return [row["name"] for row in rows], total


async def test_newest_first_in_cuts(ledger: Ledger) -> None:
    home = await workspace(ledger)
    for i in range(5):
        await submit(ledger, home, f"run-{i}")
    assert await names(ledger, home, limit=2) == (["run-4", "run-3"], 5)
    assert await names(ledger, home, limit=2, offset=4) == (["run-0"], 5)
    assert await names(ledger, home, offset=50) == ([], 5)
    async with ledger.reading() as tx:
        (row, *_), _ = await listing.runs(tx, home.id, Wanted())
        assert (row["gpus"], row["left"], row["state"]) == (16, 10, "Pending")
        assert await listing.counts(tx, home.id) == {"Pending": 5}


async def test_search_finds_names_labels_and_reasons_and_nothing_by_wildcards(ledger: Ledger) -> None:
    home = await workspace(ledger)
    await submit(ledger, home, "resnet", team="Vision 100%")
    await submit(ledger, home, "bert")
    await submit(ledger, await workspace(ledger, "speech"), "resnet")
    assert await names(ledger, home, search="resnet") == (["resnet"], 1)
    assert await names(ledger, home, search="VISION res") == (["resnet"], 1)
    assert await names(ledger, home, search="100%") == (["resnet"], 1)
    assert await names(ledger, home, search="scheduler") == (["bert", "resnet"], 2)
    for nothing in ("%%", "_", "res%net", "' OR 1=1 --", "\0\\"):
        assert await names(ledger, home, search=nothing) in (([], 0), (["bert", "resnet"], 2)), nothing
    assert (await names(ledger, home, search="res_et"))[1] == 0
    assert (await names(ledger, home, states=["Running"]))[1] == 0
    assert (await names(ledger, home, cluster="other"))[1] == 0


async def test_a_word_with_an_equals_sign_is_a_label_as_it_is_spelt(ledger: Ledger) -> None:
    home = await workspace(ledger)
    await submit(ledger, home, "one", team="speech", model="Big One")
    await submit(ledger, home, "two", team="speech2", model="big one")
    assert await names(ledger, home, search="team=speech") == (["one"], 1)
    assert await names(ledger, home, search='"model=Big One" team=speech') == (["one"], 1)
    assert await names(ledger, home, search="team=spee") == ([], 0)
    assert await names(ledger, home, by="dev") == (["two", "one"], 2)
    assert await names(ledger, home, by="ann") == ([], 0)


async def test_letters_beyond_ascii_and_keys_with_an_equals_sign_are_found(ledger: Ledger) -> None:
    home = await workspace(ledger)
    await submit(ledger, home, "one", team="Größe 実験", **{"a=b": "c=d", "user": "/50%"})
    await submit(ledger, home, "two", team="Grosse")
    for search in ("größe", "実験", '"team=Größe 実験"', "a=b=c=d", "a=b", "c=d", "/50%"):
        assert await names(ledger, home, search=search) == (["one"], 1), search
    for search in ("a=b=c", "a=c=d", "b=c=d", "u00f6"):
        assert await names(ledger, home, search=search) == ([], 0), search


async def test_events_are_found_by_letters_beyond_ascii(ledger: Ledger) -> None:
    home = await workspace(ledger)
    await submit(ledger, home, "one")
    async with ledger.transaction() as tx:
        row = await runs.find(tx, home.id, "one")
        assert row
        await orders.order(tx, row, "hold", "dev", "Übung")
    async with ledger.reading() as tx:
        assert len(await listing.workspace_events(tx, home.id, "DEV Übung", None, 9)) == 1
        assert not await listing.workspace_events(tx, home.id, "U_bung", None, 9)


async def test_events_of_the_workspace_newest_first_searched_and_cut(ledger: Ledger) -> None:
    home, other = await workspace(ledger), await workspace(ledger, "speech")
    await submit(ledger, home, "one")
    await submit(ledger, home, "two")
    await submit(ledger, other, "three")

    async def shown(search: str = "", before: int | None = None, limit: int = 9) -> list[tuple[int, str]]:
        async with ledger.reading() as tx:
            rows = await listing.workspace_events(tx, home.id, search, before, limit)
        return [(row["id"], row["run_name"]) for row in rows]

    every = await shown()
    assert [name for _, name in every] == ["two", "one"]
    assert await shown(limit=1) == every[:1]
    assert await shown(before=every[0][0]) == every[1:]
    assert await shown("ONE submitted dev") == every[1:]
    assert await shown("one two") == []


async def test_hidden_runs_are_not_listed(ledger: Ledger) -> None:
    home = await workspace(ledger)
    await submit(ledger, home, "gone")
    async with ledger.transaction() as tx:
        row = await runs.find(tx, home.id, "gone")
        assert row
        await runs.set_state(tx, row.uid, "Cancelled", "Cancelled")
        again = await runs.by_uid(tx, row.uid)
        assert again
        await orders.order(tx, again, "delete", "dev")
        assert [one["kind"] for one in await listing.latest_events(tx, row.uid, 1)]
    assert await names(ledger, home) == ([], 0)
