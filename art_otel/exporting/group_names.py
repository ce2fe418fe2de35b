"""GroupNames: one text for each group, for trainers that compare by a text.

Invariant: two groups have different names, and members of one group the same.
"""

from art_otel.trajectories import GroupKey


class GroupNames:
    """Names groups as they come. Memory: an entry for each group id."""

    def __init__(self) -> None:
        self._first: dict[str, GroupKey] = {}

    def of(self, key: GroupKey) -> str:
        """The id of the first group that has it; other groups of this id add what tells them from the first.

        `task-7`, then `task-7 of step 2`.
        """
        first = self._first.setdefault(key.group_id, key)
        step = "" if key.training_step == first.training_step else f" of step {key.training_step}"
        gathering = "" if key.gathering == first.gathering else f" of gathering {key.gathering}"
        return f"{key.group_id}{step}{gathering}"
