"""What a file's certificate says was done, done again.

replay   draws its cases again and compares, with fingerprints or with the reference
table    what is claimed beside what was found
"""
