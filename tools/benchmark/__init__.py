"""``maskport bench``: a model beside what others make of it, side by side in one run.

subjects, texts         what is measured: the built-in subjects, any module, any file; real text
points, batches         at which sizes and how much of them is padding; the inputs
candidates              the table of what is compared, and of the settings that each gets
prepare                 the files that the optimizers make, each by a process of its own
engines, worker         how each runs: one process per candidate, that answers one request at a time
process                 the parent's side of it
compare                 which candidate is right on valid rows, for which padding
bench                   everything in turn, interleaved
result, machine         what was found, on which hardware
table, plot             and how it is shown
"""
