"""Expected attention beside what is seen of it in a file, as pictures.

expected    which tokens a row may depend on, by the masks of all layers
attention   which it does depend on: measured by changing tokens
weights     the weights of an attention, where the graph computes them
cells       what a picture says of a pair of tokens
picture     the pictures
"""
