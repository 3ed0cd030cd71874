"""The order in which runs are started and stopped, on any engine."""

from __future__ import annotations

from pathlib import Path

from specimens import record_of

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.engine.scheduling import Event, schedule
from torch_srelu.lab.records.run_record import Results


class FakeEngine:
    """Ends the run that was started first whenever it is asked for an event."""

    def __init__(self, root: Path, jobs: int) -> None:
        self.root, self.jobs = root, jobs
        self.runs: dict[str, Run] = {}
        self.stopping: set[str] = set()
        self.most, self.closed = 0, False

    @property
    def running(self) -> list[str]:
        return list(self.runs)

    def start(self, run: Run) -> None:
        self.runs[run.key()] = run
        self.most = max(self.most, len(self.runs))

    def stop(self, key: str) -> None:
        self.stopping.add(key)

    def wait(self, seconds: float) -> Event:
        key = next(iter(self.stopping & self.runs.keys()), next(iter(self.runs)))
        run = self.runs.pop(key)
        if key in self.stopping:
            return Event(run, "stopped")
        return Event(run, "ended", 1.0, record=record_of(self.root, run))

    def close(self) -> None:
        self.closed = True


def test_an_engine_is_asked_for_what_the_plan_wants(tmp_path: Path) -> None:
    first, second, dropped = (recipe("digits", name, 1) for name in ("relu", "prelu", "apl"))
    further = recipe("digits", "srelu", 1, freeze=0, start=second.key())

    def plan(results: Results) -> list[Run]:  # without `dropped` once there is a result
        return [further, first, second, *([] if results else [dropped])]

    engine = FakeEngine(tmp_path, jobs=2)
    events = [event for event in schedule(plan, engine, {}) if event is not None]
    assert [(event.kind, event.run.activation) for event in events] == [
        ("started", "relu"),
        ("started", "prelu"),
        ("ended", "relu"),
        ("ended", "prelu"),
        ("started", "srelu"),
        ("ended", "srelu"),
    ]
    assert (engine.most, engine.closed) == (2, True)


def test_what_the_plan_wants_no_more_is_dropped(tmp_path: Path) -> None:
    relu, prelu = (recipe("digits", name, 1) for name in ("relu", "prelu"))
    engine = FakeEngine(tmp_path, jobs=2)
    events = schedule(lambda results: [relu] if results else [relu, prelu], engine, {})
    kinds = [(event.kind, event.run.activation) for event in events if event is not None]
    assert kinds[2:] == [("ended", "relu"), ("dropped", "prelu")]


def test_closed_early_the_engine_is_closed(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, jobs=1)
    events = schedule(lambda _: [recipe("digits", "relu", 1)], engine, {})
    next(events)
    events.close()
    assert engine.closed
