"""TokenPaths: the token ids along the paths of a trajectory, as bytes, put together where they are needed.

Invariant: the ids are computed from the prompts' links and kept counts alone, as `views.rebuild_prompts` rebuilds them.
"""

from collections.abc import Sequence

from art_otel.trajectories.model import Prompt, Turn

_WIDTH = 4  # bytes of an id


class TokenPaths:
    """The ids of prompts and of token paths, 4 bytes each."""

    def __init__(self, prompts: Sequence[Prompt], turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._prompt_lengths = [
            None if prompt.context_token_ids is None else prompt.kept_tokens + len(prompt.context_token_ids)
            for prompt in prompts
        ]

    def length(self, turn: int) -> int:
        """How many ids of a turn's path are known from the start: those of its prompt, and of its completion."""
        prompt_length = self._prompt_lengths[self._turns[turn].call]
        sampled = self._turns[turn].token_ids
        return 0 if prompt_length is None else prompt_length + (0 if sampled is None else len(sampled))

    def context(self, prompt: Prompt) -> bytes:
        """The ids of a prompt behind the path of its token parent; without one, the whole prompt's."""
        before = 0 if prompt.token_parent is None else self.length(prompt.token_parent)
        if prompt.kept_tokens == before and prompt.context_token_ids is not None:
            return prompt.context_token_ids.data
        return self.prompt(prompt)[_WIDTH * before :]

    def prompt(self, prompt: Prompt) -> bytes:
        """All ids of a prompt that is known, from the start."""
        continued = [prompt]
        links: list[Turn] = []
        while continued[-1].kept_tokens:
            links.append(self._turns[self._kept_from(continued[-1])])
            continued.append(links[-1].prompt)
        ids = bytearray()
        for earlier in reversed(continued):
            del ids[_WIDTH * earlier.kept_tokens :]
            ids += b"" if earlier.context_token_ids is None else earlier.context_token_ids.data
            if links:
                sampled = links.pop().token_ids
                ids += b"" if sampled is None else sampled.data
        return bytes(ids)

    def _kept_from(self, prompt: Prompt) -> int:
        """The turn whose path has the ids that a prompt keeps."""
        for link in (prompt.token_parent, prompt.parent):
            if link is not None and self.length(link) >= prompt.kept_tokens:
                return link
        raise ValueError(f"a prompt keeps {prompt.kept_tokens} ids of paths that have fewer")
