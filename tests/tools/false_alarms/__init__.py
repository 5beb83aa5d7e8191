"""Untouched graphs under many seeds: whatever fails there is a false alarm.

    python -m tests.tools.false_alarms --seeds 100 --out alarms.jsonl

graphs    the reference models and the zoo, each with several sets of weights
trial     one graph under one seed: parity with its module, and the contracts
table     what all seeds gave, by graph
__main__  the command; what is in its file already is not run again
"""
