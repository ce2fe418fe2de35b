"""What torch gives for trained tokens: `python torch_logprobs.py MODEL`, in the model server's environment.

Each line of standard input is a JSON object `{"ids": […], "at": […]}`; the answer to it is the list of the log
probabilities, in float32, of the tokens at these positions after all that stand before them.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main(folder: str) -> None:
    """Answer every line."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        for line in sys.stdin:
            row = json.loads(line)
            logprobs = model(torch.tensor([row["ids"]])).logits[0].float().log_softmax(-1)
            print(json.dumps([logprobs[at - 1, row["ids"][at]].item() for at in row["at"]]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
