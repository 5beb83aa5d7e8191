"""Where a candidate leaves its reference: the first value that the reference doesn't compute.

first_difference  on the failing case that shows it best
localise          back from the outputs to the first value without a twin, its attention and line of source
value_twins       whether two values hold the same numbers, at real tokens, whatever their axes
module_values     all that a module computes, with submodule and line
"""
