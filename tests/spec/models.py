"""The models of the lease protocol that TLC checks, and what it has to find in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

INVARIANTS = ("OneHolder", "OneWriter", "ChildrenAfterParent", "HandoffNamesTwo")
FAULTS = {
    "taken too early": "OneHolder",
    "taken without the counter": "OneHolder",
    "released after the write": "OneHolder",
    "released by the owner alone": "OneHolder",
    "counted from the answer": "OneHolder",
    "children at once": "ChildrenAfterParent",
}
"""The planted faults of `spec/Leases.tla`, and the invariant that each breaks."""


@dataclass(frozen=True)
class Model:
    """The constants of one run."""

    name: str
    workers: int
    children: int = 0
    failures: int = 1
    fault: str = "none"
    breaks: str | None = None
    """What has to be violated, as `tlc.Found` names it; None if nothing may be."""
    invariants: tuple[str, ...] = INVARIANTS

    module = "Leases"
    behaviour = "Spec"
    """The formula that says what may happen."""

    @property
    def has_equal_workers(self) -> bool:
        """Whether TLC may leave out what differs in the workers' names alone."""
        return True

    @property
    def constants(self) -> dict[str, str]:
        """The values of the module's constants, as TLC reads them."""
        return {
            "Workers": f"{{{', '.join(f'w{number}' for number in range(1, self.workers + 1))}}}",
            "Parent": "p",
            "Children": f"{{{', '.join(f'c{number}' for number in range(1, self.children + 1))}}}",
            "None": "None",
            "Failover": "1",
            "Handoff": "0",
            "Failures": str(self.failures),
            "Fault": f'"{self.fault}"',
        }

    @property
    def config(self) -> str:
        """The text of TLC's configuration file."""
        lines = [
            f"SPECIFICATION {self.behaviour}",
            "CONSTANTS",
            *(f"    {name} = {value}" for name, value in self.constants.items()),
            f"INVARIANTS {' '.join(self.invariants)}",
        ]
        if self.has_equal_workers:
            lines.append("SYMMETRY Ids")
        return "\n".join([*lines, ""])


@dataclass(frozen=True)
class EachModel(Model):
    """A run of `spec/EachLease.tla`: each lease behaves as if it were the only one."""

    steps: int = 20
    """The first steps of each history: all of them take hours."""

    module = "EachLease"

    @property
    def constants(self) -> dict[str, str]:
        return {**super().constants, "Steps": str(self.steps)}

    @property
    def config(self) -> str:
        return f"{super().config}PROPERTIES ParentAlone ChildAlone\nCONSTRAINT IsShort\n"


@dataclass(frozen=True)
class LedModel(Model):
    """A run of `spec/LedLeases.tla`, in which any worker leads at any time."""

    begin: str = "led"
    """The mode at first."""
    leader: str = "anyone"
    """Who leads. With "one", workers are not alike."""

    module = "LedLeases"
    behaviour = "LedSpec"

    @property
    def has_equal_workers(self) -> bool:
        return self.leader != "one"

    @property
    def constants(self) -> dict[str, str]:
        return {
            **super().constants,
            "Begin": f'"{self.begin}"',
            "Leader": f'"{self.leader}"',
            "Lock": "1",
        }


@dataclass(frozen=True)
class LockModel(LedModel):
    """A run of the leader's lock alone."""

    leader: str = "holder"
    invariants: tuple[str, ...] = ("OneLeader",)

    behaviour = "LockSpec"


@dataclass(frozen=True)
class PromptModel(LedModel):
    """A run of `spec/PromptLeases.tla`: workers do within a tick what they have to do."""

    begin: str = "taken"
    leader: str = "one"
    invariants: tuple[str, ...] = (*INVARIANTS, "HandoffEnds", "OwnedAgain")
    handoff: int = 4
    """The longest handoff, in ticks."""
    unread: int = 11
    """The longest time without a reader, in ticks."""
    unled: int = 8
    """The longest time without a leader, in ticks."""

    module = "PromptLeases"
    behaviour = "PromptSpec"

    @property
    def constants(self) -> dict[str, str]:
        return {
            **super().constants,
            "LongestHandoff": str(self.handoff),
            "LongestUnread": str(self.unread),
            "LongestUnled": str(self.unled),
        }


@dataclass(frozen=True)
class PromptLockModel(PromptModel):
    """A run of the leader's lock alone, of workers that do in time what they have to do."""

    begin: str = "led"
    leader: str = "holder"
    invariants: tuple[str, ...] = ("OneLeader", "LedAgain")

    behaviour = "PromptLockSpec"


LED_FAULTS = {
    "assigned without a condition": "OneHolder",
    "assigned by the owners alone": "OneHolder",
    "assigned by an old look": "OneHolder",
}
"""The planted faults of `spec/LedLeases.tla`, and the invariant that each breaks."""

SMALL = Model("two workers, a lease, a failure", 2)
LED = LedModel("led: two workers, a lease, any of them leads", 2, failures=0)
LOCK = LockModel("lock: three workers, a failure", 3)
EACH = EachModel("each lease alone: two workers, a split", 2, children=1, failures=0)
PROMPT = PromptModel("in time: two workers, a lease, led from some time on", 2, failures=0)
PROMPT_LOCK = PromptLockModel("in time: the lock, two workers, a failure", 2)
MODELS = (
    SMALL,
    LED,
    LedModel(
        "led by a KCL, which expects the owners alone",
        2,
        failures=0,
        fault="assigned by the owners alone",
        invariants=INVARIANTS[1:],
    ),
    LOCK,
    replace(LOCK, name="lock: two workers, two failures", workers=2, failures=2),
    EACH,
    PROMPT,
    PROMPT_LOCK,
)
"""Minutes."""
LONG = (
    Model("taken by the counter alone", 3, fault="taken by the counter alone", breaks="OneHolder"),
    Model("three workers, a lease", 3, failures=0),
    Model("three workers, a lease, a failure", 3),
    Model("two workers, a split", 2, children=1, failures=0),
    Model("two workers, a split, a failure", 2, children=1),
    Model("three workers, a split in two", 3, children=2, failures=0),
    replace(LED, name="led: two workers, a lease, a failure", failures=1),
    replace(LED, name="led from some time on: two workers, a lease", begin="taken"),
    replace(
        PROMPT,
        name="in time: two workers, a lease, a failure",
        failures=1,
        handoff=10,
        unread=20,
    ),
    replace(
        LED,
        name="given back without a condition",
        failures=1,
        fault="given back without a condition",
        breaks="OneHolder",
    ),
)
"""Up to an hour and more."""


def faults() -> Iterator[Model]:
    """Yield a small model for each planted fault."""
    for fault, breaks in FAULTS.items():
        model = replace(SMALL, name=fault, fault=fault, breaks=breaks)
        yield replace(model, children=1, failures=0) if "children" in fault else model
    for fault, breaks in LED_FAULTS.items():
        yield replace(LED, name=fault, fault=fault, failures=1, breaks=breaks)
    shared = "renewed with another"
    yield replace(EACH, name=shared, fault=shared, breaks="EachLease")
    both = "handoff given up by both"
    yield replace(PROMPT, name=both, begin="led", fault=both, breaks="HandoffEnds")
    early = "lock acquired too early"
    yield replace(LOCK, name=early, workers=2, failures=0, fault=early, breaks="OneLeader")
