"""The policy: a small recurrent network over a vocabulary of words. It answers with one word."""

import torch
from torch import Tensor, nn

WORDS = ["<user>", "<assistant>", "<end>", "guess", "higher", "lower", *"12345"]
IDS = {word: number for number, word in enumerate(WORDS)}
WIDTH = 64


class Policy(nn.Module):
    """Gives the logits of the next token at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, len(WORDS))

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids of shape (rows, width) to log probabilities of shape (rows, width, words)."""
        states, _ = self.memory(self.embedding(ids))
        return self.head(states).log_softmax(-1)

    @torch.no_grad()
    def sample(self, prompt: list[int]) -> tuple[int, float]:
        """Sample one token: its id and its log probability."""
        logprobs = self(torch.tensor([prompt]))[0, -1]
        token = int(torch.multinomial(logprobs.exp(), 1))
        return token, float(logprobs[token])


def render(messages: list[dict[str, str]]) -> list[int]:
    """The chat template: messages to token ids, up to where the assistant begins."""
    words = [word for each in messages for word in (f"<{each['role']}>", each["content"], "<end>")]
    return [IDS[word] for word in (*words, "<assistant>")]
