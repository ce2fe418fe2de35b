"""Programs of DSPy: a plain call, and a module: `dspy_program.py RECORDER`."""

import os
import sys
from contextlib import suppress

from recorder import recorded
from task import QUESTIONS, SYSTEM

with recorded(sys.argv[1]):
    import dspy

    lm = dspy.LM("openai/fake-model", api_base=f"{os.environ['MODEL_URL']}/v1", api_key="key", cache=False)
    lm(messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTIONS[0]}])
    dspy.configure(lm=lm)
    with suppress(ValueError, RuntimeError, dspy.utils.exceptions.AdapterParseError):  # the model knows no fields
        dspy.Predict("question -> answer")(question=QUESTIONS[0])
