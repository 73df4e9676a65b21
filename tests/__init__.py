"""The tests of sparkinesis. CONTRIBUTING.md says how to run them.

`unit` lies as src/sparkinesis does: one module at a time. `properties` runs the source's planner
and readers against a local Kinesis, without Spark; `integration` runs workers, leases and the local
server over real HTTP; `spark` runs real sessions, clusters, and drivers that are killed; `hostile`
gives invalid input. `simulation` plays whole applications in virtual time; `soak` runs everything
real at once.

`page`, `prometheus`, `compat`, `interop`, `aws`, `spec`, `release`, `mutation` and `documentation`
belong to the targets of make of these or like names: each has the command and tests of what it
concludes. `snippets` runs the programs of the docs, `deploy` and `benchmarks` test those folders,
`fixtures` has recorded files, `house` measures how the project is built.

`promises` lists the tests of each property, option, call and policy; `check` is `make check`;
`conftest`, `pace`, `hangs` and `examples` are the rules of a run. The other modules are tools for
tests of several folders.
"""
