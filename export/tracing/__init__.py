"""PyTorch's exporter, called so that names, axes and the module itself survive it.

example_inputs  the example by name, and whether its sizes leave the dynamic axes free
module_state    evaluation mode and the like, for the export only
capture         the call
failures        a failure told in at most ten lines
traces          stack traces without the folders of a machine
quiet           what the libraries say, collected
"""
