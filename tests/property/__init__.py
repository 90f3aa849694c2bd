"""The protocol and the promises under random faults, in memory."""

import sys
from pathlib import Path

# So that a replay works as it is printed, with any interpreter that has what the core needs.
_SOURCE = str(Path(__file__).resolve().parents[2] / "src")
if _SOURCE not in sys.path:
    sys.path.insert(0, _SOURCE)
