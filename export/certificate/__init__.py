"""What a file carries of its own check, so that anyone can repeat it: ``maskport.certificate``. Needs no torch.

drawn_from   what the cases are drawn from: roles, axes, and the values that inputs take
drawn_case   one case: how to draw it again, and what came out
fingerprint  a few numbers that stand for the valid rows of an output
digest       one number that stands for what a model computes
claim        a certificate that was read: anything may stand in a file
"""
