"""Incremental: what a conversion keeps of its records, so that a later one goes on where it ended.

    rounds     what came of each trace, when, and what was made of it
    decisions  which trajectories of a group are given in a round, which wait, and which rows no longer count
    kept       the files that hold records between rounds, and how few they stay
    ledger     what of each input was read, and what is new

Each conversion is a round. It reads what is new into shuffle files like those of earlier rounds, which are kept beside
the parts, and assembles again what it touches: by the same tasks, so that all rounds together give the rows of one
conversion. Invariant: a row is superseded in the commit that adds its next revision.
"""
