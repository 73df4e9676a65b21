"""The specification of the lease protocol, checked by TLC: ``make spec``.

`models` are what TLC checks; `test_spec` compares the names and constants with the code.
"""
