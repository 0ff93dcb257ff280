"""Workers of a run: one module for each client that a plan can name.

`produce` runs to its end, and `consume` until the run stops. Both raise `CannotStart` if they never began.
"""
