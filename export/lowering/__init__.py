"""From attention that is understood to the kernels of a target.

operands   where the graph holds queries, keys, values and the result with their heads side by side
canonical  every attention becomes one node of the optimizer's own
asked      what such a node asks of a kernel; facts: what is known of its rows and lengths, and what a user grants
simplify   its mask made simpler where the rows that count don't tell the difference
targets    what a model is made for; kernels: what runs there, and why one doesn't take a site
probes     what the installed ONNX Runtime loads; costs: what decides among kernels that take a site
lower      the best kernel of each site; emit, masks, heads and numbers write it and its mask into the graph
"""
