"""From attention that is understood to the kernels of a target.

operands   where the graph holds queries, keys, values and the result with their heads side by side
canonical  every attention becomes one node of the optimizer's own
"""
