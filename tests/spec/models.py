"""The models of the lease protocol that TLC checks, and what it has to find in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

INVARIANTS = ("OneHolder", "OneWriter", "ChildrenAfterParent", "HandoffNamesTwo")
PROPERTIES = ("OwnedAgain", "HandoffEnds")
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
    """The constants of one run. Workers are alike, so that TLC leaves out what is symmetric."""

    name: str
    workers: int
    children: int = 0
    failures: int = 1
    fault: str = "none"
    is_fair: bool = False
    """True checks `properties` in place of `invariants`; without symmetry, which would be wrong."""
    breaks: str | None = None
    """The invariant or property that has to be violated; None if none may be."""
    invariants: tuple[str, ...] = INVARIANTS
    properties: tuple[str, ...] = PROPERTIES

    module = "Leases"

    @property
    def behaviour(self) -> str:
        """The formula that says what may happen."""
        return "FairSpec" if self.is_fair else "Spec"

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
        return "\n".join(
            [
                f"SPECIFICATION {self.behaviour}",
                "CONSTANTS",
                *(f"    {name} = {value}" for name, value in self.constants.items()),
                f"PROPERTIES {' '.join(self.properties)}"
                if self.is_fair
                else f"INVARIANTS {' '.join(self.invariants)}\nSYMMETRY Ids",
                "",
            ]
        )


@dataclass(frozen=True)
class LedModel(Model):
    """A run of `spec/LedLeases.tla`, in which any worker leads at any time."""

    begin: str = "led"
    """The mode at first."""
    leader: str = "anyone"
    """Who leads. With "one", workers are not alike: only with `is_fair`."""

    module = "LedLeases"

    @property
    def behaviour(self) -> str:
        return f"Led{super().behaviour}"

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
    properties: tuple[str, ...] = ("LedAgain",)

    @property
    def behaviour(self) -> str:
        return super().behaviour.replace("Led", "Lock")


LED_FAULTS = {
    "assigned without a condition": "OneHolder",
    "assigned by the owners alone": "OneHolder",
    "assigned by an old look": "OneHolder",
}
"""The planted faults of `spec/LedLeases.tla`, and the invariant that each breaks."""

SMALL = Model("two workers, a lease, a failure", 2)
LED = LedModel("led: two workers, a lease, any of them leads", 2, failures=0)
LED_ON = replace(LED, name="led: all goes on", is_fair=True, leader="one")
LOCK = LockModel("lock: three workers, a failure", 3)
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
    replace(LOCK, name="lock: two workers, a failure: one leads again", workers=2, is_fair=True),
    Model("two workers, a lease, no failures: all goes on", 2, failures=0, is_fair=True),
)
"""Minutes."""
LONG = (
    Model("taken by the counter alone", 3, fault="taken by the counter alone", breaks="OneHolder"),
    Model("two workers, a split", 2, children=1, failures=0),
    Model("two workers, a split, a failure", 2, children=1),
    Model("three workers, a lease", 3, failures=0),
    Model("three workers, a lease, a failure", 3),
    Model("three workers, a split in two", 3, children=2, failures=0),
    replace(LED, name="led: two workers, a lease, a failure", failures=1),
    replace(LED, name="led from some time on: two workers, a lease", begin="taken"),
    LED_ON,
    replace(
        LED,
        name="given back without a condition",
        failures=1,
        fault="given back without a condition",
        breaks="OneHolder",
    ),
    replace(
        LED_ON,
        name="handoff given up by both",
        fault="handoff given up by both",
        breaks="a temporal property",
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
    early = "lock acquired too early"
    yield replace(LOCK, name=early, workers=2, failures=0, fault=early, breaks="OneLeader")
