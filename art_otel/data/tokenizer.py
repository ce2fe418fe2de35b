"""ChatTokenizer: what is asked of a Hugging Face tokenizer. Loads nothing."""

from typing import Any, Protocol


class ChatTokenizer(Protocol):
    """A Hugging Face tokenizer with a chat template (`transformers.PreTrainedTokenizerBase`)."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:  # noqa: ANN401 # as transformers has it
        """Render or tokenize messages."""
        ...

    def __call__(self, text: str, **options: Any) -> Any:  # noqa: ANN401 # as transformers has it
        """Tokenize text; `["input_ids"]` are the ids."""
        ...
