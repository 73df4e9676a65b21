"""Reads what the producers of others write: ``make interop-producers``. Left out of CI.

`programs` names the programs, which lie in a folder for each language, and what is known of each;
`installing` gets and starts them. `playing` gives one a local server with faults, and a reshard;
`reading` reads the stream by the three doors, and `judging` says what is missing, doubled, out of
order or changed. `known` is what they are given to put. `readers` has readers of others open what
this project writes: ``make interop-readers``.
"""
