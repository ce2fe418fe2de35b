"""Addition: a problem of tinker-cookbook with its tokenizer, for scripts that run in tinker-cookbook's environment."""

from tinker_cookbook.rl.problem_env import ProblemEnv


class Bytes:
    """A tokenizer whose tokens are bytes."""

    eos_token_id = None
    bos_token = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002 # as transformers
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")


class Addition(ProblemEnv):
    question = "2 + 2 = ?"

    def get_question(self):
        return self.question

    def check_answer(self, sample_str):
        return sample_str == "4"

    def check_format(self, sample_str):
        return bool(sample_str)

    def get_reference_answer(self):
        return "4"


async def longer(comparison) -> float:
    """Which of two answers is longer, as a preference model says it."""
    first, second = (side[0]["content"] for side in (comparison.completion_A, comparison.completion_B))
    return float(len(second) > len(first)) - float(len(second) < len(first))
