"""A trainer of the model that a server has: `python learner.py MODEL`, in the model server's environment.

Each line of standard input is the path of a batch (`input_ids`, `loss_mask`, `advantages`, `logprobs`, as
`art_otel.batches` gives them). It takes one step along the policy gradient, writes the weights to MODEL, and answers
with the largest difference between the server's log probability of a sampled token and its own, before the step.
"""

import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM


def main(folder: str) -> None:
    """Answer every line."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for line in sys.stdin:
        batch = {name: torch.from_numpy(values) for name, values in np.load(line.strip()).items()}
        ids, sampled = batch["input_ids"].long(), batch["loss_mask"][:, 1:].bool()
        logprobs = model(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        apart = (logprobs - batch["logprobs"][:, 1:])[sampled].abs().max().item()
        optimizer.zero_grad()
        (-(logprobs * batch["advantages"][:, 1:])[sampled].mean()).backward()
        optimizer.step()
        model.save_pretrained(folder)
        print(apart, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
