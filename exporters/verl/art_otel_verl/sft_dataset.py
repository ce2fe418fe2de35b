"""SftDataset: verl's MultiTurnSFTDataset for files of the format `sft`; it trains exactly what the policy sampled.

Invariant: the trained tokens are those of messages with `train`, without what the template puts behind their end.

    data.custom_cls.path=pkg://art_otel_verl.sft_dataset data.custom_cls.name=SftDataset

Needs verl, which art-otel-verl itself does not depend on.
"""

# verl is not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

import json
from typing import Any

from art_otel_verl.conversations import template_message

try:
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.tokenizer.chat_template import initialize_turn_separator
except ImportError as missing:
    raise ImportError("art_otel_verl.sft_dataset needs verl: install it as verl's documentation says") from missing


class SftDataset(MultiTurnSFTDataset):
    """Rows of the format `sft`, with their tools, and with arguments of tool calls as chat templates take them.

    `data.tool_arguments` is `object` (the default), or `text` for templates that write the text as it is.
    """

    def __init__(self, parquet_files: Any, tokenizer: Any, config: Any, *others: Any, **named: Any) -> None:  # noqa: ANN401 # verl's
        self._as_text = (config or {}).get("tool_arguments") == "text"
        super().__init__(parquet_files, tokenizer, config, *others, **named)

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        self.tools = [[json.loads(tool) for tool in tools] or None for tools in self.tools]
        self._behind = len(initialize_turn_separator(self.tokenizer, **self.apply_chat_template_kwargs))

    def _build_messages(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [template_message(message, as_text=self._as_text) for message in super()._build_messages(example)]

    def _process_single_message(self, *, message: dict[str, Any], **others: object) -> tuple[Any, ...]:
        ids, loss_mask, *rest = super()._process_single_message(message=message, **others)
        if not message.get("train"):
            loss_mask[:] = 0
        elif self._behind:
            loss_mask[-self._behind :] = 0
        return ids, loss_mask, *rest
