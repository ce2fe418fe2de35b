"""GDPO: our advantages are those of TRL's own lines."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from art_otel.data import gdpo
from exporters.trl.tests.test_train import RELEASES, REQUIREMENTS
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

WEIGHTS = {"correct": 1.0, "length": 0.3}
CASES = [
    [{"correct": [1.0, 0.0, 1.0, 0.0], "length": [9.0, 8.0, 7.0, 8.5]}, {"correct": [0.0] * 4, "length": [1.0] * 4}],
    [{"correct": [1.0, None, 0.0, None], "length": [3.0, 1.0, None, None]}],
    [{"correct": [1.0], "length": [2.0]}, {"correct": [0.0], "length": [5.0]}],
]


@pytest.mark.parametrize("release", RELEASES)
def test_gdpo_is_trls(release):
    python = trainer_python("trl", release, *REQUIREMENTS)
    script = Path(__file__).with_name("normalize_with_trl.py")
    told = json.dumps([(groups, WEIGHTS) for groups in CASES])
    done = subprocess.run([python, script, told], env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for groups, theirs in zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True):
        np.testing.assert_allclose(np.array(gdpo(groups, WEIGHTS)), np.array(theirs), rtol=1e-9, atol=1e-9)
