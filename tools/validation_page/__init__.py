"""A validation as one page: no script, no network, light and dark, narrow and wide.

draw       what the command measures for it
page       verdict first, then grid, attention, contracts, the smallest failure, limits and versions
grid       cases as batch x length x padding
failure    the smallest failing case
style      its rules
"""
