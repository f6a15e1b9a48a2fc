"""Runs the cases of one file, all in this process: importing torch is what takes the time.

``python run.py copies`` prints a line of JSON for each case: its name, and what went wrong.
"""

import importlib
import json
import sys
import traceback
import warnings

import torch
from torch._inductor.cudagraph_trees import MarkStepBox

import cudaguard
from cudaguard.errors import CudaGuardWarning

# A case that expects a warning catches it.
warnings.filterwarnings("error", category=CudaGuardWarning)
torch.set_num_threads(1)
cases = importlib.import_module(sys.argv[1])
for name in [name for name in vars(cases) if name.startswith("case_")]:
    wrong = ""
    compile = torch.compile
    try:
        getattr(cases, name)()
        # What no case and nothing of ours may do: that is when results are overwritten.
        assert MarkStepBox.mark_step_counter == 0, "a step was marked"
        assert torch.compile is compile, "torch.compile was not put back"
        assert cudaguard.status().mode == "off", "the case has left a guard"
    except Exception:
        wrong = traceback.format_exc()
    torch._dynamo.reset()
    print(json.dumps([name, wrong]), flush=True)
