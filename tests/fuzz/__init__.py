"""Fuzzing of whole conversions, run by hand: `python -m tests.fuzz --minutes 60`. pytest collects nothing here.

Real dumps of every format are damaged, converted and read back, and the laws of the design are checked each time.
A case is a target and a number: both together give the same bytes in every run.
"""
