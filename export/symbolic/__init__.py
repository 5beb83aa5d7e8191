"""Read masks back from any ONNX graph, by meaning: each value is evaluated as a function of its own indices.

terms        scalar terms and their simplification
interpreter  terms and symbolic shapes of a graph's values
rules        what each operator does to indices and shapes
algebra      from a boolean term to an expression of the mask algebra
additive     from a float term that is added to scores to masks and biases
scores       from a Softmax up to the product of queries and keys
weights      from a Softmax down to the product with the values
named        the mask of a site: what has no leaf is a value of the graph, by its name
operators    attention that is already an operator
sites        every attention of a graph
cut          the part of a graph that computes a site's weights, run by onnx's reference evaluator
contrib      the same of ONNX Runtime's own operators, run by it
verify       check a site by running the graph
"""
