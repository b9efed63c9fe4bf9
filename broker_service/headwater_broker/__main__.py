"""`python -m headwater_broker --config FILE [--set key=value ...]`: one broker process."""

from __future__ import annotations

import gc
from importlib import import_module

COMMAND = "headwater_broker.app.main"

if __name__ == "__main__":
    # Hundreds of modules are imported and none is garbage: looking for some costs a tenth of the
    # start. `InterpreterTuning.loaded` turns the collector on.
    gc.disable()
    import_module(COMMAND).main()
