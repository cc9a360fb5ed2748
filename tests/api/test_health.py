"""Health, readiness, metrics and the way to the console."""

from typing import Any

from sqlalchemy import text


async def test_health_and_readiness(both: Any) -> None:
    nobody = both.client("nobody")
    assert (await nobody.get("/healthz")).json() == {"status": "ok"}
    ready = await nobody.get("/readyz")
    assert (ready.status_code, ready.json()["ledger"]) == (200, both.state.ledger.dialect)
    assert ready.json()["temporal"] == "not asked"

    async def down() -> bool:
        raise ConnectionError

    both.state.temporal_up = down
    assert (await nobody.get("/readyz")).json()["temporal"] == "away"
    async with both.state.ledger.transaction() as tx:
        await tx.conn.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    behind = await nobody.get("/readyz")
    assert (behind.status_code, behind.json()["code"], behind.headers["retry-after"]) == (503, "away", "1")


async def test_metrics_count_requests_and_the_ledger(both: Any, spec: Any, machine: Any) -> None:
    await both.sync(machine("m-1"), machine("m-2", gpus=4))
    await both.client().post("/runs", json=spec())
    await both.client().post("/runs/resnet:cancel")
    await both.client().get("/runs/other")
    answer = await both.client("nobody").get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    base = "/api/o/{org}/w/{workspace}"
    assert f'astraeus_http_requests_total{{method="POST",route="{base}/runs",status="201"}} 1.0' in lines
    assert f'astraeus_http_requests_total{{method="GET",route="{base}/runs/{{name}}",status="404"}} 1.0' in lines
    assert 'astraeus_runs{cluster="lab-a",state="Pending"} 1.0' in lines
    assert 'astraeus_gpus_free{cluster="lab-a"} 12.0' in lines
    assert 'astraeus_gpus_used{cluster="lab-a"} 0.0' in lines
    assert 'astraeus_outbox_backlog{cluster="lab-a"} 1.0' in lines


async def test_the_front_page_leads_to_the_console(world: Any) -> None:
    page = await world.client("nobody").get("/")
    assert (page.status_code, page.headers["location"]) == (303, "/sign-in")
