"""The whole systems that the paper compares with: their units, poolings and networks.

Values that their papers do not give, or give for other inputs, are ours; each file says which, and
networks.toml for networks of one layer after the other.
"""
