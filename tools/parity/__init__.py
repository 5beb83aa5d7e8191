"""A candidate beside its reference: which cases, what they are run on, what is noted, what limits say.

plan             which cases: each pair of sizes, paddings and structures meets
reference        a file or a module, with its layout, masks and lengths; `eager_reference` is a module
in_float64       a file that computes in float64, as the module's copy does
comparison       one case after the other, and what they come to
metrics          relative differences, angles, units in the last place
rounding         limits: measured in float64, or by depth and width of the graph
repro            the smallest case that still fails, written out with a script
"""
