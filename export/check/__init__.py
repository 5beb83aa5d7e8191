"""The check before `export` returns: the file against the module, at sizes and masks that are not the example's.

subject, eager, backend, arrays
              the two, and how each is run
check         the order of it all; `lengths` adds sizes past windows, `perturb` and `relations` say what may change
compare_case  one case: shapes, element types, values; `blame` finds the node and the module's line
effects       every declared input still has an effect
batch         rows of a batch don't read each other
pad_safe      whether a batch may be padded longer
checked       what was found, for people and for the file's metadata
"""
