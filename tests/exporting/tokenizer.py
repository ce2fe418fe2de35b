"""The tokenizer of the samples' server, for trainers that tokenize themselves.

Its chat template gives exactly the prompts of `samples.prompt_ids`: a token is a byte or a mark. One more token, which
no text of the samples holds, is for ART, which needs one that it can write as text and read back.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.exporting.samples import CALL, END, ROLES, VOCABULARY

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<|call|>{{ call.function.name }}{{ call.function.arguments }}"
    "{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer."""
    marks = {**{f"<|{role}|>": token for role, token in ROLES.items()}, "<|end|>": END, "<|call|>": CALL}
    vocabulary = {_letter(byte): byte for byte in range(256)} | marks | {"QQ": VOCABULARY}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("Q", "Q")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(marks))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=TEMPLATE, eos_token="<|end|>", pad_token="<|end|>"
    )


def saved_tokenizer(folder: Path) -> Path:
    """Its files, for `AutoTokenizer.from_pretrained` in another environment."""
    byte_tokenizer().save_pretrained(folder)
    return folder


def _letter(byte: int) -> str:
    """The letter that byte-level tokenizers have for a byte: itself where it can be printed, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [each for each in range(256) if each not in printable]
    return chr(byte) if byte in printable else chr(256 + others.index(byte))
