"""Real Hugging Face tokenizers with real chat templates, built without a network.

The byte-level BPE knows the words below as single tokens, and two newlines in a row as one, so that pieces of a text
can have other tokens than the whole. Nothing is trained: a trainer would start threads, which tests that fork mind.
"""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ("user", "assistant", "system", "tool", "hello", " is", " it", " the", " sunny", " Paris", "think", "\n\n")
SPECIAL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|call_end|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
)

CHATML = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{%- set told = {'name': call.function.name, 'arguments': call.function.arguments} %}"
    "{{- '<tool_call>' + (told | tojson) + '</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"
)
"""As Qwen 2.5 writes it, tools and tool calls by tojson."""

MARKED = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' %}{% generation %}{{- message.content + '<|im_end|>\n' }}{% endgeneration %}"
    "{%- else %}{{- message.content + '<|im_end|>\n' }}{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"
)
"""With generation markers, the newline inside of them."""

THINKING = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' and loop.last and not add_generation_prompt %}"
    "{{- '<think>\n' + (message.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    "{{- message.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""As Qwen 3 does it: the last answer's thinking stays, the earlier ones' is dropped."""

SWALLOWING = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""As QwQ does it: the prompt opens the thinking, and the rendered answer has none."""

CLOSING = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% else %}{{- eos_token }}{% endif %}"
)
"""As Phi 4 does it: a token at the end of the conversation only."""

OPEN = (
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}{{- '<|user|>\n' + message.content }}"
    "{%- elif message.role == 'tool' %}{{- '<|observation|>\n' + message.content }}"
    "{%- else %}"
    "{{- '<|assistant|>\n<think>' + (message.reasoning_content or '' if loop.last else '') + '</think>' }}"
    "{%- if message.content %}{{- '\n' + message.content }}{% endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '\n<tool_call>' + call.function.name + '</tool_call>' }}"
    "{%- endfor %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{% endif %}"
)
"""As GLM 4.5 does it: no token ends a turn, the policy stops with the one that begins the next message."""

STRICT = "{{- raise_exception('system messages are not supported') if messages[0].role == 'system' }}" + CHATML
"""As Gemma does it: some conversations are refused."""


def bpe(template: str | None, *, eos: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = list(alphabet)
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word)[0][0]
        for end in range(2, len(letters) + 1):
            if letters[:end] not in vocabulary:
                merges.append((letters[: end - 1], letters[end - 1]))
                vocabulary.append(letters[:end])
    model = models.BPE(vocab={token: number for number, token in enumerate(vocabulary)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _dressed(tokenizer, template, eos)


def words(template: str | None, texts: list[str]) -> PreTrainedTokenizerFast:
    """A word-level tokenizer that knows every word of these texts; all whitespace is lost on it."""
    splitter = pre_tokenizers.Whitespace()
    known = dict.fromkeys(["[UNK]", *(word for text in texts for word, _ in splitter.pre_tokenize_str(text))])
    model = models.WordLevel(vocab={word: number for number, word in enumerate(known)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = splitter
    return _dressed(tokenizer, template, "<|im_end|>")


def metaspace(template: str | None) -> PreTrainedTokenizerFast:
    """Like SentencePiece's of Llama 2: a text begins with a space, so pieces have other tokens than the whole."""
    letters = [chr(code) for code in range(32, 127)] + ["\n", "▁"]
    vocabulary = [*letters, "▁h", "▁he"]
    merges = [("▁", "h"), ("▁h", "e")]
    model = models.BPE(vocab={token: number for number, token in enumerate(vocabulary)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return _dressed(tokenizer, template, "<|im_end|>")


def _dressed(tokenizer: tokenizers.Tokenizer, template: str | None, eos: str) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    found = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos)
    found.chat_template = template
    return found
