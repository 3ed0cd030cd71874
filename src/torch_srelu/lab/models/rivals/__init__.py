"""The whole systems that the paper compares with: units, networks and how they are trained.

Values that their papers do not give, or give for other inputs, are ours; each file says which.
"""
