"""Plants faults in modules and lists those that no test notices: ``make mutate FILE=...``.

The faults are small, as a tired developer makes them: a comparison flipped or shifted, an operand,
an argument or a statement left out, a constant changed (`faults`). Each lies in a copy of the
package (`tree`). The module's own unit test runs first, then the other tests that run the line, the
quickest first (`nearest`), for ``--most 60`` seconds, and with ``--simulate 20`` the simulation.
Which tests run which lines is recorded once, in half an hour or so, in .venv/mutation
(`recording`): delete that folder after tests were added or renamed, or take ``--own`` for the unit
test alone.

``--draw 20 --seed 1`` plants twenty faults, drawn at random; without ``FILE=`` they are of all
modules where a fault loses records, doubles or misleads (``HARMFUL``). ``--again`` plants those
that survived a run with ``--json``. A fault that changes nothing is listed with its reason in
`equivalents`, if the code cannot be made simpler by it.

At daca6bb3, ``--draw 100 --most 40`` with the seeds 101 and 102 planted 200 faults in 35 modules,
one of them twice. 180 were noticed by the nearest tests, as recorded before many of the present
ones were written, 15 of the other 20 by those of the module's folder. Of the last five, two were
listed as equivalent, two cost time only and are listed now, and one kept a batch in memory: it has
a test.
"""
