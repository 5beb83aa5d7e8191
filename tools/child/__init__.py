"""ONNX Runtime in a process of its own: a model that crashes, hangs or takes all memory ends that process alone.

session    the Session of the runtime, whose model is in such a process
twin       where the CPU has no kernel for an operator: executable twins, in this process
inference  the parent's side: what ONNX Runtime's own session offers, asked of the process
serve      the child's side
wire       arrays and what is said of them, as bytes
process    a process that is started, waited for and ended, and how it ended
place      where contracts run a file: in processes of its own, on a device
"""

from __future__ import annotations

# The longest that one run may take unless something else is asked for, in seconds: nothing that is validated does.
TIMEOUT = 300.0
