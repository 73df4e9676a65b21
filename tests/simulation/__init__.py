"""Whole applications in virtual time: ``make simulate``. docs/simulation.md says what happens.

The product's own code runs on greenlets in place of threads (`scheduler`, `primitives`,
`coroutines`), on a local Kinesis (`kinesis`) and a model of the lease table (`dynamodb`, compared
with moto), through a `network`. A `subject` defines what is simulated: how its histories are drawn,
played and told, and which planted bugs it must find; `subjects` lists all.

Record processors (`workers`): a `history`, drawn by `histories` (or `rough`, which find bugs soon),
happens to a `world`: a `producer`, a `fleet` of workers with a simulated `processor`, and
`table_writers`. The `journal` holds what processors received; `replay` compares it with what each
should have received, and `owed_records` knows what had to be processed. `invariants` (`delivery`,
`order`, `checkpoint_rules`, `lease_rules`, `costs`, `counting`, `fan_out`) use both. `bugs` change
the source of the package, and name the invariant that catches each.

Kinds of histories: `own_store` with `storing` and `store_rules`; `outages`; `led` with `led_rules`;
`relaxed` with `relaxed_rules`; `holding`; `ways`; `subscribing`, over `connection`, `subscription`
and `consumers`. A history that fails is reduced and told (`story`): paste the first lines of the
story into `test_regressions`. Folders: `query`, `queues`, `several`.

A worker takes time and randomness from `sparkinesis.stream.timing.Timing`. Code that waits takes
its clock from there, or uses ``threading`` by the module's name, which the simulation replaces.
`test_reach` fails for a thread, a lock or a clock that the simulation cannot replace.
"""
