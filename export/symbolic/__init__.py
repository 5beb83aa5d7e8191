"""Read masks back from any ONNX graph, by meaning: each value is evaluated as a function of its own indices.

terms        scalar terms and their simplification
interpreter  terms and symbolic shapes of a graph's values
rules        what each operator does to indices and shapes
algebra      from a boolean term to an expression of the mask algebra
additive     from a float term that is added to scores to masks and biases
scores       from a Softmax up to the product of queries and keys
operators    attention that is already an operator
sites        every attention of a graph
"""
