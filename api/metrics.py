"""Numbers for Prometheus: requests as they are served, and the ledger's state at the time of asking."""

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


@dataclass
class Figures:
    """What the ledger holds: counts by cluster (and state), and messages not yet delivered."""

    runs: dict[tuple[str, str], int] = field(default_factory=dict)
    waiting_claims: dict[str, int] = field(default_factory=dict)
    gpus_used: dict[str, int] = field(default_factory=dict)
    gpus_free: dict[str, int] = field(default_factory=dict)
    machines: dict[tuple[str, str], int] = field(default_factory=dict)
    outbox: dict[str, int] = field(default_factory=dict)


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "astraeus_http_requests", "Requests served.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "astraeus_http_request_seconds",
            "Time to the end of an answer; long polls and streams included.",
            ["method", "route"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._runs = self._gauge("astraeus_runs", "Runs by state.", "cluster", "state")
        self._waiting = self._gauge("astraeus_waiting_claims", "Claims that wait for room.", "cluster")
        self._gpus_used = self._gauge("astraeus_gpus_used", "GPUs held by runs.", "cluster")
        self._gpus_free = self._gauge("astraeus_gpus_free", "GPUs of machines that take work, not held.", "cluster")
        self._machines = self._gauge("astraeus_machines", "Machines by state.", "cluster", "state")
        self._outbox = self._gauge("astraeus_outbox_backlog", "Messages to workflows not yet delivered.", "cluster")

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(name, words, labels, registry=self.registry)

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def show(self, figures: Figures) -> None:
        """Take over the ledger's state."""
        for gauge, two in ((self._runs, figures.runs), (self._machines, figures.machines)):
            gauge.clear()
            for labels, value in two.items():
                gauge.labels(*labels).set(value)
        for gauge, one in (
            (self._waiting, figures.waiting_claims),
            (self._gpus_used, figures.gpus_used),
            (self._gpus_free, figures.gpus_free),
            (self._outbox, figures.outbox),
        ):
            gauge.clear()
            for label, value in one.items():
                gauge.labels(label).set(value)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
