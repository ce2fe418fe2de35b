"""A model server of a hundred lines: a Hugging Face model behind OpenAI's API, in the trainer's process.

It answers `return_token_ids` and `logprobs` as vLLM does. Requests that wait are sampled together.
"""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple
from uuid import uuid4

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Sampled(NamedTuple):
    """A completion: its ids, and the log probability of each."""

    ids: list[int]
    logprobs: list[float]


class Server(ThreadingHTTPServer):
    """Serves the model from threads of this process. Whoever trains it serves the new weights at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.tokenizer = model, tokenizer
        self.waiting: Queue[tuple[list[int], int, Future[Sampled]]] = Queue()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()
        Thread(target=self.sample_forever, daemon=True).start()

    def sample_forever(self) -> None:
        """Take what waits, and sample it."""
        while True:
            requests = [self.waiting.get()]
            try:
                while len(requests) < 64:
                    requests.append(self.waiting.get(timeout=0.02))
            except Empty:
                pass
            prompts, limits, answers = zip(*requests, strict=True)
            for sampled, answer in zip(self.sample(prompts, limits), answers, strict=True):
                answer.set_result(sampled)

    @torch.inference_mode()
    def sample(self, prompts: Sequence[list[int]], limits: Sequence[int]) -> list[Sampled]:
        """Sample a completion for each prompt, at temperature 1. What all prompts begin with is read once."""
        distinct = sorted(map(list, {tuple(prompt) for prompt in prompts}))
        rows = torch.tensor([distinct.index(prompt) for prompt in prompts])
        # They are sorted, so what the first and the last have in common, all have. One token of each is left to read.
        agreed = takewhile(lambda pair: pair[0] == pair[1], zip(distinct[0], distinct[-1], strict=False))
        shared, widest = min(len(list(agreed)), min(map(len, distinct)) - 1), max(map(len, distinct))
        cache = self.model(torch.tensor(distinct[:1])[:, :shared], use_cache=True).cache
        cache.batch_repeat_interleave(len(distinct))
        padded = [widest - len(prompt) for prompt in distinct]  # between what is shared and the rest, and masked
        ids = torch.tensor([[0] * gap + prompt[shared:] for gap, prompt in zip(padded, distinct, strict=True)])
        mask = torch.tensor([[1] * shared + [0] * gap + [1] * (widest - shared - gap) for gap in padded])
        places = mask.cumsum(-1)[:, shared:] - 1
        answer = self.model(ids, attention_mask=mask, position_ids=places, cache=cache, logits_to_keep=1)
        logits, mask = answer.logits[rows, -1], mask[rows]
        cache.batch_select_indices(rows)
        end = self.tokenizer.eos_token_id
        sampled = [Sampled([], []) for _ in prompts]
        for _ in range(max(limits)):
            logprobs = logits.float().log_softmax(-1)
            tokens = torch.multinomial(logprobs.exp(), 1)
            chosen = zip(tokens[:, 0].tolist(), logprobs.gather(-1, tokens)[:, 0].tolist(), strict=True)
            for row, (token, logprob) in enumerate(chosen):
                if sampled[row].ids[-1:] != [end] and len(sampled[row].ids) < limits[row]:
                    sampled[row].ids.append(token)
                    sampled[row].logprobs.append(logprob)
            mask = torch.cat([mask, torch.ones_like(tokens)], -1)
            if all(one.ids[-1] == end or len(one.ids) == limit for one, limit in zip(sampled, limits, strict=True)):
                break
            answer = self.model(tokens, attention_mask=mask, position_ids=mask.sum(-1, keepdim=True) - 1, cache=cache)
            logits = answer.logits[:, -1]
        return sampled


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)  # a gateway asks what else this server can do
            return
        server, waiting = self.server, Future()
        prompt = server.tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True)["input_ids"]
        server.waiting.put((prompt, request.get("max_tokens") or 64, waiting))
        body = json.dumps(completion(request, prompt, waiting.result(), server.tokenizer)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal quiet."""


def completion(request: dict, prompt: list[int], sampled: Sampled, tokenizer: PreTrainedTokenizerBase) -> dict:
    """The response, with token ids and log probabilities where the request asks for them."""
    text = tokenizer.decode(sampled.ids, skip_special_tokens=True)
    reason = "stop" if sampled.ids[-1] == tokenizer.eos_token_id else "length"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled.ids)}
    answer = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": 0, "model": request["model"]}
    if request.get("logprobs"):
        chosen = zip(tokenizer.convert_ids_to_tokens(sampled.ids), sampled.logprobs, strict=True)
        entries = [{"token": token, "logprob": logprob, "top_logprobs": []} for token, logprob in chosen]
        choice["logprobs"] = {"content": entries}
    if request.get("return_token_ids"):
        choice["token_ids"] = sampled.ids
        answer["prompt_token_ids"] = prompt
    return {**answer, "choices": [choice], "usage": {**usage, "total_tokens": sum(usage.values())}}
