"""Writes the tiny model as llama.cpp reads one: `python make_gguf.py FOLDER`, in an environment with gguf and torch.

The folder is what `make_model.py` made; `model.gguf` stands beside its weights, in float32 as they are.
"""

import json
import sys
from pathlib import Path

import gguf
from gguf import GGUFWriter, TokenType
from safetensors.torch import load_file

ARCH = gguf.MODEL_ARCH.QWEN3


def write_tokenizer(writer: GGUFWriter, folder: Path) -> None:
    """The tokens, and the merges that make them. Byte-level BPE splits its text first as GPT-2 does."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    kinds = dict.fromkeys(tokens, TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[number] for number in range(len(tokens))])
    writer.add_token_types([kinds[number] for number in range(len(tokens))])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_token_merges(merges)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    writer.add_add_bos_token(False)


def write_settings(writer: GGUFWriter, config: dict) -> None:
    """The sizes of the model."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])


def main(folder: Path) -> None:
    """Write the file whole or not at all."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    unfinished = folder / "model.gguf.tmp"
    writer = GGUFWriter(unfinished, gguf.MODEL_ARCH_NAMES[ARCH])
    write_settings(writer, config)
    write_tokenizer(writer, folder)
    names = gguf.get_tensor_name_map(ARCH, config["num_hidden_layers"])
    for name, weights in load_file(folder / "model.safetensors").items():
        known = names.get_name(name, try_suffixes=(".weight",))
        assert known is not None, name
        writer.add_tensor(known, weights.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(folder / "model.gguf")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
