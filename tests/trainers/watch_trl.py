"""Runs in TRL's environment: the recipe docs/loop/trl_grpo.py, with what the trainer is given of each step printed."""

import json

import torch
import trl_grpo

from art_otel_trl.trainer import HistoriesGRPOTrainer

PLAYED = []


class Watching(HistoriesGRPOTrainer):
    """The trainer; of each batch it says how far the server's logprobs are from those of the present weights."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width = batch["completion_ids"].shape[1]
        with torch.no_grad():
            logits = self.model(ids, attention_mask=attention).logits[:, -width - 1 : -1]
        own = logits.log_softmax(-1).gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2)
        mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
        sampled = batch["sampling_per_token_logps"]
        told = {
            "step": self.state.global_step,
            "versions": sorted({call.policy_version for one in PLAYED[-1] for call in one.calls}),
            "largest_difference": float((own - sampled)[mask].abs().max()),
            "interior": int((batch["completion_mask"].bool() & ~mask).sum()),
            "rewards_differ": bool(batch["advantages"].abs().max() > 0),
            "weights": float(sum(part.double().abs().sum() for part in self.model.parameters())),
        }
        print(json.dumps(told))
        return batch


def main() -> None:
    played = trl_grpo.play

    def watched(*arguments):
        PLAYED.append(played(*arguments))
        return PLAYED[-1]

    trl_grpo.play, trl_grpo.HistoriesGRPOTrainer = watched, Watching
    trl_grpo.train_tiny(3)


if __name__ == "__main__":
    main()
